//! `hermes model`.

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ServedModel};
use serde_json::json;

use crate::{CliHarness, hermes};

#[test]
fn without_a_terminal_the_flags_are_named() {
    let run = CliHarness::new().run(["model"]);
    assert_eq!(run.code, Some(64));
    assert!(
        run.stderr.contains("hermes model set MODEL"),
        "{}",
        run.stderr
    );
    assert_eq!(run.stdout, "");
}

#[test]
fn set_writes_the_section_and_keeps_comments() {
    let setup = CliHarness::new();
    setup.home.config(
        "# mine\nmodel:\n  default: old   # the old one\n  provider: openrouter\n  context_length: 9000\nagent:\n  max_turns: 5\n",
    );
    let url = setup.server.base_url();
    let set = setup
        .run([
            "model",
            "set",
            "new/model",
            "--base-url",
            &url,
            "--key-env",
            "LAB_KEY",
        ])
        .ok();
    assert_eq!(set.stdout, "model is now new/model (custom)\n");
    let text = setup.home.read("config.yaml");
    assert!(
        text.starts_with("# mine\n") && text.contains("max_turns: 5"),
        "{text}"
    );
    for line in [
        "default: new/model",
        "provider: custom",
        "key_env: LAB_KEY",
        &*format!("base_url: {url}"),
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("context_length"), "{text}");
    let shown = setup.run(["model", "show", "--json"]).ok().json();
    assert_eq!(shown["model"], "new/model");
}

#[test]
fn set_turns_a_bare_name_into_a_section() {
    let home = TempHome::new();
    home.config("model: gpt-4o\n")
        .env_file("OPENROUTER_API_KEY=sk-or-test\n");
    let set = hermes(&home)
        .args(["model", "set", "openrouter/z-ai/glm-5.2"])
        .run()
        .ok();
    assert_eq!(set.stdout, "model is now z-ai/glm-5.2 (openrouter)\n");
    let shown = hermes(&home)
        .args(["model", "show", "--json"])
        .run()
        .ok()
        .json();
    assert_eq!(
        (&shown["provider"], &shown["model"]),
        (&json!("openrouter"), &json!("z-ai/glm-5.2"))
    );
    assert_eq!(shown["credential"], "env:OPENROUTER_API_KEY");
}

#[test]
fn the_first_model_creates_the_home() {
    let home = TempHome::new();
    let place = home.user().join("fresh");
    let server = ModelServer::start();
    server.serve_models([ServedModel::new("qwen3:8b").context_length(40_960)]);
    let run = |args: &[&str]| {
        let program = hermes(&home).env("HERMES_HOME", &place);
        program.args(args.iter().copied()).run().ok()
    };
    let set = run(&["model", "set", "qwen3:8b", "--base-url", &server.base_url()]);
    assert_eq!(set.stdout, "model is now qwen3:8b (custom)\n");
    // The server itself says how much fits.
    let shown = run(&["model", "show", "--json"]).json();
    assert_eq!(
        (&shown["context_length"], &shown["context_source"]),
        (&json!(40_960), &json!("endpoint"))
    );
    let again = run(&["model", "show", "--json"]).json();
    assert_eq!(again["context_source"], "cache");
}

#[test]
fn a_misspelt_provider_changes_nothing() {
    let setup = CliHarness::new();
    let before = setup.home.read("config.yaml");
    let run = setup.run(["model", "set", "m", "--provider", "antropic"]);
    assert_eq!(run.code, Some(64));
    assert!(
        run.stderr.contains("did you mean \"anthropic\""),
        "{}",
        run.stderr
    );
    assert_eq!(setup.home.read("config.yaml"), before);
}

#[test]
fn test_makes_a_call_and_a_tool_call() {
    let setup = CliHarness::new();
    setup.server.answer_with(|request| {
        if request.offers_tools() {
            Reply::tool_call("c1", "report_number", &json!({"number": 7}))
        } else {
            Reply::text("ready")
        }
    });
    let run = setup.run(["model", "test"]).ok();
    assert!(
        run.stdout.contains("\"ready\"") && run.stdout.contains("tool call  made"),
        "{}",
        run.stdout
    );
    assert_eq!(setup.server.model_requests().len(), 2);
}

#[test]
fn test_fails_when_no_tool_is_called_or_the_server_refuses() {
    let talker = CliHarness::new();
    talker
        .server
        .push_default(Reply::text("I would rather talk."));
    let run = talker.run(["model", "test"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("does not call tools"), "{}", run.stderr);

    let refusing = CliHarness::new();
    refusing.server.push_default(Reply::error(401, "wrong key"));
    let run = refusing.run(["model", "test", "--json"]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("401"), "{}", run.stderr);
}

#[test]
fn nothing_configured_is_code_3() {
    let home = TempHome::new();
    for args in [
        &["model", "test"][..],
        &["model", "show"],
        &["model", "list", "--live", "--provider", "openrouter"],
    ] {
        assert_eq!(
            hermes(&home).args(args.iter().copied()).run().code,
            Some(3),
            "{args:?}"
        );
    }
}

#[test]
fn list_knows_providers_and_models() {
    let setup = CliHarness::new();
    let all = setup.run(["model", "list", "--json"]).ok().json();
    let rows = all.as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["id"] == "custom" && row["current"] == true)
    );
    let known = setup.run(["model", "list", "--provider", "claude"]).ok();
    assert!(known.stdout.contains("claude-sonnet-5"), "{}", known.stdout);
    setup
        .server
        .serve_models([ServedModel::new("lab-model").context_length(9000)]);
    let live = setup.run(["model", "list", "--live", "--json"]).ok().json();
    assert_eq!(live["models"][0]["id"], "lab-model");
    assert_eq!(live["models"][0]["context_length"], 9000);
}

#[test]
fn a_server_that_is_gone_is_unreachable() {
    let home = TempHome::new();
    let server = ModelServer::start();
    home.use_server(&server.base_url(), "");
    drop(server);
    let run = hermes(&home)
        .args(["model", "list", "--live", "--provider", "custom"])
        .run();
    assert_eq!(run.code, Some(69), "{}", run.stderr);
}

#[test]
fn an_unknown_provider_is_64_wherever_it_is_named() {
    let setup = CliHarness::new();
    for args in [
        vec!["-z", "hi", "--provider", "nosuch"],
        vec!["model", "set", "m", "--provider", "nosuch"],
        vec!["model", "test", "--provider", "nosuch"],
        vec!["model", "list", "--provider", "nosuch", "--live"],
    ] {
        let done = setup.run(args.clone());
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(64), ""),
            "{args:?}: {}",
            done.stderr
        );
        assert!(
            done.stderr.contains("\"nosuch\"") && done.stderr.contains("hermes model list"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn testing_a_server_that_is_not_there_is_69() {
    let home = TempHome::new();
    // Nothing listens on the discard port of this machine.
    home.use_server("http://127.0.0.1:9/v1", "");
    let done = hermes(&home).args(["model", "test"]).run();
    assert_eq!(done.code, Some(69), "{}", done.stderr);
    assert!(
        done.stderr.contains("is the server running?"),
        "{}",
        done.stderr
    );
    let doctor = hermes(&home).args(["doctor"]).run();
    assert_eq!(doctor.code, Some(1));
    assert!(
        doctor.stdout.contains("is the server running?"),
        "{}",
        doctor.stdout
    );
}

#[test]
fn set_tells_what_it_removed_and_not_what_it_replaced() {
    let setup = CliHarness::new();
    let url = setup.server.base_url();
    setup.home.config(
        "model:\n  default: old\n  provider: custom\n  base_url: http://127.0.0.1:9/v1\n  context_length: 9000\n",
    );
    let set = setup.run(["model", "set", "new", "--base-url", &url]).ok();
    assert_eq!(
        set.stderr,
        "removed what belonged to the old model: model.context_length\n"
    );
    let before = setup.home.read("config.yaml");
    assert_eq!(setup.run(["model", "set", " "]).code, Some(64));
    assert_eq!(setup.home.read("config.yaml"), before);
}

#[test]
fn credentials_in_an_address_are_not_shown() {
    let setup = crate::CliHarness::new();
    setup.server.push_default(Reply::text("ready"));
    let address = setup.server.base_url().replace("://", "://me:letmein99@");
    let address = format!("{address}?api_key=0123456789abcdefghij");
    setup.home.use_server(&address, "");
    for args in [
        vec!["status"],
        vec!["status", "--json"],
        vec!["model", "show"],
        vec!["model", "show", "--json"],
        vec!["model", "test"],
        vec!["config", "show"],
    ] {
        let done = setup.run(args.clone());
        let said = format!("{}{}", done.stdout, done.stderr);
        for secret in ["letmein99", "0123456789abcdef"] {
            assert!(!said.contains(secret), "{args:?} shows {secret}:\n{said}");
        }
    }
}
