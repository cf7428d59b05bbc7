//! The four ways in which the model accesses past conversations: discover by words, scroll around a
//! message, read a session, browse the newest.

use std::collections::{HashMap, HashSet};

use chrono::{Local, TimeZone as _};
use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;

use super::window::{AnchorWindow, ShapedMessage, anchor_window, around, shape};
use super::{SearchHit, SearchOptions, SearchOrder, clean_query, fill_snippets, search};
use crate::db::Store;
use crate::db::connection::DbError;
use crate::db::layout::SchemaLayout;
use crate::db::list::{ListFilter, SessionOrder, list};
use crate::db::rows::SessionRecord;
use crate::db::{lineage, resolve};

/// Internal sessions, which are not conversations.
const HIDDEN: [&str; 2] = ["subagent", "tool"];
/// Sessions that repeat daily; they come after all others.
const DEMOTED: &str = "cron";
/// Hits examined before they are reduced to one per conversation.
const MAX_HITS: usize = 300;
const READ_HEAD: usize = 20;
const READ_TAIL: usize = 10;

#[derive(Clone, Debug, Default)]
pub struct DiscoverRequest {
    pub query: String,
    /// Empty: user and assistant.
    pub roles: Vec<String>,
    /// 1 to 10.
    pub limit: usize,
    pub sort: SearchOrder,
    /// The running session: it and its relatives are excluded.
    pub current: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiscoverResult {
    pub success: bool,
    pub mode: &'static str,
    pub query: String,
    pub results: Vec<DiscoveredSession>,
    pub count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_searched: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiscoveredSession {
    pub session_id: String,
    pub when: String,
    pub source: String,
    pub model: String,
    pub title: Option<String>,
    pub matched_role: String,
    pub match_message_id: Option<i64>,
    pub snippet: String,
    pub bookend_start: Vec<ShapedMessage>,
    pub messages: Vec<ShapedMessage>,
    pub bookend_end: Vec<ShapedMessage>,
    pub messages_before: usize,
    pub messages_after: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ScrollRequest {
    pub session: SessionId,
    pub around: i64,
    /// 1 to 20 on each side.
    pub window: usize,
    pub current: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScrollResult {
    pub success: bool,
    pub mode: &'static str,
    pub session_id: String,
    pub around_message_id: i64,
    pub session_meta: SessionMeta,
    pub window: usize,
    pub messages: Vec<ShapedMessage>,
    pub messages_before: usize,
    pub messages_after: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionMeta {
    pub when: String,
    pub source: Option<String>,
    pub model: Option<String>,
    pub title: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadSessionResult {
    pub success: bool,
    pub mode: &'static str,
    pub session_id: String,
    pub session_meta: SessionMeta,
    pub message_count: usize,
    pub truncated: bool,
    pub messages: Vec<ShapedMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BrowseResult {
    pub success: bool,
    pub mode: &'static str,
    pub results: Vec<BrowsedSession>,
    pub count: usize,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BrowsedSession {
    pub session_id: String,
    pub title: Option<String>,
    pub source: String,
    pub started_at: f64,
    pub last_active: f64,
    pub message_count: i64,
    pub preview: String,
}

impl Store {
    /// Past conversations that match a query, each with the matching passage, its beginning and its
    /// end.
    pub async fn discover(&self, request: DiscoverRequest) -> Result<DiscoverResult, StoreError> {
        self.read("searching conversations", move |conn, layout| {
            discover(conn, layout, &request)
        })
        .await
    }

    /// The messages around one message.
    pub async fn scroll(&self, request: ScrollRequest) -> Result<ScrollResult, StoreError> {
        self.read("scrolling in a conversation", move |conn, _| {
            scroll(conn, &request)
        })
        .await
    }

    /// A whole conversation, or the beginning and the end of a long one.
    pub async fn read_session(&self, id: &SessionId) -> Result<ReadSessionResult, StoreError> {
        let id = id.as_str().to_owned();
        self.read("reading a conversation", move |conn, _| {
            read_session(conn, &id)
        })
        .await
    }

    /// The most recently active conversations.
    pub async fn browse(
        &self,
        limit: usize,
        current: Option<SessionId>,
    ) -> Result<BrowseResult, StoreError> {
        self.read("browsing conversations", move |conn, layout| {
            browse(conn, layout, limit, current.as_ref())
        })
        .await
    }
}

fn hidden() -> Vec<String> {
    HIDDEN.iter().map(|source| (*source).to_owned()).collect()
}

fn discover(
    conn: &Connection,
    layout: &SchemaLayout,
    request: &DiscoverRequest,
) -> Result<DiscoverResult, DbError> {
    let limit = request.limit.clamp(1, 10);
    let current_root = match &request.current {
        Some(id) => Some(lineage::root(conn, id.as_str())?),
        None => None,
    };
    let clean = clean_query(&request.query);
    let options = SearchOptions {
        roles: if request.roles.is_empty() {
            vec!["user".to_owned(), "assistant".to_owned()]
        } else {
            request.roles.clone()
        },
        exclude_sources: hidden(),
        sort: request.sort,
        limit: MAX_HITS,
        ..SearchOptions::default()
    };
    let mut hits = search(conn, layout, &clean, &options)?;
    hits.sort_by_key(|hit| hit.source == DEMOTED);
    let mut roots = HashSet::new();
    let mut results = Vec::new();
    if let Some((root, entry)) = by_title(conn, &request.query, current_root.as_deref())? {
        roots.insert(root);
        results.push(entry);
    }
    let mut known: HashMap<String, String> = HashMap::new();
    let mut chosen = Vec::new();
    let mut chosen_roots = Vec::new();
    for hit in hits {
        if roots.len() >= limit {
            break;
        }
        let root = match known.get(&hit.session_id) {
            Some(root) => root.clone(),
            None => lineage::root(conn, &hit.session_id)?,
        };
        known.insert(hit.session_id.clone(), root.clone());
        if current_root.as_ref() == Some(&root) || !roots.insert(root.clone()) {
            continue;
        }
        chosen.push(hit);
        chosen_roots.push(root);
    }
    fill_snippets(conn, layout, &clean, &mut chosen)?;
    for (hit, root) in chosen.into_iter().zip(chosen_roots) {
        results.push(discovered_session(conn, hit, root)?);
    }
    let nothing = results.is_empty();
    Ok(DiscoverResult {
        success: true,
        mode: "discover",
        query: request.query.clone(),
        count: results.len(),
        sessions_searched: (!nothing).then_some(roots.len()),
        message: nothing.then(|| "No conversation matches.".to_owned()),
        results,
    })
}

fn discovered_session(
    conn: &Connection,
    hit: SearchHit,
    root: String,
) -> Result<DiscoveredSession, DbError> {
    let view = anchor_window(conn, &hit.session_id, hit.id)?;
    let meta = resolve::session(conn, &root)?;
    let text = |name: &str| {
        meta.as_ref()
            .and_then(|meta| meta.text(name))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let started = meta.as_ref().and_then(|meta| meta.number("started_at"));
    Ok(DiscoveredSession {
        parent_session_id: (root != hit.session_id).then_some(root),
        session_id: hit.session_id,
        when: when(Some(started.unwrap_or(hit.session_started))),
        source: text("source").unwrap_or(hit.source),
        model: text("model")
            .or(hit.model)
            .unwrap_or_else(|| "unknown".to_owned()),
        title: text("title"),
        matched_role: hit.role,
        match_message_id: Some(hit.id),
        snippet: hit.snippet,
        bookend_start: shape(&view.start, None),
        messages: shape(&view.window, Some(hit.id)),
        bookend_end: shape(&view.end, None),
        messages_before: view.before,
        messages_after: view.after,
    })
}

/// A session whose title is the query.
fn by_title(
    conn: &Connection,
    query: &str,
    current_root: Option<&str>,
) -> Result<Option<(String, DiscoveredSession)>, DbError> {
    let title = query.trim().trim_matches(['`', '\'', '"']);
    if title.is_empty() {
        return Ok(None);
    }
    let Some(id) = resolve::by_title(conn, title)? else {
        return Ok(None);
    };
    let root = lineage::root(conn, &id)?;
    let Some(meta) = resolve::session(conn, &root)? else {
        return Ok(None);
    };
    if current_root == Some(root.as_str())
        || meta.text("source").is_some_and(|it| HIDDEN.contains(&it))
    {
        return Ok(None);
    }
    let anchor: Option<i64> = conn
        .prepare_cached(
            "SELECT id FROM messages WHERE session_id = ?1 AND active = 1 ORDER BY id LIMIT 1",
        )?
        .query_row([&id], |row| row.get(0))
        .optional()?;
    let view = match anchor {
        Some(anchor) => anchor_window(conn, &id, anchor)?,
        None => AnchorWindow::default(),
    };
    let title = meta.text("title").unwrap_or(title).to_owned();
    let entry = DiscoveredSession {
        session_id: id.clone(),
        when: when(meta.number("started_at")),
        source: meta.text("source").unwrap_or("unknown").to_owned(),
        model: meta.text("model").unwrap_or("unknown").to_owned(),
        snippet: format!("The title matches: {title}"),
        title: Some(title),
        matched_role: "session_title".to_owned(),
        match_message_id: anchor,
        bookend_start: shape(&view.start, None),
        messages: shape(&view.window, anchor),
        bookend_end: shape(&view.end, None),
        messages_before: view.before,
        messages_after: view.after,
        parent_session_id: (root != id).then(|| root.clone()),
    };
    Ok(Some((root, entry)))
}

fn scroll(conn: &Connection, request: &ScrollRequest) -> Result<ScrollResult, DbError> {
    let window = request.window.clamp(1, 20);
    let mut id = request.session.as_str().to_owned();
    let root = lineage::root(conn, &id)?;
    if let Some(current) = &request.current
        && lineage::root(conn, current.as_str())? == root
    {
        return Err(StoreError::Invalid(
            "that message belongs to the running conversation, which you can see already"
                .to_owned(),
        )
        .into());
    }
    let Some(mut meta) = resolve::session(conn, &id)? else {
        return Err(StoreError::NotFound(id).into());
    };
    let mut warning = None;
    let owner: Option<String> = conn
        .prepare_cached("SELECT session_id FROM messages WHERE id = ?1")?
        .query_row([request.around], |row| row.get(0))
        .optional()?;
    let elsewhere = || {
        StoreError::Invalid(format!(
            "message {} is not in session {}",
            request.around, request.session
        ))
    };
    let owner = owner.ok_or_else(elsewhere)?;
    if owner != id {
        if lineage::root(conn, &owner)? != root {
            return Err(elsewhere().into());
        }
        warning = Some(format!(
            "message {} is in {owner}, a descendant of {id}; showing that session",
            request.around
        ));
        meta = resolve::session(conn, &owner)?.unwrap_or(meta);
        id = owner;
    }
    let (messages, before, after) = around(conn, &id, request.around, window as i64)?;
    Ok(ScrollResult {
        success: true,
        mode: "scroll",
        around_message_id: request.around,
        session_meta: session_meta(&meta),
        session_id: id,
        window,
        messages: shape(&messages, Some(request.around)),
        messages_before: before,
        messages_after: after,
        warning,
    })
}

fn read_session(conn: &Connection, id: &str) -> Result<ReadSessionResult, DbError> {
    let Some(meta) = resolve::session(conn, id)? else {
        return Err(StoreError::NotFound(id.to_owned()).into());
    };
    let all = shape(&resolve::messages(conn, id, false)?, None);
    let total = all.len();
    let truncated = total > READ_HEAD + READ_TAIL;
    let messages = if truncated {
        let mut parts = all[..READ_HEAD].to_vec();
        parts.extend_from_slice(&all[total - READ_TAIL..]);
        parts
    } else {
        all
    };
    Ok(ReadSessionResult {
        success: true,
        mode: "read",
        session_id: id.to_owned(),
        session_meta: session_meta(&meta),
        message_count: total,
        truncated,
        messages,
        message: truncated.then(|| {
            format!(
                "{total} messages: these are the first {READ_HEAD} and the last {READ_TAIL}. \
                 Pass around_message_id with one of the ids to see the middle."
            )
        }),
    })
}

fn browse(
    conn: &Connection,
    layout: &SchemaLayout,
    limit: usize,
    current: Option<&SessionId>,
) -> Result<BrowseResult, DbError> {
    let current_root = match current {
        Some(id) => Some(lineage::root(conn, id.as_str())?),
        None => None,
    };
    let filter = ListFilter {
        exclude_sources: hidden(),
        order: SessionOrder::LastActive,
        limit: limit + 5,
        ..ListFilter::default()
    };
    let results: Vec<BrowsedSession> = list(conn, layout, &filter)?
        .into_iter()
        .filter(|session| session.parent_session_id.is_none())
        .filter(|session| {
            let root = session.lineage_root_id.as_deref().unwrap_or(&session.id);
            current_root.as_deref() != Some(root)
        })
        .take(limit)
        .map(|session| BrowsedSession {
            session_id: session.id,
            title: session.title.filter(|title| !title.is_empty()),
            source: session.source,
            started_at: session.started_at,
            last_active: session.last_active,
            message_count: session.message_count,
            preview: session.preview,
        })
        .collect();
    Ok(BrowseResult {
        success: true,
        mode: "browse",
        count: results.len(),
        message: format!(
            "The {} newest conversations. Pass query to search in all of them, or session_id to read one.",
            results.len()
        ),
        results,
    })
}

fn session_meta(session: &SessionRecord) -> SessionMeta {
    let text = |name: &str| session.text(name).map(str::to_owned);
    SessionMeta {
        when: when(session.number("started_at")),
        source: text("source"),
        model: text("model"),
        title: text("title"),
    }
}

fn when(seconds: Option<f64>) -> String {
    seconds
        .and_then(|seconds| Local.timestamp_opt(seconds.floor() as i64, 0).single())
        .map_or_else(
            || "unknown".to_owned(),
            |time| time.format("%B %d, %Y at %I:%M %p").to_string(),
        )
}
