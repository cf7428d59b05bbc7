//! Approval prompts in the line chat.

use std::fmt::Write as _;
use std::io::Write;

use hermes_core::approval::{ApprovalRequest, Rule, Verdict};
use hermes_policy::{is_invisible, rules};

/// Puts the request on the terminal: the whole of it, and nothing that hides a part.
fn show(request: &ApprovalRequest, err: &mut dyn Write) {
    let mut text = format!(
        "\napprove {}?\n  {}\n",
        request.tool,
        visible(&request.action)
    );
    // Writing to a string cannot fail.
    for reason in &request.reasons {
        let _ = writeln!(text, "  Reason: {}", visible(reason));
    }
    if let Some(posture) = &request.posture {
        let _ = writeln!(text, "  Runs: {}", visible(posture));
    }
    text.push_str("  y once  s this session");
    if let Some(rule) = &request.rule {
        let _ = write!(text, "  a always: {}", visible(&rule.0));
        if prefix_words(request).is_some_and(|words| words.len() > 1) {
            text.push_str("\n  a WORDS always for commands that begin with WORDS");
        }
    }
    text.push_str("\n  n deny  n REASON deny and say why [n] ");
    // A prompt that cannot be shown is not answered with yes.
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}

/// What was typed. An empty line denies; any other text is an error, and the question is repeated.
pub(super) fn read(request: &ApprovalRequest, line: &str) -> Result<Verdict, String> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (word.to_lowercase().as_str(), rest) {
        ("y" | "yes", "") => Ok(Verdict::Once),
        ("s", "") => Ok(Verdict::Session),
        ("a", "") => match &request.rule {
            Some(rule) => Ok(Verdict::Always(rule.clone())),
            None => Err("no rule can be stored for this command".to_owned()),
        },
        ("a", words) => prefix(request, words)
            .map(Verdict::Always)
            .ok_or_else(|| format!("the command does not start with the words {words:?}")),
        ("" | "n" | "no", why) => Ok(Verdict::Deny {
            why: (!why.is_empty()).then(|| why.to_owned()),
        }),
        _ => Err("answer y, s, a or n".to_owned()),
    }
}

/// Asks until the answer is clear. `None`: input ended.
pub(super) fn ask(
    request: &ApprovalRequest,
    mut line: impl FnMut() -> Option<String>,
    err: &mut dyn Write,
) -> Option<Verdict> {
    show(request, err);
    loop {
        match read(request, &line()?) {
            Ok(verdict) => return Some(verdict),
            Err(why) => {
                let _ = write!(err, "  {}; not run yet [n] ", visible(&why));
                let _ = err.flush();
            }
        }
    }
}

/// The words of a command that a prefix could be cut from.
fn prefix_words(request: &ApprovalRequest) -> Option<Vec<String>> {
    match rules::meaning(&request.rule.as_ref()?.0) {
        rules::Meaning::Exact { argv, .. } => argv,
        _ => None,
    }
}

/// The rule for everything that begins with `typed`, if the command does.
fn prefix(request: &ApprovalRequest, typed: &str) -> Option<Rule> {
    let typed = rules::words(typed.trim_end_matches('*').trim()).ok()?;
    let words = prefix_words(request)?;
    words.starts_with(&typed).then(|| rules::prefix(&typed))
}

/// The rule that a person made of the offered one: the same, or one for all that begins so.
pub(super) fn edited(request: &ApprovalRequest, typed: &str) -> Result<Rule, String> {
    let typed = typed.trim();
    match &request.rule {
        Some(rule) if rule.0 == typed => Ok(rule.clone()),
        Some(_) => prefix(request, typed)
            .ok_or_else(|| "it must be the first words of the command, in full".to_owned()),
        None => Err("no rule can be stored for this command".to_owned()),
    }
}

/// Characters that would hide something are shown as their code points.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => "\n  ".to_owned(),
            '\t' => "\t".to_owned(),
            c if is_invisible(c) => format!("<U+{:04X}>", c as u32),
            c => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(rule: Option<&str>) -> ApprovalRequest {
        ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: "1".into(),
            tool: "terminal".into(),
            action: "git push origin\u{202e} main\u{1b}[8m".into(),
            reasons: vec!["publishes commits".into(), "and more".into()],
            rule: rule.map(|rule| Rule(rule.into())),
            posture: Some("sandbox: landlock".into()),
        }
    }

    #[test]
    fn everything_is_shown_and_nothing_hides() {
        let mut out = Vec::new();
        show(&request(Some("git push origin main")), &mut out);
        let text = String::from_utf8(out).unwrap();
        for part in [
            "git push origin<U+202E> main<U+001B>[8m",
            "Reason: publishes commits",
            "Reason: and more",
            "Runs: sandbox: landlock",
            "a always: git push origin main",
            "[n] ",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        let mut out = Vec::new();
        show(&request(None), &mut out);
        assert!(!String::from_utf8(out).unwrap().contains("always"));
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let with = request(Some("git push origin main"));
        for unclear in ["x", "ok", "y y", "s x", "a rm", "a git pull", "always"] {
            assert!(read(&with, unclear).is_err(), "{unclear:?}");
        }
        let no = Ok(Verdict::Deny { why: None });
        for line in ["", "\n", "n", "No"] {
            assert_eq!(read(&with, line), no, "{line:?}");
        }
        assert_eq!(read(&with, "y\n"), Ok(Verdict::Once));
        assert_eq!(read(&with, " Y "), Ok(Verdict::Once));
        assert_eq!(read(&with, "s"), Ok(Verdict::Session));
        let always = |rule: &str| Ok(Verdict::Always(Rule(rule.into())));
        assert_eq!(read(&with, "a"), always("git push origin main"));
        assert_eq!(read(&with, "a git push"), always("git push *"));
        assert_eq!(read(&with, "a git push *"), always("git push *"));
        assert!(read(&request(None), "a").is_err());
        let why = Some("not on Fridays".to_owned());
        assert_eq!(read(&with, "n not on Fridays"), Ok(Verdict::Deny { why }));
    }

    #[test]
    fn what_is_unclear_is_asked_again() {
        let with = request(Some("git push origin main"));
        let mut typed = ["a git pu", "ok", "s"].into_iter();
        let mut out = Vec::new();
        let line = || typed.next().map(str::to_owned);
        assert_eq!(ask(&with, line, &mut out), Some(Verdict::Session));
        let text = String::from_utf8(out).unwrap();
        let why = "the command does not start with the words \"git pu\"";
        assert!(
            text.contains(why) && text.contains("y, s, a or n"),
            "{text}"
        );
        assert_eq!(ask(&with, || None, &mut Vec::new()), None);
    }
}
