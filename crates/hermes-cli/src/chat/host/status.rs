//! What the status line shows.

use std::path::Path;

use hermes_core::model::Route;
use hermes_mcp::state::LinkState;
use hermes_mcp::toolbox::Toolbox;
use hermes_tui::port::{McpCount, Status};

use crate::chat::conversation::Conversation;
use crate::wiring;

/// The conversation as it is now. Cheap: files that are read are small and of this machine.
pub(super) fn of(conversation: &Conversation) -> Status {
    use hermes_agent::session::ToolSource as _;
    let chat = &conversation.chat;
    let toolbox = chat.mcp.as_ref().and_then(|mcp| mcp.toolbox());
    let processes = chat
        .commands
        .as_ref()
        .map_or(0, |commands| commands.processes.running());
    Status {
        model: chat.route.model.clone(),
        provider: chat.route.provider.clone(),
        remark: remark(conversation),
        session: chat.id.to_string(),
        title: conversation.title.clone(),
        profile: conversation.cx.home.profile().map(str::to_owned),
        cwd: chat.cwd.clone(),
        branch: branch(&chat.cwd),
        tools: chat.tools.registry().iter().count(),
        approvals: approvals(conversation),
        mcp: toolbox.map(|toolbox| servers(&toolbox)),
        gateway: None,
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

/// How many servers answer, of those that are switched on.
pub(crate) fn servers(toolbox: &Toolbox) -> McpCount {
    let states = toolbox
        .names()
        .into_iter()
        .filter_map(|name| toolbox.server(&name))
        .map(|server| server.standing().state);
    let on = states.filter(|state| !matches!(state, LinkState::Disabled));
    let mut count = McpCount::default();
    for state in on {
        count.configured += 1;
        let up = matches!(
            state,
            LinkState::Ready | LinkState::Degraded { .. } | LinkState::Recycled
        );
        count.connected += usize::from(up);
    }
    count
}
