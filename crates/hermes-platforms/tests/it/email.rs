//! Email against a real mail server: Dovecot for IMAP, Exim for SMTP.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{SystemClock, SystemRng};
use hermes_gateway::{SessionKey, SessionSharing};
use hermes_platforms::{
    AdapterLink, Arrival, DeliveryLookup, FatalPlatformError, HealthReporter, IncomingMessage,
    Markup, MediaKind, OutMedia, OutboundAdapter, OutgoingMessage, Platform, PlatformCondition,
    PlatformSettings, PlatformState, SendError, email,
};
use hermes_store::delivery::Target;
use hermes_testkit::mail::{
    AUTHSERV_ID, MailFault, MailProxy, MailServer, PASSWORD, RECORDED, TestMail,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const HERMES: &str = "hermes@example.test";
const ANN: &str = "ann@example.test";

/// Longer than any test needs, shorter than a person waits.
const PATIENCE: Duration = Duration::from_secs(20);

struct EmailHarness {
    server: MailServer,
    home: tempfile::TempDir,
    address: &'static str,
    /// What differs from the defaults of [`EmailHarness::settings`].
    vars: Vec<(&'static str, String)>,
}

impl EmailHarness {
    fn new(test: &str) -> Option<Self> {
        Some(Self {
            server: MailServer::start(test)?,
            home: tempfile::tempdir().unwrap(),
            address: HERMES,
            vars: Vec::new(),
        })
    }

    fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.vars.push((name, value.into()));
    }

    fn settings(&self) -> PlatformSettings {
        let ports = self.server.ports();
        let mut vars = vec![
            ("EMAIL_ADDRESS", self.address.to_owned()),
            ("EMAIL_PASSWORD", PASSWORD.to_owned()),
            ("EMAIL_IMAP_HOST", "localhost".to_owned()),
            ("EMAIL_SMTP_HOST", "localhost".to_owned()),
            ("EMAIL_IMAP_PORT", ports.imaps.to_string()),
            ("EMAIL_SMTP_PORT", ports.smtp.to_string()),
            ("EMAIL_AUTHSERV_ID", AUTHSERV_ID.to_owned()),
            ("EMAIL_CA_FILE", self.server.ca_file().display().to_string()),
        ];
        vars.extend(self.vars.iter().cloned());
        PlatformSettings {
            name: "email".to_owned(),
            env: vars
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            ..PlatformSettings::default()
        }
    }

    fn platform(&self) -> Platform {
        let made = email::platform(
            &self.settings(),
            self.home.path(),
            Arc::new(SystemClock),
            Arc::new(SystemRng),
        );
        made.unwrap()
    }

    fn outbound(&self) -> Arc<dyn OutboundAdapter> {
        self.platform().outbound
    }

    /// Starts receiving, and returns once the mailbox was looked into.
    async fn live(&self) -> RunningAdapter {
        let (arrivals, inbox) = mpsc::channel(4);
        let (health, mut condition) = HealthReporter::new();
        let cancel = CancellationToken::new();
        let link = AdapterLink {
            arrivals,
            health,
            cancel: cancel.clone(),
        };
        let task = tokio::task::spawn_local(self.platform().inbound.run(link));
        let mut looked = condition.clone();
        let looked = looked.wait_for(|now| now.received_at.is_some());
        let timely = tokio::time::timeout(PATIENCE, looked).await.is_ok();
        assert!(timely, "{:?}\n{}", condition.borrow(), self.server.log());
        condition.mark_unchanged();
        RunningAdapter {
            inbox,
            condition,
            cancel,
            task,
        }
    }

    /// An answer, as the outbox would have it sent.
    fn answer(key: &str, to: &str, text: &str) -> OutgoingMessage {
        OutgoingMessage {
            key: key.to_owned(),
            target: Target {
                platform: "email".to_owned(),
                account: String::new(),
                chat_id: to.to_owned(),
                thread_id: None,
            },
            text: text.to_owned(),
            markup: Markup::Discord,
            reply_to: None,
            media: None,
            buttons: Vec::new(),
        }
    }

    async fn arrived(&self, address: &str, count: usize) -> Vec<String> {
        within("mails", async {
            while self.server.mailbox(address).len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        self.server.mailbox(address)
    }
}

/// One run of the receiving side.
struct RunningAdapter {
    inbox: mpsc::Receiver<Arrival>,
    condition: watch::Receiver<PlatformCondition>,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), FatalPlatformError>>,
}

impl RunningAdapter {
    /// The next message, stored.
    async fn next(&mut self) -> IncomingMessage {
        let arrival = self.refuse().await;
        arrival.stored.send(true).unwrap();
        arrival.message
    }

    /// The next message, not stored unless the caller says so.
    async fn refuse(&mut self) -> Arrival {
        within("a mail", self.inbox.recv()).await.expect("a mail")
    }

    /// Ends it well, with the connection.
    async fn end(mut self) {
        self.cancel.cancel();
        within("the end", self.task).await.unwrap().unwrap();
        assert!(self.inbox.try_recv().is_err(), "a mail that nobody expects");
    }
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

async fn local<T>(work: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(work).await
}

fn letter(subject: &str, body: &str) -> TestMail {
    TestMail::new(ANN, HERMES, subject, body)
}

fn header(mail: &str, name: &str) -> Option<String> {
    let unfolded = mail.replace("\n\t", " ").replace("\n ", " ");
    let head = unfolded.split("\n\n").next()?.to_owned();
    head.lines()
        .find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
}

#[tokio::test]
async fn mail_is_answered_in_its_thread() {
    let Some(mut bed) = EmailHarness::new("mail_is_answered_in_its_thread") else {
        return;
    };
    bed.set("EMAIL_DISPLAY_NAME", "Hermes");
    local(async {
        letter("Old", "before the first start").send(&bed.server);
        let mut life = bed.live().await;
        letter("Lunch", "Where?\n-- \nAnn")
            .header("Message-ID", "<one@ann>")
            .header("References", "<zero@ann>")
            .header("In-Reply-To", "<zero@ann>")
            .send(&bed.server);
        let message = life.next().await;
        assert_eq!(message.message_id, "one@ann");
        assert_eq!(message.text, "[Subject: Lunch]\n\nWhere?");
        assert_eq!(message.context.as_deref(), Some("-- \nAnn"));
        assert_eq!(
            (
                message.source.chat_id.as_str(),
                message.source.chat_type.as_str()
            ),
            (ANN, "dm")
        );
        assert_eq!(message.source.user_name.as_deref(), Some("Some Body"));
        let session = SessionKey::new_for(&message.source, SessionSharing::default());
        assert_eq!(session.as_str(), "agent:main:email:dm:ann@example.test");

        let answer = EmailHarness::answer(
            "0123456789abcdef01234567",
            ANN,
            "At **noon**, ü.\n\n```\ncode\n```",
        );
        let sent = bed.outbound().send(&answer).await.unwrap();
        assert_eq!(
            sent.as_deref(),
            Some("hermes.0123456789abcdef01234567@example.test")
        );
        let mail = &bed.arrived(ANN, 1).await[0];
        for (name, value) in [
            ("From", "Hermes <hermes@example.test>"),
            ("Subject", "Re: Lunch"),
            ("In-Reply-To", "<one@ann>"),
            ("References", "<zero@ann> <one@ann>"),
            (
                "Message-ID",
                "<hermes.0123456789abcdef01234567@example.test>",
            ),
            ("Auto-Submitted", "auto-replied"),
        ] {
            assert_eq!(header(mail, name).as_deref(), Some(value), "{mail}");
        }
        assert!(
            mail.contains("multipart/alternative") && mail.contains("<strong>noon</strong>"),
            "{mail}"
        );

        letter(
            "Re: Lunch",
            "Good\n\nOn 2 Nov 2026, Hermes <hermes@example.test> wrote:\n> At noon",
        )
        .header(
            "In-Reply-To",
            "<hermes.0123456789abcdef01234567@example.test>",
        )
        .send(&bed.server);
        let message = life.next().await;
        assert_eq!(message.text, "Good");
        assert!(message.context.unwrap().ends_with("> At noon"));
        assert!(message.reply_to.unwrap().own);
        life.end().await;
        // Read is what was taken in, and nothing else.
        assert_eq!(bed.server.flags(HERMES), ["", "S", "S"]);
    })
    .await;
}

#[tokio::test]
async fn mail_of_the_time_between_two_lives_is_not_lost_and_none_comes_twice() {
    let Some(mut bed) = EmailHarness::new("mail_of_the_time_between_two_lives") else {
        return;
    };
    bed.set("EMAIL_MARK_SEEN", "false");
    local(async {
        let mut life = bed.live().await;
        letter("a", "one").send(&bed.server);
        life.next().await;
        letter("b", "two")
            .header("Message-ID", "<two@ann>")
            .send(&bed.server);
        // It is not stored: the process ends before.
        let arrival = life.refuse().await;
        life.task.abort();
        drop((arrival, life));
        letter("c", "three").send(&bed.server);
        let mut life = bed.live().await;
        assert_eq!(life.next().await.message_id, "two@ann");
        assert_eq!(life.next().await.text, "[Subject: c]\n\nthree");
        life.end().await;
        bed.live().await.end().await;
        assert_eq!(bed.server.flags(HERMES), ["", "", ""]);
    })
    .await;
}

#[tokio::test]
async fn a_mailbox_that_numbers_anew_loses_nothing() {
    let Some(bed) = EmailHarness::new("a_mailbox_that_numbers_anew_loses_nothing") else {
        return;
    };
    local(async {
        let mut life = bed.live().await;
        letter("a", "one")
            .header("Message-ID", "<one@ann>")
            .send(&bed.server);
        life.next().await;
        life.end().await;
        letter("b", "two")
            .header("Message-ID", "<two@ann>")
            .send(&bed.server);
        bed.server.renumber(HERMES);
        let mut life = bed.live().await;
        // The first comes again under its own id, by which the store knows it.
        assert_eq!(life.next().await.message_id, "one@ann");
        assert_eq!(life.next().await.message_id, "two@ann");
        life.end().await;
    })
    .await;
}

#[tokio::test]
async fn only_people_that_are_proven_are_heard() {
    let Some(bed) = EmailHarness::new("only_people_that_are_proven_are_heard") else {
        return;
    };
    local(async {
        let mut life = bed.live().await;
        let forged = "mx.example.test; dmarc=pass header.from=example.test";
        letter("forged", "x")
            .header("Authentication-Results", forged)
            .unproven()
            .send(&bed.server);
        letter("unstamped", "x").unstamped().send(&bed.server);
        // A server that writes none lets the sender's stand on top.
        letter("forged by another", "x")
            .header(
                "Authentication-Results",
                "mx.evil.test; dmarc=pass header.from=example.test",
            )
            .unstamped()
            .send(&bed.server);
        letter("away", "x")
            .header("Auto-Submitted", "auto-replied")
            .send(&bed.server);
        letter("news", "x")
            .header("List-Unsubscribe", "<mailto:x@example.test>")
            .send(&bed.server);
        TestMail::new("noreply@example.test", HERMES, "bot", "x").send(&bed.server);
        TestMail::new(HERMES, HERMES, "self", "x").send(&bed.server);
        // Logged in as one, written in the name of another: the server vouches for the domain of the first.
        TestMail::new("eve@elsewhere.test", HERMES, "spoof", "x")
            .header("From", "Ann <ann@example.test>")
            .send(&bed.server);
        letter("real", "hello").send(&bed.server);
        assert_eq!(life.next().await.text, "[Subject: real]\n\nhello");
        life.end().await;
        assert_eq!(
            bed.server.flags(HERMES),
            ["", "", "", "", "", "", "", "", "S"]
        );
    })
    .await;
}

/// Without the name of a server that confirms, on a host that tells nothing, nobody is proven.
#[tokio::test]
async fn where_no_server_is_known_to_confirm_nobody_is_heard() {
    let Some(mut bed) = EmailHarness::new("where_no_server_is_known_to_confirm_nobody_is_heard")
    else {
        return;
    };
    bed.set("EMAIL_AUTHSERV_ID", "");
    local(async {
        let life = bed.live().await;
        letter("stamped", "x").send(&bed.server);
        letter("forged", "x")
            .header(
                "Authentication-Results",
                "mx.evil.test; dmarc=pass header.from=example.test",
            )
            .unstamped()
            .send(&bed.server);
        // Both are dealt with.
        within("the second mail", async {
            let kept = bed.home.path().join("gateway/email.json");
            loop {
                let text = std::fs::read(&kept).unwrap_or_default();
                let kept: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
                let mut boxes = kept.as_object().into_iter().flat_map(|all| all.values());
                if boxes.any(|one| one["cursor"]["uid"] == 2) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        life.end().await;
        assert_eq!(bed.server.flags(HERMES), ["", ""]);
    })
    .await;
}

#[tokio::test]
async fn who_trusts_everybody_hears_everybody() {
    let Some(mut bed) = EmailHarness::new("who_trusts_everybody_hears_everybody") else {
        return;
    };
    bed.set("EMAIL_TRUST_FROM_HEADER", "true");
    local(async {
        let mut life = bed.live().await;
        letter("s", "unstamped").unstamped().send(&bed.server);
        assert_eq!(life.next().await.text, "[Subject: s]\n\nunstamped");
        life.end().await;
    })
    .await;
}

const PARTS: &str = "--b\nContent-Type: text/html; charset=utf-8\n\n<p>See <b>this</b></p><p>&amp; that</p>\n\
--b\nContent-Type: image/png; name=\"p.png\"\nContent-Disposition: attachment; filename=\"../p.png\"\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n\
--b\nContent-Type: text/csv\nContent-Disposition: attachment; filename=\"t.csv\"\n\na,b\n--b--\n";

#[tokio::test]
async fn files_come_and_go() {
    let Some(mut bed) = EmailHarness::new("files_come_and_go") else {
        return;
    };
    bed.set("EMAIL_SMTP_PORT", bed.server.ports().smtps.to_string());
    bed.set("EMAIL_SMTP_TLS", "implicit");
    bed.set("EMAIL_IMAP_PORT", bed.server.ports().imap.to_string());
    bed.set("EMAIL_IMAP_TLS", "starttls");
    local(async {
        let mut life = bed.live().await;
        letter("Re: x", "")
            .mime("multipart/mixed; boundary=b", PARTS)
            .send(&bed.server);
        let message = life.next().await;
        assert_eq!(message.text, "See this\n& that");
        let kinds: Vec<_> = message
            .media
            .iter()
            .map(|media| (media.kind, media.name.clone()))
            .collect();
        assert_eq!(
            kinds,
            [
                (MediaKind::Image, Some("../p.png".to_owned())),
                (MediaKind::Document, Some("t.csv".to_owned()))
            ]
        );
        let outbound = bed.outbound();
        let into = bed.home.path().join("cache");
        let path = outbound
            .fetch_media(&message.media[0], &into, 1_000)
            .await
            .unwrap();
        assert_eq!(path.parent(), Some(into.as_path()));
        assert_eq!(std::fs::read(&path).unwrap(), b"\x89PNG\r\n\x1a\n");
        let too_much = outbound
            .fetch_media(&message.media[0], &into, 7)
            .await
            .unwrap_err();
        assert!(
            matches!(&too_much, SendError::Refused(why) if why.contains("8 bytes")),
            "{too_much:?}"
        );

        let mut answer = EmailHarness::answer("a0", ANN, "Here");
        answer.media = Some(OutMedia {
            path: path.clone(),
            kind: MediaKind::Image,
        });
        outbound.send(&answer).await.unwrap();
        let mail = &bed.arrived(ANN, 1).await[0];
        assert!(
            mail.contains("iVBORw0KGgo=") && mail.contains("image/png"),
            "{mail}"
        );
        answer.media = Some(OutMedia {
            path: Path::new("/nowhere").to_owned(),
            kind: MediaKind::Image,
        });
        assert!(matches!(
            outbound.send(&answer).await,
            Err(SendError::Refused(_))
        ));
        life.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_failed_send_says_what_became_of_the_mail() {
    let Some(mut bed) = EmailHarness::new("a_failed_send_says_what_became_of_the_mail") else {
        return;
    };
    let proxy = MailProxy::to(bed.server.ports().smtp);
    bed.address = RECORDED;
    bed.set("EMAIL_SMTP_PORT", proxy.port().to_string());
    // The proxy must see the end of the mail.
    bed.set("EMAIL_SMTP_TLS", "none");
    let outbound = bed.outbound();
    let try_send =
        async |key: &str, to: &str| outbound.send(&EmailHarness::answer(key, to, "text")).await;

    proxy.weather(MailFault::Refuse);
    assert!(matches!(
        try_send("a1", ANN).await,
        Err(SendError::NotSent { .. })
    ));
    proxy.weather(MailFault::Fine);
    assert!(matches!(
        try_send("a2", "nobody@example.test").await,
        Err(SendError::Refused(_))
    ));
    assert!(matches!(
        try_send("a3", "later@example.test").await,
        Err(SendError::NotSent { .. })
    ));
    assert!(matches!(
        try_send("a4", "no address").await,
        Err(SendError::Refused(_))
    ));
    // Before the first mail, nobody knows whether the provider keeps copies.
    assert_eq!(
        outbound.look_up(&EmailHarness::answer("b1", ANN, "")).await,
        Ok(DeliveryLookup::Unknown)
    );

    proxy.weather(MailFault::CutAfterDot);
    assert!(matches!(
        try_send("b1", ANN).await,
        Err(SendError::Unclear(_))
    ));
    bed.arrived(ANN, 1).await;
    within("the copy", async {
        while bed.server.folder(RECORDED, "Sent").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let found = outbound.look_up(&EmailHarness::answer("b1", ANN, "")).await;
    assert_eq!(
        found,
        Ok(DeliveryLookup::Yes(Some(
            "hermes.b1@example.test".to_owned()
        )))
    );
    proxy.weather(MailFault::CutBeforeDot);
    assert!(matches!(
        try_send("b2", ANN).await,
        Err(SendError::Unclear(_))
    ));
    assert_eq!(
        outbound.look_up(&EmailHarness::answer("b2", ANN, "")).await,
        Ok(DeliveryLookup::No)
    );
    assert_eq!(bed.server.mailbox(ANN).len(), 1);
}

#[tokio::test]
async fn a_lost_server_is_found_again() {
    let Some(mut bed) = EmailHarness::new("a_lost_server_is_found_again") else {
        return;
    };
    let proxy = MailProxy::to(bed.server.ports().imaps);
    bed.set("EMAIL_IMAP_PORT", proxy.port().to_string());
    local(async {
        let mut life = bed.live().await;
        proxy.weather(MailFault::Refuse);
        bed.server.stop_imap();
        let retrying = life
            .condition
            .wait_for(|now| now.state == PlatformState::Retrying);
        within("noticing", retrying).await.unwrap();
        bed.server.start_imap();
        proxy.weather(MailFault::Fine);
        letter("back", "again").send(&bed.server);
        assert_eq!(life.next().await.text, "[Subject: back]\n\nagain");
        assert_eq!(life.condition.borrow().state, PlatformState::Connected);
        life.end().await;
    })
    .await;
}

/// The network swallows everything and closes nothing. Time runs as fast as nothing happens.
#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_noticed() {
    let Some(mut bed) = EmailHarness::new("a_server_that_falls_silent_is_noticed") else {
        return;
    };
    let proxy = MailProxy::to(bed.server.ports().imap);
    bed.set("EMAIL_IMAP_PORT", proxy.port().to_string());
    bed.set("EMAIL_IMAP_TLS", "none");
    tokio::time::resume();
    local(async {
        let mut life = bed.live().await;
        proxy.weather(MailFault::Silence);
        letter("while", "deaf").send(&bed.server);
        tokio::time::pause();
        let mut condition = life.condition.clone();
        condition
            .wait_for(|now| now.state == PlatformState::Retrying)
            .await
            .unwrap();
        tokio::time::resume();
        proxy.weather(MailFault::Fine);
        assert_eq!(life.next().await.text, "[Subject: while]\n\ndeaf");
        life.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_wrong_password_is_said() {
    let Some(mut bed) = EmailHarness::new("a_wrong_password_is_said") else {
        return;
    };
    bed.set("EMAIL_PASSWORD", "wrong");
    let (arrivals, _inbox) = mpsc::channel(1);
    let link = AdapterLink {
        arrivals,
        health: HealthReporter::new().0,
        cancel: CancellationToken::new(),
    };
    let error = within("giving up", bed.platform().inbound.run(link))
        .await
        .unwrap_err();
    assert!(
        error.0.contains("EMAIL_PASSWORD") && error.0.contains(HERMES),
        "{error}"
    );
    let refused = bed
        .outbound()
        .send(&EmailHarness::answer("a", ANN, "text"))
        .await;
    // It waits: the password may be put right.
    assert!(
        matches!(&refused, Err(SendError::NotSent { error, .. }) if error.contains("refuses the login")),
        "{refused:?}"
    );
}
