//! One conversation, and how times and sizes are shown.

use chrono::Utc;
use hermes_app::text::date;
use hermes_core::store::StoreError;
use hermes_store::{SessionSummary, session_markdown};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::reader;
use crate::commands::Context;
use crate::exit::Outcome;

#[derive(Debug, clap::Args)]
pub(super) struct SessionShowArgs {
    /// Id, id prefix, title or first words
    session: String,
    /// Include messages that were compressed or undone
    #[arg(long)]
    all: bool,
    /// Print as JSON: the session with its messages
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &SessionShowArgs, cx: &Context) -> Outcome {
    let Some(store) = reader(cx)? else {
        return Err(StoreError::NotFound(args.session.clone()).into());
    };
    let id = store.resolve(&args.session).await?;
    let mut session = store.export(&id).await?;
    if args.all {
        let messages = store.messages(&id, true).await?;
        let messages = messages.into_iter().map(|message| Value::Object(message.0));
        session["messages"] = messages.collect();
    }
    if args.json {
        cx.out.json(&session)?;
    } else {
        cx.out.foreign_line(session_markdown(&session).trim_end())?;
    }
    Ok(())
}

pub(super) fn now() -> f64 {
    Utc::now().timestamp() as f64
}

/// The repository of a session, else its directory.
pub(super) fn workspace(session: &SessionSummary) -> Option<&str> {
    [&session.git_repo_root, &session.cwd]
        .into_iter()
        .flatten()
        .map(|path| path.trim())
        .find(|path| !path.is_empty())
}

pub(crate) fn ago(now: f64, then: f64) -> String {
    let seconds = (now - then).max(0.0) as u64;
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86_400 => format!("{}h ago", seconds / 3600),
        86_400..604_800 => format!("{}d ago", seconds / 86_400),
        _ => date(then).chars().take(10).collect(),
    }
}

/// Cut or filled to `width` columns of a terminal, on one line.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let clean: String = text
        .chars()
        .map(|ch| if ch.is_control() { ' ' } else { ch })
        .collect();
    if let Some(free) = width.checked_sub(clean.width()) {
        return clean + &" ".repeat(free);
    }
    let mut available = width.saturating_sub(1);
    let mut cut = String::new();
    for ch in clean.chars() {
        let Some(left) = available.checked_sub(ch.width().unwrap_or(0)) else {
            break;
        };
        available = left;
        cut.push(ch);
    }
    format!("{cut}…{}", " ".repeat(available))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_width() {
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(fit("a\nbcdef", 4), "a b…");
        assert_eq!(fit("東京", 6), "東京  ");
        assert_eq!(fit("東京都", 5), "東京…");
        assert_eq!(fit("東京都", 4), "東… ");
    }

    #[test]
    fn times_are_short() {
        assert_eq!(ago(100.0, 99.0), "just now");
        assert_eq!(ago(100.0, 200.0), "just now");
        assert_eq!(ago(7300.0, 0.0), "2h ago");
        assert_eq!(ago(200_000.0, 0.0), "2d ago");
    }
}
