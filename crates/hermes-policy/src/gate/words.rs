//! Messages to the model about commands that may not run.

use hermes_core::approval::{DENIED_BY_USER, NO_WAY_ROUND};

use crate::assessment::{Assessment, FindingWeight};

pub(super) const CANCELLED: &str =
    "The turn was stopped while the command waited for approval. It did not run.";

pub(super) const TIMED_OUT: &str = "Nobody answered whether this command may run, so it did not run. \
    Do not try it again, not in other words and not through another tool. Go on without it, or say what is needed and stop.";

pub(super) fn forbidden(assessment: &Assessment) -> String {
    let why: Vec<&str> = assessment
        .findings
        .iter()
        .filter(|finding| finding.weight == FindingWeight::Forbidden)
        .map(|finding| finding.why.as_str())
        .collect();
    format!(
        "Refused for good: {}. No setting and no approval lets this run. {NO_WAY_ROUND} \
         If it is really needed, the person has to do it in a terminal of their own.",
        why.join("; ")
    )
}

pub(super) fn denied_by(pattern: &str) -> String {
    format!(
        "Refused: the user never lets commands run that match {pattern:?} (approvals.deny). {NO_WAY_ROUND}"
    )
}

pub(super) fn unattended(assessment: &Assessment) -> String {
    format!(
        "Refused: this command needs approval ({}), and nobody is here to give it. {NO_WAY_ROUND} \
         Go on without it, or finish by saying which command the user would have to approve. \
         (For the user: `hermes approvals add` stores a rule for a command, approvals.unattended sets what headless runs may do.)",
        assessment.reasons().join("; ")
    )
}

pub(super) fn denied(why: Option<&str>) -> String {
    let why = why
        .map(str::trim)
        .filter(|why| !why.is_empty())
        .map(|why| format!(" Their reason: \"{why}\"."))
        .unwrap_or_default();
    format!("{DENIED_BY_USER}{why} {NO_WAY_ROUND} Ask the user how to go on, or go on without it.")
}

#[cfg(test)]
mod tests {
    use hermes_core::approval::denial_for_people;

    use super::denied;

    #[test]
    fn people_read_what_happened_and_no_orders_to_the_model() {
        let shown = |text: &str| denial_for_people(text).into_owned();
        assert_eq!(shown(&denied(None)), "You denied this command.");
        assert_eq!(
            shown(&denied(Some("not today"))),
            "You denied this command. Your reason: \"not today\"."
        );
        assert_eq!(
            shown(super::TIMED_OUT),
            "Nobody answered whether this command may run, so it did not run."
        );
        assert_eq!(shown("exit 1"), "exit 1");
    }

    #[test]
    fn a_reason_is_told_apart_from_our_words() {
        let text = denied(Some(" not today "));
        assert!(
            text.contains("did not run. Their reason: \"not today\". Do not"),
            "{text}"
        );
        assert!(denied(None).contains("did not run. Do not"));
    }
}
