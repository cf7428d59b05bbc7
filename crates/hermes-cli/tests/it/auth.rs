//! `hermes auth` and `hermes fallback`, alone and with the original on the same home.

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ServedModel};
use hermes_testkit::oracle;
use hermes_testkit::process::FinishedProgram;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::hermes;

/// It worked, and nothing more is asked of it.
pub(crate) trait AuthOutput {
    fn done(self);
}

impl AuthOutput for FinishedProgram {
    fn done(self) {
        drop(self.ok());
    }
}

const KEY: &str = "sk-or-v1-0123456789abcdef";

fn auth<'a>(home: &TempHome, args: impl IntoIterator<Item = &'a str>) -> FinishedProgram {
    hermes(home).args(["auth"]).args(args).run()
}

fn labels(home: &TempHome) -> Vec<String> {
    let listed = auth(home, ["list", "--json"]).ok().json();
    let keys = listed[0]["credentials"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    keys.iter()
        .map(|key| key["label"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_key_is_stored_listed_and_removed_and_never_shown() {
    let home = TempHome::new();
    let added = hermes(&home)
        .args(["auth", "add", "openrouter", "--label", "work", "--no-test"])
        .stdin(format!("{KEY}\n"))
        .run()
        .ok();
    assert_eq!(added.stdout, "stored work for openrouter in auth.json\n");
    let twice = auth(&home, ["add", "openrouter", "--api-key", KEY, "--no-test"]);
    assert_eq!(twice.code, Some(1));
    assert!(
        twice.stderr.contains("stored already, as work"),
        "{}",
        twice.stderr
    );
    auth(
        &home,
        ["add", "or", "--api-key", "sk-or-v1-second", "--no-test"],
    )
    .done();
    assert_eq!(labels(&home), ["work", "api-key-2"]);
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["status", "openrouter"],
    ] {
        let run = auth(&home, args.iter().copied()).ok();
        assert!(
            !format!("{}{}", run.stdout, run.stderr).contains("sk-or"),
            "{}",
            run.stdout
        );
    }
    auth(&home, ["remove", "openrouter", "work"]).done();
    assert_eq!(labels(&home), ["api-key-2"]);
    assert_eq!(auth(&home, ["remove", "openrouter", "5"]).code, Some(4));
    auth(&home, ["logout", "openrouter"]).done();
    assert_eq!(auth(&home, ["status", "openrouter"]).code, Some(1));
    assert_eq!(auth(&home, ["logout", "openrouter"]).code, Some(4));
}

#[test]
fn a_key_is_tried_before_it_is_stored() {
    let (home, server) = (TempHome::new(), ModelServer::start());
    server.serve_models([ServedModel::new("m")]);
    let add = |key: &str| {
        hermes(&home)
            .args(["auth", "add", "openrouter", "--api-key", key])
            .env("OPENROUTER_BASE_URL", server.base_url())
            .run()
    };
    let taken = add(KEY).ok();
    assert!(
        taken.stderr.contains("takes the key (1 model)"),
        "{}",
        taken.stderr
    );
    server.route(
        "GET",
        "/v1/models",
        Reply::json(401, &json!({"error": {"message": "nope"}})),
    );
    let refused = add("sk-or-v1-wrong");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("refuses this key (401: nope)"),
        "{}",
        refused.stderr
    );
    assert!(!home.read("auth.json").contains("wrong"));
}

#[test]
fn bad_providers_and_placeholders_are_64() {
    let home = TempHome::new();
    for args in [
        &["add", "nosuch", "--api-key", "x"][..],
        &["add", "openrouter", "--api-key", "changeme", "--no-test"],
        &["add", "openrouter", "--api-key", " ", "--no-test"],
        &["add", "openai-codex", "--type", "oauth"],
        &["add", "openrouter", "--no-test"],
    ] {
        let run = auth(&home, args.iter().copied());
        assert_eq!(run.code, Some(64), "{args:?}: {}", run.stderr);
    }
    assert!(!home.exists("auth.json"));
}

#[test]
fn a_variable_that_was_taken_away_is_not_used_until_a_key_is_added() {
    let home = TempHome::new();
    home.env_file("# keys\nOPENROUTER_API_KEY=sk-or-v1-fromenv\n");
    let run = auth(&home, ["remove", "openrouter", "OPENROUTER_API_KEY"]).ok();
    assert!(run.stderr.contains("removed from .env"), "{}", run.stderr);
    assert_eq!(home.read(".env"), "# keys\n");
    let still = |home: &TempHome| {
        hermes(home)
            .args(["model", "show", "--json"])
            .env("OPENROUTER_API_KEY", "sk-or-v1-shell")
            .run()
    };
    assert_eq!(still(&home).code, Some(3));
    auth(&home, ["add", "openrouter", "--api-key", KEY, "--no-test"]).done();
    assert_eq!(still(&home).ok().json()["provider"], "openrouter");
}

#[test]
fn resting_keys_are_shown_and_woken() {
    let home = TempHome::new();
    home.write(
        "auth.json",
        json!({"version": 1, "credential_pool": {"openrouter": [
            {"id": "aaaaaa", "label": "tired", "auth_type": "api_key", "priority": 0, "source": "manual",
             "access_token": KEY, "last_status": "exhausted", "last_status_at": 4_000_000_000.0,
             "last_error_code": 429, "mystery": 1},
        ]}})
        .to_string(),
    );
    let listed = auth(&home, ["list", "--json"]).ok().json();
    assert_eq!(listed[0]["credentials"][0]["state"], "resting");
    assert_eq!(
        auth(&home, ["status", "openrouter"]).code,
        Some(0),
        "a key is there"
    );
    let woken = auth(&home, ["reset", "openrouter"]).ok();
    assert_eq!(woken.stdout, "1 key of openrouter may be used again\n");
    let stored: Value = serde_json::from_str(&home.read("auth.json")).unwrap();
    let row = &stored["credential_pool"]["openrouter"][0];
    assert_eq!(
        (&row["last_status"], &row["mystery"]),
        (&Value::Null, &json!(1))
    );
}

#[test]
fn a_broken_auth_json_is_left_alone() {
    let home = TempHome::new();
    home.write("auth.json", "{ broken");
    let run = auth(&home, ["add", "openrouter", "--api-key", KEY, "--no-test"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("left as it is"), "{}", run.stderr);
    assert_eq!(home.read("auth.json"), "{ broken");
}

#[test]
fn keys_go_both_ways() {
    let Some(oracle) = oracle::require("keys_go_both_ways") else {
        return;
    };
    let home = TempHome::new();
    auth(
        &home,
        [
            "add",
            "openrouter",
            "--api-key",
            KEY,
            "--label",
            "ours",
            "--no-test",
        ],
    )
    .done();
    let listed = oracle.hermes(&home, ["auth", "list"]).ok().stdout;
    assert!(
        listed.contains("ours") && listed.contains("api_key"),
        "{listed}"
    );
    oracle
        .hermes(
            &home,
            [
                "auth",
                "add",
                "openrouter",
                "--type",
                "api-key",
                "--api-key",
                "sk-or-v1-theirs",
                "--label",
                "theirs",
            ],
        )
        .done();
    assert_eq!(labels(&home), ["ours", "theirs"]);
    oracle
        .hermes(&home, ["auth", "remove", "openrouter", "ours"])
        .done();
    assert_eq!(labels(&home), ["theirs"]);
    auth(&home, ["remove", "openrouter", "theirs"]).done();
    let listed = oracle.hermes(&home, ["auth", "list"]).ok().stdout;
    assert!(!listed.contains("theirs"), "{listed}");
}

#[test]
fn the_chain_is_edited_without_losing_comments() {
    let home = TempHome::new();
    home.env_file("OPENROUTER_API_KEY=sk-or-v1-abcdef01\n").config(
        "# mine\nmodel:\n  default: a   # first\n  provider: openrouter\nfallback_model:\n  provider: deepseek\n  model: deepseek-chat\n",
    );
    let run = |args: &[&str]| hermes(&home).args(["fallback"]).args(args).run();
    let added = run(&["add", "some/model", "--provider", "openrouter"]).ok();
    assert!(added.stdout.contains("as fallback 2"), "{}", added.stdout);
    let text = home.read("config.yaml");
    assert!(
        text.starts_with("# mine") && text.contains("# first"),
        "{text}"
    );
    assert!(!text.contains("fallback_model"), "{text}");
    let chain = run(&["list", "--json"]).ok().json();
    let models: Vec<&str> = chain["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["model"].as_str().unwrap())
        .collect();
    assert_eq!(models, ["deepseek-chat", "some/model"]);
    assert_eq!(
        run(&["add", "a", "--provider", "openrouter"]).code,
        Some(64)
    );
    assert_eq!(run(&["add"]).code, Some(64));
    assert_eq!(run(&["remove", "7"]).code, Some(4));
    run(&["remove", "deepseek-chat"]).done();
    assert_eq!(run(&["clear"]).code, Some(64), "nobody can be asked");
    run(&["clear", "--yes"]).done();
    assert_eq!(run(&["list", "--json"]).ok().json()["chain"], json!([]));
    assert!(home.read("config.yaml").starts_with("# mine"));
}

#[test]
fn the_chain_goes_both_ways() {
    let Some(oracle) = oracle::require("the_chain_goes_both_ways") else {
        return;
    };
    let home = TempHome::new();
    home.config("model:\n  default: a\n  provider: openrouter\n");
    hermes(&home)
        .args(["fallback", "add", "deepseek-chat", "--provider", "deepseek"])
        .run()
        .done();
    hermes(&home)
        .args([
            "fallback",
            "add",
            "local-1",
            "--base-url",
            "http://127.0.0.1:9/v1/",
        ])
        .run()
        .done();
    let listed = oracle.hermes(&home, ["fallback", "list"]).ok().stdout;
    for piece in [
        "deepseek-chat  (via deepseek)",
        "local-1",
        "[http://127.0.0.1:9/v1]",
    ] {
        assert!(listed.contains(piece), "{piece} in {listed}");
    }
    let theirs = oracle.json(
        &home,
        "import json\nfrom hermes_cli.config import load_config, save_config\nfrom hermes_cli.fallback_cmd import _read_chain, _write_chain\nc = load_config()\nchain = _read_chain(c)\nchain.append({'provider': 'groq', 'model': 'llama'})\n_write_chain(c, chain)\nsave_config(c)\nprint(json.dumps(len(chain)))\n",
        [],
    );
    assert_eq!(theirs, json!(3));
    let chain = hermes(&home)
        .args(["fallback", "list", "--json"])
        .run()
        .ok()
        .json();
    assert_eq!(
        chain["chain"][2],
        json!({"provider": "groq", "model": "llama", "base_url": null})
    );
}
