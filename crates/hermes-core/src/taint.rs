//! Whether a conversation has read untrusted content, and the consequences.
//!
//! A page or a mail can contain instructions. What the agent does about them in the conversation is
//! visible to the person; what it writes into memory, skills or the schedule takes effect later,
//! unseen. So after reading the first untrusted text, such a write needs a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::approval::{ApprovalRequest, Presence, Verdict};
use crate::tool::ToolContext;

/// Set in the result of a program that could have fetched its output, so that a stored conversation
/// still records it.
pub const FROM_OUTSIDE: &str = "from_outside";

/// Whether a stored result may be untrusted.
pub fn says_from_outside(result: &str) -> bool {
    result.contains("\"from_outside\":true")
}

/// Whether the results of a tool, by its name in a stored conversation, come from outside: the tool itself may no longer
/// be there. Short results are not fenced.
pub fn brings_outside(tool: &str) -> bool {
    tool.starts_with("mcp_") || ["web_search", "web_extract", "vision_analyze"].contains(&tool)
}

const MARKED: u8 = 1;
const WAIVED: u8 = 2;

/// Whether a conversation has read untrusted content (web, MCP, mail). Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Taint(Arc<AtomicU8>);

impl Taint {
    pub fn mark(&self) {
        self.0.fetch_or(MARKED, Ordering::Relaxed);
    }

    pub fn is_marked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & MARKED != 0
    }

    /// The person allows lasting changes in this conversation in spite of what it read.
    pub fn waive(&self) {
        self.0.fetch_or(WAIVED, Ordering::Relaxed);
    }

    fn asks(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (MARKED | WAIVED) == MARKED
    }
}

/// Whether a lasting change may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lasting {
    Allowed,
    /// The person declined.
    Denied {
        why: String,
    },
    /// It needs a confirmation, and no person is present.
    Unattended {
        why: String,
    },
}

impl ToolContext {
    /// Asks the person about a change that outlasts the conversation, if necessary. `action`
    /// describes the exact change.
    pub async fn lasting(&self, tool: &str, action: &str) -> Lasting {
        if !self.taint.asks() {
            return Lasting::Allowed;
        }
        if self.approver.presence() == Presence::Nobody {
            return Lasting::Unattended {
                why: format!(
                    "{tool}: this conversation has read material from outside, so a lasting change needs the person, and nobody is here to ask"
                ),
            };
        }
        let request = ApprovalRequest {
            kind: crate::approval::ApprovalKind::Action,
            id: format!("{}:lasting", self.call_id),
            tool: tool.to_owned(),
            action: action.to_owned(),
            reasons: vec![
                "this conversation has read material from outside, and the change outlasts it"
                    .to_owned(),
            ],
            rule: None,
            posture: None,
        };
        match self.approver.decide(request).await {
            Verdict::Once => Lasting::Allowed,
            Verdict::Session | Verdict::Always(_) => {
                self.taint.waive();
                Lasting::Allowed
            }
            Verdict::Deny { why } => {
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                Lasting::Denied {
                    why: format!(
                        "{tool}: the person did not allow this change{why}. Do not try it in another way"
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_result_still_tells_where_it_comes_from() {
        let result = serde_json::json!({ "output": "x", FROM_OUTSIDE: true });
        assert!(says_from_outside(&result.to_string()));
        let result = serde_json::json!({ "output": "x" });
        assert!(!says_from_outside(&result.to_string()));
    }
}
