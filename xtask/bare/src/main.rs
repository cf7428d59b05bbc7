//! `bare-client --version`, or `bare-client <base url> <text>`: one conversation with a model,
//! answering each call for `read_file` with the file. No state, no checks, no display.
//!
//! `bare-client serve <base url> <port>`: the same for clients of an API, one call per request.
#![expect(
    clippy::print_stdout,
    reason = "a command-line program prints its answer"
)]

mod serve;

use anyhow::{Context, Result};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let first = args
        .next()
        .context("usage: bare-client --version | <base url> <text> | serve <base url> <port>")?;
    if first == "--version" {
        println!("bare-client {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let text = args.next().context("a text is missing")?;
    if first == "serve" {
        let port = args.next().context("a port is missing")?.parse()?;
        return serve::run(&text, port);
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(converse(&first, &text))
}

fn client() -> Result<reqwest::Client> {
    // A second provider being installed already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Loopback needs no certificates, and loading the system's would be most of the time.
    Ok(reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .build()?)
}

async fn converse(base_url: &str, text: &str) -> Result<()> {
    let client = client()?;
    let mut messages = vec![json!({"role": "user", "content": text})];
    loop {
        let tools = json!([{"type": "function", "function": {"name": "read_file"}}]);
        let body = json!({"model": "scripted-model", "stream": true, "messages": messages,
                          "tools": tools});
        let mut response = client
            .post(format!("{base_url}/chat/completions"))
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await?
            .error_for_status()?;
        let mut pending = String::new();
        let mut answer = String::new();
        let mut calls = Vec::new();
        while let Some(bytes) = response.chunk().await? {
            pending.push_str(std::str::from_utf8(&bytes)?);
            while let Some(end) = pending.find("\n\n") {
                event(&pending[..end], &mut answer, &mut calls)?;
                pending.drain(..end + 2);
            }
        }
        if calls.is_empty() {
            println!("{answer}");
            return Ok(());
        }
        messages.push(json!({"role": "assistant", "content": answer, "tool_calls": calls}));
        for call in &calls {
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap_or("{}"))?;
            let path = arguments["path"].as_str().unwrap_or_default();
            let content = std::fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": content}));
        }
    }
}

fn event(text: &str, answer: &mut String, calls: &mut Vec<Value>) -> Result<()> {
    let Some(data) = text.strip_prefix("data: ") else {
        return Ok(());
    };
    if data == "[DONE]" {
        return Ok(());
    }
    let value: Value = serde_json::from_str(data)?;
    let delta = &value["choices"][0]["delta"];
    if let Some(text) = delta["content"].as_str() {
        answer.push_str(text);
    }
    calls.extend(
        delta["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .cloned(),
    );
    Ok(())
}
