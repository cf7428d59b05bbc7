//! Mail and the built binary, with Dovecot and Exim: a command approved by answering, files, a death in
//! the middle of a turn.

use std::time::{Duration, Instant};

use hermes_testkit::home::TempHome;
use hermes_testkit::mail::{AUTHSERV_ID, MailServer, PASSWORD, TestMail};
use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate};
use serde_json::json;

use super::GatewayChild;

const HERMES: &str = "hermes@example.test";
const ANN: &str = "ann@example.test";
const PATIENCE: Duration = Duration::from_secs(30);

struct EmailScenario {
    mail: MailServer,
    model: ModelServer,
    home: TempHome,
}

impl EmailScenario {
    fn new(test: &str) -> Option<Self> {
        let (mail, model, home) = (
            MailServer::start(test)?,
            ModelServer::start(),
            TempHome::new(),
        );
        home.config_json(&json!({
            "model": {"default": "scripted", "provider": "custom", "base_url": model.base_url(),
                      "api_key": "k", "context_length": 200_000},
            "auxiliary": {"title_generation": {"enabled": false}},
            "approvals": {"mode": "manual"},
            "terminal": {"cwd": home.work()},
        }));
        let ports = mail.ports();
        home.env_file(&format!(
            "EMAIL_ADDRESS={HERMES}\nEMAIL_PASSWORD={PASSWORD}\nEMAIL_ALLOWED_USERS={ANN}\n\
             EMAIL_IMAP_HOST=localhost\nEMAIL_IMAP_PORT={}\nEMAIL_SMTP_HOST=localhost\nEMAIL_SMTP_PORT={}\n\
             EMAIL_AUTHSERV_ID={AUTHSERV_ID}\nEMAIL_CA_FILE={}\n",
            ports.imaps,
            ports.smtp,
            mail.ca_file().display()
        ));
        Some(Self { mail, model, home })
    }

    /// Returns when the mailbox was looked into: only what comes afterwards is answered.
    fn start(&self) -> GatewayChild {
        let life = GatewayChild::begin(&self.home, &[]);
        self.until("the first look", || self.home.exists("gateway/email.json"));
        life
    }

    fn until(&self, what: &str, enough: impl Fn() -> bool) {
        let began = Instant::now();
        while !enough() {
            assert!(
                began.elapsed() < PATIENCE,
                "never: {what}\n{}\n{}",
                self.mail.log(),
                std::fs::read_to_string(self.home.join("logs/gateway.log")).unwrap_or_default(),
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until Ann has a mail with these words.
    fn see(&self, words: &str) -> String {
        let found = || {
            self.mail
                .mailbox(ANN)
                .into_iter()
                .find(|mail| mail.contains(words))
        };
        self.until(words, || found().is_some());
        found().unwrap()
    }

    fn count(&self, words: &str) -> usize {
        let mails = self.mail.mailbox(ANN);
        mails.iter().filter(|mail| mail.contains(words)).count()
    }
}

#[test]
fn a_command_is_approved_by_answering() {
    let Some(story) = EmailScenario::new("a_command_is_approved_by_answering") else {
        return;
    };
    let victim = story.home.work().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let command = format!("rm -rf {}", victim.display());
    story.model.push_all([
        Reply::tool_call("c1", "terminal", &json!({ "command": command })),
        Reply::text("It is **gone**."),
    ]);
    let gateway = story.start();
    // Somebody who is not on the list, and somebody who pretends to be.
    TestMail::new("eve@example.test", HERMES, "Hi", "let me in").send(&story.mail);
    TestMail::new(ANN, HERMES, "Hi", "I am Ann, really")
        .unproven()
        .send(&story.mail);
    TestMail::new(ANN, HERMES, "Cleaning", "Remove the victim.")
        .header("Message-ID", "<clean@ann>")
        .send(&story.mail);
    let question = story.see("rm -rf");
    assert!(question.contains("\nSubject: Re: Cleaning\n"), "{question}");
    assert!(
        question.contains("\nIn-Reply-To: <clean@ann>\n"),
        "{question}"
    );
    assert!(victim.exists());
    TestMail::new(
        ANN,
        HERMES,
        "Re: Cleaning",
        "yes\n\nOn 2 Nov 2026, Hermes <hermes@example.test> wrote:\n> rm -rf",
    )
    .send(&story.mail);
    let done = story.see("<strong>gone</strong>");
    assert!(done.contains("Auto-Submitted: auto-replied"), "{done}");
    assert!(!victim.exists());
    gateway.stop();
    assert!(story.mail.mailbox("eve@example.test").is_empty());
    assert_eq!(story.model.requests().len(), 2);
}

#[test]
fn mail_survives_a_death_in_the_middle() {
    let Some(story) = EmailScenario::new("mail_survives_a_death_in_the_middle") else {
        return;
    };
    let gate = ReplyGate::new();
    story.model.push(Reply::text("never").hold(&gate));
    let gateway = story.start();
    TestMail::new(ANN, HERMES, "First", "think").send(&story.mail);
    story.model.block_until(|now| now.requests > 0);
    gateway.signal(rustix::process::Signal::KILL);
    drop(gateway.end());
    gate.release();
    TestMail::new("bob@example.test", HERMES, "No", "nobody knows me").send(&story.mail);
    TestMail::new(ANN, HERMES, "Second", "while you were away").send(&story.mail);
    story.model.push_default(Reply::text("I am back."));
    let gateway = story.start();
    story.see("I am back.");
    story.until("both are read", || {
        story.mail.flags(HERMES) == ["S", "", "S"] || story.mail.flags(HERMES) == ["S", "S", "S"]
    });
    story.until("both are answered", || {
        let asked = story.model.requests();
        asked
            .iter()
            .any(|one| String::from_utf8_lossy(&one.raw).contains("while you were away"))
    });
    gateway.stop();
    assert_eq!(story.count("never"), 0);
    assert_eq!(story.count("♻"), 0);
    let answers = story.count("I am back.");
    assert!((1..=2).contains(&answers), "{answers}");
}
