//! What a front end adds to its conversations beyond the home's configuration.

use std::sync::{Arc, Mutex, PoisonError};

use crate::home::{FedToolset, ToolFeed};
use hermes_core::BoxFuture;
use hermes_core::command_host::CommandHost;
use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::open_texts::OpenTexts;
use hermes_core::tool::Tool;
use hermes_mcp::Toolbox;
use hermes_store::Store;

use super::commands::CommandEnvironment;
use super::mcp::{McpServers, SHORT_SERVER_WAIT, ServerWait, fed_toolset};
use super::parts_cache::HomeParts;
use crate::context::AppContext;
use crate::failure::Failure;

/// Wraps each tool that acts; the flag tells whether it acts on this machine.
pub(crate) type ToolGuard = Arc<dyn Fn(Arc<dyn Tool>, bool) -> Arc<dyn Tool> + Send + Sync>;

/// What a front end is to its conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontEndKind {
    /// A person at a terminal.
    #[default]
    Terminal,
    /// An editor: files outside the directory that it was opened in are never changed unasked.
    Editor,
    /// A chat platform.
    Chat,
    /// Programs ask, over the API or webhooks. Their conversations are not named.
    Service,
    /// A job: it creates no jobs, asks no one and is not named.
    Job,
}

impl FrontEndKind {
    /// Whether conversations get a title.
    pub(super) fn names_conversations(self) -> bool {
        !matches!(self, Self::Service | Self::Job)
    }
}

/// Kept across the sessions of a conversation.
#[derive(Clone, Default)]
pub struct FrontEndSettings {
    pub kind: FrontEndKind,
    pub guard: Option<ToolGuard>,
    /// MCP servers of this conversation alone.
    pub servers: Option<Arc<Toolbox>>,
    /// Tools of this front end only.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Text after the system prompt that describes the chat.
    pub system: Option<String>,
    /// What the platform says about how answers are shown.
    pub prompt_hint: Option<&'static str>,
    /// The platform's id of the user.
    pub user_id: Option<String>,
    /// No one can be asked.
    pub unattended: bool,
    /// The chat, as stored in jobs that are created in it.
    pub origin: Option<serde_json::Value>,
    /// An editor that has files open.
    pub open_texts: Option<Arc<dyn OpenTexts>>,
    /// An editor that runs commands in its terminals.
    pub command_host: Option<Arc<dyn CommandHost>>,
    /// There will be only one answer.
    pub is_single: bool,
    /// Built once for all conversations of the process.
    pub parts: Option<Arc<HomeParts>>,
}

/// A session whose id is chosen by the caller.
pub struct NamedSession {
    /// A stored session is continued; otherwise a new one gets this id.
    pub id: SessionId,
    /// Nothing is stored under it.
    pub fresh: bool,
    /// Earlier messages, unless the session is stored.
    pub history: Vec<Message>,
}

/// Resources shared by the conversations of a process.
#[derive(Clone, Default)]
pub struct SharedResources {
    /// `None`: each conversation opens its own.
    pub store: Option<Store>,
    pub mcp: Option<Arc<McpServers>>,
    pub commands: Option<Arc<CommandEnvironment>>,
}

impl SharedResources {
    /// The shared database, else a new connection.
    pub(super) fn store(self, cx: &AppContext) -> Result<Store, Failure> {
        match self.store {
            Some(store) => Ok(store),
            None => super::open_store(cx),
        }
    }

    /// Stops the servers and releases other resources.
    pub async fn close(self) {
        if let Some(mcp) = self.mcp {
            mcp.shutdown().await;
        }
        if let Some(commands) = self.commands {
            commands.close().await;
        }
        if let Some(store) = self.store
            && let Err(error) = store.close().await
        {
            tracing::warn!("closing the database: {error}");
        }
    }
}

impl FrontEndSettings {
    /// The platform whose toolsets apply.
    pub(super) fn platform<'a>(&self, source: &'a str) -> &'a str {
        match self.kind {
            FrontEndKind::Terminal | FrontEndKind::Editor => "cli",
            FrontEndKind::Chat | FrontEndKind::Service | FrontEndKind::Job => source,
        }
    }

    pub(super) fn guarded(
        &self,
        tools: Vec<Arc<dyn Tool>>,
        commands: Option<&CommandEnvironment>,
    ) -> Vec<Arc<dyn Tool>> {
        let tools: Vec<Arc<dyn Tool>> = tools.into_iter().chain(self.tools.clone()).collect();
        let Some(guard) = &self.guard else {
            return tools;
        };
        let local = commands.is_some_and(|commands| commands.sandbox.is_some());
        tools.into_iter().map(|tool| guard(tool, local)).collect()
    }

    /// The servers of the home and those of the conversation. `waits`: how long its turns wait for
    /// those that are starting.
    pub(super) fn feed_tools(
        &self,
        home: Option<Arc<McpServers>>,
        waits: ServerWait,
    ) -> Option<Arc<dyn ToolFeed>> {
        let own = self.servers.clone();
        (home.is_some() || own.is_some()).then(|| {
            Arc::new(CombinedServers {
                home,
                own,
                waits,
                last: Mutex::default(),
            }) as Arc<dyn ToolFeed>
        })
    }
}

type ToolList = Arc<[Arc<dyn Tool>]>;

/// The servers of the home combined with those of the conversation.
struct CombinedServers {
    home: Option<Arc<McpServers>>,
    own: Option<Arc<Toolbox>>,
    waits: ServerWait,
    /// The last tools of both, and their combination.
    last: Mutex<Option<(ToolList, ToolList, ToolList)>>,
}

impl ToolFeed for CombinedServers {
    fn toolsets(&self) -> Vec<FedToolset> {
        let home = self.home.iter().flat_map(|home| home.toolsets());
        let own = self.own.iter().flat_map(|own| own.names());
        home.chain(own.map(|name| fed_toolset(&name))).collect()
    }

    fn tools(&self) -> ToolList {
        let home = self.home.as_ref().map(|home| home.tools());
        let own = self.own.as_ref().map(|own| own.tools());
        let (home, own) = match (home, own) {
            (Some(home), Some(own)) => (home, own),
            (one, other) => return one.or(other).unwrap_or_else(|| Arc::from([])),
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((a, b, both)) if same(a, &home) && same(b, &own) => Arc::clone(both),
            _ => {
                let both: ToolList = home.iter().chain(own.iter()).cloned().collect();
                *last = Some((home, own, Arc::clone(&both)));
                both
            }
        }
    }

    fn prepare(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let home = async {
                match &self.home {
                    Some(home) => home.prepare(self.waits).await,
                    None => Vec::new(),
                }
            };
            let own = async {
                match &self.own {
                    Some(own) => own.await_turn(SHORT_SERVER_WAIT, SHORT_SERVER_WAIT).await,
                    None => Vec::new(),
                }
            };
            let (mut notices, others) = tokio::join!(home, own);
            notices.extend(others);
            notices
        })
    }
}

/// Identical, or both empty: without servers the home returns a new empty list each time.
fn same(one: &ToolList, other: &ToolList) -> bool {
    Arc::ptr_eq(one, other) || (one.is_empty() && other.is_empty())
}
