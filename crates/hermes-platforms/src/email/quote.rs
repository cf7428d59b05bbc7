//! Separates the person's text from quotations and signatures.

use std::sync::LazyLock;

use regex::Regex;

/// The text of a mail, split in two.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MailText {
    /// The person's own text.
    pub text: String,
    /// Quotations and signature.
    pub around: String,
}

/// "On Monday, Ann <ann@example.com> wrote:" in the languages of the common programs. One line or two.
#[expect(clippy::unwrap_used, reason = "a constant; a test compiles it")]
static ATTRIBUTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)
        ^\s*(on|am|le|el|il|op|em|den|dnia|w\ dniu)\b.{4,200}
        (wrote|schrieb|a\ écrit|escribi[óo]|ha\ scritto|schreef|escreveu|skrev|napisał\(?a?\)?)
        .{0,120}:\s*$",
    )
    .unwrap()
});

/// Markers before an original mail that is not quoted line by line.
#[expect(clippy::unwrap_used, reason = "a constant; a test compiles it")]
static DIVIDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^\s*(-{2,}\s*(original message|ursprüngliche nachricht|message d'origine|mensaje original|forwarded message|weitergeleitete nachricht)\s*-{2,}|begin forwarded message:|_{20,})\s*$",
    )
    .unwrap()
});

#[expect(clippy::unwrap_used, reason = "a constant; a test compiles it")]
static SENDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^\s*\*?(from|von|de|da|van):\*?\s.*@").unwrap());

#[expect(clippy::unwrap_used, reason = "a constant; a test compiles it")]
static SENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^\s*\*?(sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|to|an|subject|betreff):\*?\s").unwrap()
});

/// Splits a text. If answers are interleaved with the quotation, everything counts as the person's
/// text.
pub(super) fn split(body: &str) -> MailText {
    let body = body.replace("\r\n", "\n");
    let lines: Vec<&str> = body.lines().collect();
    let begins = (0..lines.len()).find(|at| is_divider(&lines, *at));
    let (own, rest) = lines.split_at(begins.unwrap_or(lines.len()));
    let quoted = |line: &&str| line.trim_start().starts_with('>');
    let Some(first) = own.iter().position(quoted) else {
        let (text, signature) = signature(own);
        return mail_text(text, &[signature, rest].concat());
    };
    let last = own.iter().rposition(quoted).unwrap_or(first);
    let above = attribution(own, first);
    let blank = |line: &&str| line.trim().is_empty();
    let before = own[..above].iter().any(|line| !blank(line));
    let between = own[first..=last]
        .iter()
        .any(|line| !quoted(line) && !blank(line));
    let (after, signed) = signature(&own[last + 1..]);
    let after_said = after.iter().any(|line| !blank(line));
    match (before, after_said) {
        // Between the lines, or on both sides.
        _ if between => mail_text(&[&own[..=last], after].concat(), &[signed, rest].concat()),
        (true, true) => mail_text(&[&own[..=last], after].concat(), &[signed, rest].concat()),
        (false, true) => mail_text(after, &[&own[..=last], signed, rest].concat()),
        (_, false) => {
            let (text, signature) = signature(&own[..above]);
            mail_text(text, &[signature, &own[above..], rest].concat())
        }
    }
}

fn mail_text(text: &[&str], around: &[&str]) -> MailText {
    MailText {
        text: text.join("\n").trim().to_owned(),
        around: around.join("\n").trim().to_owned(),
    }
}

/// A line of two dashes starts the signature.
fn signature<'a, 'b>(lines: &'a [&'b str]) -> (&'a [&'b str], &'a [&'b str]) {
    let begins = lines.iter().rposition(|line| matches!(*line, "-- " | "--"));
    lines.split_at(begins.unwrap_or(lines.len()))
}

/// The introduction of a quotation before `first`, if any; it may be wrapped.
fn attribution(lines: &[&str], first: usize) -> usize {
    let written = (0..first).rev().find(|at| !lines[*at].trim().is_empty());
    let Some(last) = written else { return first };
    for from in [last, last.saturating_sub(1)] {
        if ATTRIBUTION.is_match(&lines[from..=last].join(" ")) {
            return from;
        }
    }
    first
}

fn is_divider(lines: &[&str], at: usize) -> bool {
    let next = |from: usize| lines[from..].iter().find(|line| !line.trim().is_empty());
    let line = lines[at];
    if DIVIDER.is_match(line) {
        // A rule of underscores alone is only a rule.
        return !line.trim_start().starts_with('_')
            || next(at + 1).is_some_and(|line| SENDER.is_match(line));
    }
    if ATTRIBUTION.is_match(line) {
        // Followed by quoted lines it belongs to them; otherwise everything below is the old mail.
        return next(at + 1).is_some_and(|line| !line.trim_start().starts_with('>'))
            && !lines[at + 1..]
                .iter()
                .any(|line| line.trim_start().starts_with('>'));
    }
    SENDER.is_match(line) && lines.get(at + 1).is_some_and(|line| SENT.is_match(line))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn check(body: &str, text: &str, around: &str) {
        let mail_text = split(body);
        assert_eq!(
            (mail_text.text.as_str(), mail_text.around.as_str()),
            (text, around),
            "{body}"
        );
    }

    #[test]
    fn plain_text_is_all_the_persons() {
        check("Hello\n\nthere\n", "Hello\n\nthere", "");
        check(
            "See from: here\nand to: there",
            "See from: here\nand to: there",
            "",
        );
        check(
            "one\n\n____________________\ntwo",
            "one\n\n____________________\ntwo",
            "",
        );
        check("", "", "");
    }

    #[test]
    fn the_mail_that_is_answered_goes_around_it() {
        check(
            "Yes.\r\n\r\nOn Mon, 2 Nov 2026 at 10:00, Hermes <h@x.org> wrote:\r\n> Shall I?\r\n>\r\n> more\r\n",
            "Yes.",
            "On Mon, 2 Nov 2026 at 10:00, Hermes <h@x.org> wrote:\n> Shall I?\n>\n> more",
        );
        check(
            "Ja\n\nAm 02.11.26 um 10:00 schrieb Hermes:\n> Soll ich?",
            "Ja",
            "Am 02.11.26 um 10:00 schrieb Hermes:\n> Soll ich?",
        );
        check(
            "Ok\n\nOn Mon, Nov 2, 2026 at 10:00 AM A Very Long Name Indeed\n<h@x.org> wrote:\n\n> Shall I?",
            "Ok",
            "On Mon, Nov 2, 2026 at 10:00 AM A Very Long Name Indeed\n<h@x.org> wrote:\n\n> Shall I?",
        );
        check(
            "Do it\n\n________________________________\nFrom: Hermes <h@x.org>\nSent: Monday\n\nShall I?",
            "Do it",
            "________________________________\nFrom: Hermes <h@x.org>\nSent: Monday\n\nShall I?",
        );
        check(
            "Do it\n\n-----Original Message-----\nFrom: h@x.org\n\nShall I?",
            "Do it",
            "-----Original Message-----\nFrom: h@x.org\n\nShall I?",
        );
        check(
            "Do it\nOn Mon, 2 Nov 2026, Hermes <h@x.org> wrote:\nShall I?",
            "Do it",
            "On Mon, 2 Nov 2026, Hermes <h@x.org> wrote:\nShall I?",
        );
    }

    #[test]
    fn answers_below_and_between() {
        check(
            "> Shall I?\n\nYes.\n-- \nAnn",
            "Yes.",
            "> Shall I?\n-- \nAnn",
        );
        check(
            "Hi\n> first?\nyes\n> second?\nno\n-- \nAnn",
            "Hi\n> first?\nyes\n> second?\nno",
            "-- \nAnn",
        );
        check("> one\nyes\n> two", "> one\nyes\n> two", "");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: 64,
            failure_persistence: None,
            ..proptest::prelude::ProptestConfig::default()
        })]

        /// Nothing that a person wrote gets lost.
        #[test]
        fn every_word_is_somewhere(
            body in "((> ?|-- ?|On Mon, 2 Nov 2026, x wrote:|From: a@b|Sent: x|ü)?[a-z ]{0,8}\n){0,12}"
        ) {
            let mail_text = split(&body);
            let words = |text: &str| {
                let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
                words.sort_unstable();
                words
            };
            proptest::prop_assert_eq!(words(&format!("{}\n{}", mail_text.text, mail_text.around)), words(&body));
        }
    }

    #[test]
    fn signatures_are_not_said() {
        check("Yes.\n-- \nAnn\nCompany", "Yes.", "-- \nAnn\nCompany");
        check(
            "Yes.\n--\nAnn\n\nOn 2 Nov 2026, h@x.org wrote:\n> ?",
            "Yes.",
            "--\nAnn\n\nOn 2 Nov 2026, h@x.org wrote:\n> ?",
        );
    }
}
