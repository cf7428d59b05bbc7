//! Full-text search over messages.

mod broad;
mod query;
mod recall;
mod window;

use std::collections::{HashMap, HashSet};

use hermes_core::store::StoreError;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;

pub use recall::{DiscoverRequest, ScrollRequest};

use super::Store;
use super::connection::DbError;
use super::layout::SchemaLayout;
use super::resolve::like_escape;
use query::{SearchPlan, alternatives, clean_query, plan, quote_words};

/// Ranking evaluates every match. For a word with more matches than this, only the newest are
/// ranked: such a word is not distinctive, and the search stays fast on a large history.
const MAX_RANKED: usize = 2000;

const COLUMNS: &str = "m.id, m.session_id, m.role, '' AS snippet, m.timestamp, m.tool_name, \
     s.source, s.model, s.started_at";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchOrder {
    #[default]
    Relevance,
    Newest,
    Oldest,
}

#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Empty: every role.
    pub roles: Vec<String>,
    /// Empty: every source.
    pub sources: Vec<String>,
    pub exclude_sources: Vec<String>,
    /// Include messages that were rewound.
    pub include_rewound: bool,
    pub sort: SearchOrder,
    pub limit: usize,
    pub offset: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            sources: Vec::new(),
            exclude_sources: Vec::new(),
            include_rewound: false,
            sort: SearchOrder::Relevance,
            limit: 20,
            offset: 0,
        }
    }
}

/// A message that matched. The match is between `>>>` and `<<<`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchHit {
    pub id: i64,
    pub session_id: String,
    pub role: String,
    pub snippet: String,
    pub timestamp: f64,
    pub tool_name: Option<String>,
    pub source: String,
    pub model: Option<String>,
    pub session_started: f64,
}

impl Store {
    /// Messages that match `query`, best first. A query without words matches nothing.
    pub async fn search(
        &self,
        query: &str,
        options: SearchOptions,
    ) -> Result<Vec<SearchHit>, StoreError> {
        let query = clean_query(query);
        self.read("searching messages", move |conn, layout| {
            let mut hits = search(conn, layout, &query, &options)?;
            fill_snippets(conn, layout, &query, &mut hits)?;
            Ok(hits)
        })
        .await
    }
}

/// Searches for a cleaned query. Snippets are left to [`fill_snippets`] if an index was used: a
/// caller that drops most hits need not read their texts.
fn search(
    conn: &Connection,
    layout: &SchemaLayout,
    clean: &str,
    options: &SearchOptions,
) -> Result<Vec<SearchHit>, DbError> {
    if clean.is_empty() {
        return Ok(Vec::new());
    }
    match index_for(conn, layout, clean)? {
        Ok(Some((table, query))) => match ranked(conn, layout, table, &query, options) {
            Err(DbError::Sql(error)) if is_syntax(&error) => {
                let quoted = quote_words(&query);
                if quoted.is_empty() {
                    return Ok(Vec::new());
                }
                ranked(conn, layout, table, &quoted, options)
            }
            other => other,
        },
        Ok(None) => Ok(Vec::new()),
        Err(words) => substrings(conn, layout, &words, options),
    }
}

/// The index to use and its query; `Err`: the words to search for without an index.
type IndexChoice = Result<Option<(&'static str, String)>, Vec<String>>;

fn index_for(
    conn: &Connection,
    layout: &SchemaLayout,
    clean: &str,
) -> Result<IndexChoice, DbError> {
    const WORDS: &str = "messages_fts";
    const TRIGRAMS: &str = "messages_fts_trigram";
    Ok(match plan(clean) {
        SearchPlan::Words(_) if !layout.has(WORDS) => Ok(None),
        SearchPlan::Words(query) => Ok(Some((WORDS, broad::expand(conn, &query)?))),
        SearchPlan::Trigrams { query, .. } if layout.has(TRIGRAMS) => Ok(Some((TRIGRAMS, query))),
        SearchPlan::Trigrams { words, .. } | SearchPlan::Substrings(words) => Err(words),
    })
}

fn is_syntax(error: &rusqlite::Error) -> bool {
    let text = error.to_string();
    [
        "fts5: ",
        "unterminated string",
        "no such column",
        "unknown special query",
    ]
    .iter()
    .any(|mark| text.contains(mark))
        && !text.contains("corrupt")
}

fn ranked(
    conn: &Connection,
    layout: &SchemaLayout,
    table: &str,
    query: &str,
    options: &SearchOptions,
) -> Result<Vec<SearchHit>, DbError> {
    if !matches_too_many(conn, table, query)? {
        return rank_all(conn, layout, table, query, options);
    }
    // Of alternatives, the rare ones are distinctive: they are ranked in full, followed by matches
    // of the common ones.
    let parts = alternatives(query);
    let mut rare = Vec::new();
    for part in &parts {
        if !matches_too_many(conn, table, part)? {
            rare.push(part.as_str());
        }
    }
    if rare.is_empty() || options.sort != SearchOrder::Relevance {
        return rank_newest(conn, layout, table, query, options);
    }
    let wanted = options.offset + options.limit;
    let all = SearchOptions {
        limit: wanted,
        offset: 0,
        ..options.clone()
    };
    let mut hits = rank_all(conn, layout, table, &rare.join(" OR "), &all)?;
    if hits.len() < wanted && rare.len() < parts.len() {
        let seen: HashSet<i64> = hits.iter().map(|hit| hit.id).collect();
        let more = rank_newest(conn, layout, table, query, &all)?;
        hits.extend(more.into_iter().filter(|hit| !seen.contains(&hit.id)));
    }
    Ok(hits
        .into_iter()
        .skip(options.offset)
        .take(options.limit)
        .collect())
}

/// Ranks every match.
fn rank_all(
    conn: &Connection,
    layout: &SchemaLayout,
    table: &str,
    query: &str,
    options: &SearchOptions,
) -> Result<Vec<SearchHit>, DbError> {
    let (filter, filter_params) = filters(options);
    let order = match options.sort {
        SearchOrder::Relevance => format!("{table}.rank"),
        SearchOrder::Newest => format!("m.timestamp DESC, {table}.rank"),
        SearchOrder::Oldest => format!("m.timestamp, {table}.rank"),
    };
    // The index table must be the outer loop: then rows come in rank order, and are fetched only
    // until enough of them passed the filter.
    let sql = format!(
        "SELECT {COLUMNS} FROM {table} CROSS JOIN messages m ON m.id = {table}.rowid
         CROSS JOIN sessions s ON s.id = m.session_id
         WHERE {table} MATCH ? AND {filter}{} ORDER BY {order} LIMIT ? OFFSET ?",
        visible_rows(layout)
    );
    let mut params: Vec<SqlValue> = vec![query.to_owned().into()];
    params.extend(filter_params);
    params.push((options.limit as i64).into());
    params.push((options.offset as i64).into());
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(params), hit)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Ranks the newest matches (or the oldest, if requested) and fetches rows in that order until
/// enough of them passed the filter.
fn rank_newest(
    conn: &Connection,
    layout: &SchemaLayout,
    table: &str,
    query: &str,
    options: &SearchOptions,
) -> Result<Vec<SearchHit>, DbError> {
    let direction = match options.sort {
        SearchOrder::Relevance | SearchOrder::Newest => "DESC",
        SearchOrder::Oldest => "ASC",
    };
    let score = match options.sort {
        SearchOrder::Relevance => "rank",
        SearchOrder::Newest | SearchOrder::Oldest => "0.0",
    };
    let sql = format!(
        "SELECT rowid, {score} FROM {table} WHERE {table} MATCH ?1
         ORDER BY rowid {direction} LIMIT {MAX_RANKED}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let matches = statement.query_map([query], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut matches: Vec<(i64, f64)> = matches.collect::<Result<_, _>>()?;
    matches.sort_by(|one, two| one.1.total_cmp(&two.1));
    let (filter, filter_params) = filters(options);
    let sql = format!(
        "SELECT {COLUMNS} FROM messages m JOIN sessions s ON s.id = m.session_id
         WHERE m.id = ? AND {filter}{}",
        visible_rows(layout)
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut skip = options.offset;
    let mut hits = Vec::new();
    for (id, _) in matches {
        if hits.len() >= options.limit {
            break;
        }
        let params = std::iter::once(SqlValue::from(id)).chain(filter_params.iter().cloned());
        let found = statement
            .query_row(rusqlite::params_from_iter(params), hit)
            .optional()?;
        match found {
            Some(_) if skip > 0 => skip -= 1,
            Some(found) => hits.push(found),
            None => {}
        }
    }
    Ok(hits)
}

/// Adds the snippets that an index search left out.
fn fill_snippets(
    conn: &Connection,
    layout: &SchemaLayout,
    clean: &str,
    hits: &mut [SearchHit],
) -> Result<(), DbError> {
    let Ok(Some((table, query))) = index_for(conn, layout, clean)? else {
        return Ok(());
    };
    let Some(lowest) = hits.iter().map(|hit| hit.id).min() else {
        return Ok(());
    };
    let snippet =
        format!("SELECT rowid, snippet({table}, -1, '>>>', '<<<', '...', 40) FROM {table}");
    // Evaluating a prefix is slow, so it is done once, in a pass over the matches (the plus sign
    // keeps SQLite from evaluating it per row). Everything else is faster row by row.
    let single_pass = query.contains('*');
    let sql = if single_pass {
        let ids: Vec<String> = hits.iter().map(|hit| hit.id.to_string()).collect();
        let ids = ids.join(", ");
        format!("{snippet} WHERE {table} MATCH ?1 AND rowid >= ?2 AND +rowid IN ({ids})")
    } else {
        format!("{snippet} WHERE {table} MATCH ?1 AND rowid = ?2")
    };
    let starts = if single_pass {
        vec![lowest]
    } else {
        hits.iter().map(|hit| hit.id).collect()
    };
    let read = |query: &str| -> Result<HashMap<i64, String>, rusqlite::Error> {
        let mut statement = conn.prepare(&sql)?;
        let mut snippets = HashMap::new();
        for start in &starts {
            let mut rows = statement.query(rusqlite::params![query, start])?;
            while let Some(row) = rows.next()? {
                snippets.insert(row.get(0)?, row.get(1)?);
            }
        }
        Ok(snippets)
    };
    let mut snippets = match read(&query) {
        Err(error) if is_syntax(&error) => read(&quote_words(&query))?,
        other => other?,
    };
    for hit in hits {
        if let Some(snippet) = snippets.remove(&hit.id) {
            hit.snippet = snippet;
        }
    }
    Ok(())
}

fn matches_too_many(conn: &Connection, table: &str, query: &str) -> Result<bool, DbError> {
    let sql = format!(
        "SELECT COUNT(*) FROM (SELECT rowid FROM {table} WHERE {table} MATCH ?1 LIMIT {})",
        MAX_RANKED + 1
    );
    let count: i64 = conn
        .prepare_cached(&sql)?
        .query_row([query], |row| row.get(0))?;
    Ok(count > MAX_RANKED as i64)
}

/// Conditions on `m` and `s`.
fn filters(options: &SearchOptions) -> (String, Vec<SqlValue>) {
    let mut clauses = vec!["1".to_owned()];
    let mut params: Vec<SqlValue> = Vec::new();
    if !options.include_rewound {
        clauses.push("(m.active = 1 OR m.compacted = 1)".to_owned());
    }
    let lists = [
        ("m.role IN", &options.roles),
        ("s.source IN", &options.sources),
        ("s.source NOT IN", &options.exclude_sources),
    ];
    for (what, values) in lists {
        if !values.is_empty() {
            clauses.push(format!("{what} ({})", vec!["?"; values.len()].join(", ")));
            params.extend(values.iter().cloned().map(SqlValue::from));
        }
    }
    (clauses.join(" AND "), params)
}

fn visible_rows(layout: &SchemaLayout) -> &'static str {
    if layout.has_column("messages", "display_kind") {
        " AND m.display_kind IS NOT 'hidden'"
    } else {
        ""
    }
}

fn substrings(
    conn: &Connection,
    layout: &SchemaLayout,
    words: &[String],
    options: &SearchOptions,
) -> Result<Vec<SearchHit>, DbError> {
    let first = words.first().cloned().unwrap_or_default();
    let mut params: Vec<SqlValue> = vec![first.into()];
    let mut clauses = Vec::new();
    for word in words {
        clauses.push(
            "(m.content LIKE ? ESCAPE '\\' OR m.tool_name LIKE ? ESCAPE '\\' \
              OR m.tool_calls LIKE ? ESCAPE '\\')",
        );
        let pattern = format!("%{}%", like_escape(word));
        params.extend(std::iter::repeat_n(SqlValue::from(pattern), 3));
    }
    let (filter, filter_params) = filters(options);
    params.extend(filter_params);
    params.push((options.limit as i64).into());
    params.push((options.offset as i64).into());
    let order = match options.sort {
        SearchOrder::Oldest => "m.timestamp, m.id",
        SearchOrder::Relevance | SearchOrder::Newest => "m.timestamp DESC, m.id DESC",
    };
    let sql = format!(
        "SELECT m.id, m.session_id, m.role,
                substr(m.content, max(1, instr(m.content, ?) - 40), 120) AS snippet,
                m.timestamp, m.tool_name, s.source, s.model, s.started_at
         FROM messages m JOIN sessions s ON s.id = m.session_id
         WHERE ({}) AND {filter}{} ORDER BY {order} LIMIT ? OFFSET ?",
        clauses.join(" OR "),
        visible_rows(layout)
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(params), hit)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn hit(row: &Row<'_>) -> Result<SearchHit, rusqlite::Error> {
    Ok(SearchHit {
        id: row.get(0)?,
        session_id: row.get(1)?,
        role: row.get(2)?,
        snippet: super::encode::lenient_text(row, "snippet")?.unwrap_or_default(),
        timestamp: row.get(4)?,
        tool_name: row.get(5)?,
        source: row.get(6)?,
        model: row.get(7)?,
        session_started: row.get(8)?,
    })
}
