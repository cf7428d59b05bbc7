//! Keys and entries, beside the original's.

use std::sync::Arc;

use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::store::{NewSession, SessionStore as _};
use hermes_gateway::authorize::{SenderIdentity, SenderPolicy, admit};
use hermes_gateway::{SessionEntry, SessionIndex, SessionKey, SessionSharing};
use hermes_platforms::MessageSource;
use hermes_store::Store;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const KEYS: &str = "
import json, sys
from gateway.session import SessionSource, build_session_key
out = []
for source, group, thread in json.loads(sys.argv[1]):
    s = SessionSource.from_dict(source)
    out.append([build_session_key(s, group, thread, s.profile), s.to_dict()])
print(json.dumps(out))
";

#[test]
fn keys_and_sources_are_the_originals() {
    let Some(oracle) = oracle::require("keys_and_sources_are_the_originals") else {
        return;
    };
    let mut cases: Vec<Value> = Vec::new();
    for kind in ["dm", "group", "channel", "thread"] {
        for (chat, thread, user, alt) in [
            ("5", None, Some("7"), None),
            ("5", Some("t"), Some("7"), Some("alt")),
            ("", Some("t"), None, None),
            ("", None, Some("7"), None),
            ("", None, None, None),
            ("a:b", None, Some("c:d"), None),
        ] {
            for sharing in [(true, false), (true, true), (false, false), (false, true)] {
                let mut source = json!({
                    "platform": "telegram", "chat_id": chat, "chat_type": kind,
                    "thread_id": thread, "user_id": user, "user_id_alt": alt,
                });
                if sharing.1 {
                    source["profile"] = json!("coder");
                    source["guild_id"] = json!("g");
                }
                cases.push(json!([source, sharing.0, sharing.1]));
            }
        }
    }
    let cases = Value::from(cases);
    let home = TempHome::new();
    let theirs = oracle.json(&home, KEYS, [cases.to_string().as_str()]);
    for (case, theirs) in cases
        .as_array()
        .unwrap()
        .iter()
        .zip(theirs.as_array().unwrap())
    {
        let mut source: MessageSource = serde_json::from_value(case[0].clone()).unwrap();
        source.mirror_scope();
        let sharing = SessionSharing {
            group_per_user: case[1].as_bool().unwrap(),
            thread_per_user: case[2].as_bool().unwrap(),
        };
        assert_eq!(
            SessionKey::new_for(&source, sharing).as_str(),
            theirs[0],
            "{case}"
        );
        assert_eq!(
            serde_json::to_string(&source).unwrap(),
            theirs[1].to_string()
        );
    }
}

const ENTRY: &str = "
import json, sys
from datetime import datetime
from gateway.session import SessionEntry, SessionSource
from gateway.config import Platform
if len(sys.argv) > 1:
    print(json.dumps(SessionEntry.from_dict(json.loads(sys.argv[1])).to_dict()))
else:
    source = SessionSource(platform=Platform('discord'), chat_id='9', chat_type='group', user_id='7')
    entry = SessionEntry(session_key='agent:main:discord:group:9:7', session_id='20260102_030405_abcdef01',
        created_at=datetime(2026, 1, 2, 3, 4, 5), updated_at=datetime(2026, 1, 2, 3, 4, 5, 60),
        origin=source, platform=source.platform, chat_type='group', resume_pending=True,
        last_resume_marked_at=datetime(2026, 1, 2), model_override={'model': 'm', 'provider': 'p'})
    print(json.dumps(entry.to_dict()))
";

#[test]
fn entries_go_both_ways() {
    let Some(oracle) = oracle::require("entries_go_both_ways") else {
        return;
    };
    let home = TempHome::new();
    let theirs = oracle.json(&home, ENTRY, []);
    let ours = SessionEntry::read(&theirs).unwrap().write().unwrap();
    assert_eq!(ours.to_string(), theirs.to_string());
    let source = MessageSource {
        platform: "telegram".to_owned(),
        chat_id: "5".to_owned(),
        chat_type: "dm".to_owned(),
        ..MessageSource::default()
    };
    let now = chrono_time();
    let entry = SessionEntry::new(
        SessionKey::new_for(&source, SessionSharing::default()),
        "s",
        source,
        now,
    );
    let ours = entry.write().unwrap();
    let back = oracle.json(&home, ENTRY, [ours.to_string().as_str()]);
    assert_eq!(back, ours);
}

fn chrono_time() -> chrono::NaiveDateTime {
    chrono::DateTime::from_timestamp(1_767_323_045, 1000)
        .unwrap()
        .naive_utc()
}

/// Opens the index of the home as the original's gateway does, and sends two messages through.
const INDEX: &str = "
import json, os, sys
from pathlib import Path
from gateway.config import GatewayConfig
from gateway.session import SessionSource, SessionStore
home = Path(os.environ['HERMES_HOME'])
store = SessionStore(home / 'sessions', GatewayConfig())
out = {}
for chat in sys.argv[1:]:
    source = SessionSource.from_dict({'platform': 'telegram', 'chat_id': chat, 'chat_type': 'dm', 'user_id': chat})
    entry = store.get_or_create_session(source)
    out[entry.session_key] = entry.session_id
print(json.dumps(out))
";

fn telegram(chat: &str) -> MessageSource {
    MessageSource {
        platform: "telegram".to_owned(),
        chat_id: chat.to_owned(),
        chat_type: "dm".to_owned(),
        user_id: Some(chat.to_owned()),
        ..MessageSource::default()
    }
}

#[tokio::test]
async fn a_chat_stays_in_its_conversation_whoever_serves_it() {
    let Some(oracle) = oracle::require("a_chat_stays_in_its_conversation_whoever_serves_it") else {
        return;
    };
    let home = TempHome::new();
    let theirs = oracle.json(&home, INDEX, ["5"]);
    let clock = Arc::new(SystemClock);
    let open = || Store::open(home.path().join("state.db"), clock.clone()).unwrap();
    let sessions = home.path().join("sessions");
    let (index, entries) = SessionIndex::open(open(), &sessions, true).await.unwrap();
    assert_eq!(entries.len(), 1);
    let key = SessionKey::new_for(&telegram("5"), SessionSharing::default());
    assert_eq!(entries[0].session_key, key);
    assert_eq!(theirs[key.as_str()], entries[0].session_id.as_str());

    let key = SessionKey::new_for(&telegram("6"), SessionSharing::default());
    let now = clock.now().with_timezone(&chrono::Local).naive_local();
    let entry = SessionEntry::new(key.clone(), "20260102_030405_abcdef01", telegram("6"), now);
    let new = NewSession {
        id: Some("20260102_030405_abcdef01".into()),
        source: "telegram".to_owned(),
        started_at: 1.0,
        ..NewSession::default()
    };
    open().begin(new).await.unwrap();
    index.put(&entry).await.unwrap();
    let again = oracle.json(&home, INDEX, ["5", "6"]);
    assert_eq!(
        again["agent:main:telegram:dm:5"],
        theirs["agent:main:telegram:dm:5"]
    );
    assert_eq!(again[key.as_str()], "20260102_030405_abcdef01");
}

#[tokio::test]
async fn the_mirror_is_read_where_the_table_knows_nothing() {
    let home = TempHome::new();
    let sessions = home.path().join("sessions");
    let store = Store::open(home.path().join("state.db"), Arc::new(SystemClock)).unwrap();
    let (index, none) = SessionIndex::open(store.clone(), &sessions, true)
        .await
        .unwrap();
    assert!(none.is_empty());
    let entry = |chat: &str, id: &str| {
        let key = SessionKey::new_for(&telegram(chat), SessionSharing::default());
        SessionEntry::new(key, id, telegram(chat), chrono_time())
    };
    index.put(&entry("5", "a")).await.unwrap();
    let mirror = sessions.join("sessions.json");
    let mut all: Value = serde_json::from_str(&std::fs::read_to_string(&mirror).unwrap()).unwrap();
    assert!(all["_README"].is_string());
    all["agent:main:telegram:dm:5"]["session_id"] = json!("stale");
    all["agent:main:telegram:dm:6"] = entry("6", "b").write().unwrap();
    all["agent:main:telegram:dm:7"] = json!(true);
    std::fs::write(&mirror, all.to_string()).unwrap();
    let (index, entries) = SessionIndex::open(store, &sessions, true).await.unwrap();
    let ids: Vec<&str> = entries.iter().map(|one| one.session_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    let key = entries[0].session_key.clone();
    index.forget(&[key]).await.unwrap();
    let text = std::fs::read_to_string(&mirror).unwrap();
    assert!(!text.contains("dm:5"), "{text}");
}

/// Let in or not, platform, kind of chat, user, variables.
const DOORS: &str = "
- telegram dm 7
+ telegram dm 7 TELEGRAM_ALLOWED_USERS=5,7
- telegram dm 8 TELEGRAM_ALLOWED_USERS=5,7
+ telegram dm 8 TELEGRAM_ALLOWED_USERS=*
+ telegram dm 8 GATEWAY_ALLOWED_USERS=8
+ telegram dm 8 TELEGRAM_ALLOW_ALL_USERS=yes
- telegram dm ? TELEGRAM_ALLOW_ALL_USERS=yes
+ telegram dm 8 GATEWAY_ALLOW_ALL_USERS=1
- telegram dm 8 GATEWAY_ALLOW_ALL_USERS=1 TELEGRAM_ALLOWED_USERS=5
- telegram dm 8 TELEGRAM_GROUP_ALLOWED_USERS=8
+ telegram group 8 TELEGRAM_GROUP_ALLOWED_USERS=8
+ telegram group 8 TELEGRAM_GROUP_ALLOWED_USERS=-100
+ telegram channel ? TELEGRAM_GROUP_ALLOWED_CHATS=-100
- telegram group 8 TELEGRAM_GROUP_ALLOWED_CHATS=-5
- telegram group 8 TELEGRAM_GROUP_ALLOWED_CHATS=-5 GATEWAY_ALLOW_ALL_USERS=1
+ telegram channel 8 TELEGRAM_GROUP_ALLOWED_CHATS=-5 GATEWAY_ALLOW_ALL_USERS=1
+ telegram group 8 TELEGRAM_GROUP_ALLOWED_CHATS=-5 TELEGRAM_ALLOWED_USERS=8
- matrix dm @me@host MATRIX_ALLOWED_USERS=you
+ signal dm me@host SIGNAL_ALLOWED_USERS=me
+ qqbot dm 8 QQ_ALLOWED_USERS=8
- qqbot group 8 QQ_GROUP_ALLOWED_USERS=5
+ qqbot group 8 QQ_GROUP_ALLOWED_USERS=-100
+ webhook dm ?
+ homeassistant dm ?
- discord dm 8 DISCORD_ALLOW_ALL_USERS=false
";

const DOOR: &str = "
import json, os, sys
from gateway import authz_mixin
from gateway.session import SessionSource
Runner = [c for n, c in vars(authz_mixin).items() if n.endswith('Mixin') and isinstance(c, type)][0]
out = []
for platform, kind, user, env in json.loads(sys.argv[1]):
    for name in [n for n in os.environ if '_ALLOW' in n]:
        del os.environ[name]
    os.environ.update(env)
    source = SessionSource.from_dict({'platform': platform, 'chat_id': '-100', 'chat_type': kind, 'user_id': user})
    out.append(bool(Runner()._is_user_authorized(source)))
print(json.dumps(out))
";

#[test]
fn the_door_is_as_wide_as_the_originals() {
    let mut doors = Vec::new();
    let mut expected = Vec::new();
    for line in DOORS.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let env: serde_json::Map<String, Value> = words[4..]
            .iter()
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        let user = Some(words[3]).filter(|user| *user != "?");
        let source = MessageSource {
            platform: words[1].to_owned(),
            chat_id: "-100".to_owned(),
            chat_type: words[2].to_owned(),
            user_id: user.map(str::to_owned),
            ..MessageSource::default()
        };
        let visitor = SenderIdentity {
            source: &source,
            is_bot: false,
            has_role: false,
            policy: SenderPolicy::default(),
            aliases: &[],
            paired: false,
        };
        let vars = |name: &str| env.get(name)?.as_str().map(str::to_owned);
        assert_eq!(admit(&visitor, &vars).is_some(), words[0] == "+", "{line}");
        doors.push(json!([words[1], words[2], user, env]));
        expected.push(json!(words[0] == "+"));
    }
    let Some(oracle) = oracle::require("the_door_is_as_wide_as_the_originals") else {
        return;
    };
    let theirs = oracle.json(
        &TempHome::new(),
        DOOR,
        [Value::from(doors).to_string().as_str()],
    );
    assert_eq!(theirs, Value::from(expected));
}
