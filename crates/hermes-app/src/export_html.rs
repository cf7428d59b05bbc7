//! A conversation as one HTML file: no external resources, no scripts.

use std::fmt::Write as _;

use hermes_store::MessageRecord;
use serde_json::Value;

use crate::text;

/// No scripts, styles or pictures except those in the file.
const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="hermes">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"#;

const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8884; --quiet: #777 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
header p { color: var(--quiet); margin: .2rem 0 }
article { border-top: 1px solid var(--line); padding: .5rem 0 }
article > h2 { font-size: .85rem; color: var(--quiet); margin: .3rem 0; font-weight: 600 }
.user > h2 { color: #2a7d4f }
.text { white-space: pre-wrap; overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .6rem; border-radius: .3rem }
summary { cursor: pointer; color: var(--quiet) }
@media print { details { display: block } }
";

/// An exported session for a browser.
pub fn session_html(session: &Value) -> String {
    let field = |name: &str| session.get(name).and_then(Value::as_str);
    let title = field("title").or_else(|| field("id")).unwrap_or("Session");
    let mut out = String::from(HEAD);
    let _ = write!(
        out,
        "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{}</h1>\n",
        escape(title),
        escape(title)
    );
    let facts = [
        ("Session", field("id").map(str::to_owned)),
        (
            "Begun",
            session
                .get("started_at")
                .and_then(Value::as_f64)
                .map(text::date),
        ),
        ("Source", field("source").map(str::to_owned)),
        ("Model", field("model").map(str::to_owned)),
        ("Directory", field("cwd").map(str::to_owned)),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            let _ = writeln!(out, "<p>{name}: {}</p>", escape(&value));
        }
    }
    out.push_str("</header>\n<main>\n");
    let messages = session.get("messages").and_then(Value::as_array);
    for message in messages.into_iter().flatten() {
        if let Value::Object(map) = message {
            article(&mut out, &MessageRecord(map.clone()));
        }
    }
    out + "</main>\n</body>\n</html>\n"
}

fn article(out: &mut String, message: &MessageRecord) {
    if !message.is_shown() {
        return;
    }
    let text = message.plain_text();
    let (class, heading) = match (message.role(), message.text("tool_name")) {
        ("user", _) => ("user", "User".to_owned()),
        ("assistant", _) => ("assistant", "Assistant".to_owned()),
        ("tool", Some(name)) => ("tool", format!("Result of {name}")),
        ("tool", None) => ("tool", "Result".to_owned()),
        (role, _) => ("other", role.to_owned()),
    };
    let _ = writeln!(out, "<article class=\"{class}\">");
    if class == "tool" {
        folded(out, &heading, &text);
    } else {
        let _ = writeln!(out, "<h2>{}</h2>", escape(&heading));
        if let Some(reasoning) = message
            .text("reasoning")
            .filter(|text| !text.trim().is_empty())
        {
            folded(out, "Reasoning", reasoning);
        }
        if !text.is_empty() {
            let _ = writeln!(out, "<div class=\"text\">{}</div>", escape(&text));
        }
    }
    let calls = message.0.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        let function = |name: &str| {
            call.pointer(&format!("/function/{name}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        folded(
            out,
            &format!("Calls {}", function("name")),
            function("arguments"),
        );
    }
    out.push_str("</article>\n");
}

fn folded(out: &mut String, title: &str, text: &str) {
    let _ = writeln!(
        out,
        "<details><summary>{}</summary><pre>{}</pre></details>",
        escape(title),
        escape(text)
    );
}

/// Escapes text for content and attributes. Characters that are invalid in HTML are made visible.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for ch in text.chars() {
        match ch {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            ch if ch.is_control() && !matches!(ch, '\n' | '\t') => out.push('\u{fffd}'),
            ch => out.push(ch),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_conversation_becomes_markup() {
        let evil = "<script>alert('x')</script>\" onload=\"x\u{1b}[2J&lt;";
        let session = serde_json::json!({
            "id": evil, "title": evil, "source": evil, "model": evil, "cwd": evil,
            "messages": [
                {"role": "user", "content": evil},
                {"role": "assistant", "content": evil, "reasoning": evil, "tool_calls":
                    [{"function": {"name": evil, "arguments": evil}}]},
                {"role": "tool", "tool_name": evil, "content": evil},
                {"role": evil, "content": evil},
                {"role": "session_meta", "content": "hidden words"},
            ],
        });
        let page = session_html(&session);
        let body = page.split_once("</style>").unwrap().1;
        assert!(
            !body.contains("<script") && !body.contains("onload=\""),
            "{body}"
        );
        assert!(!page.contains('\u{1b}') && !page.contains("hidden words"));
        assert!(body.contains("&amp;lt;"));
        assert!(!page.contains("http:") && !page.contains("https:"));
    }
}
