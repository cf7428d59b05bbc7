//! Mails as their readers see them.

use super::MailServer;

impl MailServer {
    /// The texts of the mails in a mailbox, in the order in which the server accepted them: it
    /// delivers several at the same time.
    pub fn texts(&self, address: &str) -> Vec<String> {
        let mut mails = self.mailbox(address);
        mails.sort_by_cached_key(|mail| accepted(mail));
        mails.iter().map(|mail| text(mail)).collect()
    }
}

/// The words of a mail, decoded.
fn text(mail: &str) -> String {
    let parsed = mail_parser::MessageParser::default().parse(mail);
    let words = parsed.as_ref().and_then(|mail| mail.body_text(0));
    words
        .map(|words| words.trim().to_owned())
        .unwrap_or_default()
}

/// When the server took a mail, by the id that it gave: seconds, process, parts of a second, in
/// digits that sort as text.
fn accepted(mail: &str) -> (String, String) {
    let head = mail.split("\n\n").next().unwrap_or_default();
    let id = head.lines().find_map(|line| {
        let (_, rest) = line.trim().rsplit_once("id ")?;
        let id = rest.trim_end_matches(';');
        let parts: Vec<&str> = id.split('-').collect();
        match parts.as_slice() {
            [seconds, _, fraction] if seconds.len() == 6 => {
                Some(((*seconds).to_owned(), (*fraction).to_owned()))
            }
            _ => None,
        }
    });
    id.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mails_are_read_and_ordered_by_their_acceptance() {
        let mail = |id: &str, body: &str| {
            format!(
                "Return-path: <a@x>\nReceived: from c ([127.0.0.1])\n\tby mx with esmtpa (Exim 4.96)\n\t\
                 (envelope-from <a@x>)\n\tid {id}\n\tfor b@x;\n\tSun, 15 Nov 2026 22:00:00 +0000\n\
                 Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n{body}\n"
            )
        };
        let first = mail("1vKb2C-0009zz-1A", "=E2=99=BB one");
        let second = mail("1vKb2C-000111-2Q", "two");
        assert!(accepted(&first) < accepted(&second));
        assert_eq!(text(&first), "♻ one");
    }
}
