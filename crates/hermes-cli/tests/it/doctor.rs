//! `hermes doctor` and `hermes status`.

use std::os::unix::fs::PermissionsExt as _;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{CliHarness, hermes};

fn find<'a>(findings: &'a Value, check: &str, text: &str) -> Option<&'a Value> {
    findings.as_array().unwrap().iter().find(|finding| {
        finding["check"] == check && finding["text"].as_str().unwrap().contains(text)
    })
}

#[test]
fn the_model_in_use_is_called_and_a_refusal_has_cause_and_cure() {
    let setup = CliHarness::new();
    setup
        .server
        .push_default(Reply::json(401, &json!({"error": {"message": "bad key"}})));
    let run = setup.run(["doctor", "--json"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let findings = run.json();
    let finding = find(&findings, "model", "bad key").expect("the refusal");
    assert_eq!(finding["level"], "problem");
    assert!(
        finding["fix"].as_str().unwrap().contains("hermes model"),
        "{finding}"
    );
}

#[test]
fn a_memory_beyond_its_limit_is_not_fine() {
    let home = TempHome::new();
    let facts = (0..500).map(|number| format!("fact {number}\n§\n"));
    home.write("memories/MEMORY.md", facts.collect::<String>());
    let run = hermes(&home).args(["doctor", "--offline", "--json"]).run();
    let findings = run.json();
    let finding = find(&findings, "memory", "MEMORY.md").expect("the file");
    assert_eq!(finding["level"], "warning", "{finding}");
    let full = hermes(&home).args(["memory", "add", "one more"]).run();
    assert!(
        full.stderr.contains("hermes memory show"),
        "{}",
        full.stderr
    );
    assert!(full.stderr.lines().count() < 30, "{}", full.stderr);
}

#[test]
fn a_dead_mcp_server_is_a_problem_and_a_living_one_is_not() {
    let setup = CliHarness::with_config(
        "mcp_servers:\n  gone:\n    url: http://127.0.0.1:9/mcp\n  off:\n    url: http://127.0.0.1:9/mcp\n    enabled: false\n",
    );
    setup.server.push_default(Reply::text("ready"));
    let run = setup.run(["doctor", "--json"]);
    assert_eq!(run.code, Some(1));
    let findings = run.json();
    let gone = find(&findings, "mcp", "gone").expect("the dead server");
    assert_eq!(gone["level"], "problem");
    assert!(
        gone["fix"]
            .as_str()
            .unwrap()
            .contains("hermes mcp test gone"),
        "{gone}"
    );
    assert_eq!(find(&findings, "mcp", "off is off").unwrap()["level"], "ok");
    let deep = setup.run(["status", "--deep", "--json"]).ok().json();
    assert_eq!(deep["model"]["answers"], true);
    let servers = deep["mcp"].as_array().unwrap();
    let state =
        |name: &str| servers.iter().find(|row| row["name"] == name).unwrap()["state"].clone();
    assert_eq!(state("off"), "off");
    assert!(
        !["ready", "on"].contains(&state("gone").as_str().unwrap()),
        "{deep}"
    );
}

#[test]
fn warnings_alone_are_0_and_strict_makes_them_1() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ready"));
    let config = setup.home.join("config.yaml");
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).unwrap();
    let run = setup.run(["doctor"]).ok();
    assert!(
        run.stdout.contains("can be read by others (644)"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("-> chmod 600"), "{}", run.stdout);
    assert_eq!(setup.run(["doctor", "--strict"]).code, Some(1));
}

#[test]
fn fix_mends_what_is_safe_and_says_so() {
    let home = TempHome::new();
    home.config("_config_version: 20\nagent:\n  max_turns: 5 # few\n")
        .env_file("A_TOKEN=1\n");
    home.write("gateway.pid", "{\"pid\": 999999999}");
    for name in ["config.yaml", ".env"] {
        let path = home.join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let run = hermes(&home)
        .args(["doctor", "--offline", "--fix", "--json"])
        .run();
    let findings = run.json();
    for (check, text) in [
        ("home", ".env is now 600"),
        ("home", "gateway.pid"),
        ("home", "made cron"),
        ("config", "version 20"),
    ] {
        let finding = find(&findings, check, text);
        let finding = finding.unwrap_or_else(|| panic!("{text} in {findings:#}"));
        assert_eq!(finding["level"], "fixed", "{finding}");
    }
    assert!(!home.exists("gateway.pid"));
    let mode = home.join(".env").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(home.read("config.yaml").contains("max_turns: 5 # few"));
    let again = hermes(&home)
        .args(["doctor", "--offline", "--fix", "--json"])
        .run()
        .json();
    assert!(
        again
            .as_array()
            .unwrap()
            .iter()
            .all(|finding| finding["level"] != "fixed"),
        "{again:#}"
    );
}

#[test]
fn fix_never_touches_what_it_cannot_read() {
    let home = TempHome::new();
    home.config("model: [unclosed\n")
        .write("auth.json", "{ broken");
    let run = hermes(&home).args(["doctor", "--offline", "--fix"]).run();
    assert_eq!(run.code, Some(1));
    assert_eq!(home.read("config.yaml"), "model: [unclosed\n");
    assert_eq!(home.read("auth.json"), "{ broken");
}

#[test]
fn a_key_that_rests_and_a_fallback_without_key_are_warned_about() {
    let setup = CliHarness::with_config(
        "fallback_providers:\n  - provider: deepseek\n    model: deepseek-chat\n",
    );
    setup.home.write(
        "auth.json",
        json!({"credential_pool": {"groq": [{"id": "a1b2c3", "label": "old", "access_token": "gsk_0123456789",
            "source": "manual", "last_status": "dead"}]}})
        .to_string(),
    );
    let findings = setup.run(["doctor", "--offline", "--json"]).json();
    let dead = find(&findings, "keys", "groq: old was refused").expect("the dead key");
    assert!(
        dead["fix"]
            .as_str()
            .unwrap()
            .contains("hermes auth remove groq a1b2c3")
    );
    assert!(find(&findings, "keys", "the fallback deepseek-chat has no key").is_some());
    assert!(!findings.to_string().contains("gsk_"), "{findings}");
}

#[test]
fn status_shows_what_is_there_and_counts_the_rest() {
    let setup = CliHarness::with_config("approvals:\n  mode: manual\n");
    setup.home.env_file("GROQ_API_KEY=gsk_0123456789abcdef\n");
    let text = setup.run(["status"]).ok().stdout;
    for piece in [
        "scripted-model",
        "keys       groq\n",
        "approvals  manual",
        "gateway    not running",
    ] {
        assert!(text.contains(piece), "{piece} in\n{text}");
    }
    assert!(!text.contains("openrouter"), "{text}");
    let all = setup.run(["status", "--all"]).ok().stdout;
    assert!(all.contains("openrouter"), "{all}");
    let status = setup.run(["status", "--json"]).ok().json();
    assert_eq!(status["approvals"]["mode"], "manual");
    assert_eq!(status["keys"]["present"], json!(["groq"]));
}

#[test]
fn a_rule_for_everything_is_refused_and_a_refusal_shows_no_allowance() {
    let setup = CliHarness::with_config(
        "command_allowlist: ['git push --force [*]', 'git push --force origin main']\napprovals:\n  deny: ['git push --force*']\n",
    );
    let run = setup.run(["approvals", "add", "*"]);
    assert_eq!(run.code, Some(64), "{}", run.stdout);
    assert!(run.stderr.contains("names no program"), "{}", run.stderr);
    let run = setup.run(["approvals", "test", "git push --force origin main"]);
    assert_eq!(run.code, Some(5), "{}", run.stdout);
    assert!(!run.stdout.contains("allowed by"), "{}", run.stdout);
}

#[test]
fn a_model_that_only_chats_is_not_called_well() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ready"));
    let run = setup.run(["doctor", "--json"]).ok();
    let finding = find(&run.json(), "model", "does not call tools").cloned();
    assert_eq!(finding.expect("a word about tools")["level"], "warning");
    let setup = CliHarness::new();
    setup.server.push(Reply::text("ready"));
    let refusal = json!({"error": {"message": "this model does not support tools"}});
    setup.server.push_default(Reply::json(400, &refusal));
    let run = setup.run(["doctor", "--json"]);
    let finding = find(&run.json(), "model", "given tools").cloned();
    assert_eq!(finding.expect("the refusal")["level"], "problem");
    assert_eq!(run.code, Some(1));
}

#[test]
fn invalid_values_and_keys_without_effect_are_said_by_doctor_and_status_counts_one_way() {
    let setup = CliHarness::with_config(
        "approvals: {mode: banana}\nkanban: {failure_limit: 3}\nlogging: {level: LOUD}\n",
    );
    let run = setup.run(["doctor", "--offline", "--json"]);
    let findings = run.json();
    for text in [
        "approvals.mode: \"banana\" is not one of",
        "kanban.failure_limit: a setting of Hermes Agent that does nothing here",
        "logging.level: \"LOUD\" is not one of",
    ] {
        assert!(
            find(&findings, "config", text).is_some(),
            "{text}: {findings:#}"
        );
    }
    let status = setup.run(["status", "--json"]).ok().json();
    let tools = setup.run(["tools", "list", "--json"]).ok().json();
    let count = tools["offered"].as_array().unwrap().len();
    assert_eq!(status["toolsets"]["tools"], json!(count));
    assert!(find(&findings, "tools", &format!("{count} tools offered")).is_some());
    let on = status["toolsets"]["on"].as_array().unwrap();
    assert!(
        !on.contains(&json!("kanban")) && !on.contains(&json!("browser")),
        "{status:#}"
    );
}
