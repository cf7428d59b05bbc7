//! Telegram's Bot API as a program: `fake-telegram [port]`.
//!
//! Prints `{"base_url": …, "base_file_url": …, "token": …, "control": …}` and serves until its
//! standard input ends, so that it never outlives the program that started it. People are played
//! through the control address (`POST {"do": "say", …}`).
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of the test kit talks to whoever started it"
)]

use std::io::Read;
use std::net::SocketAddr;
use std::process::ExitCode;

use hermes_testkit::telegram::{FakeTelegram, TOKEN};
use serde_json::json;

fn main() -> ExitCode {
    let port = match std::env::args().nth(1).map(|text| text.parse::<u16>()) {
        None => 0,
        Some(Ok(port)) => port,
        Some(Err(error)) => {
            eprintln!("usage: fake-telegram [port]: {error}");
            return ExitCode::from(2);
        }
    };
    let telegram = FakeTelegram::start_on(SocketAddr::from(([127, 0, 0, 1], port)));
    println!(
        "{}",
        json!({
            "base_url": telegram.base_url(),
            "base_file_url": telegram.base_file_url(),
            "token": TOKEN,
            "control": format!("{}/control", telegram.root_url()),
        })
    );
    // Whatever ends the pipe ends the server.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}
