//! `hermes config` through the binary.

use hermes_testkit::home::TempHome;
use hermes_testkit::process::FinishedProgram;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::hermes;

const CONFIG: &str = "\
# mine
model:
  default: big   # the big one
  api_key: sk-0123456789abcdef
agent:
display: {skin: default}   # flow
approvals:
  mode: off
";

fn home() -> TempHome {
    let home = TempHome::new();
    home.config(CONFIG);
    home
}

fn config<'a>(home: &TempHome, args: impl IntoIterator<Item = &'a str>) -> FinishedProgram {
    hermes(home).args(["config"]).args(args).run()
}

#[test]
fn get_prints_what_is_in_effect() {
    let home = home();
    for (key, want) in [
        ("model.default", "big\n"),
        ("agent.max_turns", "90\n"),
        ("approvals.mode", "false\n"),
        ("context_file_max_chars", "null\n"),
        ("toolsets", "- hermes-cli\n"),
        ("toolsets.0", "hermes-cli\n"),
    ] {
        assert_eq!(config(&home, ["get", key]).ok().stdout, want, "{key}");
    }
    assert_eq!(
        config(&home, ["get", "toolsets", "--json"]).ok().json(),
        json!(["hermes-cli"])
    );
    let unset = config(&home, ["get", "no.key"]);
    assert_eq!((unset.code, unset.stdout.as_str()), (Some(1), ""));
    assert_eq!(config(&home, ["get", "a..b"]).code, Some(64));
    assert_eq!(config(&home, ["get"]).code, Some(64));
}

#[test]
fn set_changes_one_value_and_no_other_byte() {
    let home = home();
    let _ = config(&home, ["set", "agent.max_turns", "60"]).ok();
    let _ = config(&home, ["set", "display.compact", "yes"]).ok();
    let _ = config(&home, ["set", "approvals.mode", "smart"]).ok();
    let done = config(&home, ["set", "brand.new", "-5"]).ok();
    assert!(
        done.stderr.contains("not a key that Hermes knows"),
        "{}",
        done.stderr
    );
    assert_eq!(
        home.read("config.yaml"),
        "\
# mine
model:
  default: big   # the big one
  api_key: sk-0123456789abcdef
agent:
  max_turns: 60
display: {skin: default, compact: true}   # flow
approvals:
  mode: smart
brand:
  new: -5
"
    );
    let _ = config(&home, ["unset", "brand.new"]).ok();
    assert_eq!(config(&home, ["unset", "brand.new"]).code, Some(1));
    assert!(!home.read("config.yaml").contains("brand"));
    assert_eq!(
        config(&home, ["set", "agent.max_turns", "many"]).code,
        Some(64)
    );
    assert_eq!(
        config(&home, ["set", "model.default.x", "1"]).code,
        Some(64)
    );
}

#[test]
fn secrets_go_to_env_and_are_never_shown() {
    use std::os::unix::fs::MetadataExt as _;
    let home = home();
    let set = hermes(&home)
        .args(["config", "set", "OPENROUTER_API_KEY", "-"])
        .stdin("sk-or-hush-123456\n")
        .run()
        .ok();
    assert_eq!(home.read(".env"), "OPENROUTER_API_KEY=sk-or-hush-123456\n");
    assert_eq!(
        std::fs::metadata(home.join(".env")).unwrap().mode() & 0o777,
        0o600
    );
    let key = config(&home, ["set", "model.api_key", "sk-other-hush-9999"]).ok();
    let show = config(&home, ["show"]).ok();
    let all = config(&home, ["show", "--all", "--json"]).ok();
    for output in [&set, &key, &show, &all] {
        assert!(!output.stdout.contains("hush"), "{}", output.stdout);
    }
    assert!(
        show.stdout.contains("OPENROUTER_API_KEY") && show.stdout.contains("****"),
        "{}",
        show.stdout
    );
    assert_eq!(all.json()["settings"]["agent"]["max_turns"], json!(90));
    assert_eq!(
        config(&home, ["get", "openrouter_api_key"]).ok().stdout,
        "****3456\n"
    );
    assert_eq!(
        config(&home, ["get", "openrouter_api_key", "--reveal"])
            .ok()
            .stdout,
        "sk-or-hush-123456\n"
    );
    assert_eq!(
        config(&home, ["set", "HERMES_HOME_TOKEN", "x"]).code,
        Some(0)
    );
    assert_eq!(config(&home, ["set", "LD_X_TOKEN", "x"]).code, Some(64));
}

#[test]
fn a_broken_file_is_shown_with_its_place_and_stays() {
    let home = TempHome::new();
    home.config("model:\n  default: x\n bad: [\n");
    for args in [
        &["set", "agent.max_turns", "5"][..],
        &["get", "model"],
        &["show"],
        &["check"],
        &["unset", "model"],
        &["migrate"],
    ] {
        let done = config(&home, args.iter().copied());
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{args:?}");
        assert!(
            done.stderr.contains("line 3, column 2") && done.stderr.contains("3 |  bad: ["),
            "{}",
            done.stderr
        );
    }
    let report = config(&home, ["check", "--json"]);
    assert_eq!(
        (report.code, report.json()["error"]["line"].clone()),
        (Some(1), json!(3))
    );
    assert_eq!(home.read("config.yaml"), "model:\n  default: x\n bad: [\n");
}

#[test]
fn check_tells_problems_from_notes() {
    let home = TempHome::new();
    home.config("agnet: 1\n_config_version: 33\n");
    let done = config(&home, ["check"]).ok();
    assert_eq!(
        done.stdout,
        "note: agnet: unknown key, kept but not used; did you mean agent?\n"
    );
    home.config("agent: {max_turns: many}\n_config_version: 33\n");
    let done = config(&home, ["check", "--json"]);
    assert_eq!(done.code, Some(1));
    assert_eq!(done.json()["findings"][0]["key"], json!("agent.max_turns"));
    home.config("agent: {max_turns: 5}\n_config_version: 33\n");
    assert_eq!(config(&home, ["check"]).ok().stdout, "nothing to report\n");
}

#[test]
fn paths_are_printed() {
    let home = home();
    let line = |name: &str| format!("{}\n", home.join(name).display());
    assert_eq!(config(&home, ["path"]).ok().stdout, line("config.yaml"));
    assert_eq!(config(&home, ["env-path"]).ok().stdout, line(".env"));
}

#[test]
fn reading_creates_nothing() {
    let home = TempHome::new();
    for args in [
        &["get", "agent.max_turns"][..],
        &["show"],
        &["check"],
        &["path"],
        &["migrate"],
    ] {
        let _ = config(&home, args.iter().copied()).ok();
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn migrate_rewrites_on_request() {
    let home = home();
    let dry = config(&home, ["migrate", "--dry-run"]).ok();
    assert!(dry.stdout.contains("version 0 → 33"), "{}", dry.stdout);
    assert_eq!(home.read("config.yaml"), CONFIG);
    let _ = config(&home, ["migrate"]).ok();
    let text = home.read("config.yaml");
    assert!(
        text.contains("_config_version: 33") && text.contains("# the big one"),
        "{text}"
    );
    assert_eq!(
        config(&home, ["migrate"]).ok().stdout,
        "nothing to migrate\n"
    );
}

#[test]
fn an_edit_that_cannot_be_read_is_not_kept() {
    let home = home();
    let edit = |script: &str| {
        hermes(&home)
            .args(["config", "edit"])
            .env("EDITOR", script)
            .run()
    };
    let _ = edit("sed -i s/big/small/").ok();
    assert!(
        home.read("config.yaml")
            .contains("default: small   # the big one")
    );
    let before = home.read("config.yaml");
    let done = edit("echo 'a: [' >>");
    assert_eq!(done.code, Some(1));
    assert_eq!(home.read("config.yaml"), before);
    let draft = done.stderr.rsplit(' ').next().unwrap().trim();
    assert!(
        std::fs::read_to_string(draft).unwrap().ends_with("a: [\n"),
        "{}",
        done.stderr
    );
    assert_eq!(edit("false").code, Some(1));
    assert_eq!(edit("true").ok().stderr, "nothing changed\n");
    assert_eq!(home.read("config.yaml"), before);
}

#[test]
fn without_a_terminal_no_editor_is_guessed() {
    let home = home();
    let done = hermes(&home)
        .args(["config", "edit"])
        .env("EDITOR", "")
        .env("VISUAL", "")
        .run();
    assert_eq!((done.code, done.stdout.as_str()), (Some(64), ""));
    assert!(done.stderr.contains("hermes config set"), "{}", done.stderr);
}

#[test]
fn a_file_that_cannot_be_read_comes_with_what_to_do() {
    let home = home();
    for text in ["a: [b\n c: d\n", "- a\n- b\n"] {
        home.config(text);
        for args in [["-z", "hi"], ["config", "show"], ["model", "show"]] {
            let done = hermes(&home).args(args).run();
            assert_eq!(done.code, Some(1), "{args:?}");
            assert!(
                done.stderr.ends_with("to fix it: hermes config edit\n"),
                "{}",
                done.stderr
            );
        }
    }
}

#[test]
fn doctor_names_a_home_that_cannot_be_written() {
    // Even root cannot make files there.
    let done = hermes(&home())
        .args(["doctor", "--offline", "--json"])
        .env("HERMES_HOME", "/proc/self")
        .run();
    assert_eq!(done.code, Some(1));
    let home = &done.json()[0];
    assert_eq!(
        (&home["check"], &home["level"]),
        (&"home".into(), &"problem".into())
    );
}

#[test]
fn doctor_does_not_advise_to_repair_a_database_that_cannot_be_written() {
    let home = home();
    std::fs::create_dir_all(home.join("state.db")).unwrap();
    let done = hermes(&home).args(["doctor", "--offline"]).run();
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains("cannot be written"), "{}", done.stdout);
    assert!(!done.stdout.contains("repair"), "{}", done.stdout);
}

#[test]
fn a_bad_profile_name_is_64_and_a_missing_profile_4() {
    let home = home();
    for (name, code) in [("a/b", 64), ("", 64), ("nosuch", 4)] {
        let done = hermes(&home).args(["-p", name, "status"]).run();
        assert_eq!(done.code, Some(code), "{}", done.stderr);
    }
}

#[test]
fn invalid_values_are_refused_and_reported() {
    let home = TempHome::new();
    for (key, value) in [
        ("approvals.mode", "banana"),
        ("terminal.backend", "moon"),
        ("model.provider", "nosuch"),
        ("logging.level", "LOUD"),
        ("session_reset.at_hour", "25"),
        ("timezone", "Mars/Olympus"),
        ("compression.threshold", "7"),
        ("model.base_url", "moon"),
        ("terminal.cwd", "/no/such/place"),
        ("web.search_backend", "altavista"),
        ("agent.reasoning_effort", "enormous"),
        ("toolsets", "[nosuch]"),
    ] {
        home.config("");
        let refused = config(&home, ["set", key, value]);
        assert_eq!(refused.code, Some(64), "{key} = {value}");
        assert!(refused.stderr.contains(key), "{}", refused.stderr);
        assert_eq!(home.read("config.yaml"), "", "{key}");
        let _ = config(&home, ["set", key, value, "--force"]).ok();
        let checked = config(&home, ["check"]);
        assert_eq!(checked.code, Some(1), "{key} = {value}: {}", checked.stdout);
        assert!(
            checked.stdout.contains(&format!("problem: {key}")),
            "{}",
            checked.stdout
        );
    }
    // A forced backend also stands in .env.
    let home = TempHome::new();
    home.config("kanban: {auto_decompose: false}\nagnet: {}\n");
    let checked = config(&home, ["check"]).ok();
    for said in [
        "kanban.auto_decompose: a setting of Hermes Agent",
        "did you mean agent?",
    ] {
        assert!(checked.stdout.contains(said), "{}", checked.stdout);
    }
}

#[test]
fn defaults_count_and_secrets_are_masked() {
    let home = TempHome::new();
    home.config(
        "model: {default: m, api_key: own-endpoint-key-4711}\n\
         mcp_servers: {a: {command: x, args: [\"--key=sk-abcdefghijklmnop1234\"], env: {PIN: hush-hush-hush-77}}}\n",
    );
    for (key, wanted) in [
        ("session_reset.mode", "none"),
        ("approvals.unattended", "deny"),
        ("model.provider", ""),
        ("local.context", "8192"),
        ("tui.screen", "inline"),
        ("auxiliary.some_task.timeout", "30"),
    ] {
        let got = config(&home, ["get", key]).ok();
        assert_eq!(got.stdout.trim_end(), wanted, "{key}");
    }
    for args in [
        &["get", "model"][..],
        &["get", "model.api_key"],
        &["get", "mcp_servers"],
        &["get", "mcp_servers.a.env.PIN"],
        &["get", "mcp_servers.a.args", "--json"],
        &["show"],
        &["show", "--all", "--json"],
    ] {
        let shown = config(&home, args.iter().copied()).ok();
        for secret in ["own-endpoint-key", "hush-hush", "efghijklmnop1234"] {
            assert!(!shown.stdout.contains(secret), "{args:?}: {}", shown.stdout);
        }
    }
    let absent = config(&home, ["get", "agent.max_tuns"]);
    assert_eq!(absent.code, Some(1));
    assert!(
        absent.stderr.contains("did you mean agent.max_turns?"),
        "{}",
        absent.stderr
    );
}

/// The lists of names in the schema are those of the tables.
#[test]
fn names_in_the_schema_are_those_of_the_tables() {
    use hermes_config::schema::names;
    let (usable, foreign) = names::providers();
    for provider in hermes_models::providers::PROVIDERS {
        for name in std::iter::once(&provider.id).chain(provider.aliases) {
            assert!(usable.contains(name), "provider {name}");
        }
    }
    for provider in hermes_models::providers::UNSUPPORTED {
        for name in std::iter::once(&provider.id).chain(provider.aliases) {
            assert!(foreign.contains(name), "provider {name}");
        }
    }
    for name in usable {
        let known = hermes_models::providers::find(name).is_some();
        assert!(known || ["auto", "main"].contains(name), "provider {name}");
    }
    for name in names::toolsets() {
        let tools = hermes_app::toolsets::tools_of(name);
        assert!(tools.is_some(), "toolset {name}");
    }
    for platform in ["cli", "discord"] {
        for set in hermes_app::toolsets::switchable(platform) {
            assert!(
                names::toolsets().contains(&set.name),
                "toolset {}",
                set.name
            );
        }
    }
}

/// Everybody who reads the file is asked what is wrong with it, and `set` refuses what would be.
#[test]
fn values_that_nobody_could_use_are_named_by_set_and_check() {
    let home = TempHome::new();
    for (key, value) in [
        ("mcp_servers.x.transport", "pigeon"),
        ("mcp_servers.x.enabled", "perhaps"),
        ("platforms.telegram.enabled", "perhaps"),
        ("tts.provider", "nosuch"),
    ] {
        let done = hermes(&home).args(["config", "set", key, value]).run();
        assert_eq!(
            done.code,
            Some(64),
            "{key}: {} {}",
            done.stdout,
            done.stderr
        );
    }
    home.write(
        "config.yaml",
        "tts: {provider: nosuch}\nplatforms: {telegram: {enabled: perhaps}, slack: {reply_to_mode: odd}}\n\
         mcp_servers: {bare: {}, odd: {url: 'http://a', transport: pigeon}}\n",
    );
    let done = hermes(&home).args(["config", "check"]).run();
    assert_eq!(done.code, Some(1), "{}", done.stdout);
    for text in [
        "tts.provider",
        "platforms.telegram.enabled",
        "reply_to_mode",
        "mcp_servers.bare",
        "mcp_servers.odd.transport",
    ] {
        assert!(done.stdout.contains(text), "{text}: {}", done.stdout);
    }
    // An own voice is known by its entry.
    home.write(
        "config.yaml",
        "tts: {provider: mine, providers: {mine: {command: 'say {text}'}}}\n",
    );
    let done = hermes(&home).args(["config", "check", "--json"]).run();
    assert!(!done.stdout.contains("tts.provider"), "{}", done.stdout);
}

/// Services and timers of the original start us with its flags.
#[test]
fn flags_that_automation_of_the_original_passes_are_taken() {
    let home = TempHome::new();
    home.write(
        "config.yaml",
        "hooks:\n  pre_tool_call:\n    - command: echo hi\n",
    );
    let agreed = |flags: &[&str]| {
        let listed = hermes(&home).args(["hooks", "list", "--json"]).args(flags);
        listed.run().ok().json()["hooks"][0]["agreed"].clone()
    };
    assert_eq!(agreed(&[]), json!(false));
    assert_eq!(agreed(&["--accept-hooks"]), json!(true));
    for line in [
        "gateway run --accept-hooks --no-supervise --help",
        "gateway run --external-supervisor --help",
        "cron tick --accept-hooks",
        "gateway status -l",
        "gateway install --start-now --start-on-login --help",
    ] {
        let done = hermes(&home).args(line.split(' ')).run();
        assert_ne!(done.code, Some(64), "{line}: {}", done.stderr);
    }
}

/// `config get` tells the truth about keys that nobody wrote: an approval waits, lines stay.
#[test]
fn values_that_nobody_wrote_are_the_ones_that_count() {
    let setup = crate::CliHarness::new();
    let get = |key: &str| setup.run(["config", "get", key]).ok().stdout;
    assert_eq!(get("approvals.timeout"), "0\n");
    assert_eq!(get("tui.reflow"), "off\n");
    assert_eq!(get("gateway.session_cache_mb"), "8\n");
    let _ = setup.run(["config", "set", "approvals.timeout", "60"]).ok();
    let _ = setup
        .run(["config", "set", "gateway.session_cache_mb", "16"])
        .ok();
    assert_eq!(get("approvals.timeout"), "60\n");
    assert_eq!(get("gateway.session_cache_mb"), "16\n");
    let checked = setup.run(["config", "check"]).ok();
    assert!(
        !checked.stdout.contains("session_cache_mb"),
        "{}",
        checked.stdout
    );
}
