//! Slack's way of writing text, as people read it.

use std::collections::HashMap;

use serde_json::Value;

/// Forwarded messages and previews are cut here.
const MAX_QUOTE: usize = 2000;

/// Ids of the people that a text mentions.
pub(super) fn mentioned(text: &str) -> Vec<String> {
    let mut users = Vec::new();
    for piece in text.split("<@").skip(1) {
        let id: String = piece
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        if !id.is_empty() && !users.contains(&id) {
            users.push(id);
        }
    }
    users
}

/// The text without Slack's notation: known mentions by name, links unchanged, escapes undone.
pub(super) fn readable(text: &str, names: &HashMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let Some(end) = tail.find('>') else {
            out.push_str(&rest[at..]);
            return unescape(&out);
        };
        out.push_str(&reference(&tail[..end], names));
        rest = &tail[end + 1..];
    }
    out.push_str(rest);
    unescape(&out)
}

/// The content of angle brackets.
fn reference(inner: &str, names: &HashMap<String, String>) -> String {
    let (target, label) = match inner.split_once('|') {
        Some((target, label)) => (target, Some(label).filter(|label| !label.is_empty())),
        None => (inner, None),
    };
    if let Some(user) = target.strip_prefix('@') {
        let name = names.get(user).map(String::as_str).or(label);
        return match name {
            Some(name) => format!("@{name}"),
            None => format!("&lt;@{user}&gt;"),
        };
    }
    if let Some(channel) = target.strip_prefix('#') {
        return format!("#{}", label.unwrap_or(channel));
    }
    if let Some(special) = target.strip_prefix('!') {
        let word = special.split('^').next().unwrap_or(special);
        return label.map_or_else(|| format!("@{word}"), str::to_owned);
    }
    let address = target.strip_prefix("mailto:").unwrap_or(target);
    match label {
        Some(label) if label != address && !address.ends_with(label) => {
            format!("{label} ({address})")
        }
        _ => address.to_owned(),
    }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// Escapes text that is not Slack markup.
pub(super) fn escape(text: &str) -> String {
    hermes_core::text::escape_angles(text)
}

/// Messages that were forwarded, and previews of links: in the event, and not in its text.
pub(super) fn attached(event: &Value) -> Option<String> {
    let mut parts = Vec::new();
    for one in event["attachments"].as_array().into_iter().flatten() {
        let field = |name: &str| one[name].as_str().filter(|text| !text.is_empty());
        let body = field("text").or(field("fallback"));
        let head = match (field("title"), field("author_name")) {
            (Some(title), _) => Some(title.to_owned()),
            (None, Some(author)) if one["is_share"] == true => Some(format!("{author} wrote:")),
            _ => None,
        };
        let link = field("title_link").or(field("from_url"));
        let lines: Vec<&str> = [head.as_deref(), link, body]
            .into_iter()
            .flatten()
            .collect();
        if !lines.is_empty() {
            let text: String = lines.join("\n").chars().take(MAX_QUOTE).collect();
            parts.push(
                text.lines()
                    .map(|line| format!("> {line}"))
                    .collect::<Vec<_>>()
                    .join("\n"),
            );
        }
    }
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn notation_becomes_text() {
        let names = HashMap::from([("U1".to_owned(), "alice".to_owned())]);
        for (slack, text) in [
            ("a &lt;b&gt; &amp;&amp; c", "a <b> && c"),
            ("hi <@U1> and <@U2>", "hi @alice and <@U2>"),
            ("<@U3|bob>", "@bob"),
            ("<#C1|general> <#C2>", "#general #C2"),
            ("<!here> <!subteam^S1|@ops>", "@here @ops"),
            ("<https://a.test/x?a=1&amp;b=2>", "https://a.test/x?a=1&b=2"),
            ("<https://a.test|the page>", "the page (https://a.test)"),
            ("<http://a.test|a.test>", "http://a.test"),
            ("<mailto:a@b.test|a@b.test>", "a@b.test"),
            ("1 < 2", "1 < 2"),
        ] {
            assert_eq!(readable(slack, &names), text, "{slack}");
        }
        assert_eq!(mentioned("<@U1> <@U2|x> <@U1> <@>"), ["U1", "U2"]);
    }

    #[test]
    fn what_was_forwarded_is_quoted() {
        let event = json!({"attachments": [
            {"is_share": true, "author_name": "bob", "text": "one\ntwo", "fallback": "x"},
            {"title": "Page", "title_link": "https://a.test", "text": "about"},
            {"color": "red"},
        ]});
        assert_eq!(
            attached(&event).unwrap(),
            "> bob wrote:\n> one\n> two\n\n> Page\n> https://a.test\n> about"
        );
        assert_eq!(attached(&json!({})), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn escaped_text_reads_as_it_was(text in "[a-z<>&;|@#!é ]{0,40}") {
            prop_assert_eq!(readable(&escape(&text), &HashMap::new()), text);
        }
    }
}
