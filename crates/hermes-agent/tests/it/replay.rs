//! What a provider sees of earlier answers: the same after a restart, and nothing that is meant for
//! another model after a switch.

use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::message::{BlobKind, Message};
use hermes_testkit::model_server::{ReasoningField, Reply, ScriptedCall};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::http::{FORMATS, Rig, plain};

/// A provider and a model, by what they want back.
#[derive(Clone, Copy, Debug)]
struct Kind {
    provider: &'static str,
    model: &'static str,
    format: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        provider: "custom",
        model: "deepseek-reasoner",
        format: "chat_completions",
    },
    Kind {
        provider: "deepseek",
        model: "deepseek-v4",
        format: "chat_completions",
    },
    Kind {
        provider: "kimi-coding",
        model: "kimi-k2.6",
        format: "chat_completions",
    },
    Kind {
        provider: "huggingface",
        model: "deepseek-ai/DeepSeek-V3.2",
        format: "chat_completions",
    },
    Kind {
        provider: "zai",
        model: "glm-5.2",
        format: "chat_completions",
    },
    Kind {
        provider: "openrouter",
        model: "openai/gpt-5.4",
        format: "chat_completions",
    },
    Kind {
        provider: "gemini",
        model: "gemini-3-flash",
        format: "chat_completions",
    },
    Kind {
        provider: "custom",
        model: "plain",
        format: "chat_completions",
    },
    Kind {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        format: "anthropic_messages",
    },
    Kind {
        provider: "anthropic",
        model: "claude-sonnet-5",
        format: "anthropic_messages",
    },
    Kind {
        provider: "openai-api",
        model: "gpt-5.4",
        format: "codex_responses",
    },
    Kind {
        provider: "xai",
        model: "grok-4.3",
        format: "codex_responses",
    },
];

fn rig(kind: Kind) -> Rig {
    let mut rig = Rig::new(kind.format);
    rig.config.model.provider = kind.provider.into();
    rig.config.model.default = kind.model.into();
    let details = kind.provider == "openrouter";
    rig.server.answer_with(move |request| {
        let thought = format!(" thinking about {} \n", request.messages().len());
        let reply =
            Reply::reasoning_only(&thought).and_reasoning("more\n\nthoughts ", Some("c2VhbGVk"));
        let reply = if details {
            reply.reasoning_field(ReasoningField::Details)
        } else {
            reply
        };
        if request.ends_with_tool_result() {
            reply.and_text("the sum")
        } else {
            let call = ScriptedCall::new("", "add", &json!({"a": request.messages().len()}));
            let signature = json!({"google": {"thought_signature": "c2ln"}});
            reply
                .and_text("adding")
                .and_call(call.extra_content(signature))
        }
    });
    rig
}

/// For every wire format and every way of sending reasoning back: a conversation that is stored,
/// loaded and continued sends what it would have sent without a restart.
#[tokio::test]
async fn a_restart_changes_nothing_of_what_is_sent() {
    for kind in KINDS {
        let live = rig(*kind);
        let mut session = live.start();
        session.turn("one").await;
        session.turn("two").await;
        session.close().await;

        let stored = rig(*kind);
        let mut session = stored.start();
        session.turn("one").await;
        session.close().await;
        let mut session = stored.resume().await;
        let summary = session.turn("two").await;
        assert_eq!(summary.exit, TurnExit::Answered, "{kind:?}");
        session.close().await;

        let sent = |rig: &Rig| plain(rig.server.last_request().messages());
        assert_eq!(sent(&stored), sent(&live), "{kind:?}");
        let text = json!(sent(&stored)).to_string();
        let reasons = match kind.provider {
            // Nobody asked this one for its thoughts.
            "custom" if kind.model == "plain" => false,
            "gemini" => false,
            _ => true,
        };
        let replayed = ["thinking about", "thoughts", "c2VhbGVk"]
            .iter()
            .any(|word| text.contains(word));
        assert_eq!(replayed, reasons, "{kind:?}: {text}");
    }
}

#[tokio::test]
async fn reasoning_goes_back_byte_for_byte_after_a_restart() {
    for (provider, model) in [
        ("custom", "deepseek-chat"),
        ("zai", "glm-5.2"),
        ("kimi-coding", "kimi-k2.6"),
    ] {
        let rig = rig(Kind {
            provider,
            model,
            format: "chat_completions",
        });
        let mut session = rig.start();
        session.turn("one").await;
        session.close().await;
        let mut session = rig.resume().await;
        session.turn("two").await;
        let echoed: Vec<Value> = rig
            .server
            .last_request()
            .messages()
            .into_iter()
            .filter(|message| message["role"] == "assistant")
            .map(|message| message["reasoning_content"].clone())
            .collect();
        let thought = |n: usize| json!(format!(" thinking about {n} \nmore\n\nthoughts "));
        assert_eq!(echoed[0], thought(1), "{model}");
        assert_eq!(echoed[1], thought(3), "{model}");
    }
}

/// Sealed and signed reasoning is for the model that made it, before and after a restart.
#[tokio::test]
async fn another_model_gets_no_sealed_reasoning() {
    for (kind, other) in [
        (KINDS[10], "gpt-5.4-mini"),
        (KINDS[11], "grok-4.5"),
        (KINDS[8], "claude-opus-4-5"),
        (KINDS[5], "openai/gpt-5.4-mini"),
        (KINDS[6], "gemini-3-pro"),
    ] {
        for restart in [false, true] {
            let rig = rig(kind);
            let mut session = rig.start();
            session.turn("one").await;
            if restart {
                session.close().await;
                session = rig.resume().await;
            }
            session
                .send(AgentCommand::SwitchRoute {
                    model: other.into(),
                    provider: None,
                })
                .await;
            let summary = session.turn("two").await;
            assert_eq!(summary.exit, TurnExit::Answered, "{kind:?} {restart}");
            let requests = rig.server.model_requests();
            let first = requests
                .iter()
                .find(|request| request.model() == other)
                .unwrap();
            let text = json!(first.messages()).to_string();
            assert!(!text.contains("c2VhbGVk"), "{kind:?} {restart}: {text}");
            assert!(!text.contains("c2ln"), "{kind:?} {restart}: {text}");
            // What the new model seals stays with it.
            let last = json!(rig.server.last_request().messages()).to_string();
            if kind.provider != "gemini" {
                assert_eq!(
                    last.matches("c2VhbGVk").count(),
                    1,
                    "{kind:?} {restart}: {last}"
                );
            }
        }
    }
}

/// Items of the responses format keep their order, and reasoning that led to a call which is gone
/// goes with it.
#[tokio::test]
async fn output_items_keep_their_order() {
    let rig = Rig::new("codex_responses");
    rig.server.answer_with(|request| {
        if request.ends_with_tool_result() {
            return Reply::text("done");
        }
        let call = |id: &str| ScriptedCall::new(id, "add", &json!({"a": 1, "id": id}));
        Reply::empty()
            .and_reasoning("first", Some("s1"))
            .and_call(call("c1"))
            .and_reasoning("second", Some("s2"))
            .and_call(call("c2"))
    });
    let order = |request: &hermes_testkit::model_server::RecordedRequest| -> Vec<String> {
        request.body["input"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|item| match item["type"].as_str()? {
                "reasoning" => Some(item["encrypted_content"].as_str()?.to_owned()),
                "function_call" => Some(item["call_id"].as_str()?.to_owned()),
                _ => None,
            })
            .collect()
    };
    let mut session = rig.start();
    session.turn("one").await;
    assert_eq!(order(&rig.server.last_request()), ["s1", "c1", "s2", "c2"]);
    session.close().await;
    let mut session = rig.resume().await;
    session.turn("two").await;
    let sent = order(&rig.server.last_request());
    assert_eq!(sent[..4], ["s1", "c1", "s2", "c2"]);
}

/// A call that came twice is run once; what is left is a message that the provider takes.
#[tokio::test]
async fn a_thought_whose_call_is_gone_does_not_end_a_message() {
    for (provider, model, format) in [
        ("anthropic", "claude-sonnet-4-5", "anthropic_messages"),
        ("openai-api", "gpt-5.4", "codex_responses"),
    ] {
        let mut rig = Rig::new(format);
        rig.config.model.provider = provider.into();
        rig.config.model.default = model.into();
        rig.server.answer_with(|request| {
            if request.ends_with_tool_result() {
                return Reply::text("done");
            }
            let call = |id: &str| ScriptedCall::new(id, "add", &json!({"a": 1}));
            Reply::empty()
                .and_reasoning("first", Some("s1"))
                .and_call(call("c1"))
                .and_reasoning("second", Some("s2"))
                .and_call(call("c2"))
        });
        let mut session = rig.start();
        session.turn("one").await;
        let request = rig.server.last_request();
        let text = json!(request.messages()).to_string();
        assert!(
            text.contains("s1") && !text.contains("s2"),
            "{provider}: {text}"
        );
    }
}

/// An answer that ended badly is continued, and said to be incomplete when that does not help.
#[tokio::test]
async fn a_bad_end_is_no_end() {
    for word in [
        "insufficient_system_resource",
        "network_error",
        "error",
        "something_new",
    ] {
        let rig = Rig::new("chat_completions");
        rig.server.push(Reply::text("half of ").finish(word));
        rig.server.push(Reply::text("the answer"));
        let mut session = rig.start();
        let summary = session.turn("go").await;
        assert_eq!(summary.exit, TurnExit::Answered, "{word}");
        assert_eq!(
            summary
                .text
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            "half of the answer",
            "{word}"
        );
        assert_eq!(rig.server.model_requests().len(), 2, "{word}");
        let rows = rig.rows().await;
        let Some(Message::Assistant(first)) = rows.get(1) else {
            panic!("{rows:?}");
        };
        assert!(first.finish.as_ref().unwrap().is_cut(), "{word}");
        assert!(
            !first
                .blobs
                .iter()
                .any(|blob| blob.kind == BlobKind::ReasoningDetails)
        );

        let rig = Rig::new("chat_completions");
        rig.server.push_default(Reply::text("half ").finish(word));
        let mut session = rig.start();
        let summary = session.turn("go").await;
        assert!(
            matches!(summary.exit, TurnExit::Partial { .. }),
            "{word}: {:?}",
            summary.exit
        );
    }
}

/// A refusal in words that nobody knows, of a request near the window: the conversation is
/// compacted once and the turn continues.
#[tokio::test]
async fn an_unknown_refusal_of_a_full_window_compacts() {
    for format in FORMATS {
        let mut rig = Rig::new(format);
        rig.config.model.context_length = Some(64_000);
        rig.server.answer_with(|request| {
            if request.raw.len() > 185_000 {
                let error = json!({"error": {"message": "InternalError.Algo: this input cannot be handled, try something else", "type": "BadRequest"}});
                return Reply::json(400, &error);
            }
            Reply::text("## Goal\nGo on.").no_usage()
        });
        let mut session = rig.start();
        for n in 0..5 {
            let text = format!("request {n}: {}", "lorem ipsum dolor ".repeat(2_300));
            let summary = session.turn(&text).await;
            assert_eq!(summary.exit, TurnExit::Answered, "{format} {n}");
        }
        let compacted = session
            .seen
            .iter()
            .filter(|event| matches!(event, AgentEvent::Compacted { .. }))
            .count();
        assert!(compacted > 0, "{format}");
    }
}
