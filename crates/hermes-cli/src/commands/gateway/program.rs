//! The program behind the gateway: opens its conversations.

use std::path::PathBuf;
use std::sync::Arc;

use hermes_agent::front::{NEWS, Opened, Refusal, WISHES};
use hermes_agent::home::ToolChoice;
use hermes_agent::tools::RunInline;
use hermes_agent::weight::Weight;
use hermes_core::slash::{COMMANDS, CommandDef, Parsed, Verb, parse};
use hermes_core::{BoxFuture, task};
use hermes_gateway::program::{Line, Opening, Program, Ran, Script};
use hermes_models::router::Overrides;
use hermes_platforms::Offer;
use hermes_store::Store;
use tokio::sync::mpsc;

use super::scripts::Scripts;
use crate::args::TurnArgs;
use crate::chat::conversation::{Conversation, Surface};
use crate::chat::seat::{Leaving, Manners, Seat, refusal};
use crate::commands::Context;
use crate::exit::Failure;
use crate::output::Output;
use crate::wiring::commands::Commands;
use crate::wiring::mcp::Mcp;
use crate::wiring::place::{Beginning, Place, Shared};
use crate::wiring::stock::{Stock, Stockroom};
use crate::wiring::{self, Chat};

/// Sources whose sessions nobody looks for by their names.
const UNTITLED: [&str; 3] = ["api_server", "webhook", "cron"];
/// Values of `terminal.cwd` that mean the directory in which a person started the program.
const NOWHERE: [&str; 4] = ["", ".", "auto", "cwd"];

/// Everything that the conversations of the gateway share.
pub(crate) struct Conversations {
    room: Stockroom,
    shared: Shared,
    scripts: Scripts,
}

impl Conversations {
    /// MCP servers start in the background.
    pub(crate) fn new(cx: &Context, store: Store) -> Result<Self, Failure> {
        let room = Stockroom::new(cx)?;
        let stock = room.take();
        let (cx, config) = (&stock.cx, &stock.config);
        // Each platform chooses its tools; the servers are there for all of them.
        let choice = ToolChoice::named(&["all".to_owned()]);
        let mcp = Mcp::for_chat(cx, config, &choice, Overrides::default(), true);
        let judge = wiring::router(cx, config, Overrides::default());
        let commands = Commands::for_chat(cx, config, judge);
        if let Some(commands) = commands.clone() {
            task::spawn("background processes", async move {
                commands.adopt().await;
            });
        }
        let shared = Shared {
            store: Some(store),
            mcp,
            commands,
        };
        Ok(Self {
            scripts: Scripts::new(cx, shared.commands.clone()),
            room,
            shared,
        })
    }

    /// Runs the commands in skills of routes, where that is switched on.
    pub(crate) fn inline_shell(&self) -> Option<RunInline> {
        let stock = self.room.take();
        let commands = self.shared.commands.as_ref();
        wiring::skills::inline_shell(&stock.cx, &stock.config, commands)
    }

    /// Shows there what jobs wait for.
    pub(crate) fn show_progress(&self, out: Output) {
        if let Some(mcp) = &self.shared.mcp {
            mcp.show_progress(out);
        }
    }

    /// When no conversation is open any more. The database stays open: others write to the last.
    pub(crate) async fn close(&self) {
        let shared = Shared {
            store: None,
            ..self.shared.clone()
        };
        shared.close().await;
    }

    async fn open_one(&self, opening: Opening) -> Result<Opened, Failure> {
        let stock = self.room.take();
        let args = TurnArgs {
            model: opening.model,
            provider: opening.provider,
            toolsets: opening.toolsets,
            skills: opening.skills,
            no_restore_cwd: opening.cwd.is_some(),
            cwd: Some(opening.cwd.unwrap_or_else(|| workplace(&stock))),
            source: Some(opening.source.clone()),
            ..TurnArgs::default()
        };
        let place = Place {
            tools: opening.tools,
            system: opening.system,
            user_id: opening.user_id,
            is_platform: true,
            unattended: opening.unattended,
            origin: opening.origin,
            is_job: opening.source == "cron",
            is_single: opening.single,
            untitled: UNTITLED.contains(&opening.source.as_str()),
            stock: Some(Arc::clone(&stock)),
            ..Place::default()
        };
        let beginning = Beginning {
            id: opening.id.as_str().into(),
            fresh: opening.fresh,
            history: opening.history,
        };
        let beside = (place, self.shared.clone());
        let opened = Chat::open_from(&args, &stock, beside, beginning).await?;
        let surface = Surface::Platform;
        let (conversation, later) = Conversation::around(args, &stock.cx, surface, opened).await?;
        let (wishes, receiver) = mpsc::channel(WISHES);
        let (sender, news) = mpsc::channel(NEWS);
        let weight = Weight::default();
        let opened = Opened {
            id: conversation.chat.id.to_string(),
            title: conversation.title.clone(),
            cost: conversation.cost,
            past: Vec::new(),
            remarks: Vec::new(),
            weight: weight.clone(),
            wishes,
            news,
        };
        let leaving = if opening.keep_open {
            Leaving::Keep
        } else {
            Leaving::End
        };
        let seat = Seat::new(
            (conversation, later),
            (receiver, sender, weight),
            None,
            (MANNERS, leaving),
        );
        task::spawn("conversation", Box::new(seat).run());
        Ok(opened)
    }
}

/// Where the tools of a conversation work that names no place: as configured, else the person's
/// own directory.
pub(super) fn workplace(stock: &Stock) -> PathBuf {
    let home = &stock.cx.home;
    let configured = stock.config.terminal.cwd.trim();
    let named = if NOWHERE.contains(&configured) {
        stock.cx.env.get("MESSAGING_CWD").unwrap_or_default().trim()
    } else {
        configured
    };
    let place = match named {
        "" => home.expand_user("~"),
        named => home.expand_user(named),
    };
    if place.is_dir() {
        place
    } else {
        home.root().to_owned()
    }
}

impl Program for Conversations {
    fn ready(&self) -> Result<(), Refusal> {
        let stock = self.room.take();
        let route = wiring::router(&stock.cx, &stock.config, Overrides::default()).describe();
        route
            .map(drop)
            .map_err(|error| refusal(&Failure::from(error)))
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened, Refusal>> {
        Box::pin(async {
            let opened = self.open_one(opening).await;
            opened.map_err(|failure| refusal(&failure))
        })
    }

    fn script(&self, script: Script) -> BoxFuture<'_, Result<Ran, Refusal>> {
        Box::pin(async {
            let stock = self.room.take();
            let ran = self.scripts.run(script, &stock).await;
            ran.map_err(|failure| refusal(&failure))
        })
    }

    fn run_line(&self, line: Line) -> BoxFuture<'_, Result<Ran, Refusal>> {
        Box::pin(async {
            let stock = self.room.take();
            let ran = self.scripts.run_line(line, &stock).await;
            ran.map_err(|failure| refusal(&failure))
        })
    }

    fn commands(&self) -> Vec<Offer> {
        let offered = COMMANDS.iter().filter(|command| command.surfaces.platform);
        offered.map(offer).collect()
    }
}

fn offer(command: &CommandDef) -> Offer {
    Offer {
        name: command.name.to_owned(),
        about: command.summary.to_owned(),
        args: (!command.args.is_empty()).then(|| command.args.to_owned()),
    }
}

const MANNERS: Manners = Manners { refused, help };

/// What is said to a command that needs a terminal.
fn refused(line: &str) -> Option<String> {
    match parse(line) {
        Parsed::Command(command, _) if !command.surfaces.platform => Some(format!(
            "/{} is for a terminal; /help lists the commands here",
            command.name
        )),
        _ => None,
    }
}

/// `/help`: the commands of a terminal would mislead.
fn help(line: &str) -> Option<String> {
    let Parsed::Command(command, "") = parse(line) else {
        return None;
    };
    if command.verb != Verb::Help {
        return None;
    }
    let line = |command: &CommandDef| match command.args {
        "" => format!("/{} – {}", command.name, command.summary),
        args => format!("/{} {args} – {}", command.name, command.summary),
    };
    let offered = COMMANDS.iter().filter(|command| command.surfaces.platform);
    let lines: Vec<String> = offered.map(line).collect();
    Some(lines.join("\n"))
}
