//! Slack's own SDK against the fake Slack: so the fake is what Slack is, as far as the vendor's
//! program can tell.
//!
//! Needs a Python with `slack_sdk` and `slack_bolt`, installed by `cargo xtask setup` or named by
//! `HERMES_SLACK_SDK`.

use std::path::PathBuf;

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_testkit::process::Program;
use hermes_testkit::slack::FakeSlack;

#[test]
fn slacks_own_sdk_takes_the_fake_for_slack() {
    let named = std::env::var_os("HERMES_SLACK_SDK").map(PathBuf::from);
    let usual = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/slack-sdk/bin/python"
    ));
    let python = named.unwrap_or(usual);
    if !python.exists() {
        oracle::skip(
            "Slack SDK; run `cargo xtask setup`",
            "slacks_own_sdk_takes_the_fake_for_slack",
        );
        return;
    }
    let slack = FakeSlack::start();
    let home = TempHome::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/sdk/slack/certify.py");
    let done = Program::new(python, &home)
        .args([script, &slack.api_url(), &slack.control_url()])
        .run()
        .ok();
    assert_eq!(done.stdout.trim(), "certified", "{}", done.stderr);
}
