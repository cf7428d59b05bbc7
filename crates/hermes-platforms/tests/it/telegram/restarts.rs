use hermes_gateway::MessageInbox;
use hermes_gateway::SessionSharing;
use hermes_store::Store;
use hermes_store::delivery::{Owner, Processes};
use hermes_testkit::clock::ManualClock;
use hermes_testkit::telegram::PersonMessage;
use pretty_assertions::assert_eq;
use tokio::sync::Notify;

use super::*;

struct NoProcesses;

impl Processes for NoProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

/// Processes that end without a word, at whatever they were doing; the store outlives them.
#[tokio::test]
async fn each_message_is_taken_in_once_over_many_lives() {
    const MESSAGES: usize = 40;
    let telegram = telegram_with_people();
    telegram.person(8, "Bob");
    for number in 0..MESSAGES {
        let person = if number % 3 == 0 { 8 } else { ADA };
        telegram.say(PersonMessage::text(person, &format!("message {number}")));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    for life in 1_u32..=6 {
        let store = Store::open(&path, Arc::new(ManualClock::default())).unwrap();
        let owner = Owner {
            pid: life,
            started_at: Some(1),
            instance: format!("life {life}"),
        };
        let lease = Duration::from_mins(1);
        let (delivery, _) = store
            .own_delivery(owner, lease, Arc::new(NoProcesses))
            .await
            .unwrap();
        let running = RunningAdapter::start(&telegram, &json!({}));
        let inbox = MessageInbox::new(delivery.clone(), SessionSharing::default());
        let (news, token) = (Arc::new(Notify::new()), running.cancel.clone());
        let heard = Arc::clone(&news);
        let arrivals = running.arrivals;
        let storing = task::spawn("inbox", async move {
            inbox
                .run(arrivals, token, move |_| heard.notify_one())
                .await;
        });
        let wanted = if life == 6 {
            MESSAGES
        } else {
            life as usize * 7
        };
        soon(async {
            while delivery.waiting(MESSAGES * 2).await.unwrap().len() < wanted {
                news.notified().await;
            }
        })
        .await;
        if life == 6 {
            soon(telegram.wait_for(|telegram| telegram.pending() == 0)).await;
            let waiting = delivery.waiting(MESSAGES * 2).await.unwrap();
            let texts: Vec<String> = waiting
                .iter()
                .map(|one| one.message.payload["text"].as_str().unwrap().to_owned())
                .collect();
            let all: Vec<String> = (0..MESSAGES).map(|n| format!("message {n}")).collect();
            assert_eq!(texts, all);
        }
        running.task.abort();
        storing.abort();
    }
}
