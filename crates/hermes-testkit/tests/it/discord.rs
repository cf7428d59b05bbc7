//! discord.py against the fake Discord: so the fake is what Discord is, as far as the program that
//! most bots are written with can tell.
//!
//! Needs a Python with `discord.py`, installed by `cargo xtask setup` or named by
//! `HERMES_DISCORD_SDK`.

use std::path::PathBuf;

use hermes_testkit::discord::{FakeDiscord, TOKEN};
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_testkit::process::Program;
use serde_json::json;

#[test]
fn discord_py_takes_the_fake_for_discord() {
    let named = std::env::var_os("HERMES_DISCORD_SDK").map(PathBuf::from);
    let usual = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/discord-sdk/bin/python"
    ));
    let python = named.unwrap_or(usual);
    if !python.exists() {
        oracle::skip(
            "discord.py; run `cargo xtask setup`",
            "discord_py_takes_the_fake_for_discord",
        );
        return;
    }
    let discord = FakeDiscord::start();
    let home = TempHome::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/sdk/discord/certify.py");
    let place = json!({
        "root": discord.root_url(), "api": discord.api_url(),
        "gateway": discord.gateway_url(), "token": TOKEN,
    });
    let done = Program::new(python, &home)
        .args([script, &place.to_string()])
        .run()
        .ok();
    assert_eq!(done.stdout.lines().last(), Some("all"), "{}", done.stderr);
}
