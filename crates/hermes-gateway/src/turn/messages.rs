//! Texts of the gateway itself.

use std::fmt::Write as _;

use hermes_agent::turn;
use hermes_core::event::{TurnExit, TurnSummary};

pub(super) const CUT: &str = "[The gateway stopped while you were working on the message above, and has started again. What is recorded above happened: results of tools that are there stand, and those calls must not be made again. A call without a result may or may not have happened: look before you repeat anything that changes something. An answer that was cut off was never delivered: give all of it. Go on from there and answer the message.]";
pub(super) const GAVE_UP: &str = "⚠️ I was stopped several times while working on your message, so I stopped trying. What was done so far is in the conversation; say \"continue\" to resume.";
pub(super) const STALE: &str = "⚠️ I was stopped while working on this, and that was a while ago. What was done so far is in the conversation; say \"continue\" to resume.";
pub(super) const COMMAND_CUT: &str = "⚠️ The gateway stopped while it ran this command. It may or may not have taken effect; check before you repeat it.";
pub(super) const TOO_MUCH: &str = "⚠️ Too much is running in the background already; repeat the command when something has ended.";
pub(super) const BROKE: &str = "⚠️ The conversation ended unexpectedly; see logs/errors.log.";
pub(super) const STOPPED: &str = "⏹ Stopped.";
pub(super) const ABANDONED: &str =
    "⏹ Stopped. What was running did not end in time and was abandoned.";
pub(super) const NOTHING_RUNS: &str = "Nothing is running here.";

/// The text of a final answer. `None`: nothing to send.
pub(super) fn outcome_text(summary: &TurnSummary, stopped: bool) -> Option<String> {
    let text = summary.text.trim();
    if summary.exit == TurnExit::Interrupted {
        let partial = format!("{text}\n\n*(stopped here)*");
        return (!text.is_empty()).then_some(partial);
    }
    let why = turn::explain(&summary.exit, None);
    match why {
        None if text.is_empty() => Some("The model gave no answer; ask again.".to_owned()),
        None => Some(text.to_owned()),
        Some(_) if stopped => None,
        Some(why) if text.is_empty() => Some(format!("⚠️ {why}")),
        Some(why) => Some(format!("{text}\n\n⚠️ {why}")),
    }
}

/// A line about a running tool.
pub(super) fn tool(name: &str, arguments: &str) -> String {
    let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap_or_default();
    let first = arguments.as_object().and_then(|map| {
        const TELLING: [&str; 8] = [
            "command", "query", "path", "url", "pattern", "name", "goal", "target",
        ];
        TELLING.iter().find_map(|key| map.get(*key)?.as_str())
    });
    let mut line = format!("⚙️ {name}");
    if let Some(first) = first {
        let shown = hermes_core::redact::secrets(first);
        let shown: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = write!(line, ": {}", hermes_core::text::shorten(&shown, 60));
    }
    line
}
