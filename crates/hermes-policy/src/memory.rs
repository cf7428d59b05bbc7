//! What was allowed for a session.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use hermes_core::ids::SessionId;

/// Sessions that are remembered, and commands of each.
const SESSIONS: usize = 256;
const COMMANDS: usize = 256;

/// Commands that a person allowed for a session. The oldest is forgotten first.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Allowed>);

#[derive(Debug, Default)]
struct Allowed {
    sessions: HashMap<SessionId, VecDeque<String>>,
    order: VecDeque<SessionId>,
}

impl Memory {
    pub(crate) fn allow(&self, session: &SessionId, command: &str) {
        let mut allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !allowed.sessions.contains_key(session) {
            if allowed.order.len() >= SESSIONS
                && let Some(oldest) = allowed.order.pop_front()
            {
                allowed.sessions.remove(&oldest);
            }
            allowed.order.push_back(session.clone());
        }
        let commands = allowed.sessions.entry(session.clone()).or_default();
        if commands.iter().any(|known| known == command) {
            return;
        }
        if commands.len() >= COMMANDS {
            commands.pop_front();
        }
        commands.push_back(command.to_owned());
    }

    pub(crate) fn allows(&self, session: &SessionId, command: &str) -> bool {
        let allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allowed
            .sessions
            .get(session)
            .is_some_and(|commands| commands.iter().any(|known| known == command))
    }
}
