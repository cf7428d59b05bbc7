//! Converts user input into a full-text query that always parses.

use std::sync::LazyLock;

use regex::Regex;

/// Longer queries are truncated.
const MAX_QUERY_CHARS: usize = 2048;
/// Placeholder for a quoted phrase while the rest is cleaned.
const PHRASE: char = '\0';

/// Words joined by `.`, `-` or `_`: quoted, since the index splits there.
static COMPOUND: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(\w+(?:[._-]\w+)+)\b").ok());

/// Keeps phrases, words, `AND`/`OR`/`NOT` between them and a trailing `*`; replaces all other query
/// syntax with spaces. May return an empty string.
pub(super) fn clean_query(query: &str) -> String {
    let query: String = query
        .chars()
        .take(MAX_QUERY_CHARS)
        .filter(|ch| *ch != PHRASE)
        .collect();
    let (text, phrases) = extract_phrases(&query);
    let text: String = text
        .chars()
        .map(|ch| if "+{}():^".contains(ch) { ' ' } else { ch })
        .collect();
    let text = collapse_stars(&text);
    let text = drop_dangling_operators(text.trim());
    let text = match &*COMPOUND {
        Some(compound) => compound.replace_all(text, "\"$1\""),
        None => text.into(),
    };
    let mut phrases = phrases.into_iter();
    let mut out = String::with_capacity(query.len());
    for ch in text.chars() {
        if ch == PHRASE {
            out.push_str(phrases.next().unwrap_or_default());
        } else {
            out.push(ch);
        }
    }
    out.trim().to_owned()
}

/// Extracts `"…"`; an unmatched quote becomes a space.
fn extract_phrases(query: &str) -> (String, Vec<&str>) {
    let mut text = String::with_capacity(query.len());
    let mut phrases = Vec::new();
    let mut rest = query;
    while let Some(open) = rest.find('"') {
        text.push_str(&rest[..open]);
        let inside = &rest[open + 1..];
        if let Some(close) = inside.find('"') {
            phrases.push(&rest[open..open + close + 2]);
            text.push(PHRASE);
            rest = &inside[close + 1..];
        } else {
            text.push(' ');
            rest = inside;
        }
    }
    text.push_str(rest);
    (text, phrases)
}

/// `**` to `*`, and no `*` without a word before it.
fn collapse_stars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut stars = false;
    let mut last: Option<char> = None;
    for ch in text.chars() {
        if ch == '*' {
            if !stars && last.is_some_and(|last| !last.is_whitespace()) {
                out.push(ch);
            }
            stars = true;
            continue;
        }
        stars = false;
        last = Some(ch);
        out.push(ch);
    }
    out
}

fn is_operator(word: &str) -> bool {
    ["AND", "OR", "NOT"]
        .iter()
        .any(|operator| word.eq_ignore_ascii_case(operator))
}

/// Removes a leading and a trailing operator.
fn drop_dangling_operators(text: &str) -> &str {
    let mut text = text;
    let end = text
        .find(|ch: char| !ch.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let boundary = text[end..]
        .chars()
        .next()
        .is_none_or(|ch| !ch.is_alphanumeric() && ch != '_');
    if boundary && is_operator(&text[..end]) {
        text = text[end..].trim_start();
    }
    if let Some((before, last)) = text.rsplit_once(char::is_whitespace)
        && is_operator(last)
    {
        text = before.trim_end();
    }
    text
}

/// The parts of a cleaned query between its `OR`s, outside of phrases.
pub(crate) fn alternatives(query: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for word in query.split_inclusive(char::is_whitespace) {
        if !quoted && word.trim() == "OR" {
            parts.push(String::new());
            continue;
        }
        if word.matches('"').count() % 2 == 1 {
            quoted = !quoted;
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(word);
        }
    }
    parts
        .into_iter()
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

/// Quotes every word: the last resort if a query still does not parse.
pub(crate) fn quote_words(query: &str) -> String {
    let words: Vec<String> = query
        .split_whitespace()
        .map(|word| word.trim_matches('"'))
        .filter(|word| !word.is_empty() && !is_operator(word))
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"")))
        .collect();
    words.join(" ")
}

pub(crate) fn is_cjk(ch: char) -> bool {
    matches!(ch,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}'
        | '\u{3000}'..='\u{303f}' | '\u{3040}'..='\u{309f}' | '\u{30a0}'..='\u{30ff}'
        | '\u{ac00}'..='\u{d7af}')
}

/// How to search for a cleaned query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchPlan {
    /// In the index of words.
    Words(String),
    /// In the index of trigrams.
    Trigrams { query: String, words: Vec<String> },
    /// Without an index: trigrams cannot find one or two characters.
    Substrings(Vec<String>),
}

pub(crate) fn plan(clean: &str) -> SearchPlan {
    if !clean.chars().any(is_cjk) {
        return SearchPlan::Words(clean.to_owned());
    }
    let raw = clean.trim_matches('"').trim();
    let count = |word: &str| word.chars().filter(|ch| is_cjk(*ch)).count();
    let mut words: Vec<String> = raw
        .split_whitespace()
        .filter(|word| !is_operator(word))
        .map(str::to_owned)
        .collect();
    if words.is_empty() {
        words.push(raw.to_owned());
    }
    let short = words
        .iter()
        .map(|word| count(word))
        .any(|length| (1..3).contains(&length));
    if short || count(raw) < 3 {
        return SearchPlan::Substrings(words);
    }
    let parts: Vec<String> = raw
        .split_whitespace()
        .map(|word| {
            if is_operator(word) {
                word.to_owned()
            } else {
                format!("\"{}\"", word.replace('"', "\"\""))
            }
        })
        .collect();
    SearchPlan::Trigrams {
        query: parts.join(" "),
        words,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queries_are_cleaned() {
        let cases = [
            ("NOTE: ship", "NOTE  ship"),
            ("send-mail v3.1", "\"send-mail\" \"v3.1\""),
            ("snake_case x", "\"snake_case\" x"),
            ("\"two words\" OR", "\"two words\""),
            ("tea AND", "tea"),
            ("NOT tea", "tea"),
            ("AND or", "or"),
            ("NOTHING here", "NOTHING here"),
            ("***pre* mid**", "pre* mid*"),
            ("*", ""),
            ("a\"b", "a b"),
            ("f(x)+{y}^2", "f x   y  2"),
            ("my-lib.conf.d OR z", "\"my-lib.conf.d\" OR z"),
            ("\"keep (this)\" (that)", "\"keep (this)\"  that"),
            ("   ", ""),
            ("naïve-été", "\"naïve-été\""),
        ];
        for (query, clean) in cases {
            assert_eq!(clean_query(query), clean, "{query}");
        }
    }

    #[test]
    fn alternatives_are_split_outside_of_phrases() {
        let cases: [(&str, &[&str]); 4] = [
            ("a b OR c", &["a b", "c"]),
            ("\"x OR y\" OR z", &["\"x OR y\"", "z"]),
            ("a or b", &["a or b"]),
            ("OR a OR OR b OR", &["a", "b"]),
        ];
        for (query, parts) in cases {
            assert_eq!(alternatives(query), parts, "{query}");
        }
    }

    #[test]
    fn scripts_without_spaces_get_trigrams_or_substrings() {
        assert_eq!(plan("tea"), SearchPlan::Words("tea".to_owned()));
        assert_eq!(
            plan("東京"),
            SearchPlan::Substrings(vec!["東京".to_owned()])
        );
        assert_eq!(
            plan("東京タワー OR 大阪城公園"),
            SearchPlan::Trigrams {
                query: "\"東京タワー\" OR \"大阪城公園\"".to_owned(),
                words: vec!["東京タワー".to_owned(), "大阪城公園".to_owned()],
            }
        );
        assert_eq!(
            plan("東京タワー OR 大阪"),
            SearchPlan::Substrings(vec!["東京タワー".to_owned(), "大阪".to_owned()])
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn anything_goes_in(query in any::<String>()) {
            let clean = clean_query(&query);
            prop_assert!(!clean.contains('\0'));
            prop_assert!(clean.matches('"').count().is_multiple_of(2));
            plan(&clean);
        }
    }
}
