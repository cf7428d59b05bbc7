//! Block Kit: text with buttons, captions of files.

use serde_json::{Value, json};

use crate::platform::{Button, Markup, Tone};

/// Prefix of our button ids.
pub(super) const BUTTON: &str = "hermes_button_";

/// Prefix of ids of blocks with a key.
pub(super) const KEY: &str = "hermes_key_";

/// The longest text of one section.
const MAX_SECTION_CHARS: usize = 3000;

/// The longest label, in characters.
const MAX_LABEL_CHARS: usize = 75;

/// A text as blocks; the first one contains the key.
pub(super) fn sections(text: &str, markup: Markup, key: &str) -> Vec<Value> {
    let kind = match markup {
        Markup::SlackMrkdwn => "mrkdwn",
        _ => "plain_text",
    };
    let mut blocks: Vec<Value> = cut(text, MAX_SECTION_CHARS)
        .into_iter()
        .map(|part| json!({"type": "section", "text": {"type": kind, "text": part}}))
        .collect();
    if let Some(first) = blocks.first_mut() {
        first["block_id"] = json!(format!("{KEY}{key}"));
    }
    blocks
}

/// Rows of buttons.
pub(super) fn buttons(rows: &[Vec<Button>]) -> Vec<Value> {
    let mut number = 0;
    let mut block = |row: &Vec<Button>| {
        let elements: Vec<Value> = row
            .iter()
            .map(|button| {
                number += 1;
                element(button, number)
            })
            .collect();
        json!({"type": "actions", "elements": elements})
    };
    rows.iter()
        .filter(|row| !row.is_empty())
        .map(&mut block)
        .collect()
}

fn element(button: &Button, number: usize) -> Value {
    let label: String = button.label.chars().take(MAX_LABEL_CHARS).collect();
    let mut element = json!({
        "type": "button", "action_id": format!("{BUTTON}{number}"), "value": button.data,
        "text": {"type": "plain_text", "text": label, "emoji": true},
    });
    match button.tone {
        Tone::Neutral => {}
        Tone::Good => element["style"] = json!("primary"),
        Tone::Danger => element["style"] = json!("danger"),
    }
    element
}

/// Pieces of at most `limit` characters, cut at line ends where there are some.
fn cut(text: &str, limit: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        let mut line: Vec<char> = line.chars().collect();
        if length > 0 && length + line.len() > limit {
            parts.push(std::mem::take(&mut part));
            length = 0;
        }
        while line.len() > limit {
            let rest = line.split_off(limit);
            parts.push(line.into_iter().collect());
            line = rest;
        }
        length += line.len();
        part.extend(line);
    }
    parts.push(part);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Slack's names of our reactions.
pub(super) fn emoji_name(emoji: &str) -> Option<&str> {
    let plain = emoji.trim_matches(':').trim_end_matches('\u{fe0f}');
    let name = match plain {
        "👀" => "eyes",
        "✅" => "white_check_mark",
        "❌" => "x",
        "👍" => "thumbsup",
        "👎" => "thumbsdown",
        "⏳" => "hourglass_flowing_sand",
        "⌛" => "hourglass",
        "⚡" => "zap",
        "⏩" => "fast_forward",
        "🎉" => "tada",
        "🔥" => "fire",
        "❤" => "heart",
        "🤔" => "thinking_face",
        "🙏" => "pray",
        "👌" => "ok_hand",
        "🎙" => "studio_microphone",
        "⚠" => "warning",
        "🛑" => "octagonal_sign",
        name if !name.is_empty() && name.is_ascii() => name,
        _ => return None,
    };
    Some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buttons_keep_their_rows_tones_and_data() {
        let button = |label: &str, tone| Button {
            label: label.to_owned(),
            data: format!("d:{label}"),
            tone,
        };
        let long = "x".repeat(90);
        let rows = [
            vec![button("Yes", Tone::Good), button("No", Tone::Danger)],
            vec![],
            vec![button(&long, Tone::Neutral)],
        ];
        let blocks = buttons(&rows);
        assert_eq!(blocks.len(), 2);
        let first = &blocks[0]["elements"];
        assert_eq!(
            (&first[0]["style"], &first[0]["value"]),
            (&json!("primary"), &json!("d:Yes"))
        );
        assert_ne!(first[0]["action_id"], first[1]["action_id"]);
        let label = blocks[1]["elements"][0]["text"]["text"].as_str().unwrap();
        assert_eq!(label.len(), MAX_LABEL_CHARS);
    }

    #[test]
    fn signs_have_names() {
        assert_eq!(emoji_name("👀"), Some("eyes"));
        assert_eq!(emoji_name("❤\u{fe0f}"), Some("heart"));
        assert_eq!(emoji_name(":tada:"), Some("tada"));
        assert_eq!(emoji_name("🦄"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pieces_fit_and_lose_nothing(text in "([a-zé ]{0,30}\n?){0,12}") {
            let parts = cut(&text, 20);
            prop_assert!(parts.iter().all(|part| part.chars().count() <= 20));
            let whole: String = parts.concat().split_whitespace().collect();
            let expected: String = text.split_whitespace().collect();
            prop_assert_eq!(whole, expected);
        }
    }
}
