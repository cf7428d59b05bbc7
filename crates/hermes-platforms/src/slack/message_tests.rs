use std::collections::{HashMap, HashSet};

use serde_json::json;

use super::*;

fn team() -> SlackTeam {
    SlackTeam {
        id: "T1".to_owned(),
        name: "One".to_owned(),
        token: "xoxb-1".to_owned(),
        bot_user: "UB".to_owned(),
        bot_id: "BB".to_owned(),
    }
}

fn settings() -> SlackSettings {
    SlackSettings {
        app_token: "xapp-1".to_owned(),
        bot_tokens: vec!["xoxb-1".to_owned()],
        base_url: "https://slack.test/api/".to_owned(),
        allowed_channels: HashSet::new(),
        free_channels: HashSet::new(),
        require_mention: true,
        strict_mention: false,
        mention_patterns: Vec::new(),
        bots: SlackBots::None,
        reactions: true,
        reply_in_thread: true,
        dm_threads: true,
        broadcast: false,
        status: String::new(),
        env: HashMap::new(),
    }
}

fn memory() -> SlackMemory {
    SlackMemory::open("/nonexistent/slack.json".into())
}

fn event(channel: &str, kind: &str, text: &str) -> Value {
    json!({"type": "message", "channel": channel, "channel_type": kind, "user": "U1",
           "text": text, "ts": "10.1"})
}

fn threaded(channel: &str, text: &str) -> Value {
    let mut event = event(channel, "channel", text);
    event["thread_ts"] = json!("5.0");
    event
}

#[test]
fn in_company_we_speak_when_spoken_to() {
    let (team, settings, memory) = (team(), settings(), memory());
    let read_message = |event: &Value| read_message(event, &team, &settings, &memory);
    assert_eq!(
        read_message(&event("C1", "channel", "hello")),
        Err("not to us")
    );
    assert_eq!(
        read_message(&event("G1", "mpim", "hello")),
        Err("not to us")
    );
    let heard = read_message(&event("C1", "channel", "<@UB> hello")).unwrap();
    assert_eq!(
        (heard.text.as_str(), heard.session.as_deref()),
        ("hello", Some("10.1"))
    );
    assert!(!heard.wants_context && !heard.is_dm());
    assert_eq!(
        read_message(&event("D1", "im", "hello"))
            .unwrap()
            .session
            .as_deref(),
        Some("10.1")
    );
    // In a thread: once mentioned, always heard, and the first time asks what was said before.
    assert_eq!(read_message(&threaded("C1", "and?")), Err("not to us"));
    let first = read_message(&threaded("C1", "<@UB|hermes> and?")).unwrap();
    assert!(first.wants_context && first.text == "and?");
    memory.note_thread("C1", "5.0", ThreadRole::Joined);
    let next = read_message(&threaded("C1", "and?")).unwrap();
    assert_eq!(
        (next.wants_context, next.session.as_deref()),
        (false, Some("5.0"))
    );
    assert_eq!(
        read_message(&threaded("C2", "and?")),
        Err("not to us"),
        "another conversation"
    );
}

#[test]
fn an_answer_to_a_message_of_ours_needs_no_mention() {
    let (team, settings, memory) = (team(), settings(), memory());
    memory.note_thread("C1", "5.0", ThreadRole::Begun);
    let heard = read_message(&threaded("C1", "thanks"), &team, &settings, &memory).unwrap();
    assert!(
        heard.wants_context,
        "what we said there is not in the session yet"
    );
}

#[test]
fn settings_open_and_close_the_gate() {
    let (team, memory) = (team(), memory());
    memory.note_thread("C1", "5.0", ThreadRole::Joined);
    let mut strict = settings();
    strict.strict_mention = true;
    assert_eq!(
        read_message(&threaded("C1", "x"), &team, &strict, &memory),
        Err("not to us")
    );
    let mut free = settings();
    free.free_channels.insert("C1".to_owned());
    assert!(read_message(&event("C1", "channel", "x"), &team, &free, &memory).is_ok());
    assert!(read_message(&event("C2", "channel", "x"), &team, &free, &memory).is_err());
    let mut allowed = settings();
    allowed.allowed_channels.insert("C1".to_owned());
    let elsewhere = event("C2", "channel", "<@UB> x");
    assert!(read_message(&elsewhere, &team, &allowed, &memory).is_err());
    assert!(
        read_message(&event("D1", "im", "x"), &team, &allowed, &memory).is_ok(),
        "alone with us"
    );
    let mut words = settings();
    words.mention_patterns = vec![regex::Regex::new("(?i)hey hermes").unwrap()];
    assert!(
        read_message(
            &event("C1", "channel", "Hey Hermes!"),
            &team,
            &words,
            &memory
        )
        .is_ok()
    );
    let mut flat = settings();
    (flat.reply_in_thread, flat.dm_threads) = (false, false);
    let heard = read_message(&event("C1", "channel", "<@UB> x"), &team, &flat, &memory).unwrap();
    assert_eq!(heard.session, None);
    assert_eq!(
        read_message(&event("D1", "im", "x"), &team, &flat, &memory)
            .unwrap()
            .session,
        None
    );
}

#[test]
fn programs_are_heard_as_wished_and_we_never() {
    let (team, memory) = (team(), memory());
    let mut event = event("D1", "im", "<@UB> beep");
    event["bot_id"] = json!("BX");
    event["user"] = json!("UX");
    let with = |bots: SlackBots, event: &Value| {
        let mut settings = settings();
        settings.bots = bots;
        read_message(event, &team, &settings, &memory).is_ok()
    };
    assert!(!with(SlackBots::None, &event) && with(SlackBots::Mentions, &event));
    event["text"] = json!("beep");
    assert!(!with(SlackBots::Mentions, &event) && with(SlackBots::All, &event));
    event["bot_id"] = json!("BB");
    assert!(!with(SlackBots::All, &event), "an echo");
    event["bot_id"] = json!("BX");
    event["user"] = json!("UB");
    assert!(!with(SlackBots::All, &event), "an echo");
}

#[test]
fn notices_are_not_messages() {
    let (team, settings, memory) = (team(), settings(), memory());
    for (subtype, taken) in [
        ("message_changed", false),
        ("message_deleted", false),
        ("channel_join", false),
        ("file_share", true),
        ("thread_broadcast", true),
    ] {
        let mut event = event("D1", "im", "x");
        event["subtype"] = json!(subtype);
        assert_eq!(
            read_message(&event, &team, &settings, &memory).is_ok(),
            taken,
            "{subtype}"
        );
    }
    let other = json!({"type": "reaction_added"});
    assert!(read_message(&other, &team, &settings, &memory).is_err());
}

#[test]
fn a_mention_without_a_type_takes_what_is_known() {
    let (team, settings, memory) = (team(), settings(), memory());
    let mut event = event("G1", "", "<@UB> x");
    event["type"] = json!("app_mention");
    event.as_object_mut().unwrap().remove("channel_type");
    assert_eq!(
        read_message(&event, &team, &settings, &memory)
            .unwrap()
            .kind,
        "channel"
    );
    memory.remember("G1", "T1", "mpim");
    assert!(
        read_message(&event, &team, &settings, &memory)
            .unwrap()
            .is_dm()
    );
}

#[test]
fn exclamations_are_commands_only_where_they_name_one() {
    let known = |name: &str| matches!(name, "stop" | "new");
    assert_eq!(command("!stop now", known).as_deref(), Some("/stop now"));
    assert_eq!(
        command("!New@hermes", known).as_deref(),
        Some("/New@hermes")
    );
    for text in ["!nice work", "! stop", "stop", "!", ""] {
        assert_eq!(command(text, known), None, "{text}");
    }
}
