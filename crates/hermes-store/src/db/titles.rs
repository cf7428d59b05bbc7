//! Titles: cleaned, unique, and inherited by the continuations of compressed sessions.

use hermes_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _};

use super::connection::DbError;
use super::lineage;
use super::resolve::like_escape;

const MAX_TITLE_CHARS: usize = 100;

/// Removes control and invisible characters and collapses whitespace. `None` if nothing is left.
/// Returns an error for a title that is too long.
pub(super) fn clean_title(title: &str) -> Result<Option<String>, StoreError> {
    let visible: String = title.chars().filter(|ch| !is_invisible(*ch)).collect();
    let words: Vec<&str> = visible.split_whitespace().collect();
    let clean = words.join(" ");
    let length = clean.chars().count();
    if length > MAX_TITLE_CHARS {
        return Err(StoreError::Invalid(format!(
            "the title has {length} characters; at most {MAX_TITLE_CHARS} fit"
        )));
    }
    Ok((!clean.is_empty()).then_some(clean))
}

fn is_invisible(ch: char) -> bool {
    matches!(ch,
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffc}')
}

/// Sets the title of a session. A title held by a compressed ancestor is moved.
pub(crate) fn set(conn: &Connection, id: &str, title: &str, auto: bool) -> Result<String, DbError> {
    let current: Option<Option<String>> = conn
        .prepare_cached("SELECT title FROM sessions WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let Some(current) = current else {
        return Err(StoreError::NotFound(id.to_owned()).into());
    };
    let cut: String;
    let title = if auto {
        // A model's title may be too long and is shortened; a person gets an error instead.
        cut = title.chars().take(MAX_TITLE_CHARS - 5).collect();
        if let Some(current) = current {
            return Ok(current);
        }
        cut.as_str()
    } else {
        title
    };
    let Some(mut title) = clean_title(title)? else {
        if auto {
            return Err(StoreError::Invalid("the title is empty".to_owned()).into());
        }
        conn.execute("UPDATE sessions SET title = NULL WHERE id = ?1", [id])?;
        return Ok(String::new());
    };
    let holder: Option<String> = conn
        .prepare_cached("SELECT id FROM sessions WHERE title = ?1 AND id != ?2")?
        .query_row([&title, id], |row| row.get(0))
        .optional()?;
    if let Some(holder) = holder {
        if lineage::is_compression_ancestor(conn, &holder, id)? {
            conn.execute("UPDATE sessions SET title = NULL WHERE id = ?1", [&holder])?;
        } else if auto {
            title = next_in_series(conn, &title)?;
        } else {
            return Err(StoreError::TitleTaken { title, holder }.into());
        }
    }
    conn.execute("UPDATE sessions SET title = ?2 WHERE id = ?1", [id, &title])?;
    Ok(title)
}

/// `name`, then `name #2`, `name #3`, …
pub(crate) fn next_in_series(conn: &Connection, title: &str) -> Result<String, DbError> {
    let base = split_number(title).map_or(title, |(base, _)| base);
    let mut statement = conn.prepare_cached(
        "SELECT title FROM sessions WHERE title = ?1 OR title LIKE ?2 ESCAPE '\\'",
    )?;
    let titles = statement.query_map([base, &format!("{} #%", like_escape(base))], |row| {
        row.get::<_, String>(0)
    })?;
    let mut highest = None;
    for title in titles {
        let title = title?;
        let number = split_number(&title).map_or(1, |(_, number)| number);
        highest = highest.max(Some(number.max(1)));
    }
    Ok(match highest {
        None => base.to_owned(),
        Some(number) => format!("{base} #{}", number.saturating_add(1)),
    })
}

fn split_number(title: &str) -> Option<(&str, u64)> {
    let (base, number) = title.rsplit_once(" #")?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((base, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_cleaned() {
        let cases = [
            ("  a \t b\n", Some("a b")),
            ("x\u{200b}y\u{0}", Some("xy")),
            ("\u{feff}\u{202e}", None),
            ("", None),
        ];
        for (title, clean) in cases {
            assert_eq!(clean_title(title).unwrap().as_deref(), clean, "{title:?}");
        }
        assert!(clean_title(&"x".repeat(100)).is_ok());
        assert!(clean_title(&"x".repeat(101)).is_err());
    }

    #[test]
    fn numbers_are_split_off() {
        assert_eq!(split_number("a #2"), Some(("a", 2)));
        assert_eq!(split_number("a #x"), None);
        assert_eq!(split_number("a#2"), None);
    }
}
