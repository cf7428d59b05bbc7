//! Against the pinned original: it reads what we write, we read what it writes, both at once.

use hermes_core::ids::{RowId, SessionId};
use hermes_core::message::{
    AssistantMessage, Content, FinishReason, Message, Part, ToolCall, UserMessage,
};
use hermes_core::store::{NewSession, SessionStore as _};
use hermes_store::{
    DiscoverRequest, ListFilter, RepairOptions, ScrollRequest, SearchOptions, Store,
    repair_database,
};
use hermes_testkit::clock::ManualClock;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{assert_sound, begin, end, item, number, open, say};

/// What the original makes of a home: list, conversations, searches.
const READ: &str = "
import json, sys
from hermes_state import SessionDB
db = SessionDB()
ids = [r[0] for r in db._conn.execute('SELECT id FROM sessions ORDER BY id')]
print(json.dumps({
    'list': [{k: r.get(k) for k in ('id', 'source', 'title', 'message_count', 'tool_call_count',
              'preview', 'last_active', 'started_at', 'end_reason')} for r in db.list_sessions_rich(limit=100)],
    'talk': {i: [[m['role'], m['content'], len(m.get('tool_calls') or [])]
                 for m in db.get_messages_as_conversation(db.resolve_resume_session_id(i))] for i in ids},
    'search': {q: sorted(m['id'] for m in db.search_messages(q)) for q in sys.argv[1:]},
    'export': len(db.export_all()),
    'integrity': db._conn.execute('PRAGMA integrity_check').fetchone()[0],
}))
db.close()
";

const WRITE: &str = "
from hermes_state import SessionDB
db = SessionDB()
db.create_session('root', 'telegram', model='m', system_prompt='be kind')
db.append_message('root', 'user', 'where do zeppelins land?')
db.append_message('root', 'assistant', '', tool_calls=[{'id': 'call_1', 'type': 'function',
    'function': {'name': 'terminal', 'arguments': '{\"command\": \"ls\"}'}}], finish_reason='tool_calls')
db.append_message('root', 'tool', 'a.txt', tool_name='terminal', tool_call_id='call_1')
db.end_session('root', 'compression')
db.create_session('tip', 'telegram', parent_session_id='root')
db.set_session_title('tip', 'Zeppelins')
db.append_message('tip', 'user', [{'type': 'text', 'text': '\\u6771\\u4eac\\u30bf\\u30ef\\u30fc'},
    {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,AA=='}}])
db.append_message('tip', 'assistant', 'a tower', reasoning='hm', reasoning_content='hm')
db.create_session('plain', 'cli')
db.append_message('plain', 'user', 'take this back')
row = db.append_message('plain', 'user', 'my-app.config mango')
db.append_message('plain', 'assistant', 'ok')
db.rewind_to_message('plain', row)
db.archive_and_compact('plain', [{'role': 'user', 'content': 'summary of pineapple'}])
db.append_message('plain', 'session_meta', None)
db.update_token_counts('plain', input_tokens=5, output_tokens=2, model='m', billing_provider='p', api_call_count=1)
db.close()
";

const QUERIES: [&str; 6] = [
    "zeppelins",
    "my-app.config",
    "pineapple",
    "mango",
    "\u{6771}\u{4eac}\u{30bf}\u{30ef}\u{30fc}",
    "term*",
];

async fn ours(store: &Store, theirs: &Value) -> Value {
    let list = store
        .list(ListFilter {
            limit: 100,
            ..ListFilter::default()
        })
        .await
        .unwrap();
    let list: Vec<Value> = list
        .iter()
        .map(|row| {
            json!({
                "id": row.id, "source": row.source, "title": row.title,
                "message_count": row.message_count, "tool_call_count": row.tool_call_count,
                "preview": row.preview, "last_active": row.last_active,
                "started_at": row.started_at, "end_reason": row.end_reason,
            })
        })
        .collect();
    let mut talk = serde_json::Map::new();
    for id in theirs["talk"].as_object().unwrap().keys() {
        let session = store
            .load(&SessionId::new(id.as_str()))
            .await
            .unwrap()
            .unwrap();
        let lines: Vec<Value> = session
            .items
            .iter()
            .map(|item| line(&item.message))
            .collect();
        talk.insert(id.clone(), lines.into());
    }
    let mut search = serde_json::Map::new();
    for query in theirs["search"].as_object().unwrap().keys() {
        let hits = store.search(query, SearchOptions::default()).await.unwrap();
        let mut ids: Vec<i64> = hits.into_iter().map(|hit| hit.id).collect();
        ids.sort_unstable();
        search.insert(query.clone(), ids.into());
    }
    json!({"list": list, "talk": talk, "search": search})
}

/// The original shows nothing of a first message with images; we show its words.
fn without_blank_previews(mut ours: Value, theirs: &Value) -> Value {
    let rows = ours["list"].as_array_mut().unwrap();
    for (row, their) in rows.iter_mut().zip(theirs["list"].as_array().unwrap()) {
        if their["preview"] == "" {
            row["preview"] = "".into();
        }
    }
    ours
}

fn line(message: &Message) -> Value {
    match message {
        Message::User(user) => json!(["user", user.content, 0]),
        Message::Assistant(answer) => json!(["assistant", answer.text, answer.tool_calls.len()]),
        Message::Tool(tool) => json!(["tool", tool.content, 0]),
    }
}

fn without_meta(mut theirs: Value) -> Value {
    for talk in theirs["talk"].as_object_mut().unwrap().values_mut() {
        talk.as_array_mut()
            .unwrap()
            .retain(|line| line[0] != "session_meta");
    }
    let map = theirs.as_object_mut().unwrap();
    assert_eq!(map.remove("integrity"), Some("ok".into()));
    assert!(map.remove("export").is_some());
    theirs
}

/// Times may differ in the last digit of the JSON text.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => json!((number.as_f64().unwrap() * 1e4).round()),
        Value::Array(items) => items.into_iter().map(rounded).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, rounded(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other,
    }
}

#[tokio::test]
async fn we_read_what_the_original_wrote() {
    let Some(oracle) = oracle::require("store: we read what the original wrote") else {
        return;
    };
    let home = TempHome::new();
    let _ = oracle.run(&home, WRITE, []).ok();
    let theirs = oracle.json(&home, READ, QUERIES);
    let store = open(&home.join("state.db"));
    let ours = without_blank_previews(ours(&store, &theirs).await, &theirs);
    assert_eq!(rounded(ours), rounded(without_meta(theirs)));
    assert_eq!(store.resolve("Zeppelins").await.unwrap().as_str(), "tip");
    store.close().await.unwrap();
    let look = RepairOptions {
        check_only: true,
        backup: false,
    };
    let report = repair_database(&home.join("state.db"), look, &ManualClock::default()).unwrap();
    assert_eq!(report.problem, None);
}

#[tokio::test]
async fn the_original_reads_what_we_wrote() {
    let Some(oracle) = oracle::require("store: the original reads what we wrote") else {
        return;
    };
    let home = TempHome::new();
    let store = open(&home.join("state.db"));
    let root = begin(&store, "root", "cli", None).await;
    let call = ToolCall {
        id: "call_7".to_owned(),
        name: "terminal".to_owned(),
        arguments: "{\"command\": \"ls\"}".to_owned(),
        ..ToolCall::default()
    };
    let messages = vec![
        Message::User(UserMessage {
            content: Content::Parts(vec![Part::text("zeppelins"), Part::image("http://x/y.png")]),
            wire_text: None,
        }),
        Message::Assistant(AssistantMessage {
            tool_calls: vec![call.clone()],
            finish: Some(FinishReason::ToolCalls),
            ..AssistantMessage::default()
        }),
        Message::tool(&call, "my-app.config"),
        Message::assistant("mango pineapple"),
    ];
    let items = messages
        .into_iter()
        .map(|message| item(message, 2.0))
        .collect();
    store.append(&root, items).await.unwrap();
    end(&store, &root, "compression").await;
    let tip = begin(&store, "tip", "cli", Some(&root)).await;
    say(
        &store,
        &tip,
        "\u{6771}\u{4eac}\u{30bf}\u{30ef}\u{30fc}",
        3.0,
    )
    .await;
    store.set_title(&tip, "Ours", false).await.unwrap();
    store
        .compact(
            &tip,
            RowId(i64::MAX),
            vec![item(Message::user("summary"), 4.0)],
        )
        .await
        .unwrap();
    let theirs = oracle.json(&home, READ, QUERIES);
    assert_eq!(theirs["export"], 2);
    let ours = without_blank_previews(ours(&store, &theirs).await, &theirs);
    assert_eq!(rounded(ours), rounded(without_meta(theirs)));
    store.close().await.unwrap();

    let listed = oracle.hermes(&home, ["sessions", "list"]).ok();
    assert!(listed.stdout.contains("Ours"), "{}", listed.stdout);
    let exported = oracle.hermes(&home, ["sessions", "export", "-"]).ok();
    assert_eq!(
        exported
            .stdout
            .lines()
            .filter(|line| line.starts_with('{'))
            .count(),
        2
    );
}

const RECALL: &str = "
import json, sys
from hermes_state import SessionDB
from tools.session_search_tool import session_search
db = SessionDB()
anchor = db.get_messages('root')[1]['id']
print(json.dumps({
    'discover': [json.loads(session_search(query=q, db=db)) for q in sys.argv[1:]],
    'browse': json.loads(session_search(db=db)),
    'read': json.loads(session_search(session_id='tip', db=db)),
    'scroll': json.loads(session_search(session_id='root', around_message_id=anchor, window=2, db=db)),
    'anchor': anchor,
}))
db.close()
";

/// Wording and local time are our own business; everything else must agree.
fn comparable(value: impl serde::Serialize) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Object(map) => {
                map.remove("when");
                map.remove("message");
                if map
                    .get("matched_role")
                    .is_some_and(|role| role == "session_title")
                {
                    // Shown in full by both; the original repeats the ends of short sessions.
                    for key in ["snippet", "bookend_start", "bookend_end"] {
                        map.remove(key);
                    }
                }
                map.values_mut().for_each(strip);
            }
            _ => {}
        }
    }
    let mut value = serde_json::to_value(value).unwrap();
    strip(&mut value);
    rounded(value)
}

#[tokio::test]
async fn recall_agrees_with_the_original() {
    let Some(oracle) = oracle::require("store: recall agrees with the original") else {
        return;
    };
    let home = TempHome::new();
    let _ = oracle.run(&home, WRITE, []).ok();
    let queries = [
        "zeppelins",
        "pineapple",
        "tower OR summary",
        "nothing",
        "Zeppelins",
    ];
    let theirs = oracle.json(&home, RECALL, queries);
    let store = open(&home.join("state.db"));
    for (query, their) in queries.iter().zip(theirs["discover"].as_array().unwrap()) {
        let request = DiscoverRequest {
            query: (*query).to_owned(),
            limit: 3,
            ..DiscoverRequest::default()
        };
        let ours = store.discover(request).await.unwrap();
        assert_eq!(comparable(ours), comparable(their), "{query}");
    }
    let mut browse = store.browse(3, None).await.unwrap();
    for (our, their) in browse
        .results
        .iter_mut()
        .zip(theirs["browse"]["results"].as_array().unwrap())
    {
        if their["preview"] == "" {
            our.preview.clear();
        }
    }
    assert_eq!(comparable(browse), comparable(&theirs["browse"]));
    let read = store.read_session(&"tip".into()).await.unwrap();
    assert_eq!(comparable(read), comparable(&theirs["read"]));
    let scroll = ScrollRequest {
        session: "root".into(),
        around: theirs["anchor"].as_i64().unwrap(),
        window: 2,
        current: None,
    };
    let scroll = store.scroll(scroll).await.unwrap();
    assert_eq!(comparable(scroll), comparable(&theirs["scroll"]));
}

const APPEND: &str = "
import sys
from hermes_state import SessionDB
db = SessionDB()
for n in range(int(sys.argv[1])):
    db.append_message('shared', 'user', f'theirs {n}')
    db.append_message('python', 'assistant', f'own {n}')
db.close()
";

const ROWS: u32 = 150;

#[tokio::test]
async fn both_write_at_the_same_time() {
    let Some(oracle) = oracle::require("store: both write at the same time") else {
        return;
    };
    let home = TempHome::new();
    let path = home.join("state.db");
    let store = open(&path);
    for id in ["shared", "python", "rust"] {
        let session = NewSession {
            id: Some(id.into()),
            source: "cli".to_owned(),
            ..NewSession::default()
        };
        store.begin(session).await.unwrap();
    }
    let child = oracle
        .interpreter(&home)
        .args(["-c", APPEND, &ROWS.to_string()])
        .spawn();
    for index in 0..ROWS {
        say(
            &store,
            &"shared".into(),
            &format!("ours {index}"),
            f64::from(index),
        )
        .await;
        say(
            &store,
            &"rust".into(),
            &format!("own {index}"),
            f64::from(index),
        )
        .await;
    }
    let finished = child.wait_with_output().unwrap();
    assert!(
        finished.status.success(),
        "{}",
        String::from_utf8_lossy(&finished.stderr)
    );
    store.close().await.unwrap();
    assert_sound(&path);
    let conn = rusqlite::Connection::open(&path).unwrap();
    let count = |sql: &str| number(&conn, sql);
    assert_eq!(
        count("SELECT COUNT(DISTINCT content) FROM messages WHERE session_id = 'shared'"),
        i64::from(2 * ROWS)
    );
    assert_eq!(count("SELECT COUNT(*) FROM messages"), i64::from(4 * ROWS));
    assert_eq!(
        count("SELECT message_count FROM sessions WHERE id = 'shared'"),
        i64::from(2 * ROWS)
    );
    assert_eq!(
        count("SELECT COUNT(*) FROM messages_fts WHERE messages_fts MATCH 'own'"),
        i64::from(2 * ROWS)
    );
}
