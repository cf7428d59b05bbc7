//! The list of events that replaces a summary if no model can write one.

use std::fmt::Write as _;
use std::sync::Arc;

use hermes_core::message::Message;
use hermes_core::redact;

use super::plan::SummaryPlan;
use super::prune;

/// Longest digest in characters.
const LIMIT: usize = 8_000;
/// Share of it that an earlier summary may take.
const MAX_PREVIOUS_SUMMARY: usize = LIMIT * 4 / 10;

/// The newest entries that fit, in order, after what is known from before.
pub(super) fn digest(plan: &SummaryPlan) -> String {
    let limit = LIMIT.min(plan.budget as usize * 3).max(200);
    let mut out = String::from(
        "No model was there to summarise; this is a plain list. The whole text can be found with \
         session_search.\n",
    );
    if let Some(previous) = &plan.previous {
        out.push_str("\n## From before\n");
        out.push_str(&prune::middle_cut(
            previous,
            MAX_PREVIOUS_SUMMARY.min(limit / 2),
        ));
        out.push('\n');
    }
    out.push_str("\n## What happened\n");
    let available = limit.saturating_sub(out.chars().count());
    let entries = entries(&plan.middle);
    let mut used_chars = 0;
    let mut first = entries.len();
    while first > 0 {
        used_chars += entries[first - 1].chars().count() + 1;
        if used_chars + 40 > available {
            break;
        }
        first -= 1;
    }
    if first > 0 {
        let _ = writeln!(out, "({first} earlier entries left out)");
    }
    out.push_str(&entries[first..].join("\n"));
    redact::secrets(&out).into_owned()
}

fn entries(rows: &[Arc<Message>]) -> Vec<String> {
    let calls = prune::calls(rows);
    let mut entries = Vec::new();
    for row in rows {
        match row.as_ref() {
            Message::User(user) => {
                let words = prune::one_line(&user.content.text(), 300);
                entries.push(format!("- The user wrote: {words}"));
            }
            Message::Assistant(assistant) => {
                if !assistant.text.trim().is_empty() {
                    let words = prune::one_line(&assistant.text, 200);
                    entries.push(format!("- You wrote: {words}"));
                }
            }
            Message::Tool(tool) => entries.push(format!("- {}", prune::digest(tool, &calls))),
        }
    }
    entries
}
