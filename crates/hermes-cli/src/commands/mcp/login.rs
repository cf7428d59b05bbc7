//! `hermes mcp login` and `reauth`: OAuth login in the browser.

use std::io::BufRead as _;
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_mcp::config::{ServerAuth, ServerConfig, ServerEntry, ServerTransport};
use hermes_mcp::{AuthPrompt, LoginPage, OAuthClient};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::edit;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::wiring;
use crate::wiring::ServerConnector;

#[derive(Debug, clap::Args)]
pub(super) struct LoginArgs {
    name: String,
    /// Print the URL instead of opening a browser
    #[arg(long)]
    no_browser: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReauthArgs {
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// Log in again to every server that uses OAuth
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// Print the URL instead of opening a browser
    #[arg(long)]
    no_browser: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn login(args: &LoginArgs, cx: &Context) -> Outcome {
    let entry = super::entry(cx, &args.name)?;
    let done = run(cx, &entry, !args.no_browser, false)?;
    say(cx, args.json, &[done])
}

pub(super) fn reauth(args: &ReauthArgs, cx: &Context) -> Outcome {
    let entries = match &args.name {
        Some(name) => vec![super::entry(cx, name)?],
        None => super::entries(cx)?.into_iter().filter(uses_oauth).collect(),
    };
    if entries.is_empty() {
        return Err(Failure::not_found("no MCP server uses OAuth"));
    }
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for entry in &entries {
        match run(cx, entry, !args.no_browser, true) {
            Ok(one) => done.push(one),
            Err(failure) => failed.push(failure.message),
        }
    }
    say(cx, args.json, &done)?;
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(failed.join("\n")))
}

fn uses_oauth(entry: &ServerEntry) -> bool {
    let config = entry.config.as_ref();
    config.is_some_and(|config| config.auth == ServerAuth::OAuth)
}

fn say(cx: &Context, as_json: bool, done: &[Value]) -> Outcome {
    if as_json {
        return Ok(cx.out.json(&json!({"logged_in": done}))?);
    }
    for one in done {
        let name = one["name"].as_str().unwrap_or_default();
        let expires = one["expires_at"]
            .as_str()
            .map(|at| format!(", valid until {at}"));
        cx.out.line(format!(
            "logged in to {name}{}",
            expires.unwrap_or_default()
        ))?;
    }
    Ok(())
}

/// One login. Success means that a token is really there.
fn run(
    cx: &Context,
    entry: &ServerEntry,
    browser: bool,
    forget_first: bool,
) -> Result<Value, Failure> {
    let name = &entry.name;
    let mut entry = entry.clone();
    let first = !uses_oauth(&entry);
    if first && let Some(config) = &mut entry.config {
        can_use_oauth(config)?;
        config.auth = ServerAuth::OAuth;
    }
    let done = log_in(cx, &entry, browser, forget_first)?;
    if first {
        edit::apply(cx, name, &[(&["auth"], Some(json!("oauth")))])?;
    }
    Ok(done)
}

/// Whether a login can be what a server lacks whose entry does not ask for one.
fn can_use_oauth(config: &ServerConfig) -> Outcome {
    let name = &config.name;
    let headers = match &config.transport {
        ServerTransport::Stdio { .. } => {
            return Err(Failure::usage(format!(
                "{name} is a program on this machine; there is nothing to log in to"
            )));
        }
        ServerTransport::Http { headers, .. } | ServerTransport::Sse { headers, .. } => headers,
    };
    let key = headers
        .iter()
        .any(|(header, _)| header.eq_ignore_ascii_case("authorization"));
    if key {
        return Err(Failure::usage(format!(
            "{name} uses a key and not a login: change headers.Authorization of mcp_servers.{name}, or remove it to log in"
        )));
    }
    Ok(())
}

fn log_in(
    cx: &Context,
    entry: &ServerEntry,
    browser: bool,
    forget_first: bool,
) -> Result<Value, Failure> {
    let name = &entry.name;
    crate::logging::start(cx);
    wiring::runtime()?.block_on(async {
        let prompt = Arc::new(TerminalLogin::new(
            cx.out,
            browser,
            cx.out.stdin_tty && !cx.no_input,
        ));
        let client = client(cx, entry, Some(prompt))?;
        if forget_first {
            client
                .forget()
                .await
                .map_err(|error| Failure::failed(error.to_string()))?;
        }
        let cancel = CancellationToken::new();
        let status = tokio::select! {
            status = client.login(&cancel) => status,
            _ = tokio::signal::ctrl_c() => {
                cancel.cancel();
                return Err(Failure::silent(Exit::Interrupted));
            }
        };
        let status = status.map_err(|error| Failure::failed(format!("{name}: {error}")))?;
        if !status.logged_in {
            return Err(Failure::failed(format!(
                "{name}: the login ended without a token; see logs/errors.log"
            )));
        }
        Ok(json!({
            "name": name,
            "expires_at": status.expires_at.map(|at| at.to_rfc3339()),
            "renewable": status.renewable,
            "scope": status.scope,
        }))
    })
}

/// What logs in to a server.
pub(crate) fn client(
    cx: &hermes_app::AppContext,
    entry: &ServerEntry,
    prompt: Option<Arc<dyn AuthPrompt>>,
) -> Result<OAuthClient, Failure> {
    let Some(config) = &entry.config else {
        let problem = entry.problems.iter().find(|problem| problem.fatal);
        return Err(Failure::failed(
            problem.map_or_else(String::new, ToString::to_string),
        ));
    };
    let reach = ServerConnector::new(&cx.home, &cx.env, prompt, None)
        .access(config)
        .map_err(|problem| Failure::failed(problem.to_string()))?;
    reach
        .oauth
        .ok_or_else(|| Failure::usage(format!("{} does not use OAuth", entry.name)))
}

/// Deletes the login of a server that is removed. Says whether there was one.
pub(super) async fn forget(cx: &Context, entry: &ServerEntry) -> Result<bool, Failure> {
    if !uses_oauth(entry) {
        return Ok(false);
    }
    let client = client(cx, entry, None)?;
    client
        .forget()
        .await
        .map_err(|error| Failure::failed(error.to_string()))
}

/// The person at this terminal.
struct TerminalLogin {
    out: Output,
    browser: bool,
    lines: Mutex<Option<mpsc::Receiver<String>>>,
}

impl TerminalLogin {
    fn new(out: Output, browser: bool, pastes: bool) -> Self {
        Self {
            out,
            browser,
            lines: Mutex::new(pastes.then(read_lines)),
        }
    }
}

/// What is typed, line by line. The thread ends with the process: a terminal cannot be unread.
fn read_lines() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(4);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}

impl AuthPrompt for TerminalLogin {
    fn show(&self, page: &LoginPage) -> BoxFuture<'_, Result<(), String>> {
        let waits = page.timeout.as_secs();
        self.out.error(format!(
            "To let Hermes use {}, open this page:\n\n  {}\n",
            page.server, page.url
        ));
        if page.listening {
            self.out.error(format!(
                "Waiting {waits} s for the answer at {}. If the browser runs elsewhere, paste the address it ends up at.",
                page.redirect_uri
            ));
        } else {
            self.out
                .error("Paste the address that the browser ends up at:");
        }
        if self.browser {
            open(&page.url);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn pasted(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async {
            let mut lines = self.lines.lock().await;
            match lines.as_mut() {
                Some(lines) => lines.recv().await,
                None => None,
            }
        })
    }

    fn note(&self, text: &str) {
        self.out.remark(text);
    }
}

/// Opens a page where there is a way to; the address was shown anyway.
pub(crate) fn open(url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = hermes_core::programs::own_program(program)
        .arg(url)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    if let Ok(mut child) = started {
        // Reaped by a thread of its own: some openers stay until the browser closes.
        std::thread::spawn(move || drop(child.wait()));
    }
}
