//! The program with real weights: what it knows, what it keeps, and when it ends.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::http::eventually;
use crate::weights::{Server, python, require};

fn asked(text: &str) -> Value {
    json!({
        "messages": [{ "role": "user", "content": text }],
        "temperature": 0,
        "max_tokens": 48,
        "seed": 5,
    })
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn it_answers_and_remembers_the_beginning() {
    let Some(model) = require("it_answers_and_remembers_the_beginning") else {
        return;
    };
    let server = Server::start(&model, &[]);
    let client = &server.client;
    let mut body = asked("What is the capital of France? Answer in one short sentence.");
    let first = client.chat(&body);
    assert!(content(&first).contains("Paris"), "{first}");

    // The second turn begins with the first, which is not computed again.
    body["messages"].as_array_mut().unwrap().extend([
        json!({ "role": "assistant", "content": content(&first) }),
        json!({ "role": "user", "content": "And of Italy?" }),
    ]);
    let second = client.chat(&body);
    let usage = &second["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap();
    let before = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached >= before, "{usage}");
    assert!(cached < usage["prompt_tokens"].as_u64().unwrap());

    // With a seed, a stream says the same, also where there is a choice.
    body["temperature"] = json!(0.8);
    body["stop"] = json!(["."]);
    let whole = client.chat(&body);
    assert!(!content(&whole).contains('.'));
    let streamed: String = client
        .chunks(&body)
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(streamed, content(&whole));

    let health = client.get("/health");
    for speed in ["prefill_tokens_per_second", "decode_tokens_per_second"] {
        assert!(health[speed].as_f64().unwrap() > 0.0, "{health}");
    }
}

#[test]
fn a_client_that_leaves_frees_the_model() {
    let Some(model) = require("a_client_that_leaves_frees_the_model") else {
        return;
    };
    let server = Server::start(&model, &[]);
    let client = &server.client;
    let mut body = asked("Count from one to one thousand, in words.");
    body["max_tokens"] = json!(2000);
    body["stream"] = json!(true);
    let mut response = client.send("POST", "/v1/chat/completions", &body.to_string());
    for _ in 0..4 {
        response.piece().unwrap();
    }
    assert_eq!(client.get("/health")["busy"], true);
    drop(response);
    eventually("the model is free", || {
        client.get("/health")["busy"] == false
    });
    let tokens = client.get("/health")["generated_tokens"].as_u64().unwrap();
    assert!(tokens < 2000, "{tokens}");
    let question = asked("What is the capital of France? Answer in one short sentence.");
    let answer = client.chat(&question);
    assert!(content(&answer).contains("Paris"), "{answer}");
    // Also while a long prompt is read.
    let tokens = client.get("/health")["generated_tokens"].as_u64().unwrap();
    let long = asked(&"All work and no play makes Jack a dull boy. ".repeat(400));
    let asking = client.ask("POST", "/v1/chat/completions", &long.to_string());
    eventually("it is taken up", || client.get("/health")["requests"] == 3);
    drop(asking);
    eventually("the model is free", || {
        client.get("/health")["busy"] == false
    });
    assert_eq!(client.get("/health")["generated_tokens"], tokens);
    let again = client.chat(&question);
    assert_eq!(content(&again), content(&answer));
}

#[test]
fn it_lives_as_long_as_somebody_holds_on_to_it() {
    let Some(model) = require("it_lives_as_long_as_somebody_holds_on_to_it") else {
        return;
    };
    let mut server = Server::start(&model, &["--grace", "0.3"]);
    let client = server.client.clone();
    // Another process holds on to it, and is killed without a chance to say goodbye.
    let hold = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'GET /lease HTTP/1.1\\r\\nhost: 127.0.0.1:{}\\r\\n\
         authorization: Bearer {}\\r\\n\\r\\n' >&3; exec cat <&3",
        client.port, client.port, client.token
    );
    let mut holder = Command::new("bash")
        .args(["-c", &hold])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("somebody holds on", || client.get("/health")["leases"] == 1);
    let second = Server::command(&model, &server.run, &[]).status().unwrap();
    assert_eq!(second.code(), Some(3), "one server is enough");
    assert!(!server.ended());
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the server ends", || server.ended());
    assert!(server.child.wait().unwrap().success());
    assert!(!server.run.exists());
}

#[test]
fn it_ends_when_told_and_when_nobody_asks() {
    let Some(model) = require("it_ends_when_told_and_when_nobody_asks") else {
        return;
    };
    let mut server = Server::start(&model, &[]);
    let mut body = asked("Tell me a very long story.");
    body["max_tokens"] = json!(4000);
    let asking = server
        .client
        .ask("POST", "/v1/chat/completions", &body.to_string());
    eventually("it is busy", || {
        server.client.get("/health")["busy"] == true
    });
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    eventually("the server ends", || server.ended());
    assert!(server.child.wait().unwrap().success());
    assert!(!server.run.exists());
    drop(asking);

    let mut server = Server::start(&model, &["--idle", "0.3"]);
    eventually("the server ends", || server.ended());
    assert!(!server.run.exists());
}

#[test]
fn what_cannot_be_served_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run.json");
    let file = directory.path().join("broken.gguf");
    std::fs::write(&file, "no model").unwrap();
    for model in [file, directory.path().join("missing.gguf")] {
        let output = Server::command(&model, &run, &[])
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(model.to_str().unwrap()), "{said}");
        assert!(output.stdout.is_empty());
        assert!(!run.exists());
    }
}

#[test]
fn openais_client_works() {
    let name = "openais_client_works";
    let (Some(model), Some(python)) = (require(name), python(name)) else {
        return;
    };
    // Python may take its time to begin.
    let server = Server::start(&model, &["--grace", "600"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/talk.py");
    let output = Command::new(python)
        .args([
            script,
            &format!("http://127.0.0.1:{}/v1", server.client.port),
        ])
        .arg(&server.client.token)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}
