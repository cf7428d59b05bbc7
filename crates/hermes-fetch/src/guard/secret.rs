//! Credentials in addresses: what an address must not disclose.

use std::sync::LazyLock;

use regex::Regex;
use url::Url;

/// Patterns of keys of well-known services. They are case-sensitive and respect word boundaries.
static KEYS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let shapes = [
        "sk-[A-Za-z0-9_-]{10,}",
        "sk_[A-Za-z0-9_]{10,}",
        "rk_live_[A-Za-z0-9]{10,}",
        "gh[pousr]_[A-Za-z0-9]{10,}",
        "github_pat_[A-Za-z0-9_]{10,}",
        "glpat-[A-Za-z0-9_-]{10,}",
        r"xapp-\d+-[A-Za-z0-9-]{10,}",
        "xox[baprs]-[A-Za-z0-9-]{10,}",
        "AIza[A-Za-z0-9_-]{30,}",
        "AKIA[A-Z0-9]{16}",
        "pplx-[A-Za-z0-9]{10,}",
        "fal_[A-Za-z0-9_-]{10,}",
        "fc-[A-Za-z0-9]{10,}",
        "bb_live_[A-Za-z0-9_-]{10,}",
        "gAAAA[A-Za-z0-9_=-]{20,}",
        r"SG\.[A-Za-z0-9_-]{10,}",
        "hf_[A-Za-z0-9]{10,}",
        "r8_[A-Za-z0-9]{10,}",
        "npm_[A-Za-z0-9]{10,}",
        "pypi-[A-Za-z0-9_-]{40,}",
        "do[op]_v1_[A-Za-z0-9]{10,}",
        "tvly-[A-Za-z0-9-]{10,}",
        "exa_[A-Za-z0-9]{10,}",
        "gsk_[A-Za-z0-9]{10,}",
        "syt_[A-Za-z0-9]{10,}",
        "mem0_[A-Za-z0-9]{10,}",
        "xai-[A-Za-z0-9]{30,}",
        "ntn_[A-Za-z0-9]{10,}",
        "nvapi-[A-Za-z0-9_-]{20,}",
        "f(?:w[-_]|pk_)[A-Za-z0-9]{30,}",
        // A signed token: two JSON objects in base64.
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    ];
    Regex::new(&format!(
        "(?:^|[^A-Za-z0-9_-])(?:{})(?:$|[^A-Za-z0-9_-])",
        shapes.join("|")
    ))
    .ok()
});

/// Names of query parameters that can only be credentials. Ambiguous words (`key`, `code`, `session`) are not
/// included.
const PARAMETERS: [&str; 20] = [
    "access_token",
    "api_key",
    "api-key",
    "apikey",
    "auth_token",
    "authorization",
    "awsaccesskeyid",
    "client_secret",
    "credential",
    "credentials",
    "jwt",
    "passwd",
    "password",
    "secret",
    "session_id",
    "signature",
    "token",
    "x_amz_signature",
    "x-amz-security-token",
    "x-amz-signature",
];

/// Whether `text` contains something that looks like a key, plainly or percent-encoded (once or twice).
pub(super) fn looks_like_key(text: &str) -> bool {
    let Some(keys) = KEYS.as_ref() else {
        return false;
    };
    forms(text).iter().any(|form| keys.is_match(form))
}

/// The first query parameter with a value whose name denotes a credential.
pub(super) fn secret_parameter(url: &Url) -> Option<String> {
    url.query_pairs()
        .find(|(name, value)| {
            !value.is_empty() && PARAMETERS.contains(&name.to_ascii_lowercase().as_str())
        })
        .map(|(name, _)| name.into_owned())
}

/// `text` as it is, decoded, and decoded again.
pub(super) fn forms(text: &str) -> Vec<String> {
    let mut forms = vec![text.to_owned()];
    for _ in 0..2 {
        let last = forms.last().map_or("", String::as_str);
        let next = decode(last);
        if next == last {
            break;
        }
        forms.push(next);
    }
    forms
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |byte: Option<&u8>| byte.and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], hex(bytes.get(at + 1)), hex(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_seen_through_encoding() {
        for text in [
            "https://evil.test/?q=sk-abcdefghijklmnop",
            "https://evil.test/sk-ant-abcdefghijk/x",
            "https://evil.test/?q=%73k-abcdefghijklmnop",
            "https://evil.test/?q=%2573k-abcdefghijklmnop",
            "https://evil.test/ghp_0123456789abcdef",
            "https://AKIA0123456789ABCDEF.evil.test",
            "https://evil.test/?x=eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        ] {
            assert!(looks_like_key(text), "{text}");
        }
        for text in [
            "https://example.org/task-based-asyncio-programming",
            "https://example.org/risk-assessment-methodology",
            "https://example.org/wiki/SK-II",
            "https://example.org/?q=hf_short",
            "https://github.com/rust-lang/rust/commit/0123456789abcdef0123456789abcdef01234567",
        ] {
            assert!(!looks_like_key(text), "{text}");
        }
    }

    #[test]
    fn parameters_that_can_only_be_credentials() {
        let name = |url: &str| secret_parameter(&url.parse().unwrap());
        assert_eq!(
            name("https://x.test/?a=1&Access_Token=zzz").as_deref(),
            Some("Access_Token")
        );
        assert_eq!(
            name("https://x.test/?%74oken=zzz").as_deref(),
            Some("token")
        );
        assert_eq!(name("https://x.test/?token="), None);
        assert_eq!(name("https://x.test/?key=1&code=2&session=3&sig=4"), None);
    }
}
