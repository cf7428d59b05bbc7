//! The fake Slack as a program: `fake-slack`.
//!
//! Prints one line of JSON with its addresses and tokens, and takes commands by `POST` to
//! `control_url`. Ends when its standard input does, so that it never outlives the program that
//! started it.
#![expect(
    clippy::print_stdout,
    reason = "a program of the test kit talks to whoever started it"
)]

use std::io::Read;

use hermes_testkit::slack::{APP_TOKEN, FakeSlack};
use serde_json::json;

fn main() {
    let slack = FakeSlack::start();
    println!(
        "{}",
        json!({
            "api_url": slack.api_url(),
            "control_url": slack.control_url(),
            "app_token": APP_TOKEN,
            "bot_token": "xoxb-T1",
        })
    );
    // Whatever ends the pipe ends the server.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
