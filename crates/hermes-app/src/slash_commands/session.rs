//! Commands for the conversation itself: new, resume, undo, title, export.

use std::path::PathBuf;

use hermes_core::event::AgentCommand;
use hermes_core::figures;
use hermes_core::front_end::{Effect, PagedText, TextKind, TranscriptEntry};
use hermes_core::store::{NewItem, NewSession, SessionStore as _};
use hermes_store::ListFilter;

use crate::options::TurnOptions;

use crate::checkpoints;
use crate::conversation::replay;
use crate::conversation::{CommandResult, Conversation, Surface, UndoTarget, show_text};
use crate::export_html::session_html;
use crate::failure::{Failure, Outcome};
use crate::text::shorten;
use crate::wiring;

/// How many sessions a list shows.
const MAX_LISTED_SESSIONS: usize = 10;

/// Shows the opened session.
pub async fn opened(conversation: &mut Conversation) -> Result<CommandResult, Failure> {
    conversation.forget_notes();
    let chat = &conversation.chat;
    let entries = if chat.used {
        replay::entries(&chat.store, &chat.id).await?
    } else {
        Vec::new()
    };
    let open = replay::unanswered(&entries).filter(|_| !conversation.is_watching());
    let shown = CommandResult::from_effect(Effect::Opened {
        banner: chat.banner(),
        entries,
    });
    Ok(match open {
        Some(note) => shown.and(show_text(TextKind::Info, note)),
        None => shown,
    })
}

pub(super) async fn new(
    conversation: &mut Conversation,
    title: &str,
) -> Result<CommandResult, Failure> {
    // An empty session cannot be restored, but the one before it can.
    let old = match &conversation.back {
        _ if conversation.chat.used => Some(conversation.chat.id.clone()),
        Some(UndoTarget::Left(id)) => Some(id.clone()),
        _ => None,
    };
    let options = conversation.options.clone();
    conversation.open_instead(&options, "new_session").await?;
    conversation.title_to_set = (!title.is_empty()).then(|| title.to_owned());
    let result = opened(conversation).await?;
    let Some(old) = old else {
        return Ok(result);
    };
    let back = format!("new session; back to the old one: /undo, or later /resume {old}");
    conversation.back = Some(UndoTarget::Left(old));
    Ok(result.and(show_text(TextKind::Info, back)))
}

/// The same on an empty screen.
pub(super) async fn clear(conversation: &mut Conversation) -> Result<CommandResult, Failure> {
    let mut result = new(conversation, "").await?;
    result.effects.insert(0, Effect::Clear);
    Ok(result)
}

pub async fn resume(
    conversation: &mut Conversation,
    reference: &str,
) -> Result<CommandResult, Failure> {
    if reference.is_empty() {
        return Err(Failure::usage(
            "/resume <id or title>; /sessions lists them",
        ));
    }
    let options = TurnOptions {
        resume: Some(reference.to_owned()),
        ..conversation.options.clone()
    };
    conversation.open_instead(&options, "resumed_other").await?;
    opened(conversation).await
}

pub(super) async fn retry(conversation: &mut Conversation) -> Result<CommandResult, Failure> {
    let question = match conversation.last_question.clone() {
        Some(question) => question,
        None => questions(conversation)
            .await?
            .pop()
            .ok_or_else(|| Failure::usage("nothing was asked yet"))?,
    };
    not_while_busy(conversation)?;
    conversation
        .chat
        .send(AgentCommand::Rewind { turns: 1 })
        .await?;
    conversation.ask(question).await
}

/// The person's messages in this session, oldest first.
async fn questions(conversation: &Conversation) -> Result<Vec<String>, Failure> {
    let chat = &conversation.chat;
    if !chat.used {
        return Ok(Vec::new());
    }
    let entries = replay::entries(&chat.store, &chat.id).await?;
    let asked = entries.into_iter().filter_map(|entry| match entry {
        TranscriptEntry::User(text) => Some(text),
        _ => None,
    });
    Ok(asked.collect())
}

fn not_while_busy(conversation: &Conversation) -> Outcome {
    if conversation.busy {
        return Err(Failure::usage(
            "a turn is running: stop it first (Esc or Ctrl+C)",
        ));
    }
    Ok(())
}

/// Undoes messages; without a number directly afterwards, restores them.
pub(super) async fn undo(
    conversation: &mut Conversation,
    count: &str,
) -> Result<CommandResult, Failure> {
    not_while_busy(conversation)?;
    if count.is_empty() && conversation.back.is_some() {
        return redo(conversation).await;
    }
    let turns = if count.is_empty() {
        Ok(1)
    } else {
        count.parse()
    };
    let turns: usize = match turns {
        Ok(turns) if turns >= 1 => turns,
        _ => return Err(Failure::usage("/undo takes a number of questions: /undo 2")),
    };
    let asked = questions(conversation).await?;
    if asked.is_empty() {
        return Err(Failure::usage("there is nothing to undo"));
    }
    let again = asked[asked.len().saturating_sub(turns)].clone();
    conversation
        .chat
        .send(AgentCommand::Rewind { turns })
        .await?;
    conversation.last_question = None;
    conversation.back = Some(UndoTarget::Rewound);
    let result =
        CommandResult::order().and(show_text(TextKind::Info, "undone; /undo again restores it"));
    Ok(result.and(Effect::Draft(again)))
}

pub(super) async fn redo(conversation: &mut Conversation) -> Result<CommandResult, Failure> {
    not_while_busy(conversation)?;
    match conversation.back.take() {
        None => Err(Failure::usage("there is nothing to restore")),
        Some(UndoTarget::Rewound) => {
            conversation.chat.send(AgentCommand::Restore).await?;
            Ok(CommandResult::order())
        }
        Some(UndoTarget::Left(id)) => resume(conversation, id.as_str()).await,
    }
}

pub(super) async fn title(
    conversation: &mut Conversation,
    text: &str,
) -> Result<CommandResult, Failure> {
    let chat = &conversation.chat;
    if text.is_empty() {
        let title = conversation
            .title
            .clone()
            .or_else(|| conversation.title_to_set.clone());
        return Ok(CommandResult::plain(
            title.unwrap_or_else(|| "no title yet".to_owned()),
        ));
    }
    let title = if chat.used {
        chat.store.set_title(&chat.id, text, false).await?
    } else {
        // The session is stored with its first question; it gets the title then.
        conversation.title_to_set = Some(text.to_owned());
        text.to_owned()
    };
    conversation.title = Some(title.clone());
    Ok(CommandResult::plain(format!("title: {title}")))
}

/// Continues in a copy; the session itself is not changed.
pub(super) async fn branch(
    conversation: &mut Conversation,
    title: &str,
) -> Result<CommandResult, Failure> {
    not_while_busy(conversation)?;
    let chat = &conversation.chat;
    let stored = if chat.used {
        chat.store.load(&chat.id).await?
    } else {
        None
    };
    let Some(stored) = stored else {
        return Err(Failure::usage(
            "there are no messages yet, so there is nothing to branch",
        ));
    };
    let id = wiring::new_session_id(chat.clock.as_ref());
    let new_session = NewSession {
        id: Some(id.clone()),
        source: stored.source,
        model: stored.model,
        model_config: stored.model_config,
        system_prompt: stored.system_prompt,
        parent: Some(stored.id),
        cwd: stored.cwd,
        profile: conversation.cx.home.profile().map(str::to_owned),
        started_at: chat.clock.epoch_seconds(),
        ..NewSession::default()
    };
    chat.store.begin(new_session).await?;
    let items = stored.items.into_iter().map(|item| NewItem {
        message: item.message,
        at: item.at,
        token_count: None,
        platform_message_id: None,
    });
    chat.store.append(&id, items.collect()).await?;
    let title = if title.is_empty() {
        stored.title
    } else {
        Some(title.to_owned())
    };
    if let Some(title) = title {
        chat.store.set_title(&id, &title, true).await?;
    }
    let old = chat.id.clone();
    let options = TurnOptions {
        resume: Some(id.to_string()),
        ..conversation.options.clone()
    };
    conversation.open_instead(&options, "branched").await?;
    // The messages are on the screen already.
    Ok(CommandResult::info(format!(
        "this is a copy now ({id}); the original: /resume {old}"
    )))
}

/// Number of messages that `/compress here` keeps verbatim, with their answers.
const RETAINED_TURNS: usize = 2;

pub(super) async fn compress(
    conversation: &mut Conversation,
    rest: &str,
) -> Result<CommandResult, Failure> {
    if rest == "--preview" {
        return preview(conversation).await;
    }
    let (focus, keep) = match rest.split_once(' ').unwrap_or((rest, "")) {
        ("", _) => (None, None),
        ("here", "") => (None, Some(RETAINED_TURNS)),
        // A topic may begin with this word, too.
        ("here", count) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            let turns = count.parse().ok().filter(|turns| *turns > 0);
            let turns = turns.ok_or_else(|| {
                Failure::usage(
                    "/compress here takes a number of questions to keep: /compress here 3",
                )
            })?;
            (None, Some(turns))
        }
        _ => (Some(rest.to_owned()), None),
    };
    conversation
        .chat
        .send(AgentCommand::Compact { focus, keep })
        .await?;
    Ok(CommandResult::order())
}

/// A preview of the compression.
async fn preview(conversation: &Conversation) -> Result<CommandResult, Failure> {
    let chat = &conversation.chat;
    let stored = if chat.used {
        chat.store.load(&chat.id).await?
    } else {
        None
    };
    let Some(stored) = stored else {
        return Err(Failure::usage("there are no messages yet"));
    };
    let messages = stored.items.iter().map(|item| &item.message);
    let tokens: u64 = messages.map(hermes_agent::tokens::message).sum();
    let window = match conversation.context {
        Some((used, length)) => format!(
            "; the last prompt took {} of {} tokens",
            figures::tokens(used),
            figures::window(length.into())
        ),
        None => String::new(),
    };
    Ok(CommandResult::plain(format!(
        "{} (about {} tokens) are sent to the model{window}.\n\
         /compress summarises the older ones; the newest stay unchanged, and you still see everything.",
        figures::count(stored.items.len(), "message"),
        figures::tokens(tokens)
    )))
}

pub(super) async fn sessions(
    conversation: &Conversation,
    words: &str,
) -> Result<CommandResult, Failure> {
    let filter = ListFilter {
        limit: MAX_LISTED_SESSIONS,
        ..ListFilter::default()
    };
    let mut lines = Vec::new();
    for row in conversation.chat.store.list(filter).await? {
        let preview = shorten(&row.preview, 60);
        let title = row.title.clone().unwrap_or(preview);
        lines.push(format!("  {}  {title}", row.id));
    }
    lines.retain(|line| line.to_lowercase().contains(&words.to_lowercase()));
    if lines.is_empty() {
        lines.push("no sessions; hermes sessions list --all also shows archived ones".to_owned());
    }
    Ok(CommandResult::plain(lines.join("\n")))
}

pub(super) async fn history(
    conversation: &Conversation,
    count: &str,
) -> Result<CommandResult, Failure> {
    let count_limit = if count.is_empty() {
        usize::MAX
    } else {
        count
            .parse()
            .map_err(|_| Failure::usage("/history takes a number of entries: /history 10"))?
    };
    let chat = &conversation.chat;
    let mut entries = if chat.used {
        replay::entries(&chat.store, &chat.id).await?
    } else {
        Vec::new()
    };
    if entries.is_empty() {
        return Ok(CommandResult::info("there are no messages yet"));
    }
    entries.drain(..entries.len().saturating_sub(count_limit));
    Ok(match conversation.surface {
        Surface::Line | Surface::Platform => {
            CommandResult::plain(replay::lines(&entries).join("\n"))
        }
        Surface::Screen => CommandResult::from_effect(Effect::Page(PagedText {
            title: "conversation".to_owned(),
            kind: TextKind::Markdown,
            text: replay::markdown(&entries),
        })),
    })
}

pub(super) async fn export(
    conversation: &Conversation,
    path: &str,
) -> Result<CommandResult, Failure> {
    let chat = &conversation.chat;
    if !chat.used {
        return Err(Failure::usage("there are no messages yet"));
    }
    let session = chat.store.export(&chat.id).await?;
    let path = if path.is_empty() {
        PathBuf::from(format!("{}.jsonl", chat.id))
    } else {
        conversation.cx.home.expand_user(path)
    };
    let text = match path.extension().and_then(|end| end.to_str()) {
        Some("md" | "markdown") => hermes_store::session_markdown(&session),
        Some("html" | "htm") => session_html(&session),
        Some("json") => format!("{session:#}\n"),
        _ => format!("{session}\n"),
    };
    let path = chat.cwd.join(path);
    tokio::fs::write(&path, text)
        .await
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    Ok(CommandResult::plain(format!(
        "written to {}",
        path.display()
    )))
}

pub(super) fn quit(conversation: &mut Conversation, rest: &str) -> Result<CommandResult, Failure> {
    match rest {
        "" => {}
        "--delete" => {
            if conversation.chat.used {
                conversation.forget = true;
            }
        }
        other => {
            return Err(Failure::usage(format!(
                "/quit takes --delete or nothing, not {other:?}"
            )));
        }
    }
    Ok(CommandResult::from_effect(Effect::Leave))
}

/// `/rollback`, `/rollback diff N`, `/rollback N [file]`.
pub(super) async fn rollback(
    conversation: &Conversation,
    rest: &str,
) -> Result<CommandResult, Failure> {
    let chat = &conversation.chat;
    // The checkpoints of the tools, if any: they know whether snapshots are enabled.
    let checkpoints = match &chat.commands {
        Some(commands) => commands.checkpoints.clone(),
        None => checkpoints::open(&conversation.cx, &chat.config),
    };
    let current_dir = &chat.cwd;
    let mut words = rest.splitn(2, char::is_whitespace).map(str::trim);
    match (words.next().unwrap_or(""), words.next()) {
        ("" | "list", None) => {
            let all = checkpoints.list(current_dir).await;
            let all = all.map_err(|error| checkpoints::failure(&error))?;
            let mut text = checkpoints::listed(&all, checkpoints.enabled());
            if !all.is_empty() {
                text.push_str(
                    "\n/rollback diff N shows what changed since, /rollback N [file] restores it",
                );
            }
            Ok(CommandResult::plain(text))
        }
        ("diff", Some(which)) => {
            let changes = checkpoints.diff(current_dir, which).await;
            let changes = changes.map_err(|error| checkpoints::failure(&error))?;
            let text = checkpoints::changed(&changes.diff);
            Ok(CommandResult::from_effect(show_text(TextKind::Diff, text)))
        }
        ("diff", None) => Err(Failure::usage("/rollback diff <number>")),
        (which, file) => {
            let restored = checkpoints.restore(current_dir, which, file).await;
            let restored = restored.map_err(|error| checkpoints::failure(&error))?;
            Ok(CommandResult::plain(checkpoints::restore_text(&restored)))
        }
    }
}

/// `/compose`: prepares the text; the interface opens the editor itself.
pub(super) fn compose(conversation: &Conversation, text: &str) -> Result<CommandResult, Failure> {
    match conversation.surface {
        Surface::Screen => Ok(CommandResult::from_effect(Effect::Edit(text.to_owned()))),
        Surface::Line | Surface::Platform => Err(Failure::usage(
            "\\ at the end of a line continues the message; $EDITOR needs the full interface",
        )),
    }
}

pub(super) fn redraw() -> CommandResult {
    CommandResult::from_effect(Effect::Redraw)
}
