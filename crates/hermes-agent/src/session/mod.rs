//! One actor per conversation: commands in, events out.
//!
//! ```text
//! let (handle, mut events) = Session::start(deps, SessionStart::New(new))?;
//! handle.send(AgentCommand::Submit("hello".into())).await?;
//! while let Some(event) = events.recv().await { … }
//! ```
//!
//! A message submitted while a turn runs waits in a queue that the reader of events can see.
//! A steering text that came too late for its turn is submitted as the next turn by the session
//! itself, unless the turn was interrupted; the turn's summary names it in both cases.
//!
//! Closing a session does not mark it as ended in the store: whether a conversation is over is
//! for the front end to say.

mod actor;
mod approvals;
mod command_queue;
pub(crate) mod deps;
mod naming;
mod questions;
pub(crate) mod steer;

use std::sync::Arc;

use hermes_core::event::AgentCommand;
use hermes_core::ids::SessionId;
use hermes_core::model::RouteError;
use hermes_core::task;
use tokio::sync::mpsc;

pub use deps::{
    PromptContext, PromptSource, PromptText, RepositoryPart, RepositoryReader, SessionDeps,
    SessionStart, ToolSource,
};

use crate::events::{self, EventReceiver};
use crate::weight::ConversationMemory;

/// Commands that may wait.
const COMMAND_QUEUE_CAPACITY: usize = 64;

/// Starts sessions.
pub struct Session;

impl Session {
    /// Starts the actor of a conversation. Fails when there is no model to talk to.
    pub fn start(
        deps: SessionDeps,
        start: SessionStart,
    ) -> Result<(SessionHandle, EventReceiver), RouteError> {
        let (commands, inbox) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
        let (sink, receiver) = events::channel(events::EVENT_QUEUE_CAPACITY);
        let actor = actor::SessionActor::new(Arc::new(deps), start, inbox, sink)?;
        let id = actor.id().clone();
        let weight = actor.weight();
        let name = format!("session {id}");
        let _detached = task::spawn(&name, Box::new(actor).run());
        let handle = SessionHandle {
            id,
            commands,
            weight,
        };
        Ok((handle, receiver))
    }
}

/// Speaks to a session. Cheap to clone; when the last one is gone, the session ends after its
/// turn.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    id: SessionId,
    commands: mpsc::Sender<AgentCommand>,
    weight: ConversationMemory,
}

impl SessionHandle {
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// What the session holds in memory, about.
    pub fn bytes(&self) -> usize {
        self.weight.bytes()
    }

    pub async fn send(&self, command: AgentCommand) -> Result<(), SessionClosed> {
        self.commands.send(command).await.map_err(|_| SessionClosed)
    }

    /// Waits until the session is over. Its events must be read, or their receiver dropped, meanwhile.
    pub async fn closed(&self) {
        self.commands.closed().await;
    }

    /// A handle that does not keep the session open.
    pub fn downgrade(&self) -> WeakSession {
        WeakSession {
            id: self.id.clone(),
            commands: self.commands.downgrade(),
            weight: self.weight.clone(),
        }
    }

    /// Sends without waiting. `Ok(Some)`: the inbox is full, so the command was not sent.
    pub fn try_send(&self, command: AgentCommand) -> Result<Option<AgentCommand>, SessionClosed> {
        match self.commands.try_send(command) {
            Ok(()) => Ok(None),
            Err(mpsc::error::TrySendError::Full(command)) => Ok(Some(command)),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(SessionClosed),
        }
    }
}

/// A weak handle: valid while another handle keeps the session open.
#[derive(Clone, Debug)]
pub struct WeakSession {
    id: SessionId,
    commands: mpsc::WeakSender<AgentCommand>,
    weight: ConversationMemory,
}

impl WeakSession {
    /// `None`: the session is over.
    pub fn upgrade(&self) -> Option<SessionHandle> {
        let commands = self.commands.upgrade()?;
        (!commands.is_closed()).then(|| SessionHandle {
            id: self.id.clone(),
            commands,
            weight: self.weight.clone(),
        })
    }
}

/// The session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session is closed")]
pub struct SessionClosed;
