//! Personalities: those of the original, with our texts, and those of the config.

use hermes_core::slash;
use serde_json::Value;

use crate::conversation::{CommandResult, Conversation};
use crate::failure::Failure;

/// Built in.
const NAMES: [(&str, &str); 14] = [
    (
        "helpful",
        "Be warm and obliging: find out what is really needed and offer the next step.",
    ),
    (
        "concise",
        "Say as little as serves: short sentences, no preamble, no repetition.",
    ),
    (
        "technical",
        "Speak as one expert to another: exact terms, figures, limits, sources.",
    ),
    (
        "creative",
        "Look for the unusual: offer several ideas, among them one nobody expects.",
    ),
    (
        "teacher",
        "Explain patiently, step by step, with an example for each idea, and check that it was understood.",
    ),
    (
        "kawaii",
        "Be adorable and full of cheer, with cute faces and a sparkle here and there.",
    ),
    (
        "catgirl",
        "Talk like a playful cat in an anime: purr, tease, and end a sentence with nya now and then.",
    ),
    (
        "pirate",
        "Talk like an old sea dog: ships, tides and treasure, arr, but get the facts right.",
    ),
    (
        "shakespeare",
        "Write in the manner of an Elizabethan playwright: thee, thou, and a well-turned verse.",
    ),
    (
        "surfer",
        "Be laid back like someone who lives at the beach: easy words, good vibes, dude.",
    ),
    (
        "noir",
        "Tell it like a weary detective in a rainy city: dry, dark, first person.",
    ),
    (
        "uwu",
        "Be soft and shy, and swap r and l for w where it stays readable. uwu",
    ),
    (
        "philosopher",
        "Ask what lies behind the question, weigh both sides, then still answer it.",
    ),
    (
        "hype",
        "Be wildly enthusiastic: every step is a win, and capital letters are allowed!",
    ),
];

/// Every name, with what it means.
pub fn names(conversation: &Conversation) -> Vec<(String, String)> {
    let agent = &conversation.chat.config.agent;
    let own = agent.personalities.iter().flatten();
    let own = own.filter_map(|(name, value)| Some((name.clone(), text(value)?)));
    let mut all: Vec<(String, String)> = own.collect();
    for (name, text) in NAMES {
        if !all.iter().any(|(own, _)| own == name) {
            all.push((name.to_owned(), text.to_owned()));
        }
    }
    all
}

/// A text, or an object with a `system_prompt` and perhaps a tone and a style.
fn text(value: &Value) -> Option<String> {
    if let Value::String(text) = value {
        return Some(text.clone());
    }
    let part = |key: &str| value.get(key).and_then(Value::as_str);
    let mut text = part("system_prompt")?.to_owned();
    for (key, label) in [("tone", "Tone"), ("style", "Style")] {
        if let Some(more) = part(key) {
            text = format!("{text}\n{label}: {more}");
        }
    }
    Some(text)
}

/// `/personality`, `/personality name`, `/personality none`: kept for later sessions, and told to
/// this one with the next message, because its system prompt is written once.
pub(super) fn run(conversation: &mut Conversation, name: &str) -> Result<CommandResult, Failure> {
    let all = names(conversation);
    if name.is_empty() {
        let lines = all
            .iter()
            .map(|(name, text)| format!("  {name:<12}  {}", crate::text::shorten(text, 60)));
        let mut lines: Vec<String> = lines.collect();
        lines.push("  none          the default of the home".to_owned());
        return Ok(CommandResult::plain(lines.join("\n")));
    }
    let name = name.to_lowercase();
    if matches!(name.as_str(), "none" | "default" | "neutral") {
        super::settings::save_setting(conversation, "agent.system_prompt", "")?;
        conversation.note("The person wants your ordinary manner of speaking again.".to_owned());
        return Ok(CommandResult::info(
            "no personality, starting with the next message",
        ));
    }
    let Some((_, text)) = all.iter().find(|(known, _)| *known == name) else {
        let close = all
            .iter()
            .map(|(known, _)| (slash::distance(known, &name), known))
            .filter(|(distance, _)| *distance <= 2)
            .min();
        let hint = close.map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"));
        return Err(Failure::not_found(format!(
            "no personality {name:?}{hint} (/personality lists them)"
        )));
    };
    super::settings::save_setting(conversation, "agent.system_prompt", text)?;
    conversation.note(format!(
        "From now on the person wants you to talk in this manner: {text}"
    ));
    Ok(CommandResult::info(format!(
        "{name}, starting with the next message, and in new sessions"
    )))
}
