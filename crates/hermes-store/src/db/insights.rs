//! Usage reports: tokens, cost, models and tools over the sessions of a time window.
//!
//! Sessions are summed by SQLite, messages in one pass over the newest ones. Tokens and money are known per session and model, not per
//! message, so a session counts as a whole: it belongs to the window in which it began.

use std::collections::BTreeMap;

use hermes_core::store::StoreError;
use rusqlite::{Connection, Row, named_params};
use serde::Serialize;
use serde_json::Value;

use super::Store;
use super::connection::DbError;
use super::layout::SchemaLayout;

/// Which sessions are counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageWindow {
    /// Only sessions that began at this time (epoch seconds) or later.
    pub since: Option<f64>,
    pub source: Option<String>,
    pub session: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenTotals {
    /// Without tokens read from the provider's cache.
    pub input: i64,
    pub output: i64,
    pub cache_read: i64,
    pub cache_write: i64,
    /// Part of the output.
    pub reasoning: i64,
    pub total: i64,
}

/// Cost by how it is known. A kind that does not occur is `None`, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CostTotals {
    /// Reported by providers.
    pub actual_usd: Option<f64>,
    /// From price lists.
    pub estimated_usd: Option<f64>,
    /// The two above together.
    pub known_usd: Option<f64>,
    /// Calls covered by a subscription.
    pub included_calls: i64,
    /// Calls of unknown price, missing from the sums above.
    pub unknown_calls: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelUse {
    pub model: String,
    pub provider: String,
    pub sessions: i64,
    pub calls: i64,
    pub tokens: TokenTotals,
    pub cost: CostTotals,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolUse {
    pub tool: String,
    pub calls: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillUse {
    pub skill: String,
    pub loads: i64,
    pub edits: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceUse {
    pub source: String,
    pub sessions: i64,
    pub messages: i64,
    pub tokens: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionUse {
    pub id: String,
    pub title: Option<String>,
    pub started_at: f64,
    pub messages: i64,
    pub tokens: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MessageCounts {
    pub total: i64,
    pub user: i64,
    pub assistant: i64,
    pub tool: i64,
}

/// Activity in the quarter of an hour that begins at `start` (epoch seconds). Time zones differ by
/// multiples of a quarter, so the report can be shown in any zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarterHour {
    pub start: i64,
    pub messages: i64,
    /// Sessions that began then, and their tokens.
    pub sessions: i64,
    pub tokens: i64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Insights {
    pub sessions: i64,
    pub messages: MessageCounts,
    pub tool_calls: i64,
    pub calls: i64,
    pub tokens: TokenTotals,
    /// The part of `tokens` used by auxiliary calls: titles, compression, vision.
    pub side_tokens: i64,
    pub cost: CostTotals,
    /// Most tokens first.
    pub models: Vec<ModelUse>,
    pub tools: Vec<ToolUse>,
    pub skills: Vec<SkillUse>,
    pub sources: Vec<SourceUse>,
    pub top_sessions: Vec<SessionUse>,
    /// Ordered by time; empty quarters are omitted.
    pub quarters: Vec<QuarterHour>,
    /// Older sessions beyond the read limit: only their totals are counted, so roles, tools and
    /// skills lack their messages, and everything is attributed to the start of the session.
    pub unread: UnreadSessions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnreadSessions {
    pub sessions: i64,
    pub messages: i64,
}

const TOP_SESSIONS: usize = 5;

/// Maximum number of messages read for a report. Beyond that, session totals are used.
const MAX_MESSAGES_READ: i64 = 100_000;

impl Store {
    pub async fn insights(&self, window: UsageWindow) -> Result<Insights, StoreError> {
        self.read("adding up usage", move |conn, layout| {
            collect(conn, layout, &window)
        })
        .await
    }
}

/// The sessions of the window are read once, because a row stores the whole system prompt before
/// these columns.
const CHOSEN: &str = "temp.chosen_sessions";

/// The columns of a session that reports need.
const COPIED: [&str; 18] = [
    "source",
    "title",
    "model",
    "billing_provider",
    "started_at",
    "message_count",
    "tool_call_count",
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
    "cost_status",
    "cost_source",
    "ended_at",
];

const SESSION_TOKENS: &str = "COALESCE(s.input_tokens, 0) + COALESCE(s.output_tokens, 0)
     + COALESCE(s.cache_read_tokens, 0) + COALESCE(s.cache_write_tokens, 0)";

fn collect(
    conn: &Connection,
    layout: &SchemaLayout,
    window: &UsageWindow,
) -> Result<Insights, DbError> {
    copy_window_sessions(conn, window)?;
    let summed = summarize(conn, layout);
    conn.execute_batch(&format!("DROP TABLE {CHOSEN}"))?;
    summed
}

/// Copies the needed columns of the window's sessions.
fn copy_window_sessions(conn: &Connection, window: &UsageWindow) -> Result<(), DbError> {
    let columns = COPIED.join(", ");
    conn.execute_batch(&format!(
        "DROP TABLE IF EXISTS {CHOSEN}; CREATE TABLE {CHOSEN} (id TEXT PRIMARY KEY, {columns})"
    ))?;
    conn.prepare(&format!(
        "INSERT INTO {CHOSEN} SELECT id, {columns} FROM sessions
         WHERE started_at >= :since AND (:source IS NULL OR source = :source)
            AND (:session IS NULL OR id = :session)"
    ))?
    .execute(named_params! {
        ":since": window.since.unwrap_or(0.0),
        ":source": window.source,
        ":session": window.session,
    })?;
    Ok(())
}

fn summarize(conn: &Connection, layout: &SchemaLayout) -> Result<Insights, DbError> {
    let query = ReportQuery { conn };
    let mut all = Insights::default();
    models(&query, layout, &mut all)?;
    sources(&query, &mut all)?;
    all.top_sessions = query.rows(
        &format!(
            "SELECT s.id, s.title, s.started_at, COALESCE(s.message_count, 0), {SESSION_TOKENS} AS tokens
             FROM {CHOSEN} s WHERE {SESSION_TOKENS} > 0
             ORDER BY tokens DESC, s.id LIMIT {TOP_SESSIONS}"
        ),
        |row| {
            Ok(SessionUse {
                id: row.get(0)?,
                title: row.get(1)?,
                started_at: row.get(2)?,
                messages: row.get(3)?,
                tokens: row.get(4)?,
            })
        },
    )?;
    let mut quarters = Quarters::default();
    count_session_starts(&query, &mut quarters)?;
    let mut pass = MessagePass::default();
    pass.read(&query, &mut all, &mut quarters)?;
    pass.finish(&mut all);
    all.quarters = quarters.0.into_values().collect();
    Ok(all)
}

struct ReportQuery<'a> {
    conn: &'a Connection,
}

impl ReportQuery<'_> {
    fn rows<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Vec<T>, DbError> {
        let mut statement = self.conn.prepare(sql)?;
        let rows = statement.query_map([], read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// Usage in parts: the rows per model, and what the session's own totals have beyond them (sessions
/// of older programs have no such rows). Auxiliary calls are in no session total.
fn usage_parts_sql(layout: &SchemaLayout) -> String {
    let has_usage = layout.has("session_model_usage");
    let task = layout.column("session_model_usage", "u", "task", "''");
    let per_model = if has_usage {
        format!(
            "SELECT u.session_id AS sid, u.model AS model, u.billing_provider AS provider,
                {task} AS task, COALESCE(u.api_call_count, 0) AS calls,
                COALESCE(u.input_tokens, 0) AS input, COALESCE(u.output_tokens, 0) AS output,
                COALESCE(u.cache_read_tokens, 0) AS read, COALESCE(u.cache_write_tokens, 0) AS written,
                COALESCE(u.reasoning_tokens, 0) AS reasoning,
                COALESCE(u.estimated_cost_usd, 0) AS estimated,
                COALESCE(u.actual_cost_usd, 0) AS actual, u.cost_status AS status
             FROM session_model_usage u JOIN {CHOSEN} s ON s.id = u.session_id"
        )
    } else {
        "SELECT '' AS sid, '' AS model, '' AS provider, '' AS task, 0 AS calls, 0 AS input,
            0 AS output, 0 AS read, 0 AS written, 0 AS reasoning, 0.0 AS estimated,
            0.0 AS actual, '' AS status WHERE 0"
            .to_owned()
    };
    let beyond = |column: &str, known: &str| {
        format!("MAX(0, COALESCE(s.{column}, 0) - COALESCE(k.{known}, 0))")
    };
    format!(
        "WITH per_model AS MATERIALIZED ({per_model}),
         known AS (SELECT sid, SUM(calls) AS calls, SUM(input) AS input, SUM(output) AS output,
                SUM(read) AS read, SUM(written) AS written, SUM(reasoning) AS reasoning,
                SUM(estimated) AS estimated, SUM(actual) AS actual
            FROM per_model WHERE task = '' GROUP BY sid),
         parts AS (
            SELECT * FROM per_model
            UNION ALL
            SELECT s.id, s.model, s.billing_provider, '', {}, {}, {}, {}, {}, {}, {}, {}, s.cost_status
            FROM {CHOSEN} s LEFT JOIN known k ON k.sid = s.id)",
        beyond("api_call_count", "calls"),
        beyond("input_tokens", "input"),
        beyond("output_tokens", "output"),
        beyond("cache_read_tokens", "read"),
        beyond("cache_write_tokens", "written"),
        beyond("reasoning_tokens", "reasoning"),
        beyond("estimated_cost_usd", "estimated"),
        beyond("actual_cost_usd", "actual"),
    )
}

fn models(
    query: &ReportQuery<'_>,
    layout: &SchemaLayout,
    all: &mut Insights,
) -> Result<(), DbError> {
    // Sums of the same numbers in a different order differ by less than this.
    const EPSILON: &str = "0.0000001";
    let sql = format!(
        "{} SELECT COALESCE(NULLIF(model, ''), 'unknown') AS model, COALESCE(provider, '') AS provider,
            COUNT(DISTINCT sid) AS sessions, SUM(calls) AS calls, SUM(input) AS input,
            SUM(output) AS output, SUM(read) AS read, SUM(written) AS written,
            SUM(reasoning) AS reasoning,
            SUM(estimated) AS estimated, SUM(actual) AS actual,
            COALESCE(SUM(status = 'estimated' OR estimated > {EPSILON}), 0) AS any_estimated,
            COALESCE(SUM(status = 'actual' OR actual > {EPSILON}), 0) AS any_actual,
            SUM(CASE WHEN status = 'included' THEN calls ELSE 0 END) AS included,
            SUM(CASE WHEN COALESCE(status, 'unknown') IN ('', 'unknown') AND estimated <= {EPSILON}
                AND actual <= {EPSILON} THEN MAX(calls, 1) ELSE 0 END) AS unknown,
            SUM(CASE WHEN task <> '' THEN input + output + read + written ELSE 0 END) AS side
         FROM parts
         WHERE calls + input + output + read + written > 0 OR estimated > {EPSILON} OR actual > {EPSILON}
         GROUP BY 1, 2 ORDER BY SUM(input + output + read + written) DESC, 1, 2",
        usage_parts_sql(layout)
    );
    let mut side = 0;
    all.models = query.rows(&sql, |row| {
        side += row.get::<_, i64>("side")?;
        Ok(ModelUse {
            model: row.get("model")?,
            provider: row.get("provider")?,
            sessions: row.get("sessions")?,
            calls: row.get("calls")?,
            tokens: read_tokens(row)?,
            cost: read_cost(row)?,
        })
    })?;
    all.side_tokens = side;
    for model in &all.models {
        all.calls += model.calls;
        all.tokens.add(&model.tokens);
        all.cost.add(&model.cost);
    }
    Ok(())
}

fn read_tokens(row: &Row<'_>) -> Result<TokenTotals, rusqlite::Error> {
    let mut tokens = TokenTotals {
        input: row.get("input")?,
        output: row.get("output")?,
        cache_read: row.get("read")?,
        cache_write: row.get("written")?,
        reasoning: row.get("reasoning")?,
        total: 0,
    };
    tokens.total = tokens.input + tokens.output + tokens.cache_read + tokens.cache_write;
    Ok(tokens)
}

fn read_cost(row: &Row<'_>) -> Result<CostTotals, rusqlite::Error> {
    let if_any = |flag: &str, sum: &str| -> Result<Option<f64>, rusqlite::Error> {
        Ok(match row.get::<_, i64>(flag)? {
            0 => None,
            _ => Some(row.get(sum)?),
        })
    };
    let actual_usd = if_any("any_actual", "actual")?;
    let estimated_usd = if_any("any_estimated", "estimated")?;
    Ok(CostTotals {
        actual_usd,
        estimated_usd,
        known_usd: sum_optional(actual_usd, estimated_usd),
        included_calls: row.get("included")?,
        unknown_calls: row.get("unknown")?,
    })
}

/// `None` adds nothing; two `None`s make `None`.
fn sum_optional(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

impl TokenTotals {
    fn add(&mut self, other: &Self) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.reasoning += other.reasoning;
        self.total += other.total;
    }
}

impl CostTotals {
    fn add(&mut self, other: &Self) {
        self.actual_usd = sum_optional(self.actual_usd, other.actual_usd);
        self.estimated_usd = sum_optional(self.estimated_usd, other.estimated_usd);
        self.known_usd = sum_optional(self.known_usd, other.known_usd);
        self.included_calls += other.included_calls;
        self.unknown_calls += other.unknown_calls;
    }
}

/// The counts of one pass over messages.
#[derive(Default)]
struct MessagePass {
    /// Calls are in assistant messages, results in tool messages. Either may lack names or rows
    /// (older programs, interrupted turns), so the larger count is used.
    called: BTreeMap<String, i64>,
    answered: BTreeMap<String, i64>,
    skills: BTreeMap<String, SkillUse>,
}

impl MessagePass {
    /// Reads the newest sessions, as many as [`MAX_MESSAGES_READ`] allows.
    fn read(
        &mut self,
        query: &ReportQuery<'_>,
        all: &mut Insights,
        quarters: &mut Quarters,
    ) -> Result<(), DbError> {
        let sessions = query.rows(
            &format!(
                "SELECT s.id, s.started_at, COALESCE(s.message_count, 0),
                    COALESCE(s.tool_call_count, 0)
                 FROM {CHOSEN} s ORDER BY s.started_at DESC"
            ),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )?;
        let mut statement = query.conn.prepare(
            "SELECT role, timestamp, tool_name, CASE role WHEN 'assistant' THEN tool_calls END
             FROM messages WHERE session_id = ?1 LIMIT ?2",
        )?;
        let mut left = MAX_MESSAGES_READ;
        for (id, started, messages, calls) in sessions {
            let (id, started, messages, calls): (String, f64, i64, i64) =
                (id, started, messages, calls);
            let before = left;
            let mut rows = statement.query(rusqlite::params![id, left])?;
            while let Some(row) = rows.next()? {
                left -= 1;
                self.count(row, &mut all.messages, quarters)?;
            }
            if left > 0 {
                continue;
            }
            let rest = (messages - before).max(0);
            all.unread.sessions += i64::from(rest > 0);
            all.unread.messages += rest;
            all.messages.total += rest;
            quarters.at(started).messages += rest;
            if before == 0 {
                all.tool_calls += calls;
            }
        }
        Ok(())
    }

    fn count(
        &mut self,
        row: &Row<'_>,
        messages: &mut MessageCounts,
        quarters: &mut Quarters,
    ) -> Result<(), DbError> {
        messages.total += 1;
        quarters.at(row.get(1)?).messages += 1;
        match row.get_ref(0)?.as_str().unwrap_or_default() {
            "user" => messages.user += 1,
            "assistant" => messages.assistant += 1,
            "tool" => {
                messages.tool += 1;
                if let Some(tool) = row.get::<_, Option<String>>(2)? {
                    *self.answered.entry(tool).or_default() += 1;
                }
            }
            _ => {}
        }
        // Invalid JSON or text contains no calls.
        let calls = row.get_ref(3)?;
        if let Ok(text) = calls.as_str()
            && let Ok(Value::Array(calls)) = serde_json::from_str(text)
        {
            for call in &calls {
                self.call(call);
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &Value) {
        let field = |name: &str| call.pointer(name).and_then(Value::as_str);
        let Some(name) = field("/function/name").filter(|name| !name.is_empty()) else {
            return;
        };
        *self.called.entry(name.to_owned()).or_default() += 1;
        let loads = match name {
            "skill_view" => true,
            "skill_manage" => false,
            _ => return,
        };
        let arguments: Option<Value> =
            field("/function/arguments").and_then(|text| serde_json::from_str(text).ok());
        let Some(skill) = arguments.as_ref().and_then(|args| args["name"].as_str()) else {
            return;
        };
        let entry = self.skills.entry(skill.to_owned());
        let entry = entry.or_insert_with(|| SkillUse {
            skill: skill.to_owned(),
            loads: 0,
            edits: 0,
        });
        entry.loads += i64::from(loads);
        entry.edits += i64::from(!loads);
    }

    fn finish(self, all: &mut Insights) {
        let mut tools = self.answered;
        for (name, count) in self.called {
            let known = tools.entry(name).or_default();
            *known = count.max(*known);
        }
        all.tools = tools
            .into_iter()
            .map(|(tool, calls)| ToolUse { tool, calls })
            .collect();
        all.tools.sort_by_key(|tool| std::cmp::Reverse(tool.calls));
        all.tool_calls += all.tools.iter().map(|tool| tool.calls).sum::<i64>();
        all.skills = self.skills.into_values().collect();
        all.skills
            .sort_by_key(|skill| std::cmp::Reverse(skill.loads + skill.edits));
    }
}

fn sources(query: &ReportQuery<'_>, all: &mut Insights) -> Result<(), DbError> {
    all.sources = query.rows(
        &format!(
            "SELECT s.source, COUNT(*), SUM(COALESCE(s.message_count, 0)), SUM({SESSION_TOKENS})
             FROM {CHOSEN} s GROUP BY 1 ORDER BY 2 DESC, 1"
        ),
        |row| {
            Ok(SourceUse {
                source: row.get(0)?,
                sessions: row.get(1)?,
                messages: row.get(2)?,
                tokens: row.get(3)?,
            })
        },
    )?;
    all.sessions = all.sources.iter().map(|source| source.sessions).sum();
    Ok(())
}

#[derive(Default)]
struct Quarters(BTreeMap<i64, QuarterHour>);

impl Quarters {
    fn at(&mut self, seconds: f64) -> &mut QuarterHour {
        let start = (seconds / 900.0) as i64 * 900;
        self.0.entry(start).or_insert(QuarterHour {
            start,
            ..QuarterHour::default()
        })
    }
}

fn count_session_starts(query: &ReportQuery<'_>, quarters: &mut Quarters) -> Result<(), DbError> {
    let sessions = query.rows(
        &format!("SELECT s.started_at, {SESSION_TOKENS} FROM {CHOSEN} s"),
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    for (started, tokens) in sessions {
        let (started, tokens): (f64, i64) = (started, tokens);
        let quarter = quarters.at(started);
        quarter.sessions += 1;
        quarter.tokens += tokens;
    }
    Ok(())
}
