//! The banner and the status line: model, context, cost, approvals, MCP, gateway.

use std::path::Path;
use std::time::Instant;

use hermes_core::figures::{count, dollars, tokens, window};
use hermes_core::front_end::BusyInput;
use ratatui_core::text::{Line, Span};

use super::state::App;
use crate::port::SessionStatus;
use crate::theme::StyleRole;
use crate::width;

/// From this share on, the context window is nearly full.
const NEARLY_FULL_PERCENT: u64 = 80;

/// A fact of the status line. The one with the lowest rank is dropped first if there is not enough
/// space.
struct StatusFact {
    text: String,
    /// A shorter form, used before it is dropped.
    short: Option<String>,
    role: StyleRole,
    rank: u8,
}

/// `hermes 0.1 · qwen3:8b (ollama, local) · ~/proj (main) · 19 tools, mcp 2/3 !`
pub fn banner(version: &str, status: &SessionStatus, dot: &str) -> String {
    let mut parts = vec![format!("hermes {version}")];
    if status.model.is_empty() {
        parts.push("no model yet".to_owned());
    } else {
        let chats = status.chat_only.then_some("chat only");
        let about: Vec<&str> = [
            Some(status.provider.as_str()),
            status.remark.as_deref(),
            chats,
        ]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .collect();
        let about = if about.is_empty() {
            String::new()
        } else {
            format!(" ({})", about.join(", "))
        };
        parts.push(format!("{}{about}", status.model));
    }
    let branch = status.branch.as_ref();
    let branch = branch.map_or_else(String::new, |branch| format!(" ({branch})"));
    parts.push(format!("{}{branch}", shorten_home(&status.cwd)));
    if let Some(profile) = &status.profile {
        parts.push(format!("profile {profile}"));
    }
    let mut tools = count(status.tools, "tool");
    if let Some(mcp) = mcp(status) {
        tools = format!("{tools}, {}", mcp.text);
    }
    parts.push(tools);
    parts.join(&format!(" {dot} "))
}

fn mcp(status: &SessionStatus) -> Option<StatusFact> {
    let mcp = status.mcp.filter(|mcp| mcp.configured > 0)?;
    let down = mcp.connected + mcp.starting < mcp.configured;
    let sign = match (down, mcp.starting) {
        (true, _) => " !",
        (false, 0) => "",
        (false, _) => " starting",
    };
    Some(StatusFact {
        text: format!("mcp {}/{}{sign}", mcp.connected, mcp.configured),
        short: None,
        role: if down {
            StyleRole::Warning
        } else {
            StyleRole::Dim
        },
        rank: if down { 7 } else { 3 },
    })
}

impl App {
    pub(super) fn banner(&self) -> String {
        banner(&self.options.version, &self.status, self.theme.glyphs().dot)
    }

    fn facts(&self) -> Vec<StatusFact> {
        let status = &self.status;
        let fact = |text: String, role, rank| StatusFact {
            text,
            short: None,
            role,
            rank,
        };
        let mut facts = Vec::new();
        if status.model.is_empty() {
            facts.push(fact("no model: /model".to_owned(), StyleRole::Warning, 9));
        } else {
            let model = width::harmless(&status.model).into_owned();
            let name = model.rsplit('/').next().map(str::to_owned);
            facts.push(StatusFact {
                short: name.filter(|name| *name != model),
                ..fact(model, StyleRole::Text, 9)
            });
        }
        if status.chat_only {
            facts.push(fact(
                format!("{} (chat only)", status.provider),
                StyleRole::Warning,
                7,
            ));
        }
        if let Some((used, size)) = status.context.filter(|(_, size)| *size > 0) {
            let percent = used * 100 / u64::from(size);
            let role = if percent >= NEARLY_FULL_PERCENT {
                StyleRole::Warning
            } else {
                StyleRole::Dim
            };
            facts.push(StatusFact {
                short: Some(format!("ctx {percent}%")),
                ..fact(
                    format!("ctx {percent}% {}/{}", tokens(used), window(size.into())),
                    role,
                    8,
                )
            });
        }
        facts.extend(self.cost_text().map(|text| fact(text, StyleRole::Dim, 5)));
        if !status.approvals.is_empty() {
            let off = status.approvals == "off";
            let text = if off {
                "approvals off".to_owned()
            } else {
                status.approvals.clone()
            };
            let (role, rank) = if off {
                (StyleRole::Warning, 8)
            } else {
                (StyleRole::Dim, 6)
            };
            facts.push(fact(text, role, rank));
        }
        facts.extend(mcp(&self.status));
        if let Some(gateway) = &status.gateway {
            facts.push(fact(format!("gw: {gateway}"), StyleRole::Dim, 2));
        }
        if status.background > 0 {
            facts.push(fact(format!("bg {}", status.background), StyleRole::Dim, 4));
        }
        facts
    }

    /// Cost of the session including the running turn. Empty if unknown.
    fn cost_text(&self) -> Option<String> {
        let sum = match (self.status.cost, self.turn_cost) {
            (None, None) => return None,
            (before, now) => before.unwrap_or_default() + now.unwrap_or_default(),
        };
        (sum > 0.0).then(|| dollars(sum))
    }

    /// Key hints that are useful now.
    fn help(&self) -> &'static str {
        if self.prompts.is_open() {
            return "";
        }
        if !self.is_busy() || self.composer.is_empty() {
            return "? keys";
        }
        match self.busy {
            BusyInput::Steer => "Enter steers, Tab queues",
            BusyInput::Queue => "Enter queues",
            BusyInput::Interrupt => "Enter interrupts, Tab queues",
        }
    }

    pub(super) fn status_line(&self, columns: u16, now: Instant) -> Line<'static> {
        let available = usize::from(columns);
        let glyphs = self.theme.glyphs();
        if let Some((hint, _)) = self.hint.as_ref().filter(|(_, until)| *until > now) {
            let text = width::truncate_with(hint, available.saturating_sub(2), glyphs.ellipsis);
            let line = Line::styled(format!("  {text}"), self.theme.style(StyleRole::Warning));
            return width::truncate_line(&line, available, glyphs.ellipsis);
        }
        let help = self.help();
        let mut facts = self.facts();
        let wide = |facts: &[StatusFact]| -> usize {
            let text: usize = facts.iter().map(|fact| width::width(&fact.text)).sum();
            2 + text + 3 * facts.len().saturating_sub(1)
        };
        let tail = if help.is_empty() { 0 } else { 2 + help.len() };
        while wide(&facts) + tail > available && facts.len() > 1 {
            shrink(&mut facts);
        }
        let mut spans = vec![Span::raw("  ")];
        for (index, fact) in facts.iter().enumerate() {
            if index > 0 {
                spans.push(Span::styled(" | ", self.theme.style(StyleRole::Border)));
            }
            spans.push(Span::styled(fact.text.clone(), self.theme.style(fact.role)));
        }
        let used = wide(&facts);
        if used + tail <= available {
            spans.push(Span::raw(" ".repeat(available - used - help.len())));
            spans.push(Span::styled(help, self.theme.style(StyleRole::Dim)));
        }
        width::truncate_line(&Line::from(spans), available, glyphs.ellipsis)
    }
}

/// Shortens the least important fact, or drops it.
fn shrink(facts: &mut Vec<StatusFact>) {
    if let Some(long) = facts.iter_mut().find(|fact| fact.short.is_some()) {
        if let Some(short) = long.short.take() {
            long.text = short;
        }
        return;
    }
    let least = facts.iter().enumerate().min_by_key(|(_, fact)| fact.rank);
    if let Some((index, _)) = least {
        facts.remove(index);
    }
}

/// Shortens paths in the person's home directory to `~/proj`.
fn shorten_home(path: &Path) -> String {
    let home = std::env::home_dir();
    let below = home
        .as_deref()
        .and_then(|home| path.strip_prefix(home).ok());
    match below {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}
