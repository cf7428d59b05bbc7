//! Information: help, status, usage, identity, changes.

use std::fmt::Write as _;
use std::process::Stdio;

use hermes_core::figures;
use hermes_core::front_end::{Effect, PagedText, TextKind, TranscriptEntry};
use hermes_core::programs::own_program;
use hermes_core::slash;
use hermes_exec::git::ForeignRepository;
use tokio::process::Command;

use super::subprocess;
use crate::conversation::{CommandResult, Conversation, Surface, show_text};
use crate::conversation::{images, replay};
use crate::failure::Failure;
use crate::text::version_line;
use crate::wiring::mcp::server_counts;

pub(super) fn help(conversation: &Conversation, topic: &str) -> Result<CommandResult, Failure> {
    let surface = conversation.surface;
    if let Some(command) = slash::find(topic.trim_start_matches('/')) {
        let mut text = format!("{}\n  {}", command.usage(), command.about());
        if !command.subcommands.is_empty() {
            let _ = write!(text, "\n  first word: {}", command.subcommands.join(", "));
        }
        return Ok(CommandResult::plain(text));
    }
    if !topic.is_empty() {
        return Err(super::unknown(topic, slash::close(topic)));
    }
    let mut text = slash::help(|surfaces| surface.has(surfaces));
    match surface {
        Surface::Line => {
            for line in LINE_KEYS {
                let _ = write!(text, "\n  {line}");
            }
            Ok(CommandResult::plain(text))
        }
        Surface::Platform => Ok(CommandResult::plain(text)),
        Surface::Screen => {
            text.push_str("\n\n/keys shows what the keys do; /<skill> uses a skill");
            Ok(CommandResult::plain(text))
        }
    }
}

/// Keys of the line chat without a corresponding command.
const LINE_KEYS: &[&str] = &[
    "\\ at the end of a line: continue the message on the next line",
    "Tab completes commands · Ctrl+C stops an answer · Ctrl+D leaves",
];

/// The line chat's keys; the full interface shows its own.
pub(super) fn keys() -> CommandResult {
    CommandResult::plain(LINE_KEYS.join("\n"))
}

pub(super) async fn status(conversation: &Conversation) -> Result<CommandResult, Failure> {
    let chat = &conversation.chat;
    let mut lines = vec![format!("session  {}", chat.id)];
    lines.extend(
        conversation
            .title
            .iter()
            .map(|title| format!("title    {title}")),
    );
    lines.push(match &chat.missing {
        None => format!(
            "model    {} ({}) at {}",
            chat.route.model,
            chat.route.provider,
            hermes_config::redact::url(&chat.route.base_url)
        ),
        Some(why) => format!("model    {why}"),
    });
    if let Some((used, length)) = conversation.context {
        lines.push(format!(
            "context  {} of {} tokens",
            figures::tokens(used),
            figures::window(length.into())
        ));
    }
    lines.push(format!("cwd      {}", chat.cwd.display()));
    lines.push(format!(
        "home     {}",
        conversation.cx.home.root().display()
    ));
    if let Some(toolbox) = chat.mcp.as_ref().and_then(|mcp| mcp.toolbox()) {
        let count = server_counts(&toolbox);
        lines.push(format!(
            "mcp      {} of {} connected (/mcp)",
            count.connected, count.configured
        ));
    }
    lines.extend(used(conversation).await?);
    Ok(CommandResult::plain(lines.join("\n")))
}

pub(super) async fn usage(conversation: &Conversation) -> Result<CommandResult, Failure> {
    Ok(CommandResult::plain(used(conversation).await?.join("\n")))
}

async fn used(conversation: &Conversation) -> Result<Vec<String>, Failure> {
    let chat = &conversation.chat;
    if !chat.used {
        return Ok(vec!["nothing has been used yet".to_owned()]);
    }
    let record = chat.store.get(chat.id.as_str()).await?;
    let count = |column| record.number(column).unwrap_or(0.0);
    let cost = match record.text("cost_status") {
        Some("actual") => figures::dollars(count("actual_cost_usd")),
        Some("estimated") => format!("{} est", figures::dollars(count("estimated_cost_usd"))),
        Some("included") => "free (local model)".to_owned(),
        _ => "unknown".to_owned(),
    };
    let tokens = |column| figures::tokens(count(column) as u64);
    Ok(vec![
        format!(
            "tokens   {} in · {} cached · {} out ({} reasoning)",
            tokens("input_tokens"),
            tokens("cache_read_tokens"),
            tokens("output_tokens"),
            tokens("reasoning_tokens")
        ),
        format!("cost     {cost}"),
    ])
}

/// A number of days as people type it: `7`, `--days 7`, `--days=7`, `7d`.
pub fn days(typed: &str) -> &str {
    let typed = typed.trim();
    let typed = typed.strip_prefix("--days").unwrap_or(typed);
    let typed = typed.trim_start_matches(['=', ' ']);
    typed.strip_suffix(['d', 'D']).unwrap_or(typed).trim()
}

pub(super) async fn insights(
    conversation: &Conversation,
    days: &str,
) -> Result<CommandResult, Failure> {
    let days = self::days(days);
    match days.parse::<u32>() {
        _ if days.is_empty() => subprocess::run(conversation, &["insights"]).await,
        Ok(1..) => subprocess::run(conversation, &["insights", "--days", days]).await,
        _ => Err(Failure::usage(
            "/insights takes a number of days: /insights 7",
        )),
    }
}

pub(super) fn profile(conversation: &Conversation) -> CommandResult {
    let home = &conversation.cx.home;
    CommandResult::plain(format!(
        "profile  {}\nhome     {}",
        home.profile().unwrap_or("default"),
        home.root().display()
    ))
}

pub(super) fn whoami(conversation: &Conversation) -> CommandResult {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .unwrap_or_else(|| "no name".to_owned());
    let asked = if conversation.yolo {
        "nothing asks first (/yolo off changes that)"
    } else {
        "dangerous actions ask first"
    };
    CommandResult::plain(format!(
        "You are the local user ({user}): all commands are available; {asked}"
    ))
}

/// The nth last answer, to the clipboard.
pub(super) async fn copy(
    conversation: &Conversation,
    which: &str,
) -> Result<CommandResult, Failure> {
    let nth = match which.parse::<usize>() {
        _ if which.is_empty() => 1,
        Ok(nth) if nth >= 1 => nth,
        _ => {
            return Err(Failure::usage(
                "/copy takes a number: /copy 2 is the answer before the last",
            ));
        }
    };
    let chat = &conversation.chat;
    let entries = if chat.used {
        replay::entries(&chat.store, &chat.id).await?
    } else {
        Vec::new()
    };
    let answers = entries.into_iter().filter_map(|entry| match entry {
        TranscriptEntry::Assistant(text) => Some(text),
        _ => None,
    });
    let answers: Vec<String> = answers.collect();
    match answers
        .len()
        .checked_sub(nth)
        .and_then(|at| answers.get(at))
    {
        Some(text) => Ok(CommandResult::from_effect(Effect::Copy(text.clone()))),
        None => Err(Failure::usage("there is no such answer")),
    }
}

pub(super) fn image(conversation: &mut Conversation, path: &str) -> Result<CommandResult, Failure> {
    if path.is_empty() {
        return Err(Failure::usage("/image <file>"));
    }
    let path = unquoted(path);
    let path = conversation.cx.home.expand_user(path);
    let path = conversation.chat.cwd.join(path);
    let images = images::load(std::slice::from_ref(&path))?;
    conversation.images.extend(images);
    let seen = if conversation.chat.able.images {
        ""
    } else {
        " (this model is not known to support images)"
    };
    Ok(CommandResult::info(format!(
        "{} will be sent with the next message{seen}",
        path.display()
    )))
}

/// A path as a shell or a file manager writes it.
fn unquoted(path: &str) -> &str {
    let within = |quote: char| path.strip_prefix(quote)?.strip_suffix(quote);
    within('\'').or_else(|| within('"')).unwrap_or(path)
}

/// Programs that print the image of the clipboard.
const CLIPBOARDS: [(&str, &[&str]); 3] = [
    ("wl-paste", &["--no-newline", "--type", "image/png"]),
    (
        "xclip",
        &["-selection", "clipboard", "-target", "image/png", "-out"],
    ),
    ("pngpaste", &["-"]),
];

pub(super) async fn paste(conversation: &mut Conversation) -> Result<CommandResult, Failure> {
    for (program, args) in CLIPBOARDS {
        let done = Command::from(own_program(program))
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        let Ok(done) = done else {
            continue;
        };
        if done.status.success() && !done.stdout.is_empty() {
            let part = hermes_core::image::part(&done.stdout)
                .map_err(|error| Failure::usage(format!("the clipboard: {error}")))?;
            conversation.images.push(part);
            return Ok(CommandResult::info(
                "the image in the clipboard will be sent with the next message",
            ));
        }
    }
    Err(Failure::failed(
        "no image in the clipboard, or no wl-paste, xclip or pngpaste to read it; /image <file> adds a file",
    ))
}

/// Changes in the project, from git.
pub(super) async fn diff(
    conversation: &Conversation,
    rest: &str,
) -> Result<CommandResult, Failure> {
    let cwd = &conversation.chat.cwd;
    let failed = |error: std::io::Error| Failure::failed(format!("git: {error}"));
    // Its settings may have been written by a command in the sandbox: none of them counts here.
    let own = conversation.cx.home.cache_dir().join("exec");
    let Some(repository) = ForeignRepository::around(cwd, &own).await.map_err(failed)? else {
        let text = format!("git: {} is not in a repository", cwd.display());
        return Err(Failure::failed(text));
    };
    let (is_staged, path) = match rest {
        "" => (false, None),
        "staged" | "--staged" => (true, None),
        path => (false, Some(path)),
    };
    let text = repository
        .diff(cwd, is_staged, path)
        .await
        .map_err(failed)?;
    if text.trim().is_empty() {
        return Ok(CommandResult::info("nothing has changed"));
    }
    Ok(match conversation.surface {
        Surface::Line | Surface::Platform => {
            CommandResult::from_effect(show_text(TextKind::Diff, text))
        }
        Surface::Screen => CommandResult::from_effect(Effect::Page(PagedText {
            title: "changes".to_owned(),
            kind: TextKind::Diff,
            text,
        })),
    })
}

/// Information for a bug report, without secrets.
pub(super) async fn debug(conversation: &Conversation) -> Result<CommandResult, Failure> {
    let chat = &conversation.chat;
    let term = |name: &str| std::env::var(name).unwrap_or_else(|_| "-".to_owned());
    let mut text = format!(
        "{}\nterminal {} (TERM_PROGRAM {}), {}\nschema   {}\n",
        version_line(),
        term("TERM"),
        term("TERM_PROGRAM"),
        std::env::consts::OS,
        chat.store.schema_version()
    );
    let shown = status(conversation).await?;
    for effect in shown.effects {
        if let Effect::Say(shown_text) = effect {
            text.push_str(&shown_text.text);
        }
    }
    let logs = conversation.cx.home.logs_dir();
    let _ = write!(text, "\nlogs     {}", logs.display());
    Ok(CommandResult::plain(
        hermes_core::redact::keys(&text).into_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::days;

    #[test]
    fn days_are_read_as_people_type_them() {
        for typed in ["7", " 7 ", "--days 7", "--days=7", "7d"] {
            assert_eq!(days(typed), "7", "{typed:?}");
        }
        assert_eq!(days(""), "");
        assert_eq!(days("soon"), "soon");
    }
}
