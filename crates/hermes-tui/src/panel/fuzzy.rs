//! Fuzzy matching.

use unicode_segmentation::UnicodeSegmentation as _;

/// Higher is better; `None`: no match. Every word of `query` must match, in any order.
///
/// `name` may also match letter by letter (`qcd` finds `qwen-coder`); `rest` must contain the whole
/// word, otherwise long texts would match everything.
pub(crate) fn score(name: &str, rest: &str, query: &str) -> Option<i32> {
    let name = name.to_lowercase();
    let rest = rest.to_lowercase();
    let mut sum = 0;
    for word in query.to_lowercase().split_whitespace() {
        sum += whole(&name, word)
            .map(|score| score + 2000)
            .or_else(|| whole(&rest, word))
            .or_else(|| scattered(&name, word))?;
    }
    Some(sum)
}

/// The word as a substring: the whole text, its beginning, the beginning of a word in it, anywhere.
fn whole(text: &str, word: &str) -> Option<i32> {
    if text == word {
        return Some(4000);
    }
    if text.starts_with(word) {
        return Some(3000);
    }
    let mut found = text.match_indices(word).peekable();
    found.peek()?;
    let begins = found.any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_some_and(|c| !c.is_alphanumeric())
    });
    Some(if begins { 2000 } else { 1000 })
}

/// The letters in this order; the closer together, the better.
fn scattered(text: &str, word: &str) -> Option<i32> {
    let letters: Vec<&str> = text.graphemes(true).collect();
    let wanted: Vec<&str> = word.graphemes(true).collect();
    let mut end = 0;
    for grapheme in &wanted {
        end += letters[end..].iter().position(|g| g == grapheme)? + 1;
    }
    // Scanning backwards from the end finds the closest positions.
    let mut start = end;
    for grapheme in wanted.iter().rev() {
        start = letters[..start].iter().rposition(|g| g == grapheme)?;
    }
    let spread = end - start - wanted.len();
    // Letters scattered over a whole sentence match by chance.
    (spread <= 2 * wanted.len() + 2).then(|| 900 - i32::try_from(spread).unwrap_or(900))
}

#[cfg(test)]
mod tests {
    use super::score;

    #[test]
    fn the_closer_the_better() {
        let of = |name| score(name, "", "qwen").unwrap_or(-1);
        assert!(of("qwen") > of("qwen3:8b"));
        assert!(of("qwen3:8b") > of("openrouter/qwen"));
        assert!(of("openrouter/qwen") > of("xqwen"));
        assert!(of("xqwen") > of("q-w-e-n"));
        assert_eq!(score("gemma", "", "qwen"), None);
    }

    #[test]
    fn every_word_is_found_somewhere() {
        assert!(score("qwen3:8b", "ollama on this machine", "machine QW").is_some());
        assert!(score("qwen3:8b", "ollama", "qw lmstudio").is_none());
        assert!(score("anything", "", "  ").is_some());
    }

    #[test]
    fn letters_in_order_fit_a_name_but_no_long_text() {
        assert!(score("qwen-coder", "", "qcd").is_some());
        assert!(score("x", "a question, considered at length", "qcd").is_none());
        assert!(score("ab-c", "", "abc").unwrap_or(0) > score("a---b---c", "", "abc").unwrap_or(0));
        assert!(score("a-----b-----c", "", "abc").is_none());
        assert!(score("家族 👩‍👩‍👧", "", "族👩‍👩‍👧").is_some());
    }
}
