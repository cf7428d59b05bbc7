//! `hermes __conformance <url>`: the client that the official MCP conformance suite starts. Hidden.
//!
//! It drives the same manager, links and logins as a conversation does. The suite names the
//! scenario in `MCP_CONFORMANCE_SCENARIO`, gives credentials and calls in
//! `MCP_CONFORMANCE_CONTEXT`, and judges what reaches its server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::ask::{Answer, Asker, Question, Want};
use hermes_http::{HttpSettings, Redirects};
use hermes_mcp::{
    AuthPrompt, CallOptions, CallOrigin, LoginPage, Op, ServerHandle, Toolbox, config, naming,
};
use serde_json::{Map, Value, json};

use super::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring::{self, mcp};

/// The document by which clients without a registration are known to the suite.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// Timeout for connecting and for one call; the suite gives up after 30 s.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArgs {
    url: String,
}

pub(crate) fn run(args: &ConformanceArgs, cx: &Context) -> Outcome {
    let scenario = cx.env.get("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = context(cx)?;
    // Scenarios run side by side in one home: each has its own tokens.
    let name = format!("conformance-{}", std::process::id());
    let version = cx.env.get("MCP_CONFORMANCE_PROTOCOL_VERSION");
    let config = server(&args.url, scenario, version, &context);
    let entry = config::server(&name, &config, &cx.env, &cx.home);
    if let Some(problem) = entry.problems.iter().find(|problem| problem.fatal) {
        return Err(Failure::failed(problem.to_string()));
    }
    crate::logging::start(cx);
    wiring::runtime()?.block_on(async {
        let toolbox = mcp::start_all(cx, vec![entry], Some(Arc::new(AutomaticLogin::new()?)));
        toolbox.settle(CALL_TIMEOUT).await;
        let handle = toolbox.server(&name);
        let catalogue = handle.as_ref().map(ServerHandle::catalogue);
        let lists = catalogue.and_then(|lists| lists.borrow().clone());
        let outcome = match (handle, lists) {
            (Some(handle), Some(lists)) => {
                // Wait for the listening stream before the first call: if it opens late, a suite
                // that waits for another stream to resume mistakes it for that one.
                let _ = tokio::time::timeout(CALL_TIMEOUT, handle.listening()).await;
                let offered = offered(&toolbox, &name, &lists.tools);
                exercise(&handle, &offered, &lists.facts.capabilities, &context, cx).await;
                Ok(())
            }
            (Some(handle), None) => {
                let why = handle.status().last_error.map(|error| error.text);
                Err(Failure::failed(
                    why.unwrap_or_else(|| "no answer".to_owned()),
                ))
            }
            (None, _) => Err(Failure::failed("the server was not started")),
        };
        toolbox.shutdown(STOP_TIMEOUT).await;
        outcome
    })
}

/// What a model would see of the server's tools.
fn offered(toolbox: &Toolbox, server: &str, tools: &[Value]) -> Vec<Value> {
    let catalogue = toolbox.catalogue();
    let is_offered = |tool: &&Value| {
        let name = naming::tool_name(server, tool["name"].as_str().unwrap_or_default());
        catalogue.tools.iter().any(|tool| tool.spec().name == name)
    };
    tools.iter().filter(is_offered).cloned().collect()
}

fn context(cx: &Context) -> Result<Value, Failure> {
    let Some(text) = cx.env.get("MCP_CONFORMANCE_CONTEXT") else {
        return Ok(Value::Null);
    };
    serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("MCP_CONFORMANCE_CONTEXT: {error}")))
}

/// The server as config.yaml would have it.
fn server(url: &str, scenario: &str, version: Option<&str>, context: &Value) -> Value {
    let mut server = json!({"url": url, "timeout": CALL_TIMEOUT.as_secs(), "trust": "full"});
    server["protocol"] = match version {
        Some("2026-07-28") | None => json!("auto"),
        Some(_) => json!("legacy"),
    };
    if scenario.starts_with("auth/") {
        server["auth"] = json!("oauth");
        server["oauth"] = match context["client_id"].as_str() {
            Some(id) => json!({"client_id": id, "client_secret": context["client_secret"]}),
            None => json!({"client_metadata_url": CLIENT_METADATA}),
        };
    }
    server
}

/// Uses what the server offers: the calls the suite asks for, or one of everything.
async fn exercise(
    handle: &ServerHandle,
    tools: &[Value],
    capabilities: &Value,
    context: &Value,
    cx: &Context,
) {
    let mut ops = Vec::new();
    if let Some(calls) = context["toolCalls"].as_array() {
        ops.extend(
            calls
                .iter()
                .map(|call| tool(&call["name"], &call["arguments"])),
        );
    } else {
        ops.extend(
            tools
                .iter()
                .map(|each| tool(&each["name"], &sample(each, tools))),
        );
    }
    if !capabilities["resources"].is_null() {
        let listed = ask(handle, Op::ListResources, cx).await;
        let uris = names(&listed, "resources", "uri");
        ops.extend(uris.map(|uri| Op::ReadResource { uri }));
    }
    if !capabilities["prompts"].is_null() {
        let listed = ask(handle, Op::ListPrompts, cx).await;
        ops.extend(names(&listed, "prompts", "name").map(|name| Op::GetPrompt {
            name,
            arguments: Map::new(),
        }));
    }
    for op in ops {
        ask(handle, op, cx).await;
    }
}

fn names(listed: &Value, list: &str, key: &'static str) -> impl Iterator<Item = String> {
    let items = listed[list].as_array().cloned().unwrap_or_default();
    items
        .into_iter()
        .filter_map(move |item| item[key].as_str().map(str::to_owned))
}

fn tool(name: &Value, arguments: &Value) -> Op {
    Op::CallTool {
        name: name.as_str().unwrap_or_default().to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
    }
}

/// Arguments that fit the schema of a tool. One that asks for a schema gets that of the first tool
/// as we received it.
fn sample(tool: &Value, tools: &[Value]) -> Value {
    let mut arguments = Map::new();
    let properties = tool["inputSchema"]["properties"].as_object();
    for (number, (name, schema)) in properties.into_iter().flatten().enumerate() {
        let value = match schema["type"].as_str() {
            Some("integer" | "number") => json!(number + 1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") if name == "schema" => tools[0]["inputSchema"].clone(),
            Some("object") => json!({}),
            _ => json!("test"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}

/// One request; the result is only logged.
async fn ask(handle: &ServerHandle, op: Op, cx: &Context) -> Value {
    let what = op.name();
    let options = CallOptions {
        origin: Some(CallOrigin {
            session: "conformance".to_owned(),
            asker: Arc::new(DefaultAnswers),
        }),
        ..CallOptions::default()
    };
    match handle.call(op, options).await {
        Ok(output) => {
            cx.out.error(format!("{what}: {}", output.result));
            output.result
        }
        Err(error) => {
            cx.out.error(format!("{what}: {error}"));
            Value::Null
        }
    }
}

/// Answers every question with its defaults.
struct DefaultAnswers;

impl Asker for DefaultAnswers {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        let answer = match question.want {
            Want::Form { fields } => Answer::Form {
                values: fields
                    .iter()
                    .filter_map(|field| Some((field.name.clone(), field.read("").ok()??)))
                    .collect(),
            },
            Want::Visit { .. } => Answer::Agreed,
            Want::Text | Want::Choice { .. } => Answer::Declined { why: None },
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Grants every login: opens the page and returns the URL it redirects to.
struct AutomaticLogin {
    client: reqwest::Client,
    redirect_url: Mutex<Option<String>>,
}

impl AutomaticLogin {
    fn new() -> Result<Self, Failure> {
        let settings = HttpSettings {
            redirects: Redirects::Never,
            ..HttpSettings::default()
        };
        let client =
            hermes_http::client(&settings).map_err(|error| Failure::failed(error.to_string()))?;
        Ok(Self {
            client,
            redirect_url: Mutex::default(),
        })
    }
}

impl AuthPrompt for AutomaticLogin {
    fn show(&self, page: &LoginPage) -> BoxFuture<'_, Result<(), String>> {
        let url = page.url.clone();
        Box::pin(async move {
            let answer = self.client.get(url).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            let location = answer.headers().get(reqwest::header::LOCATION);
            let location = location.and_then(|value| value.to_str().ok());
            let redirect_url = location.ok_or("the page leads nowhere")?.to_owned();
            *self
                .redirect_url
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(redirect_url);
            Ok(())
        })
    }

    fn pasted(&self) -> BoxFuture<'_, Option<String>> {
        let mut redirect_url = self
            .redirect_url
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Box::pin(std::future::ready(redirect_url.take()))
    }

    fn note(&self, text: &str) {
        tracing::info!("{text}");
    }
}
