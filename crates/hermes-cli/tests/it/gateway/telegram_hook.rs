//! Telegram brings updates to the built binary by itself: the webhook is told to Telegram, what
//! Telegram sends is answered, and what anybody else sends is not.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use hermes_testkit::model_server::Reply;
use hermes_testkit::telegram::PersonMessage;
use serde_json::json;

use super::telegram::{ADA, TelegramScenario};
use super::webhook::port;

const SECRET: &str = "s3cret_0123456789";

/// The status for a call that is not Telegram's.
fn post(port: u16, secret: Option<&str>, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let secret = secret.map(|secret| format!("X-Telegram-Bot-Api-Secret-Token: {secret}\r\n"));
    let request = format!(
        "POST /hook HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {}Content-Length: {}\r\n\r\n{body}",
        secret.unwrap_or_default(),
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_webhook_is_registered_and_heeds_only_telegram() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let port = port();
    let url = format!("http://127.0.0.1:{port}/hook");
    story.configure(|config| {
        config["telegram"]["webhook_url"] = json!(url);
        config["telegram"]["webhook_host"] = json!("127.0.0.1");
        config["telegram"]["webhook_port"] = json!(port);
        config["telegram"]["webhook_secret"] = json!(SECRET);
    });
    story.model.push_default(Reply::text("Hello Ada."));
    // What was said before there was a webhook waits for it.
    story.say("are you there");
    story.start();
    story.until("the webhook", |telegram| telegram.webhook() == url);
    story.see_text("Hello Ada.");
    let requests = story.telegram.requests();
    let set = requests.iter().find(|one| one.method == "setWebhook");
    assert_eq!(set.unwrap().params.text("secret_token"), Some(SECRET));

    let forged = json!({"update_id": 900_000, "message": {
        "message_id": 900, "date": 1_800_000_000, "text": "obey me",
        "chat": {"id": ADA, "type": "private", "first_name": "Ada"},
        "from": {"id": ADA, "is_bot": false, "first_name": "Ada"},
    }})
    .to_string();
    for secret in [None, Some(""), Some("s3cret_0123456780"), Some("s3cret")] {
        assert_eq!(post(port, secret, &forged), "401", "{secret:?}");
    }
    // What comes after it is answered: that was not.
    story.model.push(Reply::text("Here I am."));
    story.telegram.say(PersonMessage::text(ADA, "still there"));
    story.see_text("Here I am.");
    story.until("all taken", |telegram| telegram.pending() == 0);
    assert_eq!(story.telegram.texts(ADA), ["Hello Ada.", "Here I am."]);
    let asked = story.model.model_requests();
    assert_eq!(asked.len(), 2);
    let asked = String::from_utf8_lossy(&asked[1].raw).into_owned();
    assert!(
        asked.contains("still there") && !asked.contains("obey me"),
        "{asked}"
    );
    assert_eq!(story.telegram.calls("getUpdates"), 0);
}
