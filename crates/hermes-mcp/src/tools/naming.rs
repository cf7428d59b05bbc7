//! Names of remote tools: `mcp__<server>__<tool>`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

/// Providers refuse longer names.
const MAX_NAME_LENGTH: usize = 64;
/// Number of hex digits that keep truncated names distinct.
const HASH_DIGITS: usize = 8;

/// `mcp__<server>__<tool>`, in the alphabet and length that every provider accepts.
pub fn tool_name(server: &str, tool: &str) -> String {
    clamp(&format!("mcp__{}__{}", component(server), component(tool)))
}

/// One part of a name, with `_` for everything but ASCII letters, digits and `_`.
pub fn component(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

fn clamp(name: &str) -> String {
    if name.len() <= MAX_NAME_LENGTH {
        return name.to_owned();
    }
    let head = &name[..MAX_NAME_LENGTH - HASH_DIGITS - 1];
    format!("{head}_{}", short_hash(name, HASH_DIGITS))
}

/// The first hex digits of the SHA-256 of `text`.
pub(crate) fn short_hash(text: &str, digits: usize) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex.truncate(digits);
    hex
}

/// `mcp-<server>`: the toolset of a server. Leaked on purpose: there are only as many as servers
/// were ever configured.
pub fn toolset(server: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let name = format!("mcp-{server}");
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let leaked: &'static str = Box::leak(name.into_boxed_str());
    names.insert(leaked);
    leaked
}

/// The environment variable in which `hermes mcp add --auth header` stores a server's key.
pub fn key_variable(server: &str) -> String {
    format!("MCP_{}_API_KEY", component(server).to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_built_from_server_and_tool() {
        assert_eq!(
            tool_name("github", "list_issues"),
            "mcp__github__list_issues"
        );
        assert_eq!(
            tool_name("my-server.io", "a/b c"),
            "mcp__my_server_io__a_b_c"
        );
        assert_eq!(tool_name("s", "größe"), "mcp__s__gr__e");
        assert_eq!(key_variable("my-srv"), "MCP_MY_SRV_API_KEY");
    }

    #[test]
    fn long_names_keep_their_head_and_differ_by_hash() {
        let long = "x".repeat(80);
        let (a, b) = (
            tool_name("s", &format!("{long}a")),
            tool_name("s", &format!("{long}b")),
        );
        assert_eq!(a.len(), 64);
        assert_ne!(a, b);
        assert!(a.starts_with("mcp__s__xxxx"));
        assert_eq!(a, tool_name("s", &format!("{long}a")));
    }

    #[test]
    fn a_toolset_name_is_made_once() {
        assert_eq!(toolset("a"), "mcp-a");
        assert!(std::ptr::eq(toolset("b"), toolset("b")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_name_is_one_that_providers_take(server in ".*", tool in ".*") {
            let name = tool_name(&server, &tool);
            prop_assert!(name.len() <= 64);
            prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        }
    }
}
