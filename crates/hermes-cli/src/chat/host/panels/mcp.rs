//! `/mcp`: the MCP servers of this process and their current state.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::front_end::TextKind;
use hermes_mcp::report::ServerReport;
use hermes_mcp::{AuthPrompt, CallOptions, LoginPage, Op, ReportedState, Toolbox, report};
use hermes_tui::port::{Panel, PanelGroup, PanelKey, PanelRequest, PanelRow, RowMark};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::open_panel::PanelResultsHandle;
use super::{PanelKeyResult, key, page, row, text, unknown};
use crate::chat::host::ScreenConversation;
use crate::commands::{counted, mcp};
use crate::exit::Failure;
use crate::wiring::mcp::{ServerWait, server_details};

pub(super) const ID: &str = "mcp";

/// How long a server may take to answer a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const NONE: &str = "no MCP servers are configured; in a shell: hermes mcp add NAME --url https://…";

fn toolbox(conversation: &ScreenConversation) -> Option<Arc<Toolbox>> {
    conversation.chat.mcp.as_ref()?.toolbox()
}

pub(super) fn panel(conversation: &ScreenConversation) -> Panel {
    let reports = toolbox(conversation).map_or_else(Vec::new, |toolbox| toolbox.report());
    let mut panel = shown(&reports, chrono::Utc::now());
    if conversation.panels.login.is_some() {
        panel.keys.push(PanelKey {
            text: Some("address the browser ended up at".to_owned()),
            row: false,
            ..key("p", "paste the address", "pasted")
        });
    }
    panel
}

fn shown(reports: &[ServerReport], now: chrono::DateTime<chrono::Utc>) -> Panel {
    let rows = reports.iter().map(|report| PanelRow {
        id: report.name.clone(),
        mark: mark(report),
        cells: report.cells(now).to_vec(),
        detail: detail(report, now),
        ..PanelRow::default()
    });
    let mut footer: Vec<String> = report::remark(reports)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if reports.is_empty() {
        footer.push(NONE.to_owned());
    }
    Panel {
        id: ID.to_owned(),
        title: "MCP".to_owned(),
        note: report::summary(reports),
        columns: report::COLUMNS.map(str::to_owned).to_vec(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: rows.collect(),
        }],
        keys: vec![
            key("r", "reconnect", "reconnect"),
            key("t", "test", "test"),
            key("l", "login", "login"),
            key("o", "on/off", "toggle"),
            key("v", "tools", "tools"),
            key("g", "log", "log"),
            key("enter", "everything", "details"),
        ],
        footer,
        refresh: Some(Duration::from_secs(1)),
        ..Panel::default()
    }
}

fn mark(report: &ServerReport) -> RowMark {
    match report.state {
        ReportedState::Disabled => RowMark::Off,
        ReportedState::NeedsAuth
        | ReportedState::Connecting
        | ReportedState::Degraded
        | ReportedState::Stopped => RowMark::Waiting,
        _ if report.is_up() => RowMark::Good,
        _ => RowMark::Bad,
    }
}

/// What the row has no room for.
fn detail(report: &ServerReport, now: chrono::DateTime<chrono::Utc>) -> String {
    let mut lines: Vec<String> = report.target.iter().cloned().collect();
    lines.extend(report.problems.iter().map(ToString::to_string));
    lines.extend(report.remarks.iter().cloned());
    if let Some(link) = &report.link {
        let doing = report::doing(report, now);
        lines.extend((!doing.is_empty()).then_some(doing));
        lines.push(format!("last success: {}", link.success(now)));
        let failure = link.failure(now);
        lines.extend(failure.map(|text| format!("last failure: {}", super::short(&text, 200))));
    }
    lines.join("\n")
}

pub(super) async fn act(
    conversation: &mut ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    let Some(toolbox) = toolbox(conversation) else {
        return Err(Failure::not_found(NONE));
    };
    if ask.action == "pasted" {
        return Ok(pasted(conversation, text(ask)));
    }
    let name = row(ask)?.to_owned();
    match ask.action.as_str() {
        "reconnect" => {
            if !toolbox.reconnect(&name) {
                return Err(Failure::not_found(format!(
                    "there is no longer an MCP server {name:?}"
                )));
            }
            Ok(PanelKeyResult::Note(format!("reconnecting {name}")))
        }
        "test" => test(conversation, &toolbox, name),
        "login" => login(conversation, &toolbox, name),
        "toggle" => toggle(conversation, &toolbox, &name).await,
        "tools" => Ok(tools(&toolbox, &name)),
        "log" => log(conversation, &toolbox, &name),
        "details" => match server_details(&toolbox, &name) {
            Some(text) => Ok(PanelKeyResult::Page(page(name, TextKind::Plain, text))),
            None => Err(Failure::not_found(format!(
                "there is no longer an MCP server {name:?}"
            ))),
        },
        _ => Err(unknown(ask)),
    }
}

/// Tests the server with a real request: lists its tools.
fn test(
    conversation: &ScreenConversation,
    toolbox: &Toolbox,
    name: String,
) -> Result<PanelKeyResult, Failure> {
    let server = toolbox.server(&name).ok_or_else(|| {
        Failure::not_found(format!("{name} is not running\nswitch it on first: o"))
    })?;
    let cancel = conversation.panels.stopped();
    let label = format!("testing {name}");
    conversation.panels.start("mcp-test", label, async move {
        let started = Instant::now();
        let options = CallOptions {
            deadline: Some(started + TEST_TIMEOUT),
            cancel,
            progress: None,
            origin: None,
        };
        let answer = server.call(Op::ListTools, options).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let tools = answer.result.get("tools").and_then(Value::as_array);
        Ok(Some(format!(
            "{name} answers in {} ms: {}",
            started.elapsed().as_millis(),
            counted(tools.map_or(0, Vec::len), "tool")
        )))
    });
    Ok(PanelKeyResult::Again)
}

async fn toggle(
    conversation: &ScreenConversation,
    toolbox: &Toolbox,
    name: &str,
) -> Result<PanelKeyResult, Failure> {
    let reports = toolbox.report();
    let report = reports.iter().find(|report| report.name == name);
    let report = report
        .ok_or_else(|| Failure::not_found(format!("there is no longer an MCP server {name:?}")))?;
    let on = !report.enabled;
    mcp::change(&conversation.cx, name, &[(&["enabled"], Some(json!(on)))])?;
    let mut note_text = format!("{name} is {}", if on { "on" } else { "off" });
    if let Some(mcp) = &conversation.chat.mcp {
        // Applies the change; its notices are about the files.
        for notice in mcp.prepare(ServerWait::Briefly).await {
            note_text = format!("{note_text}\n{notice}");
        }
    }
    Ok(PanelKeyResult::Note(note_text))
}

fn tools(toolbox: &Toolbox, name: &str) -> PanelKeyResult {
    let snapshot = toolbox
        .server(name)
        .and_then(|server| server.catalogue().borrow().clone());
    let Some(snapshot) = snapshot else {
        return PanelKeyResult::Note(format!("{name} has not listed its tools yet"));
    };
    let entries: Vec<String> = snapshot
        .tools
        .iter()
        .map(|tool| {
            let field = |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("## {}\n\n{}\n", field("name"), field("description"))
        })
        .collect();
    let title = format!("{name}: {}", counted(entries.len(), "tool"));
    PanelKeyResult::Page(page(title, TextKind::Markdown, entries.join("\n")))
}

/// What the server wrote to its stderr.
fn log(
    conversation: &ScreenConversation,
    toolbox: &Toolbox,
    name: &str,
) -> Result<PanelKeyResult, Failure> {
    let reports = toolbox.report();
    let link = reports
        .iter()
        .find(|report| report.name == name)
        .and_then(|report| report.link.as_ref());
    let link = link.ok_or_else(|| Failure::not_found(format!("{name} was not started yet")))?;
    let mut parts = Vec::new();
    if let Some(error) = &link.last_error {
        parts.push(format!("last failure: {}", error.text));
    }
    parts.extend(link.stderr_tail.clone());
    if parts.is_empty() {
        let path = conversation.cx.home.logs_dir();
        return Ok(PanelKeyResult::Note(format!(
            "{name} wrote nothing; what Hermes noted is in {}",
            path.display()
        )));
    }
    let title = format!("{name}: log");
    Ok(PanelKeyResult::Page(page(
        title,
        TextKind::Plain,
        parts.join("\n\n"),
    )))
}

/// Opens the page where access is granted, and waits for it beside the panel.
fn login(
    conversation: &mut ScreenConversation,
    toolbox: &Toolbox,
    name: String,
) -> Result<PanelKeyResult, Failure> {
    let entry = mcp::entry(&conversation.cx, &name)?;
    let (send, lines) = mpsc::channel(4);
    let prompt = PanelLogin {
        tray: conversation.panels.tray(),
        lines: Mutex::new(lines),
    };
    let client = mcp::login_client(&conversation.cx, &entry, Some(Arc::new(prompt)))?;
    conversation.panels.login = Some(send);
    let cancel = conversation.panels.stopped();
    let server = toolbox.server(&name);
    let label = format!("logging in to {name}");
    conversation.panels.start("mcp-login", label, async move {
        let status = client.login(&cancel).await;
        let status = status.map_err(|error| format!("{name}: {error}"))?;
        if !status.logged_in {
            return Err(format!("{name}: the login ended without a token"));
        }
        if let Some(server) = server {
            server.auth_changed();
        }
        Ok(Some(format!("logged in to {name}")))
    });
    Ok(PanelKeyResult::Again)
}

fn pasted(conversation: &mut ScreenConversation, address: &str) -> PanelKeyResult {
    let sent = conversation
        .panels
        .login
        .as_ref()
        .is_some_and(|login| login.try_send(address.to_owned()).is_ok());
    if sent {
        return PanelKeyResult::Again;
    }
    conversation.panels.login = None;
    PanelKeyResult::Note("no login is waiting for an address".to_owned())
}

/// Logs in through the panel: shows the address and takes the pasted redirect URL.
struct PanelLogin {
    tray: PanelResultsHandle,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl AuthPrompt for PanelLogin {
    fn show(&self, page: &LoginPage) -> BoxFuture<'_, Result<(), String>> {
        let how = if page.listening {
            "if the browser runs elsewhere, paste the address it ends up at: p"
        } else {
            "then paste the address the browser ends up at: p"
        };
        self.tray.note(format!(
            "open this page to give Hermes access, {how}\n{}",
            page.url
        ));
        mcp::open_browser(&page.url);
        Box::pin(std::future::ready(Ok(())))
    }

    fn pasted(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { self.lines.lock().await.recv().await })
    }

    fn note(&self, text: &str) {
        self.tray.note(text);
    }
}

#[cfg(test)]
mod tests {
    use hermes_mcp::TransportKind;

    use super::*;

    fn report(name: &str, state: ReportedState, tools: usize) -> ServerReport {
        ServerReport {
            name: name.to_owned(),
            transport: Some(TransportKind::Http),
            target: Some(format!("https://{name}.example/mcp")),
            enabled: state != ReportedState::Disabled,
            state,
            tools,
            problems: Vec::new(),
            remarks: Vec::new(),
            link: None,
        }
    }

    #[test]
    fn servers_are_rows_with_their_state() {
        let reports = [
            report("github", ReportedState::Ready, 26),
            report("canny", ReportedState::Backoff, 4),
            report("linear", ReportedState::NeedsAuth, 0),
            report("old", ReportedState::Disabled, 0),
        ];
        let panel = shown(&reports, chrono::Utc::now());
        let rows = &panel.groups[0].rows;
        let marks: Vec<RowMark> = rows.iter().map(|row| row.mark).collect();
        assert_eq!(
            marks,
            [RowMark::Good, RowMark::Bad, RowMark::Waiting, RowMark::Off]
        );
        assert_eq!(rows[1].cells[..4], ["canny", "http", "down", "4*"]);
        assert_eq!(panel.note, "1 ok · 2 down · 1 off");
        assert_eq!(panel.footer.len(), 1, "what the star means");
        assert_eq!(panel.refresh, Some(Duration::from_secs(1)));
        let none = shown(&[], chrono::Utc::now());
        assert!(none.footer[0].contains("hermes mcp add"));
    }
}
