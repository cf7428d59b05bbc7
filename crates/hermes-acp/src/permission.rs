//! Permission requests in editors.

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use hermes_core::approval::{ApprovalRequest, Verdict};

use crate::calls;
use crate::edits::{self, ProposedChange};

const ONCE: &str = "allow_once";
const SESSION: &str = "allow_session";
const ALWAYS: &str = "allow_always";
const REJECT: &str = "reject_once";

/// The request for the editor. `call`: the call that it belongs to.
pub(crate) fn request(
    session: &str,
    call: &str,
    request: &ApprovalRequest,
    changes: &[ProposedChange],
) -> RequestPermissionRequest {
    let mut why = request.reasons.join("\n");
    if let Some(posture) = &request.posture {
        why.push_str("\n\n");
        why.push_str(posture);
    }
    let mut content = calls::diffs(changes);
    let text = if edits::is_edit(&request.tool) && !changes.is_empty() {
        why
    } else {
        // In full: what is approved must be what was read.
        format!("{}\n\n{why}", calls::fenced(&harmless(&request.action)))
    };
    content.push(calls::block(text));
    let fields = ToolCallUpdateFields::new()
        .title(title(&request.action))
        .kind(calls::kind(&request.tool))
        .status(ToolCallStatus::Pending)
        .content(content);
    RequestPermissionRequest::new(
        session.to_owned(),
        ToolCallUpdate::new(call.to_owned(), fields),
        options(request),
    )
}

fn title(action: &str) -> String {
    calls::shorten(&harmless(action))
}

/// Characters that cannot be seen, or turn the direction of others, are written out.
fn harmless(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        let hidden = matches!(
            character,
            '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{ad}'
                | '\u{e0000}'..='\u{e007f}'
        );
        let control = character.is_control() && !matches!(character, '\n' | '\t');
        if hidden || control {
            plain.extend(character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}

fn options(request: &ApprovalRequest) -> Vec<PermissionOption> {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let mut options = vec![PermissionOption::new(ONCE, "Allow once", AllowOnce)];
    let session = if is_question_of_mode(request) {
        "Allow all edits in the workspace"
    } else {
        "Allow for this session"
    };
    options.push(PermissionOption::new(SESSION, session, AllowAlways));
    if let Some(rule) = &request.rule {
        let name = format!("Always allow: {}", harmless(&rule.0));
        options.push(PermissionOption::new(ALWAYS, name, AllowAlways));
    }
    options.push(PermissionOption::new(REJECT, "Reject", RejectOnce));
    options
}

/// Whether approval is needed because of the mode, not because of danger.
fn is_question_of_mode(request: &ApprovalRequest) -> bool {
    edits::is_edit(&request.tool) && request.action.starts_with(edits::ACTION)
}

/// The decision for the person's choice. Unknown choices mean no.
pub(crate) fn verdict(outcome: &RequestPermissionOutcome, request: &ApprovalRequest) -> Verdict {
    let denied = |why: Option<&str>| Verdict::Deny {
        why: why.map(str::to_owned),
    };
    let RequestPermissionOutcome::Selected(selected) = outcome else {
        return denied(Some("the question was dismissed"));
    };
    match (&*selected.option_id.0, &request.rule) {
        (ONCE, _) => Verdict::Once,
        (SESSION, _) => Verdict::Session,
        (ALWAYS, Some(rule)) => Verdict::Always(rule.clone()),
        _ => denied(None),
    }
}

/// The call of a question: its id is prefixed with that of the call.
pub(crate) fn call_of<'a>(
    request: &str,
    running: impl Iterator<Item = &'a String>,
) -> Option<&'a String> {
    running
        .filter(|id| {
            request
                .strip_prefix(id.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '-']))
        })
        .max_by_key(|id| id.len())
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{SelectedPermissionOutcome, ToolCallContent};
    use hermes_core::approval::Rule;
    use pretty_assertions::assert_eq;

    use super::*;

    fn asked(rule: Option<&str>) -> ApprovalRequest {
        ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: "c1:0".into(),
            tool: "terminal".into(),
            action: "rm -rf \u{202e}build".into(),
            reasons: vec!["it deletes".into()],
            rule: rule.map(|rule| Rule(rule.into())),
            posture: Some("confined".into()),
        }
    }

    fn chosen(option: &str, request: &ApprovalRequest) -> Verdict {
        let selected = SelectedPermissionOutcome::new(option.to_owned());
        verdict(&RequestPermissionOutcome::Selected(selected), request)
    }

    #[test]
    fn the_rule_is_shown_and_offered_only_where_there_is_one() {
        let with = request("s", "c1", &asked(Some("rm build")), &[]);
        let names: Vec<&str> = with.options.iter().map(|o| o.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "Allow once",
                "Allow for this session",
                "Always allow: rm build",
                "Reject"
            ]
        );
        assert_eq!(
            request("s", "c1", &asked(None), &[]).options.len(),
            3,
            "no rule, no always"
        );
        assert_eq!(
            chosen(ALWAYS, &asked(Some("rm build"))),
            Verdict::Always(Rule("rm build".into()))
        );
        // An option that was not offered allows nothing.
        assert!(matches!(chosen(ALWAYS, &asked(None)), Verdict::Deny { .. }));
    }

    #[test]
    fn what_is_approved_can_be_read() {
        let shown = request("s", "c1", &asked(None), &[]);
        let text = format!("{:?}", shown.tool_call.fields.content);
        assert!(text.contains("u{202e}build") && !text.contains('\u{202e}'));
        assert!(text.contains("it deletes") && text.contains("confined"));
        assert!(!shown.tool_call.fields.title.unwrap().contains('\u{202e}'));
    }

    #[test]
    fn everything_but_a_clear_yes_is_a_no() {
        let request = asked(None);
        for option in [REJECT, "", "yes", "ALLOW_ONCE"] {
            assert!(
                matches!(chosen(option, &request), Verdict::Deny { .. }),
                "{option}"
            );
        }
        assert!(matches!(
            verdict(&RequestPermissionOutcome::Cancelled, &request),
            Verdict::Deny { why: Some(_) }
        ));
        assert_eq!(chosen(ONCE, &request), Verdict::Once);
        assert_eq!(chosen(SESSION, &request), Verdict::Session);
    }

    #[test]
    fn a_change_is_asked_about_with_its_diff() {
        let edit = ApprovalRequest {
            tool: "write_file".into(),
            action: "change /w/a".into(),
            ..asked(None)
        };
        let change = ProposedChange {
            path: "/w/a".into(),
            old: None,
            new: "x".into(),
        };
        let shown = request("s", "c1", &edit, &[change]);
        assert!(matches!(
            shown.tool_call.fields.content.unwrap()[0],
            ToolCallContent::Diff(_)
        ));
        assert_eq!(shown.options[1].name, "Allow all edits in the workspace");
    }

    #[test]
    fn questions_find_their_calls() {
        let running = ["c1".to_owned(), "c12".to_owned()];
        let of = |id: &str| call_of(id, running.iter()).cloned();
        assert_eq!(of("c12:3").as_deref(), Some("c12"));
        assert_eq!(of("c1-outside").as_deref(), Some("c1"));
        assert_eq!(of("c1").as_deref(), Some("c1"));
        assert_eq!(of("c123"), None);
    }
}
