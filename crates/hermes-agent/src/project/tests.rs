use hermes_core::message::{BlobKind, ToolCall, WireBlob};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;
use crate::log::Log;

fn call(id: &str) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: "read_file".into(),
        arguments: "{}".into(),
        ..ToolCall::default()
    }
}

fn calls(ids: &[&str]) -> Message {
    Message::Assistant(AssistantMessage {
        tool_calls: ids.iter().map(|id| call(id)).collect(),
        ..AssistantMessage::default()
    })
}

fn result(id: &str) -> Message {
    Message::tool(&call(id), format!("result of {id}"))
}

fn thought(text: &str) -> Message {
    Message::Assistant(AssistantMessage {
        reasoning: Some(text.into()),
        ..AssistantMessage::default()
    })
}

fn log_of(messages: Vec<Message>) -> Log {
    let mut log = Log::default();
    for message in messages {
        let origin = match message {
            Message::User(_) => Origin::Person,
            Message::Assistant(_) => Origin::Model,
            Message::Tool(_) => Origin::Tool,
        };
        log.push(LogItem::new(message, origin, 0.0));
    }
    log
}

fn view(messages: Vec<Message>) -> Vec<Message> {
    project(log_of(messages).items(), &ViewCaps::all("p"))
        .iter()
        .map(|message| Message::clone(message))
        .collect()
}

#[test]
fn orphans_go_and_missing_results_are_filled_in() {
    let view = view(vec![
        Message::user("hi"),
        result("lost"),
        calls(&["a", "b"]),
        result("b"),
        result("b"),
        Message::user("and?"),
        calls(&["c"]),
    ]);
    let roles: Vec<&str> = view.iter().map(Message::role).collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "assistant",
            "tool"
        ]
    );
    let Message::Tool(stub) = &view[3] else {
        panic!("no stub")
    };
    assert_eq!(
        (stub.call_id.as_str(), stub.content.text()),
        ("a", NO_RESULT.into())
    );
}

#[test]
fn neighbours_of_one_role_become_one() {
    let cut = Message::Assistant(AssistantMessage {
        text: "half a wo".into(),
        finish: Some(FinishReason::Length),
        ..AssistantMessage::default()
    });
    assert_eq!(
        view(vec![
            Message::user("a"),
            thought("hm"),
            Message::user("b"),
            Message::user("c"),
            cut,
            Message::assistant("rd"),
            Message::assistant("more"),
        ]),
        [
            Message::user("a\n\nb\n\nc"),
            Message::assistant("half a word\n\nmore")
        ]
    );
}

#[test]
fn what_was_really_sent_is_what_is_sent_again() {
    let with_context = Message::User(UserMessage {
        content: "q".into(),
        wire_text: Some("q + context".into()),
    });
    let view = view(vec![with_context, Message::user("again")]);
    assert_eq!(
        view,
        [Message::User(UserMessage {
            content: "q\n\nagain".into(),
            wire_text: Some("q + context\n\nagain".into()),
        })]
    );
}

#[test]
fn the_receiver_gets_only_what_it_can_take() {
    let image = Part::image("data:image/png;base64,AAAA");
    let blob = |issuer: &str| WireBlob {
        kind: BlobKind::ReasoningDetails,
        issuer: Some(issuer.into()),
        value: serde_json::json!(issuer),
    };
    let mut answer = AssistantMessage {
        text: "see".into(),
        reasoning: Some("r".into()),
        tool_calls: vec![call("a")],
        blobs: vec![blob("mine"), blob("other")],
        ..AssistantMessage::default()
    };
    let log = log_of(vec![
        Message::User(UserMessage {
            content: Content::Parts(vec![Part::text("look"), image.clone()]),
            wire_text: None,
        }),
        Message::Assistant(answer.clone()),
        Message::Tool(ToolMessage {
            call_id: "a".into(),
            name: "read_file".into(),
            content: Content::Parts(vec![Part::text("shot"), image]),
            disposition: None,
        }),
    ]);
    let caps = ViewCaps {
        provider: "mine".into(),
        images: ImageRule::None,
        tool_parts: false,
        reasoning: true,
    };
    let view = project(log.items(), &caps);
    let Message::User(user) = &*view[0] else {
        panic!("no user row")
    };
    assert_eq!(user.content.image_count(), 0);
    assert_eq!(user.content.text(), format!("look\n{IMAGE_LEFT_OUT}"));
    answer.blobs.pop();
    assert_eq!(*view[1], Message::Assistant(answer.clone()));
    let Message::Tool(tool) = &*view[2] else {
        panic!("no tool row")
    };
    assert_eq!(tool.content, Content::from("shot"));
    let silent = ViewCaps {
        reasoning: false,
        ..caps
    };
    let view = project(log.items(), &silent);
    answer.blobs.clear();
    answer.reasoning = None;
    assert_eq!(*view[1], Message::Assistant(answer));
}

#[test]
fn text_is_shared_and_ten_thousand_rows_are_cheap() {
    let mut messages = Vec::new();
    for n in 0..3_334 {
        messages.push(Message::user("x".repeat(100)));
        messages.push(calls(&[&format!("c{n}")]));
        messages.push(result(&format!("c{n}")));
    }
    let log = log_of(messages);
    let view = project(log.items(), &ViewCaps::all("p"));
    assert_eq!(view.len(), log.items().len());
    assert!(
        view.iter()
            .zip(log.items())
            .all(|(sent, item)| Arc::ptr_eq(sent, &item.message)),
        "nothing was copied"
    );
}

/// A step of a conversation, as a turn leaves it: every request that went out was answered.
#[derive(Clone, Debug)]
enum Exchange {
    Answer(String, String),
    Tools(String, usize, usize),
    Unanswered(String),
    Thought(String),
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let text = "[a-zäß ]{1,8}";
    prop_oneof![
        (text, text).prop_map(|(q, a)| Exchange::Answer(q, a)),
        (text, 1_usize..4, 0_usize..4).prop_map(|(q, n, done)| Exchange::Tools(q, n, done)),
        text.prop_map(Exchange::Unanswered),
        text.prop_map(Exchange::Thought),
    ]
}

fn messages_of(exchange: &Exchange, at: usize) -> Vec<Message> {
    match exchange {
        Exchange::Answer(q, a) => vec![
            Message::user(q.as_str()),
            Message::assistant(format!("{a}.")),
        ],
        Exchange::Tools(q, count, done) => {
            let ids: Vec<String> = (0..*count).map(|n| format!("{at}-{n}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let mut out = vec![Message::user(q.as_str()), calls(&ids)];
            out.extend(ids.iter().take(*done).map(|id| result(id)));
            // A turn that was killed leaves calls without results; the next turn closes them.
            out.push(Message::assistant("done"));
            out
        }
        Exchange::Unanswered(q) => vec![Message::user(q.as_str())],
        Exchange::Thought(t) => vec![Message::user("?"), thought(t)],
    }
}

/// What a cache sees: role and text of each message, one after the other.
fn bytes(view: &[Arc<Message>]) -> String {
    let spell = |message: &Arc<Message>| match &**message {
        Message::User(user) => format!("\u{1}{}", user.content.text()),
        Message::Assistant(answer) => {
            let ids: Vec<&str> = answer
                .tool_calls
                .iter()
                .map(|call| call.id.as_str())
                .collect();
            // The list of calls is closed, the text of an answer that stands last is not.
            let end = if ids.is_empty() { "" } else { "\u{3}" };
            format!("\u{2}{}{}{end}", answer.text, ids.join("\u{3}"))
        }
        Message::Tool(tool) => format!("\u{4}{}{}", tool.call_id, tool.content.text()),
    };
    view.iter().map(spell).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn same_log_same_view_and_appending_keeps_the_prefix(
        exchanges in prop::collection::vec(exchange(), 1..12),
    ) {
        let caps = ViewCaps::all("p");
        let mut messages = Vec::new();
        let mut before = String::new();
        for (at, exchange) in exchanges.iter().enumerate() {
            messages.extend(messages_of(exchange, at));
            let log = log_of(messages.clone());
            let view = project(log.items(), &caps);
            let again = project(log_of(messages.clone()).items(), &caps);
            prop_assert_eq!(&view, &again);
            let now = bytes(&view);
            prop_assert!(now.starts_with(&before), "{:?} is no prefix of {:?}", before, now);
            before = now;
            for pair in view.windows(2) {
                let (a, b) = (pair[0].role(), pair[1].role());
                prop_assert!(a == "tool" || a != b, "two {} rows in a row", a);
            }
        }
    }

    #[test]
    fn any_log_gives_a_view_that_strict_servers_take(
        kinds in prop::collection::vec((0_u8..5, 0_u8..4), 0..40),
    ) {
        let messages: Vec<Message> = kinds
            .iter()
            .map(|(kind, n)| match kind {
                0 => Message::user("u"),
                1 => Message::assistant("a"),
                2 => calls(&[&format!("c{n}"), "d"]),
                3 => result(&format!("c{n}")),
                _ => thought("t"),
            })
            .collect();
        let log = log_of(messages);
        let mut open: Vec<String> = Vec::new();
        for message in project(log.items(), &ViewCaps::all("p")) {
            match &*message {
                Message::Tool(tool) => {
                    let at = open.iter().position(|id| *id == tool.call_id);
                    prop_assert!(at.is_some(), "a result without a call");
                    open.remove(at.unwrap());
                }
                Message::Assistant(a) => {
                    prop_assert!(open.is_empty());
                    open = a.tool_calls.iter().map(|call| call.id.clone()).collect();
                }
                Message::User(_) => prop_assert!(open.is_empty()),
            }
        }
        prop_assert!(open.is_empty(), "a call without a result");
    }
}
