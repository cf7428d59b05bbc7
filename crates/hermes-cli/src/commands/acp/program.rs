//! The conversations of an editor: opened, listed, ended.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_app::hosted::{ClosePolicy, CommandRules, HostedOptions, host_error};
use hermes_app::{
    AppContext, CommandInfo, Conversation, ConversationHost, HostError, ListQuery,
    ListedConversation, OpenedConversation, OpeningRequest, Surface, TurnOptions, hosted, replay,
};
use hermes_core::BoxFuture;
use hermes_store::{ListFilter, SessionOrder};

use super::{commands, servers};
use crate::commands::Context;
use crate::exit::Failure;
use crate::output::StderrHold;
use crate::wiring::{self, ConversationMode, OpenRequest, OpenSession};
use crate::wiring::{FrontEndKind, FrontEndSettings, SharedResources};

/// The recorded source of its sessions, in the original's terms.
const SOURCE: &str = "acp";
/// Sources whose sessions are not conversations.
const NOT_LISTED: [&str; 2] = ["subagent", "cron"];

/// The host of editor conversations.
pub(super) struct EditorHost {
    cx: Context,
    /// Created with the first conversation.
    shared: Mutex<Option<SharedResources>>,
}

impl EditorHost {
    pub(super) fn new(cx: Context) -> Self {
        Self {
            cx,
            shared: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<SharedResources>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resources(
        &self,
        options: &TurnOptions,
        cx: &AppContext,
    ) -> Result<SharedResources, Failure> {
        let mut shared = self.lock();
        if let Some(shared) = &*shared {
            return Ok(shared.clone());
        }
        let made = wiring::shared_resources(options, cx)?;
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

    async fn open_one(&self, opening: OpeningRequest) -> Result<OpenedConversation, Failure> {
        // Configuration changes since the start count.
        let cx = self.cx.app.reread()?;
        if let Some(id) = &opening.resume {
            self.known(id).await?;
        }
        let options = TurnOptions {
            resume: opening.resume.clone(),
            // The editor's project, wherever the session was before.
            no_restore_cwd: true,
            cwd: opening.cwd,
            source: Some(SOURCE.to_owned()),
            ..TurnOptions::default()
        };
        let resources = self.resources(&options, &cx)?;
        let used_names = resources.mcp.as_ref().and_then(|mcp| mcp.toolbox());
        let used_names = used_names
            .map(|toolbox| toolbox.names())
            .unwrap_or_default();
        let (toolbox, problems) = servers::start(opening.servers, &used_names, &cx);
        let front_end = FrontEndSettings {
            guard: opening.guard,
            servers: toolbox.clone(),
            kind: FrontEndKind::Editor,
            open_texts: opening.open_texts,
            command_host: opening.command_host,
            ..FrontEndSettings::default()
        };
        let chat = OpenSession::open(OpenRequest {
            front_end,
            resources: Some(resources),
            ..OpenRequest::new(&options, &cx, ConversationMode::Repl)
        })
        .await;
        let (conversation, later) = match chat {
            Ok(opened) => Conversation::with_session(options, &cx, Surface::Line, opened).await?,
            Err(failure) => {
                if let Some(toolbox) = toolbox {
                    toolbox.shutdown(wiring::mcp::STOP_TIMEOUT).await;
                }
                return Err(failure);
            }
        };
        let chat = &conversation.chat;
        let past = if chat.used {
            replay::entries(&chat.store, &chat.id).await?
        } else {
            Vec::new()
        };
        let options = HostedOptions {
            rules: CommandRules {
                refused: commands::refused,
                help: commands::help,
            },
            on_close: ClosePolicy::End,
            servers: toolbox,
            past,
            remarks: StderrHold::take().into_iter().chain(problems).collect(),
        };
        Ok(hosted::open(conversation, later, options))
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

    async fn listed(&self, query: ListQuery) -> Result<Vec<ListedConversation>, Failure> {
        if !self.cx.home.state_db().exists() {
            return Ok(Vec::new());
        }
        let filter = ListFilter {
            exclude_sources: NOT_LISTED.map(str::to_owned).to_vec(),
            cwd: query.cwd.map(|cwd| cwd.display().to_string()),
            min_messages: 1,
            order: SessionOrder::LastActive,
            limit: query.limit,
            offset: query.offset,
            ..ListFilter::default()
        };
        let rows = wiring::open_for_reading(&self.cx)?.list(filter).await?;
        let elsewhere = self.cx.home.root();
        let row = |row: hermes_store::SessionSummary| ListedConversation {
            // Started on a chat platform, where there are no directories.
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

impl ConversationHost for EditorHost {
    fn ready(&self) -> Result<(), HostError> {
        let ready = self.cx.reread().and_then(|cx| {
            let args = TurnOptions::default();
            wiring::require_model(&args, &cx)
        });
        ready.map_err(|failure| host_error(&failure))
    }

    fn open(
        &self,
        opening: OpeningRequest,
    ) -> BoxFuture<'_, Result<OpenedConversation, HostError>> {
        Box::pin(async {
            let opened = self.open_one(opening).await;
            opened.map_err(|failure| host_error(&failure))
        })
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Vec<ListedConversation>, HostError>> {
        Box::pin(async {
            let listed = self.listed(query).await;
            listed.map_err(|failure| host_error(&failure))
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
