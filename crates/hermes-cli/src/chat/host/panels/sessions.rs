//! `/sessions` and `/resume`: conversations of this home, found by title and by what was said.

use std::path::PathBuf;

use hermes_app::slash_commands;
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::ids::SessionId;
use hermes_store::{ListFilter, SearchHit, SearchOptions, SessionOrder, SessionSummary};
use hermes_tui::port::{FILTER, Panel, PanelGroup, PanelKey, PanelRequest, PanelRow, RowMark};

use super::{PanelKeyResult, key, row, short, text, unknown};
use crate::chat::host::ScreenConversation;
use crate::commands::sessions::ago;
use crate::exit::Failure;

pub(super) const ID: &str = "sessions";

/// Conversations that are listed.
const MAX_LISTED: usize = 500;
/// Those found by what was said in them.
const MAX_FOUND: usize = 20;
/// Letters that are worth looking for in all messages.
const MIN_SEARCH_CHARS: usize = 3;

pub(super) async fn panel(conversation: &ScreenConversation) -> Result<Panel, Failure> {
    let store = &conversation.chat.store;
    let filter = ListFilter {
        // Sessions of other programs that call us are no conversations.
        exclude_sources: vec!["tool".to_owned()],
        order: SessionOrder::LastActive,
        limit: MAX_LISTED,
        ..ListFilter::default()
    };
    let listed = store.list(filter).await?;
    let query = conversation.panels.query.clone();
    let hits = if query.chars().count() >= MIN_SEARCH_CHARS {
        let options = SearchOptions {
            limit: MAX_FOUND,
            ..SearchOptions::default()
        };
        // Half a word with a quote in it is no query yet.
        store.search(&query, options).await.unwrap_or_default()
    } else {
        Vec::new()
    };
    let now = SystemClock.epoch_seconds();
    let open = conversation.chat.id.as_str();
    Ok(shown(&listed, &hits, &query, open, now))
}

fn shown(
    listed: &[SessionSummary],
    hits: &[SearchHit],
    query: &str,
    open: &str,
    now: f64,
) -> Panel {
    let mut groups = vec![PanelGroup {
        title: String::new(),
        rows: listed
            .iter()
            .map(|one| listed_row(one, open, now))
            .collect(),
    }];
    let mut seen: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for hit in hits {
        if seen.contains(&hit.session_id.as_str()) {
            continue;
        }
        seen.push(&hit.session_id);
        found.push(hit_row(hit, listed, query, now));
    }
    if !found.is_empty() {
        groups.push(PanelGroup {
            title: "said in".to_owned(),
            rows: found,
        });
    }
    Panel {
        id: ID.to_owned(),
        title: "Conversations".to_owned(),
        note: listed.len().to_string(),
        columns: ["TITLE", "WHERE", "LAST", "MESSAGES"]
            .map(str::to_owned)
            .to_vec(),
        groups,
        keys: keys(),
        filters: true,
        searches: true,
        ..Panel::default()
    }
}

fn keys() -> Vec<PanelKey> {
    vec![
        key("enter", "resume it", "resume"),
        PanelKey {
            text: Some("new title".to_owned()),
            ..key("ctrl+r", "rename", "rename")
        },
        PanelKey {
            text: Some("file (.md, .json or .jsonl)".to_owned()),
            ..key("ctrl+e", "export", "export")
        },
        PanelKey {
            confirm: Some("Delete \"{}\" for good?".to_owned()),
            ..key("delete", "delete", "delete")
        },
    ]
}

fn listed_row(session: &SessionSummary, open: &str, now: f64) -> PanelRow {
    let directory = session.git_repo_root.as_deref().or(session.cwd.as_deref());
    let title = session.title.clone().unwrap_or_default();
    let mut detail = vec![session.id.clone(), session.source.clone()];
    detail.extend(session.model.clone());
    detail.extend(directory.map(str::to_owned));
    PanelRow {
        id: session.id.clone(),
        mark: if session.id == open {
            RowMark::Current
        } else {
            RowMark::None
        },
        cells: vec![
            name(session),
            directory.map_or_else(String::new, last_part),
            ago(now, session.last_active),
            session.message_count.to_string(),
        ],
        detail: format!("{}\n{}", short(&session.preview, 200), detail.join(" · ")),
        also: format!("{} {}", session.preview, detail.join(" ")),
        text: title,
        enter: None,
    }
}

/// A session that has the words of the query in it.
fn hit_row(hit: &SearchHit, listed: &[SessionSummary], query: &str, now: f64) -> PanelRow {
    let session = listed.iter().find(|one| one.id == hit.session_id);
    PanelRow {
        // The same session may stand above by its title.
        id: format!("{}{HIT}", hit.session_id),
        cells: vec![
            session.map_or_else(|| hit.session_id.clone(), name),
            hit.role.clone(),
            ago(now, hit.timestamp),
            String::new(),
        ],
        detail: short(&hit.snippet, 300),
        // It fits the filter by what the filter was.
        also: query.to_owned(),
        text: session
            .and_then(|one| one.title.clone())
            .unwrap_or_default(),
        ..PanelRow::default()
    }
}

/// Ends the id of a row that was found by a search.
const HIT: char = '\u{1f}';

fn name(session: &SessionSummary) -> String {
    match session.title.as_deref().filter(|title| !title.is_empty()) {
        Some(title) => short(title, 60),
        None if session.preview.is_empty() => "(nothing said)".to_owned(),
        None => short(&session.preview, 60),
    }
}

fn last_part(path: &str) -> String {
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

pub(super) async fn act(
    conversation: &mut ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    if ask.action == FILTER {
        text(ask).clone_into(&mut conversation.panels.query);
        return Ok(PanelKeyResult::Again);
    }
    let id = row(ask)?.trim_end_matches(HIT).to_owned();
    match ask.action.as_str() {
        "resume" => Ok(PanelKeyResult::Leave(
            slash_commands::resume(conversation, &id).await?,
        )),
        "rename" => rename(conversation, &id, text(ask)).await,
        "export" => export(conversation, &id, text(ask)).await,
        "delete" => delete(conversation, &id).await,
        _ => Err(unknown(ask)),
    }
}

async fn rename(
    conversation: &mut ScreenConversation,
    id: &str,
    title: &str,
) -> Result<PanelKeyResult, Failure> {
    let id = SessionId::new(id);
    let title = conversation.chat.store.rename(&id, title).await?;
    if id == conversation.chat.id {
        conversation.title = (!title.is_empty()).then(|| title.clone());
    }
    Ok(PanelKeyResult::Note(if title.is_empty() {
        "the title was removed".to_owned()
    } else {
        format!("renamed to {title:?}")
    }))
}

async fn export(
    conversation: &ScreenConversation,
    id: &str,
    path: &str,
) -> Result<PanelKeyResult, Failure> {
    let chat = &conversation.chat;
    let session = chat.store.export(&SessionId::new(id)).await?;
    let path = if path.is_empty() {
        PathBuf::from(format!("{id}.md"))
    } else {
        conversation.cx.home.expand_user(path)
    };
    let content = match path.extension().and_then(|end| end.to_str()) {
        Some("md" | "markdown") => hermes_store::session_markdown(&session),
        Some("json") => format!("{session:#}\n"),
        _ => format!("{session}\n"),
    };
    let path = chat.cwd.join(path);
    tokio::fs::write(&path, content)
        .await
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    Ok(PanelKeyResult::Note(format!(
        "written to {}",
        path.display()
    )))
}

async fn delete(conversation: &ScreenConversation, id: &str) -> Result<PanelKeyResult, Failure> {
    let chat = &conversation.chat;
    if chat.id.as_str() == id {
        return Err(Failure::usage(
            "this conversation is open; /quit --delete leaves and deletes it",
        ));
    }
    let deleted = chat.store.delete(&SessionId::new(id)).await?;
    let all = deleted.delegates.iter().chain([&deleted.session_id]);
    crate::commands::sessions::remove_transcripts(&conversation.cx, all.map(String::as_str));
    Ok(PanelKeyResult::Note(format!("{id} is deleted")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, title: Option<&str>) -> SessionSummary {
        SessionSummary {
            id: id.to_owned(),
            source: "cli".to_owned(),
            title: title.map(str::to_owned),
            model: Some("qwen3".to_owned()),
            message_count: 4,
            tool_call_count: 0,
            input_tokens: 0,
            output_tokens: 0,
            started_at: 0.0,
            ended_at: None,
            end_reason: None,
            preview: "make the parser\naccept commas".to_owned(),
            last_active: 940.0,
            parent_session_id: None,
            cwd: Some("/home/ana/proj/".to_owned()),
            git_branch: None,
            git_repo_root: None,
            archived: false,
            lineage_root_id: None,
        }
    }

    fn hit(session: &str, snippet: &str) -> SearchHit {
        SearchHit {
            id: 1,
            session_id: session.to_owned(),
            role: "assistant".to_owned(),
            snippet: snippet.to_owned(),
            timestamp: 0.0,
            tool_name: None,
            source: "cli".to_owned(),
            model: None,
            session_started: 0.0,
        }
    }

    #[test]
    fn a_session_is_its_title_or_what_was_asked_first() {
        let listed = [session("a", Some("Trailing commas")), session("b", None)];
        let panel = shown(&listed, &[], "", "b", 1000.0);
        let rows = &panel.groups[0].rows;
        assert_eq!(rows[0].cells, ["Trailing commas", "proj", "1m ago", "4"]);
        assert_eq!(rows[0].text, "Trailing commas");
        assert_eq!(rows[1].cells[0], "make the parser accept commas");
        assert_eq!(rows[1].mark, RowMark::Current);
        assert_eq!(panel.groups.len(), 1);
    }

    #[test]
    fn what_was_said_finds_each_session_once() {
        let listed = [session("a", Some("Trailing commas"))];
        let hits = [hit("a", "the grammar"), hit("a", "again"), hit("z", "else")];
        let panel = shown(&listed, &hits, "gram", "b", 1000.0);
        let rows = &panel.groups[1].rows;
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].cells[0], "Trailing commas");
        assert_eq!(rows[0].also, "gram", "the filter lets it stand");
        assert_eq!(rows[0].id.trim_end_matches(HIT), "a");
        assert_eq!(rows[1].cells[0], "z");
    }
}
