//! `hermes webhook`: routes that other services may call.

use clap::{Args, Subcommand};
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_gateway::GatewaySettings;
use hermes_platforms::webhook::{self, Subscriptions, WebhookRoute, parse_name};
use hermes_platforms::{PlatformHttp, PlatformSettings};
use serde_json::{Map, Value, json};

use super::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

#[derive(Debug, Args)]
pub(crate) struct WebhookArgs {
    #[command(subcommand)]
    command: WebhookCommand,
}

#[derive(Debug, Subcommand)]
enum WebhookCommand {
    /// Create or change a route
    #[command(visible_alias = "add")]
    Subscribe(Box<SubscribeArgs>),
    /// List the routes created here
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Delete a route
    #[command(visible_alias = "rm")]
    Remove(RemoveArgs),
    /// Call a route to test it
    Test(TestArgs),
}

#[derive(Debug, Args)]
struct SubscribeArgs {
    /// The last part of the URL: /webhooks/NAME
    name: String,
    /// Prompt for the agent; {a.b} inserts a field of the payload, {__raw__} the whole payload
    #[arg(long, default_value = "")]
    prompt: String,
    /// Accept only these events (comma separated)
    #[arg(long, value_delimiter = ',')]
    events: Vec<String>,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Skills to use; the first one found is loaded (comma separated)
    #[arg(long, value_delimiter = ',')]
    skills: Vec<String>,
    /// Destination of the answer: log, github_comment, or a platform
    #[arg(long, default_value = "log")]
    deliver: String,
    /// Chat on that platform (default: its home channel)
    #[arg(long)]
    deliver_chat_id: Option<String>,
    /// Signing secret (default: generated)
    #[arg(long)]
    secret: Option<String>,
    /// Send the filled-in prompt as the message, without calling a model
    #[arg(long)]
    deliver_only: bool,
    /// A script in the home's scripts/ directory that may drop or rewrite a payload
    #[arg(long)]
    script: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    name: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct TestArgs {
    name: String,
    /// Request body, as JSON
    #[arg(long)]
    payload: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: WebhookArgs, cx: &Context) -> Outcome {
    let webhooks = WebhookContext::open(cx)?;
    match args.command {
        WebhookCommand::Subscribe(args) => webhooks.subscribe(*args),
        WebhookCommand::List(args) => webhooks.list(&args),
        WebhookCommand::Remove(args) => webhooks.remove(&args),
        WebhookCommand::Test(args) => webhooks.test(&args),
    }
}

/// The routes and the server of a home.
struct WebhookContext<'a> {
    cx: &'a Context,
    settings: PlatformSettings,
    subscriptions: Subscriptions,
}

impl<'a> WebhookContext<'a> {
    fn open(cx: &'a Context) -> Result<Self, Failure> {
        let loaded = cx.load_config()?;
        let gateway = GatewaySettings::load(&cx.home, loaded, &cx.env)
            .map_err(|error| Failure::failed(error.to_string()))?;
        let settings = gateway.platform("webhook").cloned().unwrap_or_default();
        let subscriptions = Subscriptions::open(cx.home.root()).map_err(Failure::failed)?;
        Ok(Self {
            cx,
            settings,
            subscriptions,
        })
    }

    /// Where the server is reached from this machine.
    fn url(&self, name: &str) -> String {
        let host = match self.settings.text("host").as_deref() {
            None | Some("0.0.0.0" | "::") => "localhost".to_owned(),
            Some(host) if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
            Some(host) => host.to_owned(),
        };
        let port = self
            .settings
            .text("port")
            .unwrap_or_else(|| webhook::DEFAULT_PORT.to_string());
        format!("http://{host}:{port}/webhooks/{name}")
    }

    /// Says how to switch the server on, where it is off.
    fn remind(&self) {
        if self.settings.enabled != Some(true) {
            self.cx.out.remark(
                "webhooks are switched off: `WEBHOOK_ENABLED=true` in .env, or `hermes gateway setup`, then `hermes gateway run`",
            );
        }
    }

    fn subscribe(mut self, args: SubscribeArgs) -> Outcome {
        let name = parse_name(&args.name).map_err(Failure::usage)?;
        if self.is_fixed(&name) {
            return Err(Failure::new(
                Exit::Refused,
                format!("{name} is defined in config.yaml; change it there"),
            ));
        }
        let deliver = args.deliver.trim().to_lowercase();
        if args.deliver_only && matches!(deliver.as_str(), "" | "log") {
            return Err(Failure::usage(
                "--deliver-only needs a destination, for example: --deliver telegram",
            ));
        }
        let words = |list: Vec<String>| -> Vec<String> {
            let words = list.iter().map(|word| word.trim().to_owned());
            words.filter(|word| !word.is_empty()).collect()
        };
        let mut extra = Map::new();
        if let Some(chat) = args.deliver_chat_id {
            extra.insert("chat_id".to_owned(), Value::from(chat));
        }
        let route = WebhookRoute {
            description: args.description.unwrap_or_default(),
            events: words(args.events),
            secret: Some(
                args.secret
                    .filter(|secret| !secret.is_empty())
                    .unwrap_or_else(webhook::new_secret),
            ),
            prompt: args.prompt,
            skills: words(args.skills),
            deliver,
            deliver_extra: extra,
            deliver_only: args.deliver_only,
            script: args.script.filter(|script| !script.trim().is_empty()),
            created_at: Some(SystemClock.now().format("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ..WebhookRoute::default()
        };
        let changed = self
            .subscriptions
            .put(&name, &route)
            .map_err(Failure::failed)?;
        let url = self.url(&name);
        if args.json {
            let value = json!({"name": name, "url": url, "changed": changed, "route": route});
            return Ok(self.cx.out.json(&value)?);
        }
        let out = self.cx.out;
        out.line(format!(
            "{} {name}",
            if changed { "changed" } else { "made" }
        ))?;
        out.line(format!("  address  {url}"))?;
        out.line(format!(
            "  secret   {}",
            route.secret.as_deref().unwrap_or_default()
        ))?;
        out.line(format!("  events   {}", listed(&route.events)))?;
        out.line(format!("  answer   {}", answer(&route)))?;
        out.remark("sign calls with the secret: X-Hub-Signature-256 as GitHub does, or X-Webhook-Signature-V2");
        self.remind();
        Ok(())
    }

    fn is_fixed(&self, name: &str) -> bool {
        let routes = self.settings.extra.get("routes");
        routes.and_then(|routes| routes.get(name)).is_some()
    }

    fn list(self, args: &ListArgs) -> Outcome {
        let routes = self.subscriptions.routes();
        if args.json {
            let rows: Vec<Value> = routes
                .iter()
                .map(|(name, route)| {
                    json!({
                        "name": name,
                        "url": self.url(name),
                        "description": route.description,
                        "events": route.events,
                        "deliver": route.deliver,
                        "deliver_only": route.deliver_only,
                        "enabled": route.enabled != Some(false),
                        "script": route.script,
                    })
                })
                .collect();
            return Ok(self.cx.out.json(&rows)?);
        }
        if routes.is_empty() {
            self.cx
                .out
                .line("no routes yet; create one: hermes webhook subscribe NAME")?;
        }
        for (name, route) in &routes {
            let off = if route.enabled == Some(false) {
                " (off)"
            } else {
                ""
            };
            self.cx.out.line(format!("{name}{off}"))?;
            if !route.description.is_empty() {
                self.cx
                    .out
                    .foreign_line(&format!("  {}", route.description))?;
            }
            self.cx.out.line(format!("  address  {}", self.url(name)))?;
            self.cx
                .out
                .foreign_line(&format!("  events   {}", listed(&route.events)))?;
            self.cx
                .out
                .foreign_line(&format!("  answer   {}", answer(route)))?;
            if let Some(script) = &route.script {
                self.cx.out.foreign_line(&format!("  script   {script}"))?;
            }
        }
        self.remind();
        Ok(())
    }

    fn remove(mut self, args: &RemoveArgs) -> Outcome {
        let name = args.name.trim().to_lowercase();
        if !self.subscriptions.remove(&name).map_err(Failure::failed)? {
            let why = if self.is_fixed(&name) {
                format!("{name} is defined in config.yaml; remove it there")
            } else {
                format!("there is no route {name:?}; see: hermes webhook list")
            };
            return Err(Failure::new(Exit::NotFound, why));
        }
        if args.json {
            return Ok(self.cx.out.json(&json!({"removed": name}))?);
        }
        self.cx.out.line(format!("removed {name}"))?;
        Ok(())
    }

    fn test(self, args: &TestArgs) -> Outcome {
        let name = args.name.trim().to_lowercase();
        let made = self.subscriptions.get(&name);
        let fixed = || {
            let route = self.settings.extra.get("routes")?.get(&name)?;
            serde_json::from_value::<WebhookRoute>(route.clone()).ok()
        };
        let Some(route) = made.or_else(fixed) else {
            return Err(Failure::new(
                Exit::NotFound,
                format!("there is no route {name:?}"),
            ));
        };
        let Some(secret) = route.secret.or_else(|| self.settings.text("secret")) else {
            return Err(Failure::failed(format!("the route {name} has no secret")));
        };
        let body = match &args.payload {
            None => {
                json!({"test": true, "event_type": "test", "message": "a test of hermes webhook"})
                    .to_string()
            }
            Some(text) => {
                let read: Result<Value, _> = serde_json::from_str(text);
                read.map_err(|error| Failure::usage(format!("--payload is not JSON: {error}")))?;
                text.clone()
            }
        };
        let url = self.url(&name);
        let http = PlatformHttp::new(&self.settings.env, None);
        let called = wiring::runtime()?.block_on(webhook::call(&http, &url, &secret, &body));
        let (status, answer_body) = called.map_err(|error| {
            Failure::new(
                Exit::Unreachable,
                format!("{url}: {error}. Is the gateway running? (hermes gateway status)"),
            )
        })?;
        if args.json {
            let answer_body: Value =
                serde_json::from_str(&answer_body).unwrap_or(Value::String(answer_body));
            self.cx
                .out
                .json(&json!({"url": url, "status": status, "answer": answer_body}))?;
        } else {
            self.cx
                .out
                .foreign_line(&format!("{status} {answer_body}"))?;
        }
        if (200..300).contains(&status) {
            return Ok(());
        }
        Err(Failure::failed(format!("{url} answered {status}")))
    }
}

fn listed(events: &[String]) -> String {
    if events.is_empty() {
        return "all".to_owned();
    }
    events.join(", ")
}

fn answer(route: &WebhookRoute) -> String {
    let chat = route.deliver_extra.get("chat_id").and_then(Value::as_str);
    let target_text = match chat {
        Some(chat) => format!("{}:{chat}", route.deliver),
        None => route.deliver.clone(),
    };
    if route.deliver_only {
        return format!("{target_text}, without the agent");
    }
    target_text
}
