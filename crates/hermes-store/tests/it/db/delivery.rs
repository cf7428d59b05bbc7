//! What the gateway owes, and who may deliver it.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::message::{AssistantMessage, Message, ToolCall};
use hermes_core::store::{NewItem, SessionStore as _, StoreError};
use hermes_store::Store;
use hermes_store::delivery::{
    Accepted, Chunk, ChunkPhase, Delivery, Due, Final, Inbound, NewChunk, NewReply, Owner,
    Processes, Progress, RecoveredWork, Settled, Target,
};
use hermes_testkit::clock::ManualClock;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::json;
use tempfile::TempDir;

const LEASE: Duration = Duration::from_mins(1);

/// Lives: exactly these.
struct Living(Vec<u32>);

impl Processes for Living {
    fn alive(&self, pid: u32, _: Option<i64>) -> bool {
        self.0.contains(&pid)
    }
}

fn living(pids: &[u32]) -> Arc<dyn Processes> {
    Arc::new(Living(pids.to_vec()))
}

fn owner(pid: u32) -> Owner {
    Owner {
        pid,
        started_at: Some(77),
        instance: format!("life-{pid}"),
    }
}

struct Home {
    dir: TempDir,
    clock: Arc<ManualClock>,
    store: Store,
}

impl Home {
    fn new() -> Self {
        let (dir, clock) = (TempDir::new().unwrap(), Arc::new(ManualClock::default()));
        let store = Store::open(dir.path().join("state.db"), clock.clone()).unwrap();
        Self { dir, clock, store }
    }

    async fn own(&self, pid: u32, alive: &[u32]) -> Result<(Delivery, RecoveredWork), StoreError> {
        self.store
            .own_delivery(owner(pid), LEASE, living(alive))
            .await
    }
}

fn message(id: &str) -> Inbound {
    Inbound {
        platform: "telegram".to_owned(),
        account: String::new(),
        chat_id: "5".to_owned(),
        message_id: id.to_owned(),
        session_key: "agent:main:telegram:dm:5".to_owned(),
        payload: json!({"text": "hi"}),
    }
}

fn reply(chat: &str, texts: &[&str]) -> NewReply {
    NewReply {
        session_key: format!("agent:main:telegram:dm:{chat}"),
        target: Target {
            platform: "telegram".to_owned(),
            account: String::new(),
            chat_id: chat.to_owned(),
            thread_id: None,
        },
        chunks: texts
            .iter()
            .map(|text| NewChunk {
                text: (*text).to_owned(),
                extra: None,
            })
            .collect(),
    }
}

fn end(turn: &str, answers: &[i64], replies: Vec<NewReply>) -> Final {
    Final {
        turn: turn.to_owned(),
        answers: answers.to_vec(),
        replies,
        ..Final::default()
    }
}

async fn due(delivery: &Delivery) -> Vec<Chunk> {
    let reachable = ["telegram", "slack"].map(|name| (name.to_owned(), String::new()));
    delivery.due(reachable.to_vec(), 10).await.unwrap().chunks
}

async fn only(delivery: &Delivery) -> Chunk {
    let due = due(delivery).await;
    assert_eq!(due.len(), 1, "{due:?}");
    due.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_message_is_taken_in_once_for_ever() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    let Accepted::New(id) = delivery.accept(message("a")).await.unwrap() else {
        panic!("it is new");
    };
    assert_eq!(
        delivery.accept(message("a")).await.unwrap(),
        Accepted::Seen(id)
    );
    let mut elsewhere = message("a");
    elsewhere.chat_id = "6".to_owned();
    assert!(matches!(
        delivery.accept(elsewhere).await.unwrap(),
        Accepted::New(_)
    ));
    delivery.claim(&[id], "t1").await.unwrap();
    delivery.finish(end("t1", &[id], vec![])).await.unwrap();
    let (delivery, left) = home.own(2, &[]).await.unwrap();
    assert_eq!(left.waiting, 1);
    assert_eq!(
        delivery.accept(message("a")).await.unwrap(),
        Accepted::Seen(id)
    );
}

#[tokio::test]
async fn the_end_of_a_turn_is_all_or_nothing() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    let Accepted::New(id) = delivery.accept(message("a")).await.unwrap() else {
        panic!("it is new");
    };
    let unclaimed = delivery.finish(end("t0", &[id], vec![])).await;
    assert!(unclaimed.is_err(), "nobody took it");
    delivery.claim(&[id], "t1").await.unwrap();
    let other = delivery.finish(end("t2", &[id], vec![])).await;
    assert!(other.is_err(), "another turn has it");
    let mut broken = end("t1", &[id], vec![reply("5", &["one"])]);
    broken.transcript = Some((
        "no-such-session".into(),
        vec![NewItem {
            message: Message::assistant("one"),
            at: 1.0,
            token_count: None,
            platform_message_id: None,
        }],
    ));
    assert!(matches!(
        delivery.finish(broken).await,
        Err(StoreError::NotFound(_))
    ));
    assert_eq!(due(&delivery).await, []);
    let waiting = delivery.waiting(10).await.unwrap();
    assert_eq!(waiting[0].turn.as_deref(), Some("t1"));
    assert_eq!(waiting[0].message, message("a"));

    let session = super::begin(&home.store, "s1", "telegram", None).await;
    let mut whole = end("t1", &[id], vec![reply("5", &["one"])]);
    whole.transcript = Some((
        session.clone(),
        vec![NewItem {
            message: Message::assistant("one"),
            at: 1.0,
            token_count: None,
            platform_message_id: None,
        }],
    ));
    assert_eq!(delivery.finish(whole.clone()).await.unwrap(), 1);
    assert!(delivery.finish(whole).await.is_err(), "a turn ends once");
    assert!(delivery.claim(&[id], "t3").await.is_err(), "it is answered");
    assert!(delivery.waiting(10).await.unwrap().is_empty());
    assert_eq!(only(&delivery).await.text, "one");
    let stored = home.store.load(&session).await.unwrap().unwrap();
    assert_eq!(stored.items.len(), 1);
}

#[tokio::test]
async fn chunks_of_a_chat_leave_in_order_and_chats_do_not_wait_for_each_other() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    delivery
        .finish(end(
            "t1",
            &[],
            vec![reply("5", &["a1", "a2"]), reply("6", &["b1"])],
        ))
        .await
        .unwrap();
    let heads = due(&delivery).await;
    let texts: Vec<&str> = heads.iter().map(|chunk| chunk.text.as_str()).collect();
    assert_eq!(texts, ["a1", "b1"]);
    delivery.begin_send(heads[0].seq).await.unwrap();
    assert_eq!(only(&delivery).await.text, "b1", "a1 is on its way");
    let at = home.store_now() + 5.0;
    let retry = Settled::Retry {
        error: "network".to_owned(),
        at,
    };
    delivery.settle(heads[0].seq, retry).await.unwrap();
    assert_eq!(only(&delivery).await.text, "b1", "a1 is not due, a2 waits");
    let elsewhere = vec![("slack".to_owned(), String::new())];
    let none = delivery.due(elsewhere, 10).await.unwrap();
    assert_eq!(none, Due::default(), "it cannot be reached");
    let here = vec![("telegram".to_owned(), String::new())];
    let next = delivery.due(here, 10).await.unwrap().next_at;
    assert_eq!(next, Some(at));
    home.clock.advance(Duration::from_secs(6));
    assert_eq!(due(&delivery).await[0].text, "a1");
    delivery.begin_send(heads[0].seq).await.unwrap();
    let sent = Settled::Sent {
        id: Some("m1".to_owned()),
    };
    delivery.settle(heads[0].seq, sent.clone()).await.unwrap();
    assert!(
        delivery.settle(heads[0].seq, sent).await.is_err(),
        "once is enough"
    );
    assert_eq!(due(&delivery).await[0].text, "a2");
}

impl Home {
    fn store_now(&self) -> f64 {
        hermes_core::clock::Clock::epoch_seconds(self.clock.as_ref())
    }
}

#[tokio::test]
async fn one_process_delivers_and_one_that_slept_can_change_nothing() {
    let home = Home::new();
    let (first, _) = home.own(1, &[1]).await.unwrap();
    let refused = home.own(2, &[1, 2]).await.err().unwrap();
    assert!(matches!(refused, StoreError::NotOwner { .. }), "{refused}");
    home.clock.advance(Duration::from_secs(50));
    first.heartbeat().await.unwrap();
    home.clock.advance(Duration::from_secs(50));
    assert!(
        home.own(2, &[1, 2]).await.is_err(),
        "it gave a sign of life"
    );
    home.clock.advance(Duration::from_secs(11));
    let (second, _) = home.own(2, &[1, 2]).await.unwrap();
    assert!(matches!(
        first.accept(message("a")).await,
        Err(StoreError::NotOwner { .. })
    ));
    assert!(matches!(
        first.heartbeat().await,
        Err(StoreError::NotOwner { .. })
    ));
    second.release().await.unwrap();
    home.own(3, &[1, 2, 3]).await.unwrap();
    home.own(4, &[]).await.unwrap();
}

#[tokio::test]
async fn what_was_being_sent_is_ambiguous_and_a_mark_stays() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    delivery
        .finish(end("t1", &[], vec![reply("5", &["one"])]))
        .await
        .unwrap();
    let chunk = only(&delivery).await;
    delivery.begin_send(chunk.seq).await.unwrap();
    let (delivery, left) = home.own(2, &[]).await.unwrap();
    assert_eq!(
        left,
        RecoveredWork {
            ambiguous: 1,
            ..RecoveredWork::default()
        }
    );
    assert_eq!(only(&delivery).await.phase, ChunkPhase::Ambiguous);
    delivery
        .settle(chunk.seq, Settled::Resend { marked: true })
        .await
        .unwrap();
    for settled in [
        Settled::Retry {
            error: "x".to_owned(),
            at: 0.0,
        },
        Settled::Resend { marked: false },
    ] {
        assert_eq!(
            only(&delivery).await.phase,
            ChunkPhase::Pending { marked: true },
            "before {settled:?}"
        );
        delivery.begin_send(chunk.seq).await.unwrap();
        delivery.settle(chunk.seq, settled).await.unwrap();
    }
    assert_eq!(
        only(&delivery).await.phase,
        ChunkPhase::Pending { marked: true }
    );
    assert_eq!(only(&delivery).await.key, chunk.key);
}

#[tokio::test]
async fn only_what_leaves_now_is_read() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    let chats = ["5", "6", "7"].map(|chat| reply(chat, &["first", "second"]));
    delivery
        .finish(end("t1", &[], chats.to_vec()))
        .await
        .unwrap();
    // Whoever reads these stumbles.
    let path = home.dir.path().join("state.db");
    rusqlite::Connection::open(path)
        .unwrap()
        .execute_batch(
            "UPDATE delivery_obligations SET content = x'ff' WHERE content = 'second' OR chat_id = '7'",
        )
        .unwrap();
    let here = vec![("telegram".to_owned(), String::new())];
    let found = delivery.due(here.clone(), 2).await.unwrap();
    let texts: Vec<&str> = found
        .chunks
        .iter()
        .map(|chunk| chunk.text.as_str())
        .collect();
    assert_eq!(texts, ["first", "first"]);
    assert_eq!(found.next_at, Some(home.store_now()), "there is more");
}

#[tokio::test]
async fn attempts_that_nobody_knows_the_end_of_are_counted() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    delivery
        .finish(end("t1", &[], vec![reply("5", &["one"])]))
        .await
        .unwrap();
    let seq = only(&delivery).await.seq;
    let unknown = Settled::Ambiguous {
        error: "reset".to_owned(),
        at: 0.0,
    };
    let retry = Settled::Retry {
        error: "offline".to_owned(),
        at: 0.0,
    };
    delivery.begin_send(seq).await.unwrap();
    delivery.settle(seq, retry).await.unwrap();
    assert_eq!(only(&delivery).await.unclear, 0, "that one was clear");
    delivery.begin_send(seq).await.unwrap();
    delivery.settle(seq, unknown.clone()).await.unwrap();
    // Looking into it is no attempt.
    delivery.settle(seq, unknown).await.unwrap();
    assert_eq!(only(&delivery).await.unclear, 1);
    let resend = Settled::Resend { marked: true };
    delivery.settle(seq, resend).await.unwrap();
    delivery.begin_send(seq).await.unwrap();
    let (delivery, _) = home.own(2, &[]).await.unwrap();
    let chunk = only(&delivery).await;
    assert_eq!(
        (chunk.unclear, chunk.tries),
        (2, 3),
        "nor was the last life sure"
    );
}

#[tokio::test]
async fn tables_of_an_earlier_version_are_completed() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    delivery
        .finish(end("t1", &[], vec![reply("5", &["one"])]))
        .await
        .unwrap();
    let path = home.dir.path().join("state.db");
    rusqlite::Connection::open(path)
        .unwrap()
        .execute_batch("ALTER TABLE hermes_outbox DROP COLUMN unclear")
        .unwrap();
    let (delivery, _) = home.own(2, &[]).await.unwrap();
    assert_eq!(only(&delivery).await.unclear, 0);
}

#[tokio::test]
async fn plain_use_of_a_home_adds_no_tables_and_old_rows_go() {
    let home = Home::new();
    let tables = |home: &Home| -> i64 {
        rusqlite::Connection::open(home.dir.path().join("state.db"))
            .unwrap()
            .query_row(
                "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'hermes_%' OR name = 'delivery_obligations'",
                [],
                |row| row.get(0),
            )
            .unwrap()
    };
    assert_eq!(tables(&home), 0);
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    let Accepted::New(id) = delivery.accept(message("a")).await.unwrap() else {
        panic!("it is new");
    };
    delivery.claim(&[id], "t1").await.unwrap();
    delivery
        .finish(end("t1", &[id], vec![reply("5", &["one"])]))
        .await
        .unwrap();
    let chunk = only(&delivery).await;
    delivery.begin_send(chunk.seq).await.unwrap();
    delivery
        .settle(chunk.seq, Settled::Sent { id: None })
        .await
        .unwrap();
    assert_eq!(delivery.prune().await.unwrap(), 0);
    home.clock.advance(Duration::from_hours(31 * 24));
    assert_eq!(delivery.prune().await.unwrap(), 2);
}

#[tokio::test]
async fn a_turn_that_answered_and_did_not_end_is_recognised() {
    let home = Home::new();
    let (delivery, _) = home.own(1, &[]).await.unwrap();
    let session = super::begin(&home.store, "s1", "telegram", None).await;
    let item = |message, id: Option<&str>| NewItem {
        message,
        at: 1.0,
        token_count: None,
        platform_message_id: id.map(str::to_owned),
    };
    let call = ToolCall {
        id: "c1".to_owned(),
        name: "read_file".to_owned(),
        arguments: "{}".to_owned(),
        ..ToolCall::default()
    };
    let calling = AssistantMessage {
        text: "Let me look.".to_owned(),
        tool_calls: vec![call.clone()],
        ..AssistantMessage::default()
    };
    let steps = [
        (None, Progress::Untouched),
        (Some(item(Message::user("hi"), Some("m1"))), Progress::Cut),
        (Some(item(Message::Assistant(calling), None)), Progress::Cut),
        (Some(item(Message::tool(&call, "x"), None)), Progress::Cut),
        (
            Some(item(Message::assistant("Done."), None)),
            Progress::Answered("Done.".to_owned()),
        ),
    ];
    for (item, progress) in steps {
        if let Some(item) = item {
            home.store.append(&session, vec![item]).await.unwrap();
        }
        assert_eq!(delivery.progress(&session, "m1").await.unwrap(), progress);
    }
    let other = delivery.progress(&session, "m2").await.unwrap();
    assert_eq!(other, Progress::Untouched);
}

#[tokio::test]
async fn on_a_newer_programs_database_nothing_of_its_own_changes() {
    let home = Home::new();
    drop(home.own(1, &[]).await.unwrap());
    let path = home.dir.path().join("state.db");
    let sql = rusqlite::Connection::open(&path).unwrap();
    sql.execute_batch(
        "DROP TABLE hermes_inbox; DROP TABLE hermes_outbox; DROP TABLE hermes_delivery_owner;
         ALTER TABLE delivery_obligations ADD COLUMN novelty TEXT DEFAULT 'x';
         UPDATE schema_version SET version = 30;",
    )
    .unwrap();
    let theirs = |sql: &rusqlite::Connection| -> String {
        sql.query_row(
            "SELECT group_concat(name || sql, '\n') FROM (SELECT * FROM sqlite_master
             WHERE name NOT LIKE '%hermes_%' ORDER BY name)",
            [],
            |row| row.get(0),
        )
        .unwrap()
    };
    let before = theirs(&sql);
    let store = Store::open(&path, home.clock.clone()).unwrap();
    assert!(store.is_newer_schema());
    let (delivery, _) = store
        .own_delivery(owner(2), LEASE, living(&[]))
        .await
        .unwrap();
    delivery
        .finish(end("t1", &[], vec![reply("5", &["one"])]))
        .await
        .unwrap();
    let chunk = only(&delivery).await;
    delivery.begin_send(chunk.seq).await.unwrap();
    delivery
        .settle(chunk.seq, Settled::Sent { id: None })
        .await
        .unwrap();
    assert_eq!(theirs(&sql), before);
}

const SWEEP: &str = "
import json, sys
from gateway import delivery_ledger as ledger
rows = ledger.sweep_recoverable(now=float(sys.argv[1]))
print(json.dumps([[r['content'], r['chat_id'], r['needs_marker']] for r in rows]))
";

#[tokio::test]
async fn the_original_finishes_what_we_left() {
    let Some(oracle) = oracle::require("the_original_finishes_what_we_left") else {
        return;
    };
    let (temp, clock) = (TempHome::new(), Arc::new(ManualClock::default()));
    let store = Store::open(temp.path().join("state.db"), clock.clone()).unwrap();
    // No process has this number.
    let (delivery, _) = store
        .own_delivery(owner(4_000_001), LEASE, living(&[]))
        .await
        .unwrap();
    let chats = ["1", "2", "3", "4"];
    let replies = chats.map(|chat| reply(chat, &[&format!("to {chat}")]));
    delivery
        .finish(end("t", &[], replies.to_vec()))
        .await
        .unwrap();
    let heads = due(&delivery).await;
    for chunk in &heads[1..] {
        delivery.begin_send(chunk.seq).await.unwrap();
    }
    let marked = Settled::Resend { marked: true };
    delivery.settle(heads[2].seq, marked).await.unwrap();
    let sent = Settled::Sent { id: None };
    delivery.settle(heads[3].seq, sent).await.unwrap();
    let now = hermes_core::clock::Clock::epoch_seconds(clock.as_ref()).to_string();
    let swept = oracle.json(&temp, SWEEP, [now.as_str()]);
    assert_eq!(
        swept,
        json!([
            ["to 1", "1", false],
            ["to 2", "2", true],
            ["to 3", "3", true]
        ])
    );
}

const OWE: &str = "
import time
from gateway import delivery_ledger as ledger
for n, state in enumerate(['pending', 'attempting', 'failed', 'delivered']):
    ledger.record_obligation(obligation_id=f'o{n}', session_key='agent:main:slack:dm:9',
        platform='slack', chat_id='9', thread_id=None, content=f'text {n}')
    if state != 'pending':
        ledger._update_state(f'o{n}', state)
print('{}')
";

#[tokio::test]
async fn we_finish_what_the_original_left() {
    let Some(oracle) = oracle::require("we_finish_what_the_original_left") else {
        return;
    };
    let temp = TempHome::new();
    oracle.json(&temp, OWE, []);
    let clock = Arc::new(hermes_core::clock::SystemClock);
    let store = Store::open(temp.path().join("state.db"), clock).unwrap();
    let (delivery, _) = store
        .own_delivery(owner(1), LEASE, living(&[]))
        .await
        .unwrap();
    let foreign = delivery.foreign(living(&[])).await.unwrap();
    let found: Vec<(&str, bool)> = foreign
        .iter()
        .map(|reply| (reply.text.as_str(), reply.marked))
        .collect();
    assert_eq!(
        found,
        [("text 0", false), ("text 1", true), ("text 2", true)]
    );
    for reply in foreign {
        let chunks = vec![NewChunk {
            text: reply.text.clone(),
            extra: None,
        }];
        assert_eq!(
            delivery.adopt(reply.clone(), chunks.clone()).await.unwrap(),
            1
        );
        assert_eq!(delivery.adopt(reply, chunks).await.unwrap(), 0);
    }
    assert!(delivery.foreign(living(&[])).await.unwrap().is_empty());
    assert_eq!(only(&delivery).await.text, "text 0");
}
