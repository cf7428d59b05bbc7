//! The state of a chat, with the data of each state in its variant.
//!
//! A single enum would have to be a product: a command may run alongside a turn, and a conversation
//! may start a turn by itself while the next one is being prepared. So each part has its own state.

use std::collections::VecDeque;

use hermes_store::delivery::StoredQuestion;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::TurnJob;
use super::begin::TurnPreparation;
use super::earlier::HeldAnswer;
use super::events::ChatTurn;
use super::slash::ChatCommandRun;
use super::switch::SessionSwitch;
use crate::conversation_pool::PooledConversation;
use crate::turn::message::InboxMessage;

/// Whether a turn runs.
#[derive(Default)]
pub(super) enum ChatActivity {
    #[default]
    Idle,
    /// The next turn, or the conversation for a command, is being prepared.
    Preparing(TurnPreparation),
    Running {
        turn: Box<ChatTurn>,
        /// What was being prepared when the conversation started a turn by itself.
        next: Option<TurnPreparation>,
    },
}

impl ChatActivity {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    pub(super) fn turn(&self) -> Option<&ChatTurn> {
        match self {
            Self::Running { turn, .. } => Some(turn),
            Self::Idle | Self::Preparing(_) => None,
        }
    }

    pub(super) fn turn_mut(&mut self) -> Option<&mut ChatTurn> {
        match self {
            Self::Running { turn, .. } => Some(turn),
            Self::Idle | Self::Preparing(_) => None,
        }
    }

    pub(super) fn preparing(&self) -> Option<&TurnPreparation> {
        match self {
            Self::Preparing(preparing) => Some(preparing),
            Self::Running { next, .. } => next.as_ref(),
            Self::Idle => None,
        }
    }

    pub(super) fn preparing_mut(&mut self) -> Option<&mut TurnPreparation> {
        match self {
            Self::Preparing(preparing) => Some(preparing),
            Self::Running { next, .. } => next.as_mut(),
            Self::Idle => None,
        }
    }

    pub(super) fn run(&mut self, turn: ChatTurn) {
        let next = self.take_preparing();
        let turn = Box::new(turn);
        *self = Self::Running { turn, next };
    }

    pub(super) fn take_turn(&mut self) -> Option<ChatTurn> {
        match std::mem::take(self) {
            Self::Running { turn, next } => {
                *self = next.map_or(Self::Idle, Self::Preparing);
                Some(*turn)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    pub(super) fn take_preparing(&mut self) -> Option<TurnPreparation> {
        match std::mem::take(self) {
            Self::Idle => None,
            Self::Preparing(preparing) => Some(preparing),
            Self::Running { turn, next } => {
                *self = Self::Running { turn, next: None };
                next
            }
        }
    }
}

/// The conversation that is open for the chat.
pub(super) struct OpenConversation {
    pub(super) pooled: PooledConversation,
    /// Another holder waits for it.
    pub(super) wanted: bool,
    /// It stays open until then although nothing happens.
    pub(super) linger: Option<(Instant, OwnedSemaphorePermit)>,
    /// The turn that it starts by itself consists of dropped messages.
    pub(super) stop_next_turn: bool,
}

impl OpenConversation {
    pub(super) fn new(pooled: PooledConversation) -> Self {
        Self {
            pooled,
            wanted: false,
            linger: None,
            stop_next_turn: false,
        }
    }

    /// Whether it can be released, unless it is busy.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let linger = self.linger.as_ref();
        self.wanted || linger.is_none_or(|(until, _)| *until <= now)
    }
}

/// The read position in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InboxPosition {
    /// Unfinished work of earlier processes was not checked yet.
    Unread,
    /// Messages up to this one were read.
    UpTo(i64),
    /// The same, but the queue is full: messages after `left` are read again later.
    Behind { cursor: i64, left: i64 },
}

impl InboxPosition {
    pub(super) fn cursor(self) -> i64 {
        match self {
            Self::Unread => 0,
            Self::UpTo(cursor) | Self::Behind { cursor, .. } => cursor,
        }
    }

    pub(super) fn is_behind(self) -> bool {
        matches!(self, Self::Behind { .. })
    }

    /// A message was read.
    pub(super) fn advance(&mut self, id: i64) {
        match self {
            Self::Unread => {}
            Self::UpTo(cursor) | Self::Behind { cursor, .. } => *cursor = (*cursor).max(id),
        }
    }

    /// Messages after this one stay in the database, unless earlier ones do already.
    pub(super) fn fall_behind(&mut self, left: i64) {
        if let Self::UpTo(cursor) = *self {
            *self = Self::Behind { cursor, left };
        }
    }

    /// Nothing that was left is read again.
    pub(super) fn take_left(&mut self) -> Option<i64> {
        let Self::Behind { cursor, left } = *self else {
            return None;
        };
        *self = Self::UpTo(cursor);
        Some(left)
    }
}

/// Messages waiting for a turn.
#[derive(Default)]
pub(super) struct ChatQueue {
    pub(super) jobs: VecDeque<TurnJob>,
    /// The last job may be extended until then.
    pub(super) grows_until: Option<Instant>,
}

/// Commands that need the conversation.
#[derive(Default)]
pub(super) struct ChatCommands {
    /// Lines for the program that wait for the conversation.
    pub(super) waiting: VecDeque<InboxMessage>,
    pub(super) running: Option<ChatCommandRun>,
    /// A pending switch to another conversation, performed when nothing runs.
    pub(super) switch: Option<(InboxMessage, SessionSwitch)>,
}

/// The remains of interrupted turns.
#[derive(Default)]
pub(super) struct CutTurns {
    /// Groups of messages whose progress could not be read from the store.
    pub(super) unsure: Vec<Vec<InboxMessage>>,
    /// Their questions that no turn has asked again yet.
    pub(super) questions: Vec<StoredQuestion>,
    /// Messages that answer them; also stored in the database.
    pub(super) held: Vec<HeldAnswer>,
}
