//! Pruning and archiving.

use hermes_app::AppContext;
use hermes_app::text::date;
use hermes_core::store::StoreError;
use hermes_store::PruneCandidate;
use serde_json::json;

use super::filter::FilterArgs;
use super::{confirm, show, writer};
use crate::commands::{Context, counted};
use crate::exit::{Failure, Outcome};
use crate::wiring;

const MAX_PREVIEWED: usize = 15;

#[derive(Debug, clap::Args)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Include archived conversations
    #[arg(long)]
    include_archived: bool,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ArchiveArgs {
    /// Archive only this session: id, id prefix, title or first words
    session: Option<String>,
    /// Show the conversations in lists again
    #[arg(long, requires = "session")]
    undo: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct RunArgs {
    /// Show which sessions match, without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn prune(args: PruneArgs, cx: &Context) -> Outcome {
    let filter = if args.filter.is_empty() {
        FilterArgs::older_than_90_days()
    } else {
        args.filter
    };
    let mut filter = filter.build(show::now())?;
    filter.archived = if args.include_archived {
        None
    } else {
        Some(false)
    };
    if !cx.home.state_db().exists() {
        return report(cx, args.run, "deleted", &[]);
    }
    let store = wiring::open_store(cx)?;
    let chosen = store.prune(filter.clone(), true).await?;
    if !settled(cx, args.run, "delete", &chosen)? {
        return report(cx, args.run, "deleted", &chosen);
    }
    let deleted = store.prune(filter, false).await?;
    store.close().await?;
    remove_transcripts(cx, deleted.iter().map(|session| session.id.as_str()));
    report(cx, args.run, "deleted", &deleted)
}

pub(super) async fn archive(args: ArchiveArgs, cx: &Context) -> Outcome {
    if let Some(session) = &args.session {
        if !args.filter.is_empty() {
            return Err(Failure::usage("give either a session or filters, not both"));
        }
        let store = writer(cx, session)?;
        let id = store.resolve(session).await?;
        let count = store.archive(&id, !args.undo).await?;
        store.close().await?;
        if args.run.json {
            cx.out
                .json(&json!({ "session_id": id, "archived": !args.undo, "sessions": count }))?;
        } else {
            let word = if args.undo { "shown again" } else { "archived" };
            cx.out.line(format!("{id} {word}"))?;
        }
        return Ok(());
    }
    if args.filter.is_empty() {
        return Err(Failure::usage(
            "this would archive every ended session: name one, or pass a filter such as --older-than 30",
        ));
    }
    let filter = args.filter.build(show::now())?;
    if !cx.home.state_db().exists() {
        return report(cx, args.run, "archived", &[]);
    }
    let store = wiring::open_store(cx)?;
    let chosen = store.archive_matching(filter.clone(), true).await?;
    if !settled(cx, args.run, "archive", &chosen)? {
        return report(cx, args.run, "archived", &chosen);
    }
    let archived = store.archive_matching(filter, false).await?;
    store.close().await?;
    report(cx, args.run, "archived", &archived)
}

/// Whether to go ahead: something fits, it is no dry run, and the person agrees.
fn settled(
    cx: &Context,
    run: RunArgs,
    verb: &str,
    chosen: &[PruneCandidate],
) -> Result<bool, Failure> {
    if run.dry_run || chosen.is_empty() {
        return Ok(false);
    }
    if !run.yes {
        for session in chosen.iter().take(MAX_PREVIEWED) {
            cx.out.remark(line(session));
        }
        if chosen.len() > MAX_PREVIEWED {
            cx.out
                .remark(format!("  … and {} more", chosen.len() - MAX_PREVIEWED));
        }
        confirm(cx, &format!("{verb} {}?", counted(chosen.len(), "session")))?;
    }
    Ok(true)
}

fn line(session: &PruneCandidate) -> String {
    format!(
        "  {}  {}  {:<10} {:>5} messages  {}",
        session.id,
        date(session.started_at),
        session.source,
        session.message_count,
        session.title.as_deref().unwrap_or("")
    )
}

fn report(cx: &Context, run: RunArgs, done: &str, sessions: &[PruneCandidate]) -> Outcome {
    if run.json {
        cx.out.json(
            &json!({ "dry_run": run.dry_run, "count": sessions.len(), "sessions": sessions }),
        )?;
        return Ok(());
    }
    let count = counted(sessions.len(), "session");
    if run.dry_run {
        for session in sessions {
            cx.out.line(line(session))?;
        }
        cx.out.line(format!("{count} would be {done}"))?;
    } else {
        cx.out.line(format!("{count} {done}"))?;
    }
    Ok(())
}

/// Removes the files that old builds and gateways kept beside the database. A file that cannot
/// be removed is named; the session is gone all the same.
pub(crate) fn remove_transcripts<'a>(cx: &AppContext, ids: impl Iterator<Item = &'a str>) {
    let dir = cx.home.sessions_dir();
    for id in ids {
        // Ids may be chosen by others; none of them may lead out of the directory.
        if id.is_empty() || id.contains(['/', '\\']) || id.starts_with('.') {
            continue;
        }
        let dump = format!("request_dump_{id}_");
        let Ok(entries) = std::fs::read_dir(&dir) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let own = name == format!("{id}.json")
                || name == format!("{id}.jsonl")
                || (name.starts_with(&dump) && name.to_lowercase().ends_with(".json"));
            if own && let Err(error) = std::fs::remove_file(entry.path()) {
                let what = format!("removing {}", entry.path().display());
                let error = StoreError::Io {
                    what,
                    source: error,
                };
                cx.process.remark(&error.to_string());
            }
        }
    }
}
