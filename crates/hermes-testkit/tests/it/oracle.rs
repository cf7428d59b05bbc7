//! The vendors' own client reads what the server writes; the original has a turn with it.

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ScriptedCall};
use hermes_testkit::oracle;
use serde_json::json;

const CLIENT: &str = r#"
import json, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1], api_key="k")
tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
text, calls, usage, finish = "", {}, None, None
for chunk in client.chat.completions.create(model="m", stream=True, tools=tools,
        messages=[{"role": "user", "content": "x"}], stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or []:
            calls.setdefault(call.index, ["", ""])
            calls[call.index][0] += call.function.name or ""
            calls[call.index][1] += call.function.arguments or ""
flat = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
with client.responses.stream(model="m", input="x", tools=flat) as stream:
    kinds = [event.type for event in stream]
    final = stream.get_final_response()
print(json.dumps({
    "text": text, "calls": list(calls.values()), "finish": finish, "prompt": usage.prompt_tokens,
    "response_text": final.output_text,
    "response_calls": [[i.name, i.arguments] for i in final.output if i.type == "function_call"],
    "response_tokens": final.usage.input_tokens, "last": kinds[-1],
}))
"#;

#[test]
fn openais_own_client_understands_chat_and_responses() {
    let Some(oracle) = oracle::require("openais_own_client_understands_chat_and_responses") else {
        return;
    };
    let server = ModelServer::start();
    server.push_default(
        Reply::text("hello world")
            .deltas(4)
            .and_call(ScriptedCall::new("call_1", "f", &json!({"a": 1})).chunks(2))
            .and_tool_call("call_2", "f", &json!({})),
    );
    let home = TempHome::new();
    let seen = oracle.json(&home, CLIENT, [server.base_url().as_str()]);
    let calls = json!([["f", "{\"a\":1}"], ["f", "{}"]]);
    assert_eq!(seen["text"], "hello world");
    assert_eq!(seen["calls"], calls);
    assert_eq!(seen["finish"], "tool_calls");
    assert_eq!(seen["prompt"], 10);
    assert_eq!(seen["response_text"], "hello world");
    assert_eq!(seen["response_calls"], calls);
    assert_eq!(seen["response_tokens"], 10);
    assert_eq!(seen["last"], "response.completed");
}

#[test]
fn the_original_has_a_turn_with_the_server() {
    let Some(oracle) = oracle::require("the_original_has_a_turn_with_the_server") else {
        return;
    };
    let server = ModelServer::start();
    server.answer_with(|request| {
        if request.ends_with_tool_result() {
            Reply::text("both noted")
        } else {
            Reply::tool_call("call_1", "todo", &json!({}))
        }
    });
    let home = TempHome::new();
    home.use_server(&server.base_url(), "");
    let finished = oracle.hermes(&home, ["-z", "note it"]).ok();
    assert_eq!(finished.stdout.trim(), "both noted");
    let last = server.last_request();
    assert_eq!(
        (last.model(), last.api_key()),
        ("scripted-model", Some("test-key"))
    );
    assert!(home.exists("state.db"));
}
