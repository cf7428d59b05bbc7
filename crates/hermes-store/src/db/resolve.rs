//! Resolving what a person typed to a session.

use std::collections::HashSet;

use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _};

use super::Store;
use super::connection::DbError;
use super::lineage;
use super::rows::{MessageRecord, SessionRecord};

const MAX_CANDIDATES: usize = 8;
/// How many sessions without a title are searched by their first words, newest first.
const UNTITLED_SEARCHED: usize = 5000;
/// The same for sessions with a title, whose first words people rarely know.
const TITLED_SEARCHED: usize = 200;

impl Store {
    /// The session that `reference` names: an id, the beginning of exactly one id, a title
    /// (of `title`, `title #2`, … the newest), or the beginning of what lists show as its title.
    pub async fn resolve(&self, reference: &str) -> Result<SessionId, StoreError> {
        let reference = reference.trim().to_owned();
        self.read("finding a session", move |conn, _| {
            resolve(conn, &reference).map(SessionId::from)
        })
        .await
    }

    /// Like [`Store::resolve`], then follows compression to the session to resume.
    pub async fn resolve_for_resume(&self, reference: &str) -> Result<SessionId, StoreError> {
        let reference = reference.trim().to_owned();
        self.read("finding a session", move |conn, _| {
            let id = resolve(conn, &reference)?;
            lineage::resume_target(conn, &id).map(SessionId::from)
        })
        .await
    }

    /// The whole row of the session that `reference` names.
    pub async fn get(&self, reference: &str) -> Result<SessionRecord, StoreError> {
        let reference = reference.trim().to_owned();
        self.read("reading a session", move |conn, _| {
            let id = resolve(conn, &reference)?;
            session(conn, &id)?.ok_or_else(|| StoreError::NotFound(id).into())
        })
        .await
    }

    /// The rows of a session in order. `include_inactive`: also compacted and rewound ones.
    pub async fn messages(
        &self,
        id: &SessionId,
        include_inactive: bool,
    ) -> Result<Vec<MessageRecord>, StoreError> {
        let id = id.as_str().to_owned();
        self.read("reading messages", move |conn, _| {
            messages(conn, &id, include_inactive)
        })
        .await
    }
}

pub(crate) fn session(conn: &Connection, id: &str) -> Result<Option<SessionRecord>, DbError> {
    Ok(conn
        .prepare_cached("SELECT * FROM sessions WHERE id = ?1")?
        .query_row([id], SessionRecord::read)
        .optional()?)
}

pub(crate) fn messages(
    conn: &Connection,
    id: &str,
    include_inactive: bool,
) -> Result<Vec<MessageRecord>, DbError> {
    let filter = if include_inactive {
        ""
    } else {
        " AND active = 1"
    };
    let sql = format!("SELECT * FROM messages WHERE session_id = ?1{filter} ORDER BY id");
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map([id], MessageRecord::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn resolve(conn: &Connection, reference: &str) -> Result<String, DbError> {
    if reference.is_empty() {
        return Err(StoreError::Invalid("the session id is empty".to_owned()).into());
    }
    if conn
        .prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?
        .exists([reference])?
    {
        return Ok(reference.to_owned());
    }
    let mut candidates = by_prefix(conn, reference)?;
    match (candidates.len(), candidates.pop()) {
        (1, Some(only)) => Ok(only),
        (count, last) => {
            if let Some(id) = by_title(conn, reference)? {
                return Ok(id);
            }
            candidates.extend(last);
            if count == 0 {
                candidates = by_leading_text(conn, reference)?;
                match (candidates.len(), candidates.pop()) {
                    (0, _) | (_, None) => {
                        return Err(StoreError::NotFound(reference.to_owned()).into());
                    }
                    (1, Some(only)) => return Ok(only),
                    (_, Some(last)) => candidates.push(last),
                }
            }
            Err(StoreError::Ambiguous {
                query: reference.to_owned(),
                candidates,
            }
            .into())
        }
    }
}

/// Ids are read from the index alone, because a row stores the whole prompt before most of its
/// columns. Ids begin with the time, so the last ones are the newest.
fn by_prefix(conn: &Connection, prefix: &str) -> Result<Vec<String>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT id FROM sessions WHERE id LIKE ?1 ESCAPE '\\' ORDER BY id DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(
        rusqlite::params![format!("{}%", like_escape(prefix)), MAX_CANDIDATES as i64],
        |row| row.get(0),
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The newest of `title #N`, otherwise the session with exactly this title. Titles are compared in
/// their index; rows are read only for matches.
pub(crate) fn by_title(conn: &Connection, title: &str) -> Result<Option<String>, DbError> {
    let numbered: Option<String> = conn
        .prepare_cached(
            "SELECT id FROM main.sessions WHERE rowid IN (SELECT rowid FROM main.sessions
                WHERE title IS NOT NULL AND title LIKE ?1 ESCAPE '\\')
             ORDER BY started_at DESC LIMIT 1",
        )?
        .query_row([format!("{} #%", like_escape(title))], |row| row.get(0))
        .optional()?;
    if numbered.is_some() {
        return Ok(numbered);
    }
    Ok(conn
        .prepare_cached("SELECT id FROM sessions WHERE title = ?1")?
        .query_row([title], |row| row.get(0))
        .optional()?)
}

/// Matches what lists show, also if it is cut off with an ellipsis: the beginning of a title, or
/// the first words of a session without one. If neither matches, the first words of sessions with a
/// title. At most [`MAX_CANDIDATES`], newest first.
fn by_leading_text(conn: &Connection, words: &str) -> Result<Vec<String>, DbError> {
    let wanted = normalize_text(words.trim_end_matches(['…', '.', ' ']));
    if wanted.chars().count() < 3 {
        return Ok(Vec::new());
    }
    let mut titled = HashSet::new();
    let mut found = Vec::new();
    let mut titles = conn.prepare_cached(
        "SELECT rowid, title FROM main.sessions WHERE title IS NOT NULL AND title > ''",
    )?;
    let mut rows = titles.query([])?;
    while let Some(row) = rows.next()? {
        let rowid: i64 = row.get(0)?;
        let title = super::encode::lenient_text(row, "title")?.unwrap_or_default();
        if normalize_text(&title).starts_with(&wanted) {
            found.push(rowid);
        }
        titled.insert(rowid);
    }
    let named: HashSet<i64> = found.into_iter().collect();
    let mut sessions =
        conn.prepare_cached("SELECT rowid, id FROM main.sessions ORDER BY started_at DESC")?;
    let mut rows = sessions.query([])?;
    let (mut shown, mut others) = (Vec::new(), Vec::new());
    let (mut untitled_left, mut titled_left) = (UNTITLED_SEARCHED, TITLED_SEARCHED);
    while let Some(row) = rows.next()?
        && shown.len() < MAX_CANDIDATES
    {
        let rowid: i64 = row.get(0)?;
        let id: String = row.get(1)?;
        if named.contains(&rowid) {
            shown.push(id);
            continue;
        }
        let (left, matches) = if titled.contains(&rowid) {
            (&mut titled_left, &mut others)
        } else {
            (&mut untitled_left, &mut shown)
        };
        if *left > 0 && matches.len() < MAX_CANDIDATES {
            *left -= 1;
            if first_question_starts_with(conn, &id, &wanted)? {
                matches.push(id);
            }
        }
    }
    Ok(if shown.is_empty() { others } else { shown })
}

/// Whether the first question of a session starts with `wanted`, which is normalized.
fn first_question_starts_with(conn: &Connection, id: &str, wanted: &str) -> Result<bool, DbError> {
    let mut first = conn.prepare_cached(
        "SELECT substr(content, 1, 500) AS head FROM messages
         WHERE session_id = ?1 AND role = 'user' AND content IS NOT NULL
         ORDER BY timestamp, id LIMIT 1",
    )?;
    let head: Option<Option<String>> = first
        .query_row([id], |row| super::encode::lenient_text(row, "head"))
        .optional()?;
    Ok(normalize_text(&head.flatten().unwrap_or_default()).starts_with(wanted))
}

/// Text normalized for comparison: ignores case and whitespace.
fn normalize_text(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// Text as a literal inside a LIKE pattern with `ESCAPE '\'`.
pub(crate) fn like_escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('%', "\\%")
        .replace('_', "\\_")
}
