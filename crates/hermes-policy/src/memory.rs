//! Approvals for a session.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use hermes_core::ids::SessionId;

/// Maximum number of remembered sessions, and of commands of each.
const MAX_SESSIONS: usize = 256;
const MAX_COMMANDS: usize = 256;

/// Commands that the user allowed for a session. The oldest is removed first.
#[derive(Debug, Default)]
pub(crate) struct SessionApprovals(Mutex<ApprovedCommands>);

#[derive(Debug, Default)]
struct ApprovedCommands {
    sessions: HashMap<SessionId, VecDeque<String>>,
    order: VecDeque<SessionId>,
}

impl SessionApprovals {
    pub(crate) fn allow(&self, session: &SessionId, command: &str) {
        let mut allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !allowed.sessions.contains_key(session) {
            if allowed.order.len() >= MAX_SESSIONS
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
        if commands.len() >= MAX_COMMANDS {
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
