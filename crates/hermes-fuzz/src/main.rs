//! Runs a fuzz target under libFuzzer. Start it with `cargo xtask fuzz`, which builds it with
//! `--cfg fuzzing`; in other builds it holds nothing.
//!
//! The targets live beside what they check, in `fuzz.rs` of each crate, where the ordinary test run
//! tries them too (`hermes_testkit::fuzz`). A target is a function of bytes that panics when an
//! invariant does not hold.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod under_libfuzzer {
    use std::sync::LazyLock;

    type Target = (&'static str, fn(&[u8]));

    /// The name is that of its corpus.
    const TARGETS: &[Target] = &[
        ("arguments", hermes_agent::fuzz::arguments),
        ("dotenv", hermes_config::fuzz::dotenv),
        ("jobs", hermes_store::fuzz::jobs),
        ("keys", hermes_tui::fuzz::keys),
        ("mcp-stdio", hermes_mcp::fuzz::stdio),
        ("shell", hermes_policy::fuzz::shell),
        ("sse", hermes_http::fuzz::sse),
        ("yaml", hermes_config::fuzz::yaml),
    ];

    static CHECK: LazyLock<fn(&[u8])> = LazyLock::new(|| {
        let name = std::env::var("HERMES_FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(target, _)| *target == name);
        match found {
            Some((_, check)) => *check,
            None => panic!("HERMES_FUZZ_TARGET={name:?} is not a target"),
        }
    });

    libfuzzer_sys::fuzz_target!(|data: &[u8]| CHECK(data));
}

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
