//! Hides secrets in text that people, logs or other models will read.

use std::borrow::Cow;

/// How keys of well-known services begin.
const PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "gsk_",
    "hf_",
    "AIza",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "nvapi-",
    "xai-",
    "AKIA",
    "ya29.",
    "eyJ",
    "glpat-",
    "npm_",
    "pypi-",
];

/// Names of assignments whose value is hidden.
const NAMES: &[&str] = &[
    "api_key", "apikey", "api-key", "token", "secret", "password", "passwd",
];

/// Shorter words are never taken for keys.
const MIN_SECRET: usize = 16;

/// `text` with everything that looks like a credential cut to its first characters.
pub fn secrets(text: &str) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut after_bearer = false;
    let mut after_name = false;
    for (start, word) in words(text) {
        let secret = word.len() >= MIN_SECRET
            && (after_bearer
                || (after_name && !word.contains("://"))
                || PREFIXES.iter().any(|prefix| word.starts_with(prefix)));
        if secret {
            let shown = word.char_indices().nth(4).map_or(word.len(), |(at, _)| at);
            let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
            out.push_str(&text[copied..start + shown]);
            out.push('…');
            copied = start + word.len();
        }
        after_bearer = word.eq_ignore_ascii_case("bearer");
        after_name = is_secret_name(word) && assigns(&text[start + word.len()..]);
    }
    match out {
        Some(mut out) => {
            out.push_str(&text[copied..]);
            Cow::Owned(out)
        }
        None => Cow::Borrowed(text),
    }
}

/// Whether a variable or key of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    NAMES.iter().any(|secret| lower.ends_with(secret))
}

fn assigns(rest: &str) -> bool {
    rest.trim_start_matches(['"', '\'', ' '])
        .starts_with(['=', ':'])
}

fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_./+".contains(c) || !c.is_ascii();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        let end = text[start..]
            .find(|c| !is_word(c))
            .map_or(text.len(), |len| start + len);
        at = end;
        Some((start, &text[start..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cut_wherever_they_stand() {
        for (text, shown) in [
            ("key sk-abcdefghijklmnop1234 rejected", "key sk-a… rejected"),
            (
                "Authorization: Bearer abcdefghijklmnopqrstuvwxyz",
                "Authorization: Bearer abcd…",
            ),
            ("FOO_API_KEY=0123456789abcdef0123", "FOO_API_KEY=0123…"),
            (
                r#"{"access_token": "0123456789abcdefgh"}"#,
                r#"{"access_token": "0123…"}"#,
            ),
        ] {
            assert_eq!(secrets(text), shown);
        }
    }

    #[test]
    fn ordinary_text_is_untouched() {
        for text in [
            "the token limit is 4096",
            "max_tokens: 4096",
            "see https://example.org/a/very/long/path?x=1",
            "日本語のテキスト sk-short",
            "",
        ] {
            assert!(
                matches!(secrets(text), Cow::Borrowed(same) if same == text),
                "{text}"
            );
        }
    }
}
