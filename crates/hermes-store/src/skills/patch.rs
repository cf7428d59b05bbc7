//! Find and replace: word for word first, then forgiving spaces and indentation.

use std::borrow::Cow;
use std::ops::Range;

use regex::Regex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    pub text: String,
    pub replacements: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("old_string is empty; pass the text to find")]
    Empty,
    #[error("old_string and new_string are the same; nothing would change")]
    Same,
    #[error("old_string is not in the file. View the file again and copy the text word for word")]
    NotFound,
    #[error(
        "old_string is in the file {0} times. Add lines around it until it is unique, or pass replace_all=true"
    )]
    Ambiguous(usize),
}

/// Replaces `old` by `new`; it must be there exactly once unless `all`.
pub fn patch(text: &str, old: &str, new: &str, all: bool) -> Result<Patched, PatchError> {
    if old.is_empty() {
        return Err(PatchError::Empty);
    }
    if old == new {
        return Err(PatchError::Same);
    }
    let exact: Vec<Range<usize>> = text
        .match_indices(old)
        .map(|(at, found)| at..at + found.len())
        .collect();
    let forgiving = exact.is_empty();
    let hits = if forgiving { loose(text, old) } else { exact };
    let Some(first) = hits.first() else {
        return Err(PatchError::NotFound);
    };
    // Hits that overlap are several places too: "aa" is twice in "aaa".
    let next = first.start + text[first.start..].chars().next().map_or(1, char::len_utf8);
    let overlaps = !forgiving && text[next..].contains(old);
    if !all && (hits.len() > 1 || overlaps) {
        return Err(PatchError::Ambiguous(hits.len().max(2)));
    }
    let mut result = String::with_capacity(text.len() + new.len());
    let mut done = 0;
    for hit in &hits {
        result.push_str(&text[done..hit.start]);
        if forgiving {
            result.push_str(&fitted(text, hit, old, new));
        } else {
            result.push_str(new);
        }
        done = hit.end;
    }
    result.push_str(&text[done..]);
    Ok(Patched {
        text: result,
        replacements: hits.len(),
    })
}

/// Where `old` is when runs of spaces, indentation and line endings may differ.
fn loose(text: &str, old: &str) -> Vec<Range<usize>> {
    let lines: Vec<String> = old
        .trim()
        .lines()
        .map(|line| {
            let words: Vec<String> = line.split_whitespace().map(regex::escape).collect();
            words.join(r"[ \t]+")
        })
        .collect();
    let source = lines.join(r"[ \t]*\r?\n[ \t]*");
    if source.is_empty() {
        return Vec::new();
    }
    // A text too long for an expression is simply not found.
    Regex::new(&source).map_or_else(
        |_| Vec::new(),
        |regex| regex.find_iter(text).map(|found| found.range()).collect(),
    )
}

/// `new`, indented and ended as the place it goes to.
fn fitted<'a>(text: &str, hit: &Range<usize>, old: &str, new: &'a str) -> Cow<'a, str> {
    let line_start = text[..hit.start].rfind('\n').map_or(0, |at| at + 1);
    let before = &text[line_start..hit.start];
    let starts_line = before.trim().is_empty();
    let (theirs, ours) = (indent(old), if starts_line { before } else { "" });
    // The hit starts behind the indentation of its line and ends before the blanks after it.
    let new = if starts_line {
        new.strip_prefix(indent(new)).unwrap_or(new)
    } else {
        new
    };
    let new = if old.ends_with(char::is_whitespace) {
        new.trim_end()
    } else {
        new
    };
    let mut fitted = String::with_capacity(new.len());
    for (at, line) in new.split('\n').enumerate() {
        if at > 0 {
            fitted.push('\n');
        }
        match line.strip_prefix(theirs) {
            Some(rest) if at > 0 && starts_line && !line.trim().is_empty() => {
                fitted.push_str(ours);
                fitted.push_str(rest);
            }
            _ => fitted.push_str(line),
        }
    }
    if text[hit.clone()].contains("\r\n") {
        fitted = fitted.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    Cow::Owned(fitted)
}

fn indent(text: &str) -> &str {
    &text[..text.len() - text.trim_start_matches([' ', '\t']).len()]
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;

    fn ok(text: &str, old: &str, new: &str) -> String {
        patch(text, old, new, false).unwrap().text
    }

    #[test]
    fn a_unique_text_is_replaced() {
        assert_eq!(ok("one two three", "two", "2"), "one 2 three");
        assert_eq!(ok("one two", " two", ""), "one");
        assert_eq!(patch("a a", "a", "b", false), Err(PatchError::Ambiguous(2)));
        assert_eq!(
            patch("aaa", "aa", "b", false),
            Err(PatchError::Ambiguous(2))
        );
        let both = patch("a a", "a", "b", true).unwrap();
        assert_eq!((both.text.as_str(), both.replacements), ("b b", 2));
        assert_eq!(patch("a", "x", "y", false), Err(PatchError::NotFound));
        assert_eq!(patch("a", "", "y", false), Err(PatchError::Empty));
        assert_eq!(patch("a", "a", "a", false), Err(PatchError::Same));
        assert_eq!(patch("a", " \n ", "y", false), Err(PatchError::NotFound));
    }

    #[test]
    fn spaces_and_line_ends_may_differ() {
        assert_eq!(ok("run  the\ttests now", "run the tests", "do"), "do now");
        assert_eq!(ok("one  \n  two\nthree", "one\ntwo", "1\n2"), "1\n2\nthree");
        assert_eq!(ok("a\r\nb c\r\nd", "a\nb  c", "x\ny"), "x\r\ny\r\nd");
    }

    #[test]
    fn the_replacement_takes_the_indentation_of_the_file() {
        let text = "steps:\n    - first\n    - second\nend";
        let patched = ok(
            text,
            "  - first\n  - second",
            "  - first\n  - middle\n  - second",
        );
        assert_eq!(
            patched,
            "steps:\n    - first\n    - middle\n    - second\nend"
        );
    }

    #[test]
    fn loose_hits_must_be_unique_too() {
        let text = "a  b\na\tb\n";
        assert_eq!(
            patch(text, "a b", "c", false),
            Err(PatchError::Ambiguous(2))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn only_a_unique_text_is_changed_and_only_there(
            text in "[ab \n]{0,40}", old in "[ab]{1,3}", new in "[xyz \n]{0,5}"
        ) {
            let count = (0..text.len()).filter(|at| text[*at..].starts_with(&old)).count();
            match patch(&text, &old, &new, false) {
                Ok(done) if count == 1 => {
                    prop_assert_eq!(done.text, text.replacen(&old, &new, 1));
                    prop_assert_eq!(done.replacements, 1);
                }
                Ok(_) => prop_assert!(false, "changed with {} hits", count),
                Err(PatchError::Ambiguous(_)) => prop_assert!(count > 1),
                Err(PatchError::NotFound) => prop_assert_eq!(count, 0),
                Err(other) => prop_assert!(false, "{}", other),
            }
            let all = patch(&text, &old, &new, true).map(|done| done.text);
            if count > 0 {
                prop_assert_eq!(all.unwrap(), text.replace(&old, &new));
            }
        }

        #[test]
        fn loose_spaces_change_one_place_and_keep_the_rest(
            before in "[x\\n é]{0,10}", gap in "[ \t]{2,4}", after in "[x\\n é]{0,10}"
        ) {
            let text = format!("{before}one{gap}two{after}");
            let done = patch(&text, "one two", "new", false).unwrap();
            proptest::prop_assert_eq!(done.text, format!("{before}new{after}"));
        }
    }
}
