use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

fn bot() -> TelegramUser {
    serde_json::from_value(
        json!({"id": 9, "is_bot": true, "first_name": "H", "username": "hermes_bot"}),
    )
    .unwrap()
}

fn read_with(rules: &GroupRules, updates: &[Value]) -> Vec<IncomingMessage> {
    let mut reader = UpdateReader::new(rules, bot());
    let read = updates.iter().map(|update| reader.read(update));
    read.filter_map(|read| match read {
        UpdateContent::Message(message) => Some(*message),
        _ => None,
    })
    .collect()
}

fn read(message: &Value) -> Option<IncomingMessage> {
    let mut whole = json!({
        "message_id": 5, "date": 1_700_000_000, "chat": {"id": 7, "type": "private", "first_name": "Ada"},
        "from": {"id": 7, "is_bot": false, "first_name": "Ada", "last_name": "L"},
    });
    for (name, value) in message.as_object().unwrap() {
        whole[name] = value.clone();
    }
    let update = json!({"update_id": 1, "message": whole});
    read_with(&GroupRules::default(), &[update]).pop()
}

#[test]
fn a_text_in_a_private_chat() {
    let message = read(&json!({"text": "hello", "reply_to_message": {
        "message_id": 3, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "a long text",
        "from": {"id": 9, "is_bot": true}}, "quote": {"text": "long"}}))
    .unwrap();
    assert_eq!(message.message_id, "5");
    assert_eq!(message.source.chat_type, "dm");
    assert_eq!(message.source.user_name.as_deref(), Some("Ada L"));
    assert_eq!(message.source.thread_id, None);
    let reply = message.reply_to.unwrap();
    assert_eq!((reply.text.as_deref(), reply.own), (Some("long"), true));
    assert_eq!(message.native, json!({"update_id": 1}));
}

#[test]
fn files_and_their_words() {
    let kinds = |message: Value| {
        let message = read(&message).unwrap();
        let media = message.media.first().cloned();
        (media.map(|media| (media.kind, media.id)), message.text)
    };
    assert_eq!(
        kinds(
            json!({"photo": [{"file_id": "s"}, {"file_id": "l"}], "caption": "look",
                     "media_group_id": "g"})
        ),
        (Some((MediaKind::Image, "l".to_owned())), "look".to_owned())
    );
    assert_eq!(
        kinds(json!({"document": {"file_id": "d", "mime_type": "image/png"}})).0,
        Some((MediaKind::Image, "d".to_owned()))
    );
    assert_eq!(
        kinds(json!({"sticker": {"file_id": "s", "emoji": "👍"}})),
        (
            Some((MediaKind::Sticker, "s".to_owned())),
            "[Sticker: 👍]".to_owned()
        )
    );
    assert_eq!(
        kinds(json!({"animation": {"file_id": "a"}, "document": {"file_id": "a"}})).0,
        Some((MediaKind::Video, "a".to_owned()))
    );
    assert_eq!(
        kinds(json!({"location": {"latitude": 1.5, "longitude": -2.0}})),
        (None, "[Location: 1.5, -2]".to_owned())
    );
    let voice = read(&json!({"voice": {"file_id": "v", "file_size": 12}})).unwrap();
    assert_eq!(voice.media[0].mime.as_deref(), Some("audio/ogg"));
    let album = read(&json!({"photo": [{"file_id": "s"}], "media_group_id": "g"})).unwrap();
    assert_eq!(album.native["media_group_id"], "g");
    assert!(read(&json!({"new_chat_title": "x"})).is_none());
    let long = read(&json!({"text": "x".repeat(4096)})).unwrap();
    assert_eq!(long.native["cut_by_client"], true);
}

#[test]
fn a_topic_has_a_name_and_is_no_reply() {
    let message = read(&json!({
        "chat": {"id": -100, "type": "supergroup", "title": "F", "is_forum": true},
        "message_thread_id": 4, "is_topic_message": true, "text": "hi",
        "reply_to_message": {"message_id": 4, "date": 1, "chat": {"id": -100, "type": "supergroup"},
                             "forum_topic_created": {"name": "Plans", "icon_color": 1}},
    }))
    .unwrap();
    assert_eq!(message.source.thread_id.as_deref(), Some("4"));
    assert_eq!(message.source.chat_topic.as_deref(), Some("Plans"));
    assert_eq!(message.reply_to, None);
}

#[test]
fn a_press_is_a_message_of_whoever_pressed() {
    let update = json!({"update_id": 2, "callback_query": {
        "id": "77", "from": {"id": 7, "first_name": "Ada"}, "data": "ok:1", "message": {
            "message_id": 6, "date": 3, "chat": {"id": -5, "type": "group", "title": "G"},
            "from": {"id": 9, "is_bot": true}, "text": "Sure?",
            "reply_markup": {"inline_keyboard": [[{"text": "Yes", "callback_data": "ok:1"}]]}}}});
    let message = read_with(&GroupRules::default(), &[update]).pop().unwrap();
    assert_eq!(message.message_id, "press:77");
    assert_eq!(message.text, "Yes");
    assert_eq!(message.source.user_id.as_deref(), Some("7"));
    let pressed = message.pressed.unwrap();
    assert_eq!(
        (pressed.data.as_str(), pressed.message_id.as_deref()),
        ("ok:1", Some("6"))
    );
}

#[test]
fn what_others_said_is_told_with_the_next_message() {
    let rules = GroupRules {
        require_mention: true,
        observe: true,
        ..GroupRules::default()
    };
    let say = |id: i64, text: &str| {
        json!({"update_id": id, "message": {"message_id": id, "date": 1, "text": text,
            "chat": {"id": -5, "type": "group", "title": "G"}, "from": {"id": 7, "first_name": "Ada"}}})
    };
    let read = read_with(
        &rules,
        &[
            say(1, "lunch?"),
            say(2, "yes"),
            say(3, "@hermes_bot where"),
            say(4, "@hermes_bot when"),
        ],
    );
    assert_eq!(read[0].context.as_deref(), Some("Ada: lunch?\nAda: yes"));
    assert_eq!(read[0].text, "where");
    assert_eq!(read[1].context, None);
}

#[test]
fn what_cannot_be_read_is_passed_over() {
    let broken = json!({"update_id": 1, "message": {"message_id": "no"}});
    assert_eq!(read_with(&GroupRules::default(), &[broken]).len(), 0);
    let moved = json!({"update_id": 1, "message": {"message_id": 1, "date": 1,
        "chat": {"id": -5, "type": "group"}, "migrate_to_chat_id": -1005}});
    let rules = GroupRules::default();
    let mut reader = UpdateReader::new(&rules, bot());
    assert!(matches!(
        reader.read(&moved),
        UpdateContent::Moved {
            from: -5,
            to: -1005
        }
    ));
}
