//! `hermes sessions`: past conversations.

mod browse;
mod bulk;
mod filter;
mod show;
mod transfer;

use std::path::PathBuf;

use clap::Subcommand;
use hermes_core::clock::SystemClock;
use hermes_core::figures::size;
use hermes_core::store::StoreError;
use hermes_store::{
    ListFilter, RepairOptions, SearchOptions, SearchOrder, SessionSummary, Store, repair_database,
};
use serde_json::json;

use super::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;
pub(crate) use bulk::remove_transcripts;
use hermes_app::text::date;
pub(crate) use show::{ago, fit};

#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List conversations, newest first
    List(ListArgs),
    /// Find a conversation and resume it
    Browse(browse::BrowseArgs),
    /// Show one conversation
    Show(show::SessionShowArgs),
    /// Search all messages
    Search(SearchArgs),
    /// Export conversations to a file
    Export(transfer::SessionExportArgs),
    /// Import conversations from an export
    Import(transfer::SessionImportArgs),
    /// Rename a conversation (omit the title to clear it)
    Rename(RenameArgs),
    /// Delete a conversation and its subagent runs
    Delete(DeleteArgs),
    /// Delete ended conversations that match the filters (default: older than 90 days)
    Prune(bulk::PruneArgs),
    /// Hide conversations from lists; nothing is deleted
    Archive(bulk::ArchiveArgs),
    /// Count sessions and messages
    Stats(JsonArgs),
    /// Check and repair the database (backs it up first)
    Repair(RepairArgs),
    /// Optimise the search index and reclaim space
    Optimize(JsonArgs),
}

#[derive(Clone, Copy, Debug, Default, clap::Args)]
struct JsonArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Show only this source (cli, telegram, cron, …)
    #[arg(long)]
    source: Option<String>,
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Show only sessions whose directory or repository path contains this text
    #[arg(long, value_name = "NEEDLE")]
    workspace: Option<String>,
    /// Include archived conversations
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(Debug, clap::Args)]
struct SearchArgs {
    /// What to search for: words, "phrases", prefix*, AND, OR, NOT
    #[arg(required = true)]
    query: Vec<String>,
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Search only this source (repeatable)
    #[arg(long)]
    source: Vec<String>,
    /// Search only messages with this role: user, assistant, tool (repeatable)
    #[arg(long)]
    role: Vec<String>,
    /// Sort by newest or oldest instead of best match
    #[arg(long, value_parser = ["newest", "oldest"])]
    sort: Option<String>,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(Debug, clap::Args)]
struct RenameArgs {
    /// Id, id prefix, title or first words
    session: String,
    title: Vec<String>,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    /// Id, id prefix, title or first words
    session: String,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(Debug, clap::Args)]
struct RepairArgs {
    /// Check without changing anything
    #[arg(long)]
    check_only: bool,
    /// Do not back up first
    #[arg(long)]
    no_backup: bool,
    #[command(flatten)]
    json: JsonArgs,
}

pub(crate) fn run(args: SessionsArgs, cx: &Context) -> Outcome {
    let action = args.action.unwrap_or(Action::List(ListArgs {
        source: None,
        limit: 20,
        workspace: None,
        all: false,
        json: JsonArgs::default(),
    }));
    match action {
        // Works on the file itself, which must not be open.
        Action::Repair(args) => run_repair(&args, cx),
        Action::Browse(args) => browse::run(&args, cx),
        other => wiring::runtime()?.block_on(dispatch(other, cx)),
    }
}

async fn dispatch(action: Action, cx: &Context) -> Outcome {
    match action {
        Action::List(args) => list(args, cx).await,
        Action::Show(args) => show::run(&args, cx).await,
        Action::Search(args) => search(args, cx).await,
        Action::Export(args) => transfer::export(args, cx).await,
        Action::Import(args) => transfer::import(&args, cx).await,
        Action::Rename(args) => rename(&args, cx).await,
        Action::Delete(args) => delete(&args, cx).await,
        Action::Prune(args) => bulk::prune(args, cx).await,
        Action::Archive(args) => bulk::archive(args, cx).await,
        Action::Stats(args) => stats(args, cx).await,
        Action::Optimize(args) => optimize(args, cx).await,
        Action::Repair(args) => run_repair(&args, cx),
        Action::Browse(args) => browse::run(&args, cx),
    }
}

/// The database for reading; `None`: there is none yet, so there is nothing to see.
fn reader(cx: &Context) -> Result<Option<Store>, Failure> {
    if cx.home.state_db().exists() {
        Ok(Some(wiring::open_for_reading(cx)?))
    } else {
        Ok(None)
    }
}

/// The database for writing to a session that must exist: no database, no session.
fn writer(cx: &Context, session: &str) -> Result<Store, Failure> {
    if !cx.home.state_db().exists() {
        return Err(StoreError::NotFound(session.to_owned()).into());
    }
    wiring::open_store(cx)
}

async fn list(args: ListArgs, cx: &Context) -> Outcome {
    let needle = args.workspace.map(|needle| needle.to_lowercase());
    let filter = ListFilter {
        // Sessions of other programs that call us are no conversations.
        exclude_sources: if args.source.is_some() {
            Vec::new()
        } else {
            vec!["tool".to_owned()]
        },
        source: args.source,
        include_archived: args.all,
        limit: if needle.is_some() {
            i64::MAX as usize
        } else {
            args.limit
        },
        ..ListFilter::default()
    };
    let mut sessions = match reader(cx)? {
        Some(store) => store.list(filter).await?,
        None => Vec::new(),
    };
    if let Some(needle) = needle {
        sessions.retain(|session| {
            show::workspace(session).is_some_and(|path| path.to_lowercase().contains(&needle))
        });
        sessions.truncate(args.limit);
    }
    if args.json.json {
        cx.out.json(&sessions)?;
        return Ok(());
    }
    if sessions.is_empty() {
        cx.out.remark("no sessions");
        return Ok(());
    }
    table(&sessions, cx)
}

fn table(sessions: &[SessionSummary], cx: &Context) -> Outcome {
    let now = show::now();
    let ids = sessions.iter().map(|session| session.id.len());
    let widths = TableWidths::fitting(cx.out, ids.max().unwrap_or_default());
    let header = widths.row("Title", "Workspace", "Last active", "ID");
    cx.out.line(cx.out.dim(&header))?;
    for session in sessions {
        let title = session.title.as_deref().unwrap_or(&session.preview);
        let title = if title.is_empty() { "—" } else { title };
        let directory = show::workspace(session)
            .and_then(|path| path.trim_end_matches('/').rsplit('/').next())
            .unwrap_or("—");
        let active = show::ago(now, session.last_active);
        cx.out
            .line(widths.row(title, directory, &active, &session.id))?;
    }
    Ok(())
}

/// The columns of the list. In a narrow terminal the directory goes first, then the time: the id is what
/// commands need, and a title tells which one it is.
struct TableWidths {
    title: usize,
    directory: usize,
    active: usize,
}

impl TableWidths {
    const TITLE_COLUMNS: usize = 36;
    const PATH_COLUMNS: usize = 18;
    const ACTIVE_COLUMNS: usize = 12;
    /// Shorter titles cannot be told apart.
    const MIN_TITLE_COLUMNS: usize = 20;

    fn fitting(out: crate::output::Output, id: usize) -> Self {
        if out.stdout_tty {
            Self::within(out.width(), id)
        } else {
            Self::within(usize::MAX, id)
        }
    }

    fn within(columns: usize, id: usize) -> Self {
        let left = columns.saturating_sub(id + 1);
        let beside = |others: usize| left.saturating_sub(others).min(Self::TITLE_COLUMNS);
        let all = [
            (Self::PATH_COLUMNS, Self::ACTIVE_COLUMNS),
            (0, Self::ACTIVE_COLUMNS),
            (0, 0),
        ]
        .map(|(directory, active)| {
            let gaps = usize::from(directory > 0) + usize::from(active > 0);
            Self {
                title: beside(directory + active + gaps),
                directory,
                active,
            }
        });
        let [full, timed, bare] = all;
        match (full.title, timed.title) {
            (title, _) if title >= Self::MIN_TITLE_COLUMNS => full,
            (_, title) if title >= Self::MIN_TITLE_COLUMNS => timed,
            _ => bare,
        }
    }

    fn row(&self, title: &str, directory: &str, active: &str, id: &str) -> String {
        let columns = [
            (title, self.title),
            (directory, self.directory),
            (active, self.active),
        ];
        let mut row = String::new();
        for (text, width) in columns.into_iter().filter(|(_, width)| *width > 0) {
            row.push_str(&show::fit(text, width));
            row.push(' ');
        }
        row + id
    }
}

async fn search(args: SearchArgs, cx: &Context) -> Outcome {
    let query = args.query.join(" ");
    let options = SearchOptions {
        roles: args.role,
        sources: args.source,
        limit: args.limit,
        sort: match args.sort.as_deref() {
            Some("newest") => SearchOrder::Newest,
            Some(_) => SearchOrder::Oldest,
            None => SearchOrder::Relevance,
        },
        ..SearchOptions::default()
    };
    let hits = match reader(cx)? {
        Some(store) => store.search(&query, options).await?,
        None => Vec::new(),
    };
    if args.json.json {
        cx.out.json(&hits)?;
        return Ok(());
    }
    if hits.is_empty() {
        cx.out.remark("nothing found");
    }
    for hit in hits {
        let directory = format!(
            "{}  {}  {} #{}",
            date(hit.timestamp),
            hit.session_id,
            hit.role,
            hit.id
        );
        cx.out.line(cx.out.dim(&directory))?;
        let snippet: Vec<&str> = hit.snippet.split_whitespace().collect();
        cx.out.foreign_line(&format!("  {}", snippet.join(" ")))?;
    }
    Ok(())
}

async fn rename(args: &RenameArgs, cx: &Context) -> Outcome {
    let store = writer(cx, &args.session)?;
    let id = store.resolve(&args.session).await?;
    let title = store.rename(&id, &args.title.join(" ")).await?;
    store.close().await?;
    if args.json.json {
        cx.out.json(&json!({ "session_id": id, "title": title }))?;
    } else if title.is_empty() {
        cx.out.line(format!("{id} has no title now"))?;
    } else {
        cx.out.line(format!("{id} is called {title:?}"))?;
    }
    Ok(())
}

async fn delete(args: &DeleteArgs, cx: &Context) -> Outcome {
    let store = writer(cx, &args.session)?;
    let session = store.get(&args.session).await?;
    let id = session.id().into();
    if !args.yes {
        let title = session.text("title").unwrap_or("untitled");
        let messages = session.number("message_count").unwrap_or(0.0) as usize;
        let messages = counted(messages, "message");
        confirm(cx, &format!("delete {id} ({title}, {messages})?"))?;
    }
    let deleted = store.delete(&id).await?;
    store.close().await?;
    let all = deleted.delegates.iter().chain([&deleted.session_id]);
    remove_transcripts(cx, all.map(String::as_str));
    if args.json.json {
        cx.out.json(&deleted)?;
    } else {
        cx.out.line(format!(
            "deleted {}{}",
            deleted.session_id,
            match deleted.delegates.len() {
                0 => String::new(),
                count => format!(" and {count} subagent runs"),
            }
        ))?;
    }
    Ok(())
}

async fn stats(args: JsonArgs, cx: &Context) -> Outcome {
    let stats = match reader(cx)? {
        Some(store) => store.stats().await?,
        None => hermes_store::StoreStats {
            sessions: 0,
            messages: 0,
            by_source: Vec::new(),
            database_bytes: 0,
            schema_version: hermes_store::SCHEMA_VERSION,
        },
    };
    if args.json {
        cx.out.json(&stats)?;
        return Ok(());
    }
    cx.out.line(format!(
        "{}, {}",
        counted(stats.sessions as usize, "session"),
        counted(stats.messages as usize, "message")
    ))?;
    for source in &stats.by_source {
        cx.out.line(format!(
            "  {:<14} {:>6} sessions {:>8} messages",
            source.source, source.sessions, source.messages
        ))?;
    }
    cx.out.line(format!(
        "{} (schema {})",
        size(stats.database_bytes),
        stats.schema_version
    ))?;
    Ok(())
}

async fn optimize(args: JsonArgs, cx: &Context) -> Outcome {
    let store = writer(cx, "in this home: there is no database yet")?;
    let report = store.optimize().await?;
    store.close().await?;
    if args.json {
        cx.out.json(&report)?;
    } else {
        cx.out.line(format!(
            "{} search indexes merged; {} before, {} after",
            report.indexes.len(),
            size(report.before),
            size(report.after)
        ))?;
    }
    Ok(())
}

fn run_repair(args: &RepairArgs, cx: &Context) -> Outcome {
    let options = RepairOptions {
        check_only: args.check_only,
        backup: !args.no_backup,
    };
    let report = repair_database(&cx.home.state_db(), options, &SystemClock)?;
    if args.json.json {
        cx.out.json(&report)?;
    } else {
        let path = |path: &PathBuf| path.display().to_string();
        if let Some(problem) = &report.problem {
            cx.out.line(format!("found: {problem}"))?;
        }
        if let Some(backup) = &report.backup {
            cx.out.line(format!("copy:  {}", path(backup)))?;
        }
        match (&report.problem, &report.error) {
            (None, _) => cx.out.line("the database is sound")?,
            (Some(_), None) => cx.out.line("repaired; no session or message was changed")?,
            (Some(_), Some(_)) if args.check_only => {
                cx.out.line("to repair it: hermes sessions repair")?;
            }
            (Some(_), Some(error)) => {
                cx.out.line(format!("still broken: {error}"))?;
                cx.out
                    .line("nothing was deleted; a backup of the home may have a sound copy")?;
                let db = path(&cx.home.state_db());
                cx.out.line(format!(
                    "to begin with an empty one, put this one aside: mv {db} {db}.broken"
                ))?;
            }
        }
    }
    if report.healthy {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failed))
    }
}

/// Asks on the terminal. Without one, or with `--no-input`, the answer must come as `--yes`.
pub(crate) fn confirm(cx: &Context, question: &str) -> Outcome {
    if cx.no_input || !cx.out.stdin_tty {
        return Err(Failure::usage(format!(
            "{question} Confirmation is not possible here: pass --yes"
        )));
    }
    cx.out.question(&format!("{question} [y/N] "))?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(Failure::failed("nothing was changed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_the_terminal_and_keeps_the_ids() {
        let id = "20261118_021701_abcdef";
        for columns in [30, 40, 60, 80, 100, 200] {
            let widths = TableWidths::within(columns, id.len());
            let row = widths.row(&"title ".repeat(20), "a-project", "5m ago", id);
            assert!(row.chars().count() <= columns, "{columns}: {row}");
            assert!(row.ends_with(id), "{row}");
        }
        let wide = TableWidths::within(usize::MAX, id.len()).row("t", "p", "5m ago", id);
        assert_eq!(wide.find("p "), Some(37));
        assert!(
            TableWidths::within(60, id.len())
                .row("t", "p", "5m ago", id)
                .contains("5m ago")
        );
    }
}
