//! The conversations of an editor: opened, listed, ended.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_acp::{CommandInfo, Listed, Mode, Opening, Program, Wanted};
use hermes_agent::front::{NEWS, Opened, Refusal, WISHES};
use hermes_agent::weight::Weight;
use hermes_core::{BoxFuture, task};
use hermes_store::db::{ListFilter, SessionOrder};
use tokio::sync::mpsc;

use super::{commands, servers};
use crate::args::TurnArgs;
use crate::chat::conversation::{Conversation, Surface};
use crate::chat::replay;
use crate::chat::seat::{Leaving, Manners, Seat, past, refusal};
use crate::commands::Context;
use crate::exit::Failure;
use crate::output::Hold;
use crate::wiring::place::{Guard, Place, Shared};
use crate::wiring::{self, Chat};

/// What its sessions are recorded as, in the original's word.
const SOURCE: &str = "acp";
/// Sessions that are nobody's conversations.
const NOT_LISTED: [&str; 2] = ["subagent", "cron"];

/// The program as an editor meets it.
pub(super) struct Editor {
    cx: Context,
    /// Made with the first conversation.
    shared: Mutex<Option<Shared>>,
}

impl Editor {
    pub(super) fn new(cx: Context) -> Self {
        Self {
            cx,
            shared: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Shared>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self, args: &TurnArgs, cx: &Context) -> Result<Shared, Failure> {
        let mut shared = self.lock();
        if let Some(shared) = &*shared {
            return Ok(shared.clone());
        }
        let made = wiring::shared_of(args, cx)?;
        *shared = Some(made.clone());
        Ok(made)
    }

    /// When no conversation is open any more.
    pub(super) async fn close(&self) {
        let shared = self.lock().take();
        if let Some(shared) = shared {
            shared.close().await;
        }
    }

    async fn open_one(&self, opening: Opening) -> Result<Opened, Failure> {
        // What was set up meanwhile counts.
        let cx = self.cx.reread()?;
        if let Some(id) = &opening.resume {
            self.known(id).await?;
        }
        let args = TurnArgs {
            resume: opening.resume.clone(),
            // The editor's project, wherever the session was before.
            no_restore_cwd: true,
            cwd: Some(opening.cwd.clone()),
            source: Some(SOURCE.to_owned()),
            ..TurnArgs::default()
        };
        let shared = self.shared(&args, &cx)?;
        let taken = shared.mcp.as_ref().and_then(|mcp| mcp.toolbox());
        let taken = taken.map(|toolbox| toolbox.names()).unwrap_or_default();
        let (toolbox, problems) = servers::start(opening.servers, &taken, &cx);
        let edits = opening.edits.clone();
        if let Some(commands) = &shared.commands
            && commands.gate.config().mode == hermes_policy::ApprovalMode::Off
        {
            // The person has switched questions off for the whole home.
            edits.set_mode(Mode::DontAsk);
        }
        let open_texts = edits.open_texts();
        let guard: Guard = Arc::new(move |tool, local| edits.guard(tool, local));
        let place = Place {
            guard: Some(guard),
            servers: toolbox.clone(),
            only_workspace: true,
            open_texts,
            ..Place::default()
        };
        let chat = Chat::open_beside(&args, &cx, wiring::Mode::Repl, (place, shared)).await;
        let (conversation, later) = match chat {
            Ok(opened) => Conversation::around(args, &cx, Surface::Line, opened).await?,
            Err(failure) => {
                if let Some(toolbox) = toolbox {
                    toolbox.shutdown(wiring::mcp::STOPPING).await;
                }
                return Err(failure);
            }
        };
        let chat = &conversation.chat;
        let past = if chat.used {
            past(replay::entries(&chat.store, &chat.id).await?)
        } else {
            Vec::new()
        };
        let (wishes, receiver) = mpsc::channel(WISHES);
        let (sender, news) = mpsc::channel(NEWS);
        let weight = Weight::default();
        let opened = Opened {
            id: chat.id.to_string(),
            title: conversation.title.clone(),
            cost: conversation.cost,
            past,
            remarks: Hold::take().into_iter().chain(problems).collect(),
            weight: weight.clone(),
            wishes,
            news,
        };
        let manners = Manners {
            refused: commands::refused,
            help: commands::help,
        };
        let seat = Seat::new(
            (conversation, later),
            (receiver, sender, weight),
            toolbox,
            (manners, Leaving::End),
        );
        task::spawn("acp conversation", Box::new(seat).run());
        Ok(opened)
    }

    /// Editors name sessions by their ids, whole: no beginnings, no titles.
    async fn known(&self, id: &str) -> Result<(), Failure> {
        let missing = || Failure::not_found(format!("no session {id}"));
        if !self.cx.home.state_db().exists() {
            return Err(missing());
        }
        let store = wiring::open_for_reading(&self.cx)?;
        let found = store.get(id).await.map_err(|_| missing())?;
        if found.text("id") == Some(id) {
            Ok(())
        } else {
            Err(missing())
        }
    }

    async fn listed(&self, wanted: Wanted) -> Result<Vec<Listed>, Failure> {
        if !self.cx.home.state_db().exists() {
            return Ok(Vec::new());
        }
        let filter = ListFilter {
            exclude_sources: NOT_LISTED.map(str::to_owned).to_vec(),
            cwd: wanted.cwd.map(|cwd| cwd.display().to_string()),
            min_messages: 1,
            order: SessionOrder::LastActive,
            limit: wanted.limit,
            offset: wanted.offset,
            ..ListFilter::default()
        };
        let rows = wiring::open_for_reading(&self.cx)?.list(filter).await?;
        let elsewhere = self.cx.home.root();
        let row = |row: hermes_store::db::SessionSummary| Listed {
            // Begun where there are no directories: a chat platform.
            cwd: row.cwd.map_or_else(|| elsewhere.to_owned(), PathBuf::from),
            title: row
                .title
                .or(Some(row.preview).filter(|text| !text.is_empty())),
            updated_at: moment(row.last_active),
            id: row.id,
        };
        Ok(rows.into_iter().map(row).collect())
    }
}

impl Program for Editor {
    fn ready(&self) -> Result<(), Refusal> {
        let ready = self.cx.reread().and_then(|cx| {
            let args = TurnArgs::default();
            wiring::require_model(&args, &cx)
        });
        ready.map_err(|failure| refusal(&failure))
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened, Refusal>> {
        Box::pin(async {
            let opened = self.open_one(opening).await;
            opened.map_err(|failure| refusal(&failure))
        })
    }

    fn list(&self, wanted: Wanted) -> BoxFuture<'_, Result<Vec<Listed>, Refusal>> {
        Box::pin(async {
            let listed = self.listed(wanted).await;
            listed.map_err(|failure| refusal(&failure))
        })
    }

    fn commands(&self) -> Vec<CommandInfo> {
        commands::list()
    }
}

fn moment(seconds: f64) -> Option<String> {
    let millis = (seconds.is_finite() && seconds > 0.0).then_some((seconds * 1000.0) as i64)?;
    let moment = chrono::DateTime::from_timestamp_millis(millis)?;
    Some(moment.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}
