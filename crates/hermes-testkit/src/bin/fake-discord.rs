//! Discord on loopback as a program: `fake-discord [port]`.
//!
//! Prints `{"api": …, "gateway": …, "token": …}` and takes orders at `POST <root>/control`. Ends
//! when its standard input does, so that it never outlives the program that started it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of the test kit talks to whoever started it"
)]

use std::io::Read;
use std::process::ExitCode;

use hermes_testkit::discord::{BOT, FakeDiscord, GUILD, TOKEN};
use serde_json::json;

fn main() -> ExitCode {
    let port = match std::env::args().nth(1).map(|text| text.parse::<u16>()) {
        None => 0,
        Some(Ok(port)) => port,
        Some(Err(_)) => {
            eprintln!("usage: fake-discord [port]");
            return ExitCode::from(2);
        }
    };
    let fake = FakeDiscord::start_on(port);
    println!(
        "{}",
        json!({
            "root": fake.root_url(), "api": fake.api_url(), "gateway": fake.gateway_url(),
            "token": TOKEN, "bot": BOT.to_string(), "guild": GUILD.to_string(),
        })
    );
    // Whatever ends the pipe ends the fake.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}
