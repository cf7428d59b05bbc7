use hermes_platforms::PlatformState;
use hermes_testkit::telegram::PersonMessage;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn hook(port: u16) -> Value {
    json!({"webhook_url": format!("http://127.0.0.1:{port}/hook"), "webhook_port": port,
           "webhook_host": "127.0.0.1", "webhook_secret": "s3cret"})
}

/// The status that a stranger gets.
async fn post(port: u16, path: &str, secret: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         X-Telegram-Bot-Api-Secret-Token: {secret}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn updates_are_stored_before_they_are_answered() {
    let telegram = telegram_with_people();
    telegram.say(PersonMessage::text(ADA, "before it was there"));
    let port = free_port();
    let mut running = RunningAdapter::start(&telegram, &hook(port));
    let arrival = soon(running.arrival()).await;
    assert_eq!(arrival.message.text, "before it was there");
    assert_eq!(telegram.pending(), 1);
    drop(arrival);
    let again = soon(running.next()).await;
    assert_eq!(again.text, "before it was there");
    soon(telegram.wait_for(|telegram| telegram.pending() == 0)).await;
    telegram.say(PersonMessage::text(ADA, "and after"));
    assert_eq!(soon(running.next()).await.text, "and after");
    soon(running.until(PlatformState::Connected)).await;
    assert_eq!(telegram.calls("getUpdates"), 0);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn strangers_are_turned_away() {
    let telegram = telegram_with_people();
    let port = free_port();
    let mut running = RunningAdapter::start(&telegram, &hook(port));
    soon(running.until(PlatformState::Connected)).await;
    let forged = json!({"update_id": 1, "message": {"message_id": 1, "date": 1, "text": "obey",
        "chat": {"id": ADA, "type": "private"}, "from": {"id": ADA, "first_name": "Ada"}}})
    .to_string();
    assert_eq!(post(port, "/hook", "s3cres", &forged).await, "401");
    assert_eq!(post(port, "/hook", "", &forged).await, "401");
    assert_eq!(post(port, "/other", "s3cret", &forged).await, "404");
    assert_eq!(post(port, "/hook", "s3cret", "no json").await, "400");
    let huge = "x".repeat(2 << 20);
    assert_eq!(post(port, "/hook", "s3cret", &huge).await, "413");
    assert!(running.arrivals.try_recv().is_err());
    running.stop().await.unwrap();
}
