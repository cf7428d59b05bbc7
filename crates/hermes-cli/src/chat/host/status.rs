//! Data for the status line.

use std::collections::BTreeSet;
use std::path::Path;

use hermes_app::text::shorten;
use hermes_app::{Conversation, show_text};
use hermes_core::front_end::{Effect, TextKind};
use hermes_core::model::Route;
use hermes_mcp::{LinkState, Toolbox};
use hermes_tui::port::{McpCount, SessionStatus};

use crate::wiring;
use crate::wiring::mcp::server_counts;

/// The conversation as it is now. Cheap: files that are read are small and of this machine.
pub(super) fn session_status(conversation: &Conversation) -> SessionStatus {
    use hermes_agent::ToolSource as _;
    let chat = &conversation.chat;
    let toolbox = chat.mcp.as_ref().and_then(|mcp| mcp.toolbox());
    let processes = chat
        .commands
        .as_ref()
        .map_or(0, |commands| commands.processes.running());
    SessionStatus {
        model: chat.route.model.clone(),
        provider: chat.route.provider.clone(),
        remark: remark(conversation),
        chat_only: chat.missing.is_none() && !chat.able.tools,
        session: chat.id.to_string(),
        title: conversation.title.clone(),
        profile: conversation.cx.home.profile().map(str::to_owned),
        cwd: chat.cwd.clone(),
        branch: branch(&chat.cwd),
        tools: if chat.able.tools {
            chat.tools.registry().iter().count()
        } else {
            0
        },
        approvals: approvals(conversation),
        mcp: toolbox.map(|toolbox| count(&toolbox)),
        gateway: crate::commands::gateway::platforms_in_short(conversation.cx.home.root()),
        context: conversation.context,
        cost: conversation.cost,
        background: processes + conversation.background.list().len(),
    }
}

fn remark(conversation: &Conversation) -> Option<String> {
    let chat = &conversation.chat;
    if chat.missing.is_some() {
        return Some("no model yet: /model".to_owned());
    }
    is_local(&chat.route).then(|| "local".to_owned())
}

fn is_local(route: &Route) -> bool {
    let Ok(url) = url::Url::parse(&route.base_url) else {
        return false;
    };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn approvals(conversation: &Conversation) -> String {
    if conversation.yolo {
        return "off".to_owned();
    }
    match conversation.chat.config.approvals.mode.as_str() {
        "manual" => "ask".to_owned(),
        other => other.to_owned(),
    }
}

fn branch(dir: &Path) -> Option<String> {
    wiring::git(dir).1
}

fn count(toolbox: &Toolbox) -> McpCount {
    let counts = server_counts(toolbox);
    McpCount {
        connected: counts.connected,
        configured: counts.configured,
        starting: counts.starting,
    }
}

/// A change of a server that the user is notified of.
enum ServerNotice {
    Down(String),
    Up,
}

/// Reports servers that went down or came back, each once. `down` contains those that are down.
pub(super) fn server_changes(toolbox: &Toolbox, down: &mut BTreeSet<String>) -> Vec<Effect> {
    let mut changes = Vec::new();
    for name in toolbox.names() {
        let Some(server) = toolbox.server(&name) else {
            continue;
        };
        let notice = match server.connection_status().state {
            // A single failure that heals by itself is not reported.
            LinkState::Backoff { attempt: 0..=1, .. } => continue,
            LinkState::Backoff { why, .. } | LinkState::Parked { why, .. } => {
                let why = shorten(why.lines().next().unwrap_or_default(), 160);
                ServerNotice::Down(format!("is down: {why}  (/mcp)"))
            }
            LinkState::NeedsAuth { .. } => {
                ServerNotice::Down("needs a login  (/mcp, then l)".to_owned())
            }
            LinkState::Ready => ServerNotice::Up,
            _ => continue,
        };
        let (kind, text) = match notice {
            ServerNotice::Down(text) if down.insert(name.clone()) => (TextKind::Warning, text),
            ServerNotice::Up if down.remove(&name) => {
                (TextKind::Info, "is connected again".to_owned())
            }
            _ => continue,
        };
        changes.push(show_text(kind, format!("MCP server {name} {text}")));
    }
    changes
}
