use std::time::Duration;

use hermes_core::message::FinishReason;
use pretty_assertions::assert_eq;

use super::*;

struct Echo;

impl Sampler for Echo {
    fn default_model(&self) -> Result<String, String> {
        Ok("usual".to_owned())
    }

    fn sample(&self, request: SampleRequest) -> BoxFuture<'_, Result<Sampled, String>> {
        Box::pin(async move {
            let last = request.messages.last().cloned();
            if request.system == "hang" {
                std::future::pending::<()>().await;
            }
            let text = match last {
                Some(Message::User(user)) => user.content.text().into_owned(),
                other => format!("{other:?}"),
            };
            let message = AssistantMessage {
                text: format!("{text} within {}", request.max_tokens),
                finish: Some(FinishReason::Stop),
                ..AssistantMessage::default()
            };
            Ok(Sampled {
                message,
                model: request.model.unwrap_or_else(|| "usual".to_owned()),
                usage: Some(Usage {
                    input: 3,
                    output: 2,
                    ..Usage::default()
                }),
            })
        })
    }
}

fn limits() -> Sampling {
    Sampling {
        enabled: true,
        model: None,
        max_tokens_cap: 100,
        timeout: Duration::from_secs(30),
        max_rpm: 2,
        allowed_models: Vec::new(),
        max_tool_rounds: 1,
        log_level: "info".to_owned(),
    }
}

fn asks(text: &str) -> Value {
    json!({"maxTokens": 5000, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
}

async fn answer(limits: Sampling, params: &Value) -> (Result<Value, Declined>, Audit) {
    let audit = Audit::default();
    let sampler_within_limits = LimitedSampler::new(limits, Arc::new(Echo));
    let answer = sampler_within_limits.answer("srv", params, &audit).await;
    (answer, audit)
}

#[tokio::test(start_paused = true)]
async fn answers_come_in_the_words_of_the_protocol_and_within_the_cap() {
    let (answer, audit) = answer(limits(), &asks("hi")).await;
    assert_eq!(
        answer.unwrap(),
        json!({"role": "assistant", "content": {"type": "text", "text": "hi within 100"},
               "model": "usual", "stopReason": "endTurn"})
    );
    assert_eq!(audit.counts()["sampling/ok"], 1);
    assert_eq!(audit.counts()["sampling/tokens_in"], 3);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_requests_per_minute() {
    let audit = Audit::default();
    let sampler_within_limits = LimitedSampler::new(limits(), Arc::new(Echo));
    for _ in 0..2 {
        sampler_within_limits
            .answer("srv", &asks("hi"), &audit)
            .await
            .unwrap();
    }
    let refused = sampler_within_limits
        .answer("srv", &asks("hi"), &audit)
        .await
        .unwrap_err();
    assert!(refused.message.contains("2 requests per minute"));
    assert_eq!(audit.counts()["sampling/rate_limited"], 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    sampler_within_limits
        .answer("srv", &asks("hi"), &audit)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn models_are_chosen_within_what_is_allowed() {
    let named = Sampling {
        allowed_models: vec!["big-2".into(), "small-1".into()],
        max_rpm: 9,
        ..limits()
    };
    let mut hinted = asks("hi");
    hinted["modelPreferences"] = json!({"hints": [{"name": "unheard"}, {"name": "small"}]});
    let (with_hint, _) = answer(named.clone(), &hinted).await;
    assert_eq!(with_hint.unwrap()["model"], "small-1");
    let (without, _) = answer(named.clone(), &asks("hi")).await;
    assert_eq!(without.unwrap()["model"], "big-2");
    let fixed = Sampling {
        model: Some("other".into()),
        ..named
    };
    let (refused, audit) = answer(fixed, &asks("hi")).await;
    assert!(
        refused
            .unwrap_err()
            .message
            .contains("not among the allowed")
    );
    assert_eq!(audit.counts()["sampling/refused"], 1);
    // Without an allow-list, a hint is not enough to choose a model other than the user's.
    let (free, _) = answer(limits(), &hinted).await;
    assert_eq!(free.unwrap()["model"], "usual");
}

#[tokio::test(start_paused = true)]
async fn tool_rounds_and_time_are_bounded() {
    let mut params = asks("hi");
    params["tools"] = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    assert!(answer(limits(), &params).await.0.is_ok());
    params["messages"] = json!([
        {"role": "user", "content": {"type": "text", "text": "go"}},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "r"}]}]},
    ]);
    let (refused, _) = answer(limits(), &params).await;
    assert!(
        refused
            .unwrap_err()
            .message
            .contains("1 rounds of tool calls")
    );
    let mut slow = asks("hi");
    slow["systemPrompt"] = json!("hang");
    let (late, audit) = answer(limits(), &slow).await;
    assert!(late.unwrap_err().message.contains("within 30 s"));
    assert_eq!(audit.counts()["sampling/timed_out"], 1);
    let (odd, _) = answer(
        limits(),
        &json!({"messages": [{"role": "user", "content": {"type": "audio"}}]}),
    )
    .await;
    assert_eq!(odd.unwrap_err().code, -32602);
}
