//! Mail in a storm, with Dovecot and Exim: connections to both are cut, at any time and around the
//! end of a mail.

use std::rc::Rc;

use hermes_testkit::home::TempHome;
use hermes_testkit::mail::{AUTHSERV_ID, MailFault, MailProxy, MailServer, PASSWORD, TestMail};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::platform::{ChaosPlatform, ChaosSetup};
use super::traffic::{ChatTraffic, TurnTally};

/// More than thirty mails of one sender within ten minutes are taken for a loop.
const PER_SENDER: u32 = 27;

pub(super) struct Email {
    server: Rc<MailServer>,
    imap: MailProxy,
    smtp: MailProxy,
    /// The mailbox of the gateway.
    address: String,
    talk: ChatTraffic,
}

impl Email {
    /// `address` has one that the server keeps a copy of everything it sends for, or not.
    pub(super) fn new(
        server: &Rc<MailServer>,
        address: &str,
        chats: std::ops::RangeInclusive<i64>,
    ) -> Self {
        let ports = server.ports();
        Self {
            server: Rc::clone(server),
            imap: MailProxy::to(ports.imap),
            smtp: MailProxy::to(ports.smtp),
            address: address.to_owned(),
            talk: ChatTraffic::new(chats),
        }
    }

    fn say_in(&mut self, chat: i64) {
        let text = self.talk.next(chat);
        TestMail::new(&person(chat), &self.address, "Weather", &text).send(&self.server);
    }

    fn texts(&self, chat: i64) -> Vec<String> {
        self.server.texts(&person(chat))
    }
}

fn person(chat: i64) -> String {
    format!("p{chat}@example.test")
}

impl ChaosPlatform for Email {
    fn name(&self) -> &'static str {
        "email"
    }

    fn configure(&self, setting: &mut ChaosSetup) {
        let people: Vec<String> = self.talk.chats().into_iter().map(person).collect();
        setting.env("EMAIL_ADDRESS", &self.address);
        setting.env("EMAIL_PASSWORD", PASSWORD);
        setting.env("EMAIL_ALLOWED_USERS", people.join(","));
        setting.env("EMAIL_AUTHSERV_ID", AUTHSERV_ID);
        // The proxies must see what passes.
        for (kind, proxy) in [("IMAP", &self.imap), ("SMTP", &self.smtp)] {
            setting.env(&format!("EMAIL_{kind}_HOST"), "localhost");
            setting.env(&format!("EMAIL_{kind}_PORT"), proxy.port());
            setting.env(&format!("EMAIL_{kind}_TLS"), "none");
        }
    }

    /// Only what comes after the first look is answered.
    fn is_ready(&mut self, home: &TempHome) -> bool {
        home.exists("gateway/email.json")
    }

    fn say(&mut self, rng: &mut SmallRng) {
        let chat = self.talk.any(rng);
        if self.talk.sent(chat) < PER_SENDER {
            self.say_in(chat);
        }
    }

    fn last_words(&mut self) {
        for chat in self.talk.chats() {
            self.say_in(chat);
        }
    }

    fn trouble(&mut self, rng: &mut SmallRng) {
        match rng.random_range(0..6) {
            0 => self.imap.cut(),
            1 => self.smtp.cut(),
            2 => self.smtp.cut_next(MailFault::CutBeforeDot),
            3 => self.smtp.cut_next(MailFault::CutAfterDot),
            4 => self.smtp.weather(MailFault::Refuse),
            _ => self.smtp.weather(MailFault::Fine),
        }
    }

    fn still(&mut self) {
        self.smtp.weather(MailFault::Fine);
    }

    fn open(&self) -> Vec<String> {
        self.talk.open(|chat| self.texts(chat))
    }

    fn judge(&self) -> TurnTally {
        self.talk.judge(|chat| self.texts(chat), |_, _, _| false)
    }

    fn seen(&self) -> Value {
        let chats = self.talk.chats().into_iter();
        chats
            .map(|chat| (chat.to_string(), json!(self.texts(chat))))
            .collect()
    }
}
