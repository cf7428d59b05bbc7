//! The part of a session's log that is sent to the model again.

use std::path::PathBuf;
use std::sync::LazyLock;

use hermes_core::ids::{RowId, SessionId};
use hermes_core::message::{Content, Message};
use hermes_core::store::{StoredItem, StoredSession};
use regex::Regex;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::connection::DbError;
use super::encode::{MESSAGE_COLUMNS, decode_message, lenient_text};
use super::layout::SchemaLayout;
use super::lineage;
use super::message_authors;

/// Reads the session `id`, or the one that it was compressed into.
pub(crate) fn load(
    conn: &Connection,
    layout: &SchemaLayout,
    id: &str,
) -> Result<Option<StoredSession>, DbError> {
    let id = lineage::resume_target(conn, id)?;
    let Some(mut session) = read_session(conn, layout, &id)? else {
        return Ok(None);
    };
    session.items = read_items(conn, layout, &id)?;
    session.compacted_before = session.parent.is_some() && is_continuation_of_compressed(conn, &id)?
        || conn
            .prepare_cached(
                "SELECT 1 FROM messages WHERE session_id = ?1 AND active = 0 AND compacted = 1 LIMIT 1",
            )?
            .exists([&id])?;
    Ok(Some(session))
}

fn is_continuation_of_compressed(conn: &Connection, id: &str) -> Result<bool, DbError> {
    Ok(conn
        .prepare_cached(
            "SELECT 1 FROM sessions c JOIN sessions p ON p.id = c.parent_session_id
             WHERE c.id = ?1 AND p.end_reason = 'compression'",
        )?
        .exists([id])?)
}

fn read_session(
    conn: &Connection,
    layout: &SchemaLayout,
    id: &str,
) -> Result<Option<StoredSession>, DbError> {
    let prompt = system_prompt(layout, "s");
    let cooldown = layout.column(
        "sessions",
        "s",
        "compression_failure_cooldown_until",
        "NULL",
    );
    let sql = format!(
        "SELECT s.source, s.model, s.billing_provider, s.model_config, {prompt} AS prompt, s.title,
                s.cwd, s.parent_session_id, s.ended_at, {cooldown} AS cooldown
         FROM sessions s WHERE s.id = ?1"
    );
    let read = |row: &Row<'_>| {
        Ok(StoredSession {
            id: SessionId::new(id),
            source: row.get("source")?,
            model: row.get("model")?,
            billing_provider: row.get("billing_provider")?,
            model_config: lenient_text(row, "model_config")?
                .and_then(|text| serde_json::from_str(&text).ok()),
            system_prompt: lenient_text(row, "prompt")?,
            title: row.get("title")?,
            cwd: row.get::<_, Option<String>>("cwd")?.map(PathBuf::from),
            parent: row
                .get::<_, Option<String>>("parent_session_id")?
                .map(SessionId::new),
            ended: row.get::<_, Option<f64>>("ended_at")?.is_some(),
            compacted_before: false,
            compaction_cooldown_until: row.get("cooldown")?,
            items: Vec::new(),
        })
    };
    Ok(conn
        .prepare_cached(&sql)?
        .query_row([id], read)
        .optional()?)
}

/// Newer programs store prompts in a separate table.
pub(crate) fn system_prompt(layout: &SchemaLayout, alias: &str) -> String {
    if layout.has("system_prompts") && layout.has_column("sessions", "system_prompt_hash") {
        format!(
            "COALESCE({alias}.system_prompt, (SELECT prompt FROM system_prompts \
             WHERE hash = {alias}.system_prompt_hash))"
        )
    } else {
        format!("{alias}.system_prompt")
    }
}

fn read_items(
    conn: &Connection,
    layout: &SchemaLayout,
    id: &str,
) -> Result<Vec<StoredItem>, DbError> {
    let columns: Vec<String> = MESSAGE_COLUMNS
        .iter()
        .map(|name| {
            let column = layout.column("messages", "m", name, "NULL");
            format!("{column} AS {name}")
        })
        .collect();
    // Ordered by id, not by time: clocks can go backwards, and providers refuse a result before its
    // call.
    let sql = format!(
        "SELECT {} FROM messages m WHERE m.session_id = ?1 AND m.active = 1 ORDER BY m.id",
        columns.join(", ")
    );
    let mut authors = message_authors::load_for_session(conn, id)?;
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query([id])?;
    let mut items: Vec<StoredItem> = Vec::new();
    let mut skip_answer = false;
    while let Some(row) = rows.next()? {
        let Some(mut message) = decode_message(row)? else {
            continue;
        };
        if let Message::Assistant(assistant) = &mut message
            && let Some(author) = authors.remove(&row.get::<_, i64>("id")?)
        {
            author.restore(assistant);
        }
        strip_recalled_memory(&mut message);
        if is_review_harness(&message) {
            skip_answer = true;
            continue;
        }
        if std::mem::take(&mut skip_answer) && matches!(message, Message::Assistant(_)) {
            continue;
        }
        items.push(StoredItem {
            id: RowId(row.get("id")?),
            message,
            at: row.get("timestamp")?,
        });
    }
    Ok(items)
}

/// Background reviews of old builds wrote their instructions into the conversation; replayed, they
/// would make the model review instead of answer.
fn is_review_harness(message: &Message) -> bool {
    const OPENINGS: [&str; 2] = [
        "Review the conversation above and update the skill library",
        "Review the conversation above and consider saving to memory",
    ];
    let Message::User(user) = message else {
        return false;
    };
    let Content::Text(text) = &user.content else {
        return false;
    };
    let text = text.trim_start();
    OPENINGS.iter().any(|opening| text.starts_with(opening))
}

/// Removes recalled-memory blocks from text that was stored with them. Other text keeps every byte,
/// so that the provider's prompt cache still matches.
fn strip_recalled_memory(message: &mut Message) {
    let text = match message {
        Message::User(user) => match &mut user.content {
            Content::Text(text) => text,
            Content::Parts(_) => return,
        },
        Message::Assistant(assistant) => &mut assistant.text,
        Message::Tool(_) => return,
    };
    if let Some(clean) = strip_memory_context(text) {
        *text = clean;
    }
}

static BLOCK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?is)<\s*memory-context\s*>.*?</\s*memory-context\s*>").ok());
static NOTE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\[System note:\s*The following is recalled memory context,\s*NOT new user input\.\s*Treat as (?:informational background data|authoritative reference data[^\]]*)\.\]\s*",
    )
    .ok()
});
static FENCE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)</?\s*memory-context\s*>").ok());

fn strip_memory_context(text: &str) -> Option<String> {
    // Building the regexes costs more than most sessions need.
    let lower = text.to_ascii_lowercase();
    if !lower.contains("memory-context") && !lower.contains("recalled memory context") {
        return None;
    }
    let mut out = text.to_owned();
    for pattern in [&*BLOCK, &*NOTE, &*FENCE].into_iter().flatten() {
        out = pattern.replace_all(&out, "").into_owned();
    }
    (out != text).then(|| out.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_recalled_memory_is_taken_out() {
        assert_eq!(strip_memory_context("  keep \n"), None);
        let cases = [
            ("<memory-context>\nold\n</memory-context>\n\nhello", "hello"),
            ("a < MEMORY-CONTEXT >x</memory-context > b", "a  b"),
            ("stray </memory-context> tag", "stray  tag"),
            (
                "[System note: The following is recalled memory context, NOT new user input. Treat as informational background data.] hi",
                "hi",
            ),
        ];
        for (text, clean) in cases {
            assert_eq!(strip_memory_context(text).as_deref(), Some(clean), "{text}");
        }
        assert_eq!(strip_memory_context("talk about memory-context"), None);
    }
}
