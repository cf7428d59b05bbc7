//! Sending a mail as people's programs do.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use super::{MailServer, PASSWORD};

/// A mail to be sent by somebody.
#[derive(Clone, Debug)]
pub struct TestMail {
    from: String,
    to: String,
    headers: String,
    body: String,
    hello: &'static str,
    login: Option<String>,
}

impl TestMail {
    /// From somebody who is logged in.
    pub fn new(from: &str, to: &str, subject: &str, body: &str) -> Self {
        let letter = Self {
            from: from.to_owned(),
            to: to.to_owned(),
            headers: String::new(),
            body: body.to_owned(),
            hello: "client.example.test",
            login: Some(from.to_owned()),
        };
        letter
            .header("From", &format!("Some Body <{from}>"))
            .header("To", to)
            .header("Subject", subject)
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.headers, "{name}: {value}\r\n");
        self
    }

    /// From a stranger: nobody vouches for the sender.
    #[must_use]
    pub fn unproven(mut self) -> Self {
        self.login = None;
        self
    }

    /// From a stranger, through a server that does not say what it found out.
    #[must_use]
    pub fn unstamped(mut self) -> Self {
        self.hello = "nostamp.test";
        self.unproven()
    }

    /// The body with a content type of its own: of several parts, of HTML.
    #[must_use]
    pub fn mime(self, content_type: &str, body: &str) -> Self {
        let mut letter = self
            .header("MIME-Version", "1.0")
            .header("Content-Type", content_type);
        body.clone_into(&mut letter.body);
        letter
    }

    /// Sends it; it is in its mailbox when this returns.
    pub fn send(&self, server: &MailServer) {
        let before = server.mailbox(&self.to).len();
        let stream =
            TcpStream::connect(("127.0.0.1", server.ports().smtp)).expect("the SMTP server");
        let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
        let mut stream = stream;
        let mut say = |line: &str, expected: &str| {
            if !line.is_empty() {
                stream
                    .write_all(format!("{line}\r\n").as_bytes())
                    .expect("writing");
            }
            loop {
                let answer = lines.next().expect("an answer").expect("an answer");
                if answer.as_bytes().get(3) != Some(&b'-') {
                    assert!(answer.starts_with(expected), "{line}: {answer}");
                    return;
                }
            }
        };
        say("", "220");
        say(&format!("EHLO {}", self.hello), "250");
        if let Some(user) = &self.login {
            say(
                &format!(
                    "AUTH PLAIN {}",
                    base64(format!("\0{user}\0{PASSWORD}").as_bytes())
                ),
                "235",
            );
        }
        say(&format!("MAIL FROM:<{}>", self.from), "250");
        say(&format!("RCPT TO:<{}>", self.to), "250");
        say("DATA", "354");
        let body = self
            .body
            .replace("\r\n", "\n")
            .replace('\n', "\r\n")
            .replace("\r\n.", "\r\n..");
        say(&format!("{}\r\n{body}\r\n.", self.headers), "250");
        say("QUIT", "221");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while server.mailbox(&self.to).len() == before {
            assert!(
                std::time::Instant::now() < deadline,
                "not delivered:\n{}",
                server.log()
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Small enough not to need a crate here.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().enumerate().fold(0_u32, |word, (at, byte)| {
            word | u32::from(*byte) << (16 - 8 * at)
        });
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_of_every_remainder() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(super::base64(plain.as_bytes()), coded);
        }
    }
}
