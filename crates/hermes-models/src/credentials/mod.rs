//! API keys: where they come from, which one is used, and how long a failed one is paused.
//!
//! [`KeyPool`] holds the keys of one provider in memory. [`store::AuthStore`] reads auth.json and
//! writes the state of its entries back; [`manage`] adds and removes entries.

pub mod manage;
mod pool;
pub mod store;

use secrecy::{ExposeSecret as _, SecretString};

pub use pool::KeyStatus;
pub(crate) use pool::{KeyFailure, KeyPool, RotationStrategy};

/// One key.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The id in auth.json, or the label for a key stored elsewhere.
    pub id: String,
    /// Names the key without revealing it: `env:OPENROUTER_API_KEY`, `pool:work`.
    pub label: String,
    pub secret: SecretString,
    /// The only address at which the key works, if the store restricts it.
    pub base_url: Option<String>,
    pub status: KeyStatus,
    pub request_count: u64,
    /// Whether auth.json has an entry for this key's state.
    pub stored: bool,
}

impl Credential {
    /// A key from config or environment.
    pub fn new(label: impl Into<String>, secret: SecretString) -> Self {
        let label = label.into();
        Self {
            id: label.clone(),
            label,
            secret,
            base_url: None,
            status: KeyStatus::Ready,
            request_count: 0,
            stored: false,
        }
    }

    /// The label of the route: names the credential without revealing it.
    pub fn same_secret(&self, other: &SecretString) -> bool {
        self.secret.expose_secret() == other.expose_secret()
    }
}

/// Whether a value can be a key of `provider`: no placeholder, and no token that was issued to
/// another vendor's own client.
pub fn is_usable_for(provider: &str, value: &str) -> bool {
    let external = provider == "anthropic" && value.trim().starts_with("sk-ant-oat");
    hermes_config::env::is_usable_secret(value) && !external
}

/// How auth.json recognises a key without containing it.
pub fn fingerprint(secret: &str) -> String {
    use std::fmt::Write as _;

    use sha2::{Digest as _, Sha256};

    let digest = Sha256::digest(secret.as_bytes());
    let mut text = String::from("sha256:");
    for byte in &digest[..8] {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_and_borrowed_tokens_are_no_keys() {
        assert!(is_usable_for("openrouter", "sk-or-v1-abc"));
        for placeholder in ["", "***", "changeme", "your_api_key_here", "None", "abc"] {
            assert!(!is_usable_for("openrouter", placeholder), "{placeholder}");
        }
        assert!(!is_usable_for("anthropic", "sk-ant-oat01-xyz"));
        assert!(is_usable_for("anthropic", "sk-ant-api03-xyz"));
    }

    #[test]
    fn fingerprints_are_the_originals() {
        // From a home of the Python original: the key of that home was sk-mock-2.
        assert_eq!(fingerprint("sk-mock-2"), "sha256:e79710afebf091ed");
    }
}
