//! Handles search prefixes that match nearly every message.
//!
//! The index has no entries for prefixes: it merges the lists of all words with that prefix before
//! it yields the first match, several times per search. If a large share of the newest messages
//! contains the prefix, it is replaced by the actual words found there; their lists are read only
//! as far as needed, as for any other common word.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::db::connection::DbError;

/// With fewer messages than this, every search is fast.
const LARGE_HISTORY: i64 = 20_000;
/// Newest messages sampled, and how much of each.
const SAMPLE_MESSAGES: usize = 1_000;
const SAMPLE_CHARS: usize = 2_000;
/// A prefix is broad if one in this many messages contains it.
const BROAD_ONE_IN: usize = 8;
/// Words that replace a prefix, the most common ones.
const MAX_WORDS: usize = 32;

/// The query with broad prefixes replaced. A query with `NOT` is left unchanged: excluding a
/// shorter list would let messages through.
pub(super) fn expand(conn: &Connection, query: &str) -> Result<String, DbError> {
    let tokens = tokens(query);
    if !tokens.iter().any(|token| prefix(token).is_some())
        || tokens.contains(&"NOT")
        || !is_large(conn)?
    {
        return Ok(query.to_owned());
    }
    let sample = sample(conn)?;
    let mut changed = false;
    let mut out: Vec<String> = Vec::new();
    let mut after_term = false;
    for token in tokens {
        let is_operator = matches!(token, "AND" | "OR");
        // Groups may stand next to other terms only with an operator between them.
        if after_term && !is_operator {
            out.push("AND".to_owned());
        }
        after_term = !is_operator;
        let broad = prefix(token).and_then(|stem| word_group(&sample, stem));
        changed |= broad.is_some();
        out.push(broad.unwrap_or_else(|| token.to_owned()));
    }
    Ok(if changed {
        out.join(" ")
    } else {
        query.to_owned()
    })
}

/// Words, phrases and operators.
fn tokens(query: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut quoted = false;
    let mut start = 0;
    for (at, ch) in query.char_indices() {
        if ch == '"' {
            quoted = !quoted;
        } else if ch.is_whitespace() && !quoted {
            tokens.push(&query[start..at]);
            start = at + ch.len_utf8();
        }
    }
    tokens.push(&query[start..]);
    tokens.retain(|token| !token.is_empty());
    tokens
}

/// The text before the star of a plain word.
fn prefix(token: &str) -> Option<&str> {
    token
        .strip_suffix('*')
        .filter(|stem| !stem.is_empty() && stem.chars().all(char::is_alphanumeric))
}

fn is_large(conn: &Connection) -> Result<bool, DbError> {
    let newest: Option<i64> = conn
        .prepare_cached("SELECT MAX(id) FROM messages")?
        .query_row([], |row| row.get(0))?;
    Ok(newest.is_some_and(|newest| newest > LARGE_HISTORY))
}

fn sample(conn: &Connection) -> Result<Vec<String>, DbError> {
    let sql = format!(
        "SELECT substr(content, 1, {SAMPLE_CHARS}) AS head FROM messages
         WHERE content IS NOT NULL ORDER BY id DESC LIMIT {SAMPLE_MESSAGES}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let rows = statement.query_map([], |row| {
        let head = crate::db::encode::lenient_text(row, "head")?;
        Ok(head.unwrap_or_default().to_lowercase())
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The words of a broad prefix as one term, without spaces so that nothing splits it.
fn word_group(sample: &[String], stem: &str) -> Option<String> {
    let stem = stem.to_lowercase();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut having = 0;
    for text in sample {
        let mut has = false;
        for word in text.split(|ch: char| !ch.is_alphanumeric()) {
            if word.starts_with(&stem) {
                has = true;
                *counts.entry(word).or_default() += 1;
            }
        }
        having += usize::from(has);
    }
    if having * BROAD_ONE_IN < sample.len().max(1) {
        return None;
    }
    let mut words: Vec<(&str, usize)> = counts.into_iter().collect();
    words.sort_by(|one, two| two.1.cmp(&one.1).then(one.0.cmp(two.0)));
    let words: Vec<String> = words
        .into_iter()
        .take(MAX_WORDS)
        .map(|(word, _)| format!("\"{word}\""))
        .collect();
    Some(format!("({})", words.join("OR")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prefixes_that_many_messages_have_are_broad() {
        let mut sample = vec!["prepare the Prepared thing".to_lowercase(); 20];
        sample.extend(vec!["nothing".to_owned(); 80]);
        assert_eq!(
            word_group(&sample, "PREP").as_deref(),
            Some("(\"prepare\"OR\"prepared\")")
        );
        sample.extend(vec!["nothing".to_owned(); 80]);
        assert_eq!(word_group(&sample, "prep"), None);
        assert_eq!(tokens("a* \"b c\" OR d"), ["a*", "\"b c\"", "OR", "d"]);
        assert_eq!(prefix("\"b c\"*"), None);
        assert_eq!(prefix("naï*"), Some("naï"));
    }
}
