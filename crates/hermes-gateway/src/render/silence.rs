//! Recognises answers that mean "send nothing" (`NO_REPLY`, `[SILENT]`).

const TOKENS: [&str; 4] = ["[SILENT]", "SILENT", "NO_REPLY", "NO REPLY"];
const MAX_SILENT_CHARS: usize = 64;

/// Whether the whole text is a silence token or a statement of silence. A text that mentions a
/// token is a normal text; an empty one is a failure.
pub fn is_silence(text: &str) -> bool {
    candidates(text).any(|one| TOKENS.contains(&one.as_str())) || is_narrated(text)
}

/// Whether a text that is still growing may become a token: it is not shown yet.
pub fn may_become_silence(text: &str) -> bool {
    candidates(text)
        .any(|one| !one.is_empty() && TOKENS.iter().any(|token| token.starts_with(&one)))
}

/// Normalized spellings of the text, with and without surrounding marks.
fn candidates(text: &str) -> impl Iterator<Item = String> {
    let text = text.trim();
    let short = !text.is_empty() && text.chars().count() <= MAX_SILENT_CHARS;
    let bare = text
        .trim_matches(|ch: char| !"[]".contains(ch) && is_mark(ch))
        .trim();
    [text, bare].into_iter().filter(move |_| short).map(|text| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").to_uppercase()
    })
}

fn is_mark(ch: char) -> bool {
    if ch.is_ascii() {
        return ch.is_ascii_punctuation() && !"$+<=>^`|~".contains(ch);
    }
    matches!(ch, '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{3001}'..='\u{3003}'
        | '\u{3008}'..='\u{3011}' | '\u{ff01}'..='\u{ff0f}' | '¡' | '¿' | '«' | '»' | '·')
}

/// `*(silent)*`, `…`, `🔇` and the like.
fn is_narrated(text: &str) -> bool {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_SILENT_CHARS {
        return false;
    }
    let core = text
        .trim_matches(|ch: char| "*_~`()[]".contains(ch) || ch.is_whitespace())
        .trim_end_matches(['.', '…'])
        .to_lowercase();
    let wrapped = text.starts_with(['*', '_', '(', '[']) && text.ends_with(['*', '_', ')', ']']);
    matches!(text, "…" | "..." | "🔇" | "🤫" | "🤐")
        || (wrapped
            && matches!(
                core.as_str(),
                "silent"
                    | "silence"
                    | "no reply"
                    | "no response"
                    | "stays silent"
                    | "remains silent"
            ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_the_whole_text() {
        for text in [
            "NO_REPLY",
            " no_reply\n",
            "*NO_REPLY*",
            ".NO REPLY",
            "[silent]",
            "Silent.",
            "…",
            "🔇",
            "*(silent)*",
            "_(no reply)_",
        ] {
            assert!(is_silence(text), "{text}");
        }
        for text in [
            "",
            " ",
            "[SILENT",
            "I will stay silent",
            "NO_REPLY means silence",
            "silent night",
            "No.",
        ] {
            assert!(!is_silence(text), "{text}");
        }
    }

    #[test]
    fn a_growing_token_is_held_back() {
        for text in ["N", "NO", "NO_RE", "[SIL", "no_reply"] {
            assert!(may_become_silence(text), "{text}");
        }
        for text in ["", "Now", "NO_REPLY to that", "Hello"] {
            assert!(!may_become_silence(text), "{text}");
        }
    }
}
