//! The host of the gateway's conversations: chats, jobs, webhooks, the API.

use std::path::PathBuf;
use std::sync::Arc;

use hermes_core::slash::{COMMANDS, CommandDef, Parsed, Verb, parse};
use hermes_core::{BoxFuture, task};
use hermes_models::Overrides;
use hermes_store::Store;

use super::scripts::HomeScripts;
use super::{CommandInfo, ConversationHost, HomeScript, OpeningRequest};
use crate::context::{AppContext, HostProcess};
use crate::conversation::hosted::{self, ClosePolicy, CommandRules, HostedOptions, host_error};
use crate::conversation::{Conversation, Surface};
use crate::failure::Failure;
use crate::front::{HostError, OpenedConversation};
use crate::home::ToolsetChoice;
use crate::home::store_tools::RunInline;
use crate::options::TurnOptions;
use crate::wiring::commands::CommandEnvironment;
use crate::wiring::front_end::{FrontEndSettings, NamedSession, SharedResources};
use crate::wiring::mcp::McpServers;
use crate::wiring::parts_cache::{HomeParts, PartsCache};
use crate::wiring::unattended::{CommandLine, CommandOutput};
use crate::wiring::{self, ConversationMode, OpenRequest, OpenSession};

/// Values of `terminal.cwd` that mean the directory in which a person started the program.
const CURRENT_DIR_VALUES: [&str; 4] = ["", ".", "auto", "cwd"];

/// Everything that the conversations of the gateway share.
pub struct GatewayConversations {
    cache: PartsCache,
    resources: SharedResources,
    scripts: HomeScripts,
}

impl GatewayConversations {
    /// MCP servers start in the background.
    pub fn new(cx: &AppContext, store: Store) -> Result<Self, Failure> {
        let cache = PartsCache::new(cx)?;
        let parts = cache.current();
        let (cx, config) = (&parts.cx, &parts.config);
        // Each platform chooses its tools; the servers are shared.
        let choice = ToolsetChoice::named(&["all".to_owned()]);
        let mcp = McpServers::for_chat(cx, config, &choice, Overrides::default(), true);
        let judge = wiring::router(cx, config, Overrides::default());
        let commands = CommandEnvironment::for_chat(cx, config, judge);
        if let Some(commands) = commands.clone() {
            task::spawn("background processes", async move {
                commands.adopt().await;
            });
        }
        let resources = SharedResources {
            store: Some(store),
            mcp,
            commands,
        };
        Ok(Self {
            scripts: HomeScripts::new(cx, resources.commands.clone()),
            cache,
            resources,
        })
    }

    /// Runs the commands in skills of routes, where that is switched on.
    pub fn inline_shell(&self) -> Option<RunInline> {
        let parts = self.cache.current();
        let commands = self.resources.commands.as_ref();
        wiring::skills::inline_shell(&parts.cx, &parts.config, commands)
    }

    /// Sets where waiting jobs are displayed.
    pub fn show_progress(&self, process: Arc<dyn HostProcess>) {
        if let Some(mcp) = &self.resources.mcp {
            mcp.show_progress(process);
        }
    }

    /// When no conversation is open any more. Keeps the database open: others write until the end.
    pub async fn close(&self) {
        let resources = SharedResources {
            store: None,
            ..self.resources.clone()
        };
        resources.close().await;
    }

    async fn open_one(&self, opening: OpeningRequest) -> Result<OpenedConversation, Failure> {
        let parts = self.cache.current();
        let options = TurnOptions {
            model: opening.model,
            provider: opening.provider,
            toolsets: opening.toolsets,
            skills: opening.skills,
            no_restore_cwd: opening.cwd.is_some(),
            cwd: Some(opening.cwd.unwrap_or_else(|| default_working_dir(&parts))),
            source: Some(opening.source.clone()),
            ..TurnOptions::default()
        };
        let front_end = FrontEndSettings {
            kind: opening.kind,
            tools: opening.tools,
            system: opening.system,
            prompt_hint: opening.prompt_hint,
            user_id: opening.user_id,
            unattended: opening.unattended,
            origin: opening.origin,
            is_single: opening.single,
            parts: Some(Arc::clone(&parts)),
            ..FrontEndSettings::default()
        };
        let session = NamedSession {
            id: opening.id.as_str().into(),
            fresh: opening.fresh,
            history: opening.history,
        };
        let opened = OpenSession::open(OpenRequest {
            config: Some(Arc::clone(&parts.config)),
            front_end,
            resources: Some(self.resources.clone()),
            session: Some(session),
            ..OpenRequest::new(&options, &parts.cx, ConversationMode::Repl)
        })
        .await?;
        let surface = Surface::Platform;
        let (conversation, later) =
            Conversation::with_session(options, &parts.cx, surface, opened).await?;
        let on_close = if opening.keep_open {
            ClosePolicy::Keep
        } else {
            ClosePolicy::End
        };
        let options = HostedOptions {
            rules: RULES,
            on_close,
            servers: None,
            past: Vec::new(),
            remarks: Vec::new(),
        };
        Ok(hosted::open(conversation, later, options))
    }
}

/// The default working directory of tools: as configured, else the user's home directory.
pub(super) fn default_working_dir(parts: &HomeParts) -> PathBuf {
    let home = &parts.cx.home;
    let configured = parts.config.terminal.cwd.trim();
    let named = if CURRENT_DIR_VALUES.contains(&configured) {
        parts.cx.env.get("MESSAGING_CWD").unwrap_or_default().trim()
    } else {
        configured
    };
    let dir = match named {
        "" => home.expand_user("~"),
        named => home.expand_user(named),
    };
    if dir.is_dir() {
        dir
    } else {
        home.root().to_owned()
    }
}

impl ConversationHost for GatewayConversations {
    fn ready(&self) -> Result<(), HostError> {
        let parts = self.cache.current();
        let route = wiring::router(&parts.cx, &parts.config, Overrides::default()).describe();
        route
            .map(drop)
            .map_err(|error| host_error(&Failure::from(error)))
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

    fn script(&self, script: HomeScript) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        Box::pin(async {
            let parts = self.cache.current();
            let ran = self.scripts.run(script, &parts).await;
            ran.map_err(|failure| host_error(&failure))
        })
    }

    fn run_line(&self, line: CommandLine) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        Box::pin(async {
            let parts = self.cache.current();
            let ran = self.scripts.run_line(line, &parts).await;
            ran.map_err(|failure| host_error(&failure))
        })
    }

    fn commands(&self) -> Vec<CommandInfo> {
        let offered = COMMANDS.iter().filter(|command| command.surfaces.platform);
        offered.map(offer).collect()
    }
}

fn offer(command: &CommandDef) -> CommandInfo {
    CommandInfo {
        name: command.name.to_owned(),
        about: command.summary.to_owned(),
        args: (!command.args.is_empty()).then(|| command.args.to_owned()),
    }
}

const RULES: CommandRules = CommandRules { refused, help };

/// The reply to commands that need a terminal.
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
