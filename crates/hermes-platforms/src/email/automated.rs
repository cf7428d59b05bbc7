//! Recognises automated emails, which are never answered. Answering it would be noise at best and a
//! loop at worst.

use mail_parser::Message;

const NAMES: [&str; 9] = [
    "noreply",
    "no-reply",
    "no_reply",
    "donotreply",
    "do-not-reply",
    "mailer-daemon",
    "postmaster",
    "bounce",
    "auto-reply",
];

/// Prefixes of automated senders.
const BEGINNINGS: [&str; 4] = ["notifications", "automated", "auto-confirm", "automailer"];

/// Headers that only machines write.
const MARKS: [&str; 7] = [
    "X-Auto-Response-Suppress",
    "X-Autoreply",
    "X-Autorespond",
    "List-Id",
    "List-Unsubscribe",
    "List-Post",
    "Feedback-ID",
];

/// Why a mail is automated. `None`: apparently written by a person.
pub(super) fn reason(message: &Message<'_>, from: &str) -> Option<String> {
    let name = from
        .split('@')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    if NAMES.iter().any(|known| name.contains(known))
        || BEGINNINGS.iter().any(|known| name.starts_with(known))
    {
        return Some(format!("{from} is not a person"));
    }
    let header = |name: &'static str| {
        let raw = message.header_raw(name)?.trim().to_ascii_lowercase();
        Some(raw).filter(|raw| !raw.is_empty())
    };
    if let Some(value) = header("Auto-Submitted").filter(|value| !is_word(value, "no")) {
        return Some(format!("Auto-Submitted: {value}"));
    }
    if let Some(value) = header("Precedence")
        && ["bulk", "list", "junk", "auto_reply"]
            .iter()
            .any(|word| is_word(&value, word))
    {
        return Some(format!("Precedence: {value}"));
    }
    if let Some(mark) = MARKS.into_iter().find(|mark| header(mark).is_some()) {
        return Some(format!("it has {mark}"));
    }
    // Bounces have an empty sender.
    if header("Return-Path").is_some_and(|value| value == "<>") {
        return Some("it is a report about another mail".to_owned());
    }
    header("Content-Type")
        .filter(|value| value.starts_with("multipart/report"))
        .map(|_| "it is a report about another mail".to_owned())
}

/// A value may have parameters: `auto-replied; owner-email=…`.
fn is_word(value: &str, word: &str) -> bool {
    value.split([';', ' ', '(']).next() == Some(word)
}

#[cfg(test)]
mod tests {
    use mail_parser::MessageParser;

    use super::*;

    fn of(headers: &str, from: &str) -> bool {
        let raw = format!("From: {from}\r\n{headers}\r\ntext\r\n");
        let message = MessageParser::default().parse(raw.as_bytes()).unwrap();
        reason(&message, from).is_some()
    }

    #[test]
    fn machines_are_recognised_and_people_are_not() {
        for headers in [
            "Auto-Submitted: auto-replied; owner=x\r\n",
            "Auto-Submitted: auto-generated\r\n",
            "Precedence: bulk\r\n",
            "List-Unsubscribe: <mailto:x@y>\r\n",
            "List-Id: <a.b>\r\n",
            "X-Auto-Response-Suppress: All\r\n",
            "Return-Path: <>\r\n",
            "Content-Type: multipart/report; report-type=delivery-status; boundary=x\r\n",
        ] {
            assert!(of(headers, "ann@example.com"), "{headers}");
        }
        for from in [
            "noreply@x.com",
            "No-Reply+1@x.com",
            "MAILER-DAEMON@x.com",
            "notifications@x.com",
            "bounces-7@x.com",
        ] {
            assert!(of("", from), "{from}");
        }
        for headers in [
            "",
            "Auto-Submitted: no\r\n",
            "Precedence: normal\r\n",
            "Return-Path: <ann@x.com>\r\n",
        ] {
            assert!(!of(headers, "ann@noreply.example.com"), "{headers}");
        }
    }
}
