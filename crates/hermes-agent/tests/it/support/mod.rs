//! A model, a store and tools that do what the test says.

pub(crate) mod model;
pub(crate) mod render;
pub(crate) mod store;
pub(crate) mod tool;

use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{
    AgentSettings, EventReceiver, PromptSource, Session, SessionDeps, SessionHandle, SessionStart,
    ToolSource,
};
use hermes_core::approval::Approver;
use hermes_core::event::{AgentCommand, AgentEvent, TurnSummary};
use hermes_core::ids::SessionId;
use hermes_core::model::ModelRouter;
use hermes_core::store::{NewSession, SessionStore};
use hermes_core::tool::{Registry, Tool};
use hermes_testkit::clock::{FixedRng, ManualClock};
use tokio_util::sync::CancellationToken;

pub(crate) use model::{Reply, ScriptedClient, ScriptedRouter};
pub(crate) use store::MemoryStore;
pub(crate) use tool::FakeTool;

/// What a test session is made of.
pub(crate) struct Setup {
    pub(crate) router: Arc<ScriptedRouter>,
    /// In place of `router`.
    pub(crate) other_router: Option<Arc<dyn ModelRouter>>,
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// In place of `tools`.
    pub(crate) source: Option<Arc<dyn ToolSource>>,
    pub(crate) prompt: Arc<dyn PromptSource>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) settings: AgentSettings,
    pub(crate) start: Option<SessionStart>,
    pub(crate) cancel: CancellationToken,
}

impl Setup {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::with_router(ScriptedRouter::new(ScriptedClient::new("main", replies)))
    }

    pub(crate) fn with_router(router: ScriptedRouter) -> Self {
        Self {
            router: Arc::new(router),
            other_router: None,
            store: Arc::new(MemoryStore::default()),
            tools: Vec::new(),
            source: None,
            prompt: Arc::new("You are a test.".to_owned()),
            approver: None,
            settings: AgentSettings {
                titles: false,
                ..AgentSettings::default()
            },
            start: None,
            cancel: CancellationToken::new(),
        }
    }

    pub(crate) fn tool(mut self, tool: FakeTool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    pub(crate) fn store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = store;
        self
    }

    pub(crate) fn settings(mut self, change: impl FnOnce(&mut AgentSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn start(self) -> Running {
        let deps = SessionDeps {
            router: self.other_router.unwrap_or_else(|| self.router.clone()),
            store: self.store.clone(),
            tools: self
                .source
                .unwrap_or_else(|| Arc::new(Registry::new(self.tools))),
            prompt: self.prompt,
            approver: self.approver,
            asker: None,
            repositories: None,
            settings: self.settings,
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(FixedRng(0)),
            cancel: self.cancel,
        };
        let start = self.start.unwrap_or_else(|| {
            SessionStart::New(Box::new(NewSession {
                id: Some(SessionId::from("s1")),
                source: "test".into(),
                cwd: Some("/nowhere".into()),
                ..NewSession::default()
            }))
        });
        let (handle, events) = Session::start(deps, start).unwrap();
        Running {
            handle,
            events,
            router: self.router,
            seen: Vec::new(),
        }
    }
}

pub(crate) struct Running {
    pub(crate) handle: SessionHandle,
    pub(crate) events: EventReceiver,
    pub(crate) router: Arc<ScriptedRouter>,
    pub(crate) seen: Vec<AgentEvent>,
}

impl Running {
    pub(crate) async fn send(&self, command: AgentCommand) {
        self.handle.send(command).await.unwrap();
    }

    /// Submits a message and reads events to the end of the turn.
    pub(crate) async fn turn(&mut self, text: &str) -> TurnSummary {
        self.send(AgentCommand::Submit(text.into())).await;
        self.finish().await
    }

    /// Reads events to the end of a turn.
    pub(crate) async fn finish(&mut self) -> TurnSummary {
        self.until(|event| match event {
            AgentEvent::TurnFinished { summary } => Some(summary.clone()),
            _ => None,
        })
        .await
    }

    /// Reads events until one is what is waited for.
    pub(crate) async fn until<T>(&mut self, wanted: impl Fn(&AgentEvent) -> Option<T>) -> T {
        // Far beyond anything a test waits for: a hang fails instead of hanging.
        let limit = Duration::from_hours(24 * 30);
        let search = async {
            loop {
                let next = self.events.recv().await.expect("the session goes on");
                let found = wanted(&next.event);
                self.seen.push(next.event);
                if let Some(found) = found {
                    return found;
                }
            }
        };
        tokio::time::timeout(limit, search)
            .await
            .expect("the event comes")
    }

    /// Closes the session and gives all events.
    pub(crate) async fn close(mut self) -> Vec<AgentEvent> {
        self.send(AgentCommand::Close).await;
        while let Some(next) = self.events.recv().await {
            self.seen.push(next.event);
        }
        self.seen
    }

    pub(crate) fn notices(&self) -> Vec<&str> {
        self.seen
            .iter()
            .filter_map(|event| match event {
                AgentEvent::Notice { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }
}
