//! Who may talk, and setting platforms up: from the command line.

use std::sync::Arc;

use hermes_config::Home;
use hermes_core::clock::SystemClock;
use hermes_gateway::{Pairing, PairingReply};
use hermes_testkit::home::TempHome;
use pretty_assertions::assert_eq;

use crate::hermes;

fn ask(home: &TempHome, user: &str) -> String {
    let pairing = Pairing::new(&Home::at(home.path()), Arc::new(SystemClock));
    let asked = pairing.request("telegram", user, "Ana").unwrap();
    let PairingReply::Code(code) = asked else {
        unreachable!("{asked:?}");
    };
    code
}

#[test]
fn strangers_are_let_in_by_code_handle_or_id_and_out_again() {
    let home = TempHome::new();
    let run = |words: &[&str]| hermes(&home).args(["pairing"]).args(words).run();
    let code = ask(&home, "7");
    ask(&home, "8");
    ask(&home, "9");
    let list = run(&["list", "--json"]).ok().json();
    assert_eq!(list["pending"].as_array().unwrap().len(), 3);
    let handle = list["pending"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["user_id"] == "8")
        .unwrap()["code"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(run(&["approve", "telegram", "WRONGONE"]).code, Some(4));
    for who in [code.as_str(), &handle, "9"] {
        assert_eq!(run(&["approve", "telegram", who]).code, Some(0), "{who}");
    }
    let list = run(&["list", "--json"]).ok().json();
    assert_eq!(list["pending"].as_array().unwrap().len(), 0);
    assert_eq!(list["approved"].as_array().unwrap().len(), 3);
    assert!(run(&["list"]).ok().stdout.contains("Ana"));
    assert!(!home.exists(".env"), "no list is made that was not there");
    drop(run(&["revoke", "telegram", "9"]).ok());
    assert_eq!(run(&["revoke", "telegram", "9"]).code, Some(4));
    assert_eq!(run(&["approve", "no/such", "x"]).code, Some(64));
    let cleared = run(&["clear-pending", "--json"]).ok().json();
    assert_eq!(cleared["cleared"], 0);
}

#[test]
fn a_list_in_the_environment_says_the_same() {
    let home = TempHome::new();
    home.env_file("# people\nTELEGRAM_ALLOWED_USERS=1,2\n");
    let code = ask(&home, "7");
    drop(
        hermes(&home)
            .args(["pairing", "approve", "telegram", &code])
            .run()
            .ok(),
    );
    assert_eq!(
        home.read(".env"),
        "# people\nTELEGRAM_ALLOWED_USERS=1,2,7\n"
    );
    drop(
        hermes(&home)
            .args(["pairing", "revoke", "telegram", "7"])
            .run()
            .ok(),
    );
    assert_eq!(home.read(".env"), "# people\nTELEGRAM_ALLOWED_USERS=1,2\n");
}

#[test]
fn platforms_are_set_up_without_a_terminal() {
    let home = TempHome::new();
    let run = |words: &[&str]| hermes(&home).args(["gateway", "setup"]).args(words).run();
    assert_eq!(run(&[]).code, Some(64));
    assert_eq!(run(&["pigeon", "--non-interactive"]).code, Some(64));
    let missing = run(&["telegram", "--non-interactive"]);
    assert_eq!(missing.code, Some(64));
    assert!(missing.stderr.contains("--token"), "{missing:?}");
    let example = run(&[
        "telegram",
        "--non-interactive",
        "--token",
        "your_token_here",
    ]);
    assert_eq!(example.code, Some(64), "{example:?}");
    let words = [
        "telegram",
        "--non-interactive",
        "--token",
        "123456:abcdefghijklmnop",
    ];
    let done = run(&[&words[..], &["--allow", "7,8", "--home-channel", "7"]].concat()).ok();
    assert!(!done.stdout.contains("abcdefghijklmnop"), "{done:?}");
    assert!(done.stderr.contains("enabled: telegram"), "{done:?}");
    let env = home.read(".env");
    for line in [
        "TELEGRAM_BOT_TOKEN=123456:abcdefghijklmnop",
        "TELEGRAM_ALLOWED_USERS=7,8",
        "TELEGRAM_HOME_CHANNEL=7",
    ] {
        assert!(env.lines().any(|known| known == line), "{line}\n{env}");
    }
    drop(run(&["api", "--non-interactive"]).ok());
    let env = home.read(".env");
    let key = env
        .lines()
        .find_map(|line| line.strip_prefix("API_SERVER_KEY="));
    assert_eq!(key.map(str::len), Some(64), "{env}");
}
