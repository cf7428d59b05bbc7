//! Interactive lists for the full interface.
//!
//! A panel is rebuilt each time it is shown. Long operations run in the background and store their
//! results in the [`OpenPanel`]; meanwhile the panel is refreshed.

mod cron;
mod custom_endpoint;
mod keys;
mod mcp;
mod model;
mod open_panel;
mod rollback;
mod sessions;
mod skills;
mod theme;
mod toolsets;
mod usage;

use hermes_core::front_end::{Effect, PagedText, TextKind};
use hermes_core::slash::Verb;
use hermes_tui::port::{CLOSED, MOVED, Panel, PanelKey, PanelRequest, REFRESH};

pub(crate) use self::open_panel::OpenPanel;
use crate::chat::host::ScreenConversation;
use crate::exit::Failure;
use hermes_app::{CommandResult, show_text};

/// The result of a panel command or key.
#[derive(Default)]
pub(crate) struct PanelReply {
    /// The open panel closes first.
    pub(super) closes: bool,
    pub(super) result: CommandResult,
    /// Opens last, or replaces the open one of the same id.
    pub(super) panel: Option<Box<Panel>>,
}

impl From<CommandResult> for PanelReply {
    fn from(result: CommandResult) -> Self {
        Self {
            result,
            ..Self::default()
        }
    }
}

/// The result of a panel key.
enum PanelKeyResult {
    /// The panel as it is now.
    Again,
    /// The same, with a line below it.
    Note(String),
    /// Something to read over it.
    Page(PagedText),
    /// Closes the panel and shows this.
    Leave(CommandResult),
    /// The panel stays, and this is shown.
    Show(Vec<Effect>),
}

/// The panel of a command. `None`: it has none, or not with these arguments.
pub(crate) async fn open(
    conversation: &mut ScreenConversation,
    verb: Verb,
    rest: &str,
) -> Result<Option<PanelReply>, Failure> {
    match verb {
        Verb::Insights => {
            let shown = usage::insights(conversation, rest).await?;
            return Ok(shown.map(PanelReply::from));
        }
        Verb::Theme if !rest.is_empty() => return theme::switch(conversation, rest).map(Some),
        Verb::Keys => return Ok(Some(keys::page(conversation).into())),
        _ => {}
    }
    if !rest.trim().is_empty() {
        return Ok(None);
    }
    let id = match verb {
        Verb::Model => model::ID,
        Verb::Sessions | Verb::Resume => sessions::ID,
        Verb::Mcp => mcp::ID,
        Verb::Skills => skills::ID,
        Verb::Cron => cron::ID,
        Verb::Rollback => rollback::ID,
        Verb::Theme => theme::ID,
        Verb::Tools | Verb::Toolsets => toolsets::ID,
        Verb::Usage => {
            let shown = usage::session(conversation).await?;
            return Ok(Some(shown.into()));
        }
        _ => return Ok(None),
    };
    conversation.panels.begin();
    if id == model::ID {
        model::look_around(conversation)?;
    }
    let panel = build(conversation, id).await?;
    Ok(Some(PanelReply {
        panel: Some(Box::new(panel)),
        ..PanelReply::default()
    }))
}

/// A key of a panel.
pub(crate) async fn act(
    conversation: &mut ScreenConversation,
    ask: PanelRequest,
) -> Result<PanelReply, Failure> {
    if ask.action == CLOSED {
        let effects = theme::closed(conversation, &ask);
        conversation.panels.end();
        return Ok(CommandResult::from(effects).into());
    }
    let by_itself = [REFRESH, MOVED].contains(&ask.action.as_str());
    if !by_itself {
        conversation.panels.forget_note();
    }
    let after = match done(conversation, &ask).await {
        Ok(PanelKeyResult::Leave(result)) => {
            conversation.panels.end();
            return Ok(PanelReply {
                closes: true,
                result,
                panel: None,
            });
        }
        Ok(PanelKeyResult::Page(page)) => {
            return Ok(CommandResult::from_effect(Effect::Page(page)).into());
        }
        Ok(PanelKeyResult::Show(effects)) => return Ok(CommandResult::from(effects).into()),
        Ok(PanelKeyResult::Again) => Vec::new(),
        Ok(PanelKeyResult::Note(text)) => {
            conversation.panels.note(text);
            Vec::new()
        }
        // Shown below the list, and in the transcript after the panel is closed.
        Err(failure) => {
            let message = failure.message.replace('\n', "; ");
            conversation.panels.note(format!("failed: {message}"));
            if by_itself {
                Vec::new()
            } else {
                vec![card(&failure)]
            }
        }
    };
    let mut panel = build(conversation, &ask.panel).await?;
    panel.renews = true;
    Ok(PanelReply {
        closes: false,
        result: CommandResult::from(after),
        panel: Some(Box::new(panel)),
    })
}

async fn done(
    conversation: &mut ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    if ask.action == REFRESH {
        return Ok(PanelKeyResult::Again);
    }
    match ask.panel.as_str() {
        model::ID => model::act(conversation, ask).await,
        sessions::ID => sessions::act(conversation, ask).await,
        mcp::ID => mcp::act(conversation, ask).await,
        skills::ID => skills::act(conversation, ask),
        cron::ID => cron::act(conversation, ask),
        rollback::ID => rollback::act(conversation, ask).await,
        theme::ID => theme::act(conversation, ask),
        toolsets::ID => toolsets::act(conversation, ask),
        other => Err(Failure::failed(format!("there is no panel {other:?}"))),
    }
}

/// The current panel, with the state of background work.
async fn build(conversation: &mut ScreenConversation, id: &str) -> Result<Panel, Failure> {
    let mut panel = match id {
        model::ID => model::panel(conversation)?,
        sessions::ID => sessions::panel(conversation).await?,
        mcp::ID => mcp::panel(conversation),
        skills::ID => skills::panel(conversation)?,
        cron::ID => cron::panel(conversation)?,
        rollback::ID => rollback::panel(conversation).await?,
        theme::ID => theme::panel(conversation),
        toolsets::ID => toolsets::panel(conversation)?,
        other => return Err(Failure::failed(format!("there is no panel {other:?}"))),
    };
    conversation.panels.dress(&mut panel);
    Ok(panel)
}

/// The row that a key was pressed on.
fn row(ask: &PanelRequest) -> Result<&str, Failure> {
    ask.row
        .as_deref()
        .ok_or_else(|| Failure::usage("nothing is chosen"))
}

/// What was typed for a key.
fn text(ask: &PanelRequest) -> &str {
    ask.text.as_deref().unwrap_or_default().trim()
}

fn unknown(ask: &PanelRequest) -> Failure {
    Failure::failed(format!("there is nothing called {:?} here", ask.action))
}

/// A key that acts on a row.
fn key(key: &str, label: &str, action: &str) -> PanelKey {
    PanelKey {
        key: key.to_owned(),
        label: label.to_owned(),
        action: action.to_owned(),
        row: true,
        ..PanelKey::default()
    }
}

fn card(failure: &Failure) -> Effect {
    let (cause, fix) = match failure.message.split_once('\n') {
        Some((cause, fix)) => (cause, Some(fix.to_owned())),
        None => (failure.message.as_str(), None),
    };
    show_text(TextKind::Error { fix }, cause)
}

fn page(title: impl Into<String>, kind: TextKind, text: impl Into<String>) -> PagedText {
    PagedText {
        title: title.into(),
        kind,
        text: text.into(),
    }
}

/// The first characters of a text, on one line.
fn short(text: &str, max: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    hermes_app::text::shorten(&words.join(" "), max)
}
