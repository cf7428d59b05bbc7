//! Two SDKs of others against the fake Telegram: they take it for the real one.
//!
//! Needs a Python with `python-telegram-bot` and `aiogram`, installed by `cargo xtask setup` or
//! named by `HERMES_TELEGRAM_SDKS`.

use std::path::PathBuf;

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_testkit::process::Program;
use hermes_testkit::telegram::{FakeTelegram, TOKEN};
use serde_json::json;

fn certify(script: &str, name: &str) {
    let named = std::env::var_os("HERMES_TELEGRAM_SDKS").map(PathBuf::from);
    let usual = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/telegram-sdks/bin/python"
    ));
    let python = named.unwrap_or(usual);
    if !python.exists() {
        oracle::skip("SDKs for Telegram; run `cargo xtask setup`", name);
        return;
    }
    let telegram = FakeTelegram::start();
    let home = TempHome::new();
    let script = format!("{}/sdk/telegram/{script}", env!("CARGO_MANIFEST_DIR"));
    let control = format!("{}/control", telegram.root_url());
    let done = Program::new(python, &home)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args([
            &script,
            &telegram.base_url(),
            &telegram.base_file_url(),
            TOKEN,
            &control,
        ])
        .run()
        .ok();
    assert_eq!(done.json(), json!({"certified": name}), "{}", done.stderr);
}

#[test]
fn python_telegram_bot_takes_the_fake_for_telegram() {
    certify("ptb.py", "python-telegram-bot");
}

#[test]
fn aiogram_takes_the_fake_for_telegram() {
    certify("aiogram_sdk.py", "aiogram");
}
