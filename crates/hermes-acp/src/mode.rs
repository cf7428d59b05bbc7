//! The approval modes that an editor offers.

use agent_client_protocol::v1::schema::{SessionMode, SessionModeState};
use hermes_core::approval::{ApprovalKind, ApprovalRequest, Verdict};
use hermes_core::tool_traits::{ToolKind, tool_traits};

/// What needs approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditorMode {
    /// Every file change and everything dangerous.
    #[default]
    Default,
    /// Everything dangerous; files of the workspace are changed without approval.
    AcceptEdits,
    /// Nothing. Commands that would need approval run; everything else that would need approval is
    /// refused. Forbidden actions never get here.
    DontAsk,
}

impl EditorMode {
    pub const ALL: [Self; 3] = [Self::Default, Self::AcceptEdits, Self::DontAsk];

    pub fn id(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "accept_edits",
            Self::DontAsk => "dont_ask",
        }
    }

    pub fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.id() == id)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Default => "Ask",
            Self::AcceptEdits => "Accept edits",
            Self::DontAsk => "Don't ask",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Default => "Asks before every change of a file and before dangerous commands",
            Self::AcceptEdits => {
                "Changes files of the workspace without asking; asks about everything else"
            }
            Self::DontAsk => {
                "Asks nothing: commands run, files outside the workspace are not changed, and what \
                 is forbidden stays forbidden"
            }
        }
    }

    /// The automatic decision; `None`: the person is asked.
    pub fn verdict(self, request: &ApprovalRequest) -> Option<Verdict> {
        match self {
            Self::Default | Self::AcceptEdits => None,
            Self::DontAsk if tool_traits(&request.tool).kind == ToolKind::Execute => {
                // A command that the sandbox stopped would run without limits: not unasked.
                let confined = request.kind == ApprovalKind::Action;
                Some(if confined {
                    Verdict::Once
                } else {
                    refused(
                        "this mode asks no questions, and nothing leaves the sandbox without approval",
                    )
                })
            }
            Self::DontAsk => Some(refused(
                "this mode asks no questions, but this needs the person; the mode can be changed \
                 in the editor",
            )),
        }
    }

    /// For the editor.
    pub fn state(self) -> SessionModeState {
        let modes = Self::ALL.map(|mode| {
            SessionMode::new(mode.id(), mode.name()).description(mode.about().to_owned())
        });
        SessionModeState::new(self.id(), modes.to_vec())
    }
}

fn refused(why: &str) -> Verdict {
    Verdict::Deny {
        why: Some(why.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tool: &str, kind: ApprovalKind) -> ApprovalRequest {
        ApprovalRequest {
            // The id of a call is the model's: it decides nothing.
            id: "c1-outside".into(),
            kind,
            tool: tool.into(),
            action: "x".into(),
            reasons: Vec::new(),
            rule: None,
            posture: None,
        }
    }

    #[test]
    fn only_the_mode_that_asks_nothing_answers_by_itself() {
        for mode in [EditorMode::Default, EditorMode::AcceptEdits] {
            assert_eq!(
                mode.verdict(&request("terminal", ApprovalKind::Action)),
                None
            );
            assert_eq!(
                mode.verdict(&request("write_file", ApprovalKind::Action)),
                None
            );
        }
        let mode = EditorMode::DontAsk;
        assert_eq!(
            mode.verdict(&request("terminal", ApprovalKind::Action)),
            Some(Verdict::Once)
        );
        // Outside the workspace, out of the sandbox, lasting: refused without a question.
        for (tool, kind) in [
            ("write_file", ApprovalKind::Action),
            ("terminal", ApprovalKind::OutsideSandbox),
            ("memory", ApprovalKind::Action),
        ] {
            assert!(
                matches!(
                    mode.verdict(&request(tool, kind)),
                    Some(Verdict::Deny { why: Some(_) })
                ),
                "{tool} {kind:?}"
            );
        }
    }

    #[test]
    fn ids_name_modes() {
        for mode in EditorMode::ALL {
            assert_eq!(EditorMode::of(mode.id()), Some(mode));
        }
        assert_eq!(EditorMode::of("yolo"), None);
    }
}
