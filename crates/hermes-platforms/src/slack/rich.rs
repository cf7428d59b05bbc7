//! The text of Block Kit blocks, for messages whose text omits it.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

/// Slack's placeholder text for block-only messages.
const NOT_SHOWN: &str = "This content can't be displayed.";
/// Maximum nesting depth of blocks.
const MAX_DEPTH: usize = 8;
/// Maximum number of characters taken from blocks.
const MAX_BLOCK_CHARS: usize = 12_000;

/// The text of a message in Slack's notation, or that of its blocks if the text is only a
/// placeholder. Programs put a summary there, people nothing.
pub(super) fn message_text(event: &Value, program: bool) -> Cow<'_, str> {
    let text = event["text"].as_str().unwrap_or_default();
    let bare = text.trim().is_empty() || text.trim() == NOT_SHOWN;
    if !bare && !program {
        return Cow::Borrowed(text);
    }
    let words = words(&event["blocks"]);
    if words.is_empty() || (!bare && words.len() <= text.len()) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(words)
}

/// The text of all blocks, one below the other.
fn words(blocks: &Value) -> String {
    let mut lines = Vec::new();
    for block in blocks.as_array().into_iter().flatten() {
        let text = block_words(block);
        if !text.trim().is_empty() {
            lines.push(text.trim().to_owned());
        }
    }
    lines.join("\n").chars().take(MAX_BLOCK_CHARS).collect()
}

fn block_words(block: &Value) -> String {
    match block["type"].as_str().unwrap_or_default() {
        "section" | "header" => {
            let mut parts: Vec<&str> = object_text(&block["text"]).into_iter().collect();
            let fields = block["fields"].as_array().into_iter().flatten();
            parts.extend(fields.filter_map(object_text));
            parts.join("\n")
        }
        "context" => {
            let elements = block["elements"].as_array().into_iter().flatten();
            elements
                .filter_map(object_text)
                .collect::<Vec<_>>()
                .join(" ")
        }
        "image" | "video" => {
            let title = object_text(&block["title"]);
            title
                .or(block["alt_text"].as_str())
                .unwrap_or_default()
                .to_owned()
        }
        "rich_text" => {
            let mut out = String::new();
            rich(&block["elements"], &mut out, 0);
            out
        }
        _ => String::new(),
    }
}

/// A text object: `{"type": "mrkdwn", "text": …}`.
fn object_text(object: &Value) -> Option<&str> {
    object["text"]
        .as_str()
        .filter(|text| !text.trim().is_empty())
}

fn rich(elements: &Value, out: &mut String, depth: usize) {
    if depth > MAX_DEPTH || out.len() > MAX_BLOCK_CHARS * 4 {
        return;
    }
    for element in elements.as_array().into_iter().flatten() {
        let children = &element["elements"];
        match element["type"].as_str().unwrap_or_default() {
            "rich_text_section" => {
                begin_line(out);
                rich(children, out, depth + 1);
            }
            "rich_text_preformatted" => {
                begin_line(out);
                out.push_str("```\n");
                rich(children, out, depth + 1);
                out.push_str("\n```");
            }
            "rich_text_quote" => {
                let mut inner = String::new();
                rich(children, &mut inner, depth + 1);
                for line in inner.lines() {
                    begin_line(out);
                    let _ = write!(out, "&gt; {line}");
                }
            }
            "rich_text_list" => list(element, out, depth),
            _ => leaf(element, out),
        }
    }
}

fn list(element: &Value, out: &mut String, depth: usize) {
    let ordered = element["style"] == "ordered";
    let indent = element["indent"].as_u64().unwrap_or_default().min(8) as usize;
    let first = element["offset"].as_u64().unwrap_or_default() + 1;
    let items = element["elements"].as_array().into_iter().flatten();
    for (number, item) in (first..).zip(items) {
        begin_line(out);
        out.push_str(&"  ".repeat(indent));
        if ordered {
            let _ = write!(out, "{number}. ");
        } else {
            out.push_str("• ");
        }
        let mut inner = String::new();
        rich(&item["elements"], &mut inner, depth + 1);
        out.push_str(inner.trim());
    }
}

/// Something without parts, in Slack's notation.
fn leaf(element: &Value, out: &mut String) {
    let field = |name: &str| element[name].as_str().unwrap_or_default();
    let _ = match field("type") {
        "text" => {
            out.push_str(&super::text::escape(field("text")));
            Ok(())
        }
        "link" => match field("text") {
            "" => write!(out, "<{}>", field("url")),
            label => write!(out, "<{}|{}>", field("url"), super::text::escape(label)),
        },
        "user" => write!(out, "<@{}>", field("user_id")),
        "channel" => write!(out, "<#{}>", field("channel_id")),
        "usergroup" => write!(out, "<!subteam^{}>", field("usergroup_id")),
        "broadcast" => write!(out, "<!{}>", field("range")),
        "emoji" => write!(out, ":{}:", field("name")),
        "date" => {
            out.push_str(field("fallback"));
            Ok(())
        }
        _ => Ok(()),
    };
}

fn begin_line(out: &mut String) {
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    #[test]
    fn words_of_blocks_stand_in_for_a_text_that_is_missing() {
        let blocks = json!([
            {"type": "header", "text": {"type": "plain_text", "text": "Deploy"}},
            {"type": "section", "text": {"type": "mrkdwn", "text": "*Build* 7"},
             "fields": [{"type": "mrkdwn", "text": "red"}]},
            {"type": "divider"},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": "by ci"},
                {"type": "image", "alt_text": "x", "image_url": "u"}]},
            {"type": "rich_text", "elements": [
                {"type": "rich_text_section", "elements": [
                    {"type": "text", "text": "see a<b "}, {"type": "user", "user_id": "U1"},
                    {"type": "link", "url": "https://a.test", "text": "log"}]},
                {"type": "rich_text_list", "style": "ordered", "elements": [
                    {"type": "rich_text_section", "elements": [{"type": "text", "text": "one"}]},
                    {"type": "rich_text_section", "elements": [{"type": "text", "text": "two"}]}]},
                {"type": "rich_text_quote", "elements": [{"type": "text", "text": "so"}]},
                {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "x=1"}]}]},
        ]);
        let words = "Deploy\n*Build* 7\nred\nby ci\nsee a&lt;b <@U1><https://a.test|log>\n\
                     1. one\n2. two\n&gt; so\n```\nx=1\n```";
        for text in ["", "  ", NOT_SHOWN] {
            let event = json!({"text": text, "blocks": blocks});
            assert_eq!(message_text(&event, false), words, "{text:?}");
        }
        let event = json!({"text": "Build 7 failed", "blocks": blocks});
        assert_eq!(
            message_text(&event, false),
            "Build 7 failed",
            "a person's text is whole"
        );
        assert_eq!(
            message_text(&event, true),
            words,
            "a program's is a summary"
        );
        assert_eq!(message_text(&json!({"text": "hi"}), true), "hi");
    }

    #[test]
    fn blocks_without_end_end() {
        let mut element = json!({"type": "text", "text": "deep"});
        for _ in 0..100 {
            element = json!({"type": "rich_text_section", "elements": [element]});
        }
        let event = json!({"text": "", "blocks": [{"type": "rich_text", "elements": [element]}]});
        assert_eq!(message_text(&event, false), "");
    }
}
