//! `hermes mcp list` and `status`.

use std::time::Duration;

use hermes_mcp::report::ServerReport;
use hermes_mcp::{ProcessStatus, Toolbox, report};
use serde_json::json;

use super::probe::STOP_TIMEOUT;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring::{self, mcp};

#[derive(Debug, clap::Args)]
pub(super) struct McpListArgs {
    /// Wait up to this many seconds for all servers (default: at most 3)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: Option<u64>,
    /// Show only the configuration; start nothing
    #[arg(long)]
    offline: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct McpStatusArgs {
    name: Option<String>,
    /// Wait up to this many seconds for all servers (default: at most 3)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: Option<u64>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const NONE: &str = "no MCP servers are configured; add one with
  hermes mcp add NAME --url https://…
  hermes mcp add NAME --command npx --args -y some-server";

pub(super) fn list(args: &McpListArgs, cx: &Context) -> Outcome {
    let reports = if args.offline {
        offline(cx)?
    } else {
        live(cx, None, StatusWait::named(args.timeout))?
    };
    if args.json {
        return Ok(cx.out.json(&json!({"servers": reports}))?);
    }
    if reports.is_empty() {
        return Ok(cx.out.line(NONE)?);
    }
    cx.out.line(report::table(&reports, chrono::Utc::now()))?;
    hint_at_timeout(cx, &reports, "list");
    Ok(())
}

/// How to wait for servers that had not answered.
fn hint_at_timeout(cx: &Context, reports: &[ServerReport], command: &str) {
    if reports.iter().any(ServerReport::is_connecting) {
        cx.out.remark(format!(
            "some servers had not answered yet; to wait longer: hermes mcp {command} --timeout 60"
        ));
    }
}

pub(super) fn status(args: &McpStatusArgs, cx: &Context) -> Outcome {
    let reports = live(cx, args.name.as_deref(), StatusWait::named(args.timeout))?;
    let notes = notes(cx, args.name.as_deref());
    if args.json {
        let elsewhere = json!(notes);
        let mut shown = match (&args.name, reports.first()) {
            (Some(_), Some(report)) => json!(report),
            _ => json!({"servers": reports}),
        };
        shown["processes"] = elsewhere;
        return Ok(cx.out.json(&shown)?);
    }
    if reports.is_empty() {
        return Ok(cx.out.line(NONE)?);
    }
    let now = chrono::Utc::now();
    for note in &notes {
        let age = (now - note.at).num_seconds().max(0);
        cx.out.line(format!(
            "In the chat with process id {}, {age} s ago:\n",
            note.pid
        ))?;
        for server in &note.servers {
            cx.out.line(format!("{}\n", server.text))?;
        }
    }
    if !notes.is_empty() {
        cx.out.line("Tried just now, by this command:\n")?;
    }
    let pages: Vec<String> = reports.iter().map(|r| report::details(r, now)).collect();
    cx.out.line(pages.join("\n\n"))?;
    hint_at_timeout(cx, &reports, "status");
    Ok(())
}

/// What running chats say about their servers, or about one of them.
fn notes(cx: &Context, name: Option<&str>) -> Vec<ProcessStatus> {
    let mut notes = mcp::status_dir(&cx.home).read();
    for note in &mut notes {
        note.servers
            .retain(|server| name.is_none_or(|name| server.name == name));
    }
    notes.retain(|note| !note.servers.is_empty());
    notes
}

/// How long a command waits for servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StatusWait {
    /// Until all have answered or failed, and no longer than somebody takes it who only wants to
    /// look: what hangs is not waited for.
    Soon,
    /// Until all have answered or failed, at most so many seconds.
    Seconds(u64),
    /// The same within the time that somebody takes it who looks for what is wrong.
    Thorough,
}

/// For a status display: how long the other servers get when one has settled.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(300);
/// For a status display: the timeout if no server settles.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest wait of a command that examines everything.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

impl StatusWait {
    fn named(seconds: Option<u64>) -> Self {
        seconds.map_or(Self::Soon, Self::Seconds)
    }

    async fn wait(self, toolbox: &Toolbox, cx: &Context) {
        let settled = async {
            match self {
                Self::Soon => toolbox.settle_soon(SETTLE_TIMEOUT, STATUS_TIMEOUT).await,
                Self::Seconds(seconds) => toolbox.settle(Duration::from_secs(seconds)).await,
                Self::Thorough => toolbox.settle(CHECK_TIMEOUT).await,
            }
        };
        wiring::report_wait(Some(&*cx.process), settled, || toolbox.awaited()).await;
    }
}

/// How all servers stand: called, or as far as the config tells.
pub(crate) fn reports(
    cx: &Context,
    called: Option<StatusWait>,
) -> Result<Vec<ServerReport>, Failure> {
    match called {
        Some(patience) => live(cx, None, patience),
        None => offline(cx),
    }
}

/// Connects to all servers, or one, for a moment.
fn live(
    cx: &Context,
    name: Option<&str>,
    patience: StatusWait,
) -> Result<Vec<ServerReport>, Failure> {
    let entries = match name {
        Some(name) => vec![super::entry(cx, name)?],
        None => super::entries(cx)?,
    };
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    crate::logging::start(cx);
    wiring::runtime()?.block_on(async {
        let toolbox = mcp::start_all(cx, entries, None);
        patience.wait(&toolbox, cx).await;
        let reports = toolbox.report();
        toolbox.shutdown(STOP_TIMEOUT).await;
        Ok(reports)
    })
}

fn offline(cx: &Context) -> Result<Vec<ServerReport>, Failure> {
    let catalogue = hermes_mcp::Catalogue::default();
    let entries = super::entries(cx)?;
    Ok(entries
        .iter()
        .map(|entry| ServerReport::new(entry, None, &catalogue))
        .collect())
}
