//! Full-text search over messages.

mod query;
mod recall;

use hermes_core::store::StoreError;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row};
use serde::Serialize;

pub use query::clean_query;
pub use recall::{
    Browsed, Browsing, DiscoverRequest, Discovered, Discovery, ReadOut, Scroll, ScrollRequest,
    SessionMeta, ShapedMessage,
};

use super::Store;
use super::connection::Fault;
use super::layout::Layout;
use super::resolve::like_escape;
use query::{Plan, plan, quote_words};

/// Ranking looks at every match. Beyond this many only the newest are ranked: a word that is
/// in so many messages says little, and the search stays fast on a large history.
const RANKED: usize = 2000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
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
    /// Also messages that were taken back.
    pub include_rewound: bool,
    pub sort: Sort,
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
            sort: Sort::Relevance,
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
            search(conn, layout, &query, &options, true)
        })
        .await
    }
}

/// Searches for a cleaned query. Without `snippets` the snippet of each hit is empty, which
/// saves reading the texts.
fn search(
    conn: &Connection,
    layout: &Layout,
    clean: &str,
    options: &SearchOptions,
    snippets: bool,
) -> Result<Vec<SearchHit>, Fault> {
    if clean.is_empty() {
        return Ok(Vec::new());
    }
    match plan(clean) {
        Plan::Words(query) => indexed(conn, layout, "messages_fts", &query, options, snippets),
        Plan::Trigrams { query, words } => {
            if layout.has("messages_fts_trigram") {
                indexed(
                    conn,
                    layout,
                    "messages_fts_trigram",
                    &query,
                    options,
                    snippets,
                )
            } else {
                substrings(conn, layout, &words, options)
            }
        }
        Plan::Substrings(words) => substrings(conn, layout, &words, options),
    }
}

fn indexed(
    conn: &Connection,
    layout: &Layout,
    table: &str,
    query: &str,
    options: &SearchOptions,
    snippets: bool,
) -> Result<Vec<SearchHit>, Fault> {
    if !layout.has(table) {
        return Ok(Vec::new());
    }
    match ranked(conn, layout, table, query, options, snippets) {
        Err(Fault::Sql(error)) if is_syntax(&error) => {
            let quoted = quote_words(query);
            if quoted.is_empty() {
                return Ok(Vec::new());
            }
            ranked(conn, layout, table, &quoted, options, snippets)
        }
        other => other,
    }
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
    layout: &Layout,
    table: &str,
    query: &str,
    options: &SearchOptions,
    snippets: bool,
) -> Result<Vec<SearchHit>, Fault> {
    let (filter, filter_params) = filters(options);
    let snippet = if snippets {
        format!("snippet({table}, -1, '>>>', '<<<', '...', 40)")
    } else {
        "''".to_owned()
    };
    let mut params: Vec<SqlValue> = vec![query.to_owned().into()];
    // The index table must be the outer loop: then ranking is its own business and rows are
    // fetched in rank order only until enough passed the filter.
    let narrowed = if exceeds(conn, table, query)? {
        params.push(query.to_owned().into());
        format!(
            "AND {table}.rowid IN (SELECT rowid FROM {table} WHERE {table} MATCH ?
                ORDER BY rowid DESC LIMIT {RANKED})"
        )
    } else {
        String::new()
    };
    let order = match options.sort {
        Sort::Relevance => format!("{table}.rank"),
        Sort::Newest => format!("m.timestamp DESC, {table}.rank"),
        Sort::Oldest => format!("m.timestamp, {table}.rank"),
    };
    let sql = format!(
        "SELECT m.id, m.session_id, m.role, {snippet} AS snippet, m.timestamp, m.tool_name,
                s.source, s.model, s.started_at
         FROM {table} CROSS JOIN messages m ON m.id = {table}.rowid
         CROSS JOIN sessions s ON s.id = m.session_id
         WHERE {table} MATCH ? {narrowed} AND {filter}{}
         ORDER BY {order} LIMIT ? OFFSET ?",
        shown(layout)
    );
    params.extend(filter_params);
    params.push((options.limit as i64).into());
    params.push((options.offset as i64).into());
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(params), hit)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn exceeds(conn: &Connection, table: &str, query: &str) -> Result<bool, Fault> {
    let sql = format!(
        "SELECT COUNT(*) FROM (SELECT rowid FROM {table} WHERE {table} MATCH ?1 LIMIT {})",
        RANKED + 1
    );
    let count: i64 = conn
        .prepare_cached(&sql)?
        .query_row([query], |row| row.get(0))?;
    Ok(count > RANKED as i64)
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

fn shown(layout: &Layout) -> &'static str {
    if layout.has_column("messages", "display_kind") {
        " AND m.display_kind IS NOT 'hidden'"
    } else {
        ""
    }
}

fn substrings(
    conn: &Connection,
    layout: &Layout,
    words: &[String],
    options: &SearchOptions,
) -> Result<Vec<SearchHit>, Fault> {
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
        Sort::Oldest => "m.timestamp, m.id",
        Sort::Relevance | Sort::Newest => "m.timestamp DESC, m.id DESC",
    };
    let sql = format!(
        "SELECT m.id, m.session_id, m.role,
                substr(m.content, max(1, instr(m.content, ?) - 40), 120) AS snippet,
                m.timestamp, m.tool_name, s.source, s.model, s.started_at
         FROM messages m JOIN sessions s ON s.id = m.session_id
         WHERE ({}) AND {filter}{} ORDER BY {order} LIMIT ? OFFSET ?",
        clauses.join(" OR "),
        shown(layout)
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(params), hit)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The snippet of one hit.
fn snippet_of(
    conn: &Connection,
    layout: &Layout,
    clean: &str,
    id: i64,
) -> Result<Option<String>, Fault> {
    let (table, query) = match plan(clean) {
        Plan::Words(query) => ("messages_fts", query),
        Plan::Trigrams { query, .. } => ("messages_fts_trigram", query),
        Plan::Substrings(_) => return Ok(None),
    };
    if !layout.has(table) {
        return Ok(None);
    }
    let sql = format!(
        "SELECT snippet({table}, -1, '>>>', '<<<', '...', 40) FROM {table}
         WHERE {table} MATCH ?1 AND rowid = ?2"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    for query in [query.clone(), quote_words(&query)] {
        match statement.query_row(rusqlite::params![query, id], |row| row.get(0)) {
            Ok(snippet) => return Ok(Some(snippet)),
            Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(None),
            Err(error) if is_syntax(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
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
