//! Asking the person before something dangerous, in the line chat.

use std::io::Write;

use hermes_core::approval::{ApprovalRequest, Verdict};

/// Puts the request on the terminal.
pub(super) fn show(request: &ApprovalRequest, err: &mut dyn Write) {
    let rule = request
        .rule
        .as_ref()
        .map(|rule| format!("  a always: {}", rule.0))
        .unwrap_or_default();
    // A prompt that cannot be shown is not answered with yes.
    let _ = write!(
        err,
        "\napprove {}?\n  {}\n  why asked: {}\n  y once  s this session{rule}  n deny [n] ",
        request.tool,
        visible(&request.action),
        request.reasons.join(", ")
    );
    let _ = err.flush();
}

/// What was typed. Anything but a clear yes is a no.
pub(super) fn read(request: &ApprovalRequest, line: &str) -> Verdict {
    match (line.trim(), &request.rule) {
        ("y", _) => Verdict::Once,
        ("s", _) => Verdict::Session,
        ("a", Some(rule)) => Verdict::Always(rule.clone()),
        _ => Verdict::Deny { why: None },
    }
}

/// Characters that would hide something are shown as their code points.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => "\n  ".to_owned(),
            c if c.is_control()
                || ('\u{200b}'..='\u{200f}').contains(&c)
                || ('\u{202a}'..='\u{202e}').contains(&c)
                || ('\u{2066}'..='\u{2069}').contains(&c) =>
            {
                format!("<U+{:04X}>", c as u32)
            }
            c => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn hidden_characters_are_shown() {
        assert_eq!(
            super::visible("rm\u{202e} -rf\u{1b}[8m"),
            "rm<U+202E> -rf<U+001B>[8m"
        );
    }
}
