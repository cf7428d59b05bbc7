//! Find and replace in a file of a skill.

use hermes_core::edit::{self, ReplaceError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patched {
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
    #[error(
        "old_string and new_string have {0}, the file does not: the backslash was probably added on the way. Pass the quote without it"
    )]
    StrayBackslash(&'static str),
}

/// Replaces `old` with `new`; it must occur exactly once unless `all` is set. Small differences are
/// tolerated as in other files.
pub(super) fn patch(text: &str, old: &str, new: &str, all: bool) -> Result<Patched, PatchError> {
    let plain = |text: &str| text.replace("\r\n", "\n");
    // A file with Windows line endings is edited without them.
    let windows = text.contains("\r\n")
        && !plain(text).contains('\r')
        && text.matches('\n').count() == text.matches("\r\n").count();
    let content = if windows {
        plain(text)
    } else {
        text.to_owned()
    };
    let done =
        edit::replace(&content, &plain(old), &plain(new), all).map_err(|error| match error {
            ReplaceError::Empty => PatchError::Empty,
            ReplaceError::Identical => PatchError::Same,
            ReplaceError::NotFound | ReplaceError::GaveUp => PatchError::NotFound,
            ReplaceError::Ambiguous { count, .. } => PatchError::Ambiguous(count),
            ReplaceError::StrayBackslash(sequence) => PatchError::StrayBackslash(sequence),
        })?;
    Ok(Patched {
        text: if windows {
            done.text.replace('\n', "\r\n")
        } else {
            done.text
        },
        replacements: done.count,
    })
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
        fn a_text_that_is_there_is_changed_and_only_there(
            text in "[ab \n]{0,40}", old in "[ab]{1,3}", new in "[xyz \n]{0,5}"
        ) {
            let count = (0..text.len()).filter(|at| text[*at..].starts_with(&old)).count();
            prop_assume!(count > 0 && old != new);
            match patch(&text, &old, &new, false) {
                Ok(done) => {
                    prop_assert_eq!(count, 1);
                    prop_assert_eq!(done.text, text.replacen(&old, &new, 1));
                    prop_assert_eq!(done.replacements, 1);
                }
                Err(PatchError::Ambiguous(_)) => prop_assert!(count > 1),
                Err(other) => prop_assert!(false, "{}", other),
            }
            let all = patch(&text, &old, &new, true).map(|done| done.text);
            prop_assert_eq!(all.unwrap(), text.replace(&old, &new));
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
