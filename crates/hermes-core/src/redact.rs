//! Hides secrets in text for people, logs or models.
//!
//! Known secrets ([`remember`]) are hidden everywhere, whatever they look like; text that merely
//! looks like a credential is cut to its first characters. Only for display, never for text that is
//! executed.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

/// Prefixes of keys of well-known services.
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

/// Shorter words are never treated as keys.
const MIN_SECRET: usize = 16;

/// Shorter values are too common to be hidden everywhere.
const MIN_KNOWN: usize = 8;

/// The secrets of this process: value and name, longest first. They are global rather than per
/// session, because logs and errors must not show them either.
static KNOWN: RwLock<Option<Secrets>> = RwLock::new(None);

type Secrets = Arc<[(String, String)]>;

/// Hides these values from now on. Each comes with the name that is shown instead.
pub fn remember<N: Into<String>, V: AsRef<str>>(secrets: impl IntoIterator<Item = (N, V)>) {
    let mut all: Vec<(String, String)> = known_values().to_vec();
    for (name, value) in secrets {
        let (name, value) = (name.into(), value.as_ref().trim());
        if value.chars().count() < MIN_KNOWN {
            continue;
        }
        for form in forms(value) {
            if !all.iter().any(|(known, _)| *known == form) {
                all.push((form, name.clone()));
            }
        }
    }
    // A secret that contains another one is hidden as a whole.
    all.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    *KNOWN.write().unwrap_or_else(PoisonError::into_inner) = Some(all.into());
}

/// `text` without the secrets that are known by value.
pub fn known(text: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    for (value, name) in known_values().iter() {
        if out.contains(value.as_str()) {
            out = out
                .replace(value.as_str(), &format!("[hidden: {name}]"))
                .into();
        }
    }
    out
}

fn known_values() -> Secrets {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.clone().unwrap_or_else(|| Arc::new([]))
}

/// A value as it is, in base64, in hex, and URL-encoded.
fn forms(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    // Without the last bytes, whose encoding depends on what follows.
    let whole = bytes.len() / 3 * 3;
    let (mut hex, mut address) = (String::new(), String::new());
    for &byte in bytes {
        let _ = write!(hex, "{byte:02x}");
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    vec![value.to_owned(), base64(&bytes[..whole]), hex, address]
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters = |group: &[u8]| {
        let bits = group
            .iter()
            .fold(0, |bits, &byte| bits << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[bits >> shift & 63]))
    };
    bytes.chunks_exact(3).flat_map(letters).collect()
}

/// `text` without known secrets, and with everything that looks like a credential cut to its first
/// characters.
pub fn secrets(text: &str) -> Cow<'_, str> {
    on_top_of_known(text, |text| {
        if !text.contains("://") {
            return patterns(text, true);
        }
        let shown = parameters(&addresses(text));
        let shown = patterns(&shown, true);
        if shown == text {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(shown.into_owned())
        }
    })
}

/// `text` without the values of parameters of addresses that hold secrets by their name: `…?token=value`.
fn parameters(text: &str) -> String {
    let is_end = |letter: char| letter.is_whitespace() || "\"'<>`)".contains(letter);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = rest.find("://") {
        let end = rest[found..]
            .find(is_end)
            .map_or(rest.len(), |end| found + end);
        let (address, behind) = rest.split_at(end);
        let query = address[found..].find('?');
        let query = query.map_or(end, |at| found + at + 1);
        out.push_str(&address[..query]);
        for pair in address[query..].split_inclusive(['&', '#']) {
            match pair.split_once('=') {
                Some((name, value)) if is_secret_parameter(name) && !value.starts_with('$') => {
                    let closing = value.find(['&', '#']).map_or("", |at| &value[at..]);
                    out.push_str(name);
                    out.push_str("=…");
                    out.push_str(closing);
                }
                _ => out.push_str(pair),
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let words = [
        "key",
        "token",
        "secret",
        "password",
        "passwd",
        "auth",
        "sig",
        "signature",
        "code",
    ];
    is_secret_name(&name) || name.split('_').any(|word| words.contains(&word)) || name == "apikey"
}

/// `text` without passwords in addresses: `scheme://user:password@host`. A reference to a variable
/// is kept.
pub fn addresses(text: &str) -> Cow<'_, str> {
    const SCHEME: &str = "://";
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(SCHEME) {
        let start = at + found + SCHEME.len();
        at = start;
        let end = text[start..].find(|letter: char| {
            letter.is_whitespace() || matches!(letter, '/' | '"' | '\'' | '<' | '>' | '`')
        });
        let authority = &text[start..end.map_or(text.len(), |end| start + end)];
        let Some((user, _)) = authority.rsplit_once('@') else {
            continue;
        };
        let Some((name, password)) = user.split_once(':') else {
            continue;
        };
        if password.is_empty() || password.starts_with('$') {
            continue;
        }
        let from = start + name.len() + 1;
        let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
        out.push_str(&text[copied..from]);
        out.push('…');
        copied = from + password.len();
    }
    match out {
        Some(mut out) => {
            out.push_str(&text[copied..]);
            Cow::Owned(out)
        }
        None => Cow::Borrowed(text),
    }
}

/// Like [`secrets`], for text that is worked on (code, command output): only text that looks like a
/// key of a well-known service is cut; a long word after `token =` may be anything.
pub fn keys(text: &str) -> Cow<'_, str> {
    on_top_of_known(text, |text| patterns(text, false))
}

fn on_top_of_known<'a>(
    text: &'a str,
    cut: impl for<'b> Fn(&'b str) -> Cow<'b, str>,
) -> Cow<'a, str> {
    match known(text) {
        Cow::Borrowed(text) => cut(text),
        Cow::Owned(text) => Cow::Owned(cut(&text).into_owned()),
    }
}

fn patterns(text: &str, assignments: bool) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut after_bearer = false;
    let mut after_name = false;
    for (start, word) in words(text) {
        let secret = word.len() >= MIN_SECRET
            && (after_bearer
                || (assignments && after_name && !word.contains("://"))
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

/// Whether a variable or key of this name contains a secret.
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
    fn addresses_lose_their_passwords_and_nothing_else() {
        for (text, wanted) in [
            ("https://u:pass-word@x.example/a", "https://u:…@x.example/a"),
            (
                "a: postgres://me:p@ss@db:5432 b",
                "a: postgres://me:…@db:5432 b",
            ),
            ("http://[::1]:80/@x", "http://[::1]:80/@x"),
            ("https://u:${PASSWORD}@x", "https://u:${PASSWORD}@x"),
            ("https://x.example:8080/a@b", "https://x.example:8080/a@b"),
            ("https://u:p", "https://u:p"),
        ] {
            assert_eq!(addresses(text), wanted);
        }
    }

    #[test]
    fn addresses_lose_parameters_that_are_secret() {
        for (text, wanted) in [
            (
                "why? (http://h/m?token=abc&x=1#f): no",
                "why? (http://h/m?token=…&x=1#f): no",
            ),
            (
                "http://h/?api-key=a1&access_token=b#c",
                "http://h/?api-key=…&access_token=…#c",
            ),
            (
                "http://h/?q=key&page=2 http://i/?sig=x",
                "http://h/?q=key&page=2 http://i/?sig=…",
            ),
            ("http://h/?token=${TOKEN}", "http://h/?token=${TOKEN}"),
            ("a ? b : c", "a ? b : c"),
        ] {
            assert_eq!(secrets(text), wanted);
        }
    }

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
    fn what_is_known_is_hidden_however_it_is_written() {
        remember([("LAB_PASSWORD", "correct horse/battery"), ("PIN", "1234")]);
        for shown in [
            "correct horse/battery",
            "correct%20horse%2Fbattery",
            "Y29ycmVjdCBob3JzZS9iYXR0ZXJ5Cg==",
            "636f727265637420686f7273652f62617474657279",
        ] {
            let hidden = known(shown);
            assert!(hidden.starts_with("[hidden: LAB_PASSWORD]"), "{hidden}");
        }
        assert_eq!(known("my PIN is 1234"), "my PIN is 1234");
        assert_eq!(
            keys("token = correct horse/battery # of_a_long_variable_name"),
            "token = [hidden: LAB_PASSWORD] # of_a_long_variable_name"
        );
    }

    #[test]
    fn code_keeps_what_only_an_assignment_makes_suspicious() {
        let code = "api_key = settings.read_the_value_of_it";
        assert_eq!(keys(code), code);
        assert_eq!(keys("x = sk-abcdefghijklmnop1234"), "x = sk-a…");
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
