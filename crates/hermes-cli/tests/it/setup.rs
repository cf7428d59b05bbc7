//! The first run, `hermes setup` and choosing a model, at a terminal and without one.

use std::os::unix::fs::PermissionsExt as _;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ServedModel};
use hermes_testkit::terminal::{Terminal, TerminalBuilder};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::auth::AuthOutput as _;
use crate::{CliHarness, hermes};

/// A home where nothing is configured, beside a server that looks like Ollama.
fn fresh(window: u32) -> (TempHome, ModelServer) {
    let server = ModelServer::start();
    server.serve_models([
        ServedModel::new("nomic-embed-text"),
        ServedModel::new("qwen3:8b").context_length(window),
        ServedModel::new("gemma3:4b").context_length(window),
    ]);
    (TempHome::new(), server)
}

/// The answers to the two calls that try a model.
fn will_pass(server: &ModelServer) {
    server.push(Reply::text("ready")).push(Reply::tool_call(
        "t1",
        "report_number",
        &json!({"number": 7}),
    ));
}

fn at_terminal<'a>(
    home: &TempHome,
    server: &ModelServer,
    args: impl IntoIterator<Item = &'a str>,
) -> Terminal {
    TerminalBuilder::new(env!("CARGO_BIN_EXE_hermes"), home)
        .args(args)
        .env("OLLAMA_HOST", server.root_url())
        .env("OPENROUTER_BASE_URL", server.base_url())
        .size(110, 40)
        .start()
}

fn everything(terminal: &Terminal) -> String {
    terminal.scrollback().join("\n")
}

#[test]
fn one_enter_leads_from_nothing_to_the_first_reply() {
    let (home, server) = fresh(40_960);
    will_pass(&server);
    server.push_default(Reply::text("Hello from your machine."));
    std::fs::create_dir_all(home.user().join(".openclaw")).unwrap();
    std::fs::create_dir_all(home.user().join(".codex")).unwrap();
    std::fs::write(home.user().join(".codex/auth.json"), "{}").unwrap();
    let mut terminal = at_terminal(&home, &server, ["--plain"]);
    terminal.wait_for("Use qwen3:8b on this machine? tools: yes");
    let shown = everything(&terminal);
    for piece in [
        "looking for a model",
        "qwen3:8b, gemma3:4b",
        "codex (of other programs: not used)",
        "~/.openclaw found",
    ] {
        assert!(shown.contains(piece), "{piece} in\n{shown}");
    }
    // A model is only proposed after it did what it will have to do.
    assert_eq!(server.model_requests().len(), 2);
    assert!(!home.exists("config.yaml"));
    terminal.press("\r");
    terminal.wait_for("model is now qwen3:8b (ollama)");
    terminal.press("hi\r");
    terminal.wait_for("Hello from your machine.");
    let config = home.read("config.yaml");
    for line in ["default: qwen3:8b", "provider: ollama", &server.base_url()] {
        assert!(config.contains(line), "{line} in {config}");
    }
}

#[test]
fn a_model_without_tools_and_a_small_window_are_said_before_the_choice() {
    let (home, server) = fresh(8192);
    server.push_default(Reply::text("I would rather talk."));
    let mut terminal = at_terminal(&home, &server, ["--plain"]);
    terminal.wait_for("it can chat, but not act");
    terminal.wait_for("its window is 8k tokens");
    terminal.press("q");
    let (code, _) = terminal.leave();
    assert_eq!(code, 0);
    assert!(!home.exists("config.yaml"));
}

#[test]
fn a_pasted_key_finds_its_provider_is_tried_and_kept_private() {
    let (home, server) = fresh(40_960);
    will_pass(&server);
    let mut terminal = at_terminal(&home, &server, ["--plain"]);
    terminal.wait_for("[k] paste a key");
    terminal.press("k");
    terminal.wait_for("key (not shown");
    will_pass(&server);
    server.push_default(Reply::text("paid for"));
    terminal.press("sk-or-v1-0123456789abcdef\r");
    terminal.wait_for("OpenRouter accepts the key");
    terminal.wait_for("model is now anthropic/claude-sonnet-5 (openrouter)");
    let shown = everything(&terminal);
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
    assert!(
        home.read(".env")
            .contains("OPENROUTER_API_KEY=sk-or-v1-0123456789abcdef")
    );
    let mode = home.join(".env").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let listed = server.requests();
    let tried = listed.iter().find(|request| {
        request.path.ends_with("/models") && request.header("authorization").is_some()
    });
    assert!(tried.is_some(), "the key was never tried");
    terminal.press("hi\r");
    terminal.wait_for("paid for");
}

#[test]
fn a_refused_key_is_not_kept() {
    let (home, server) = fresh(40_960);
    will_pass(&server);
    server.route(
        "GET",
        "/v1/models",
        Reply::json(401, &json!({"error": {"message": "no such key"}})),
    );
    let mut terminal = at_terminal(&home, &server, ["--plain"]);
    terminal.wait_for("[k] paste a key");
    terminal.press("k");
    terminal.wait_for("key (not shown");
    terminal.press("sk-or-v1-0123456789abcdef\r");
    terminal.wait_for("openrouter refuses this key (401");
    // Esc leads back to the question.
    terminal.press("\x1b");
    terminal.wait_until("the question again", |rows| {
        rows.iter()
            .filter(|row| row.contains("[k] paste a key"))
            .count()
            >= 2
    });
    terminal.press("q");
    assert_eq!(terminal.leave().0, 0);
    assert!(!home.exists(".env"));
}

#[test]
fn with_nothing_found_the_chat_opens_and_the_next_step_is_said() {
    crate::local::second_program();
    // A place where nothing listens, for the server that might be on this machine by chance.
    let home = TempHome::new();
    let mut terminal = TerminalBuilder::new(env!("CARGO_BIN_EXE_hermes"), &home)
        .args(["--plain"])
        .env("OLLAMA_HOST", "127.0.0.1:9")
        .size(110, 40)
        .start();
    terminal.wait_for("looking for a model");
    terminal.wait_for("nothing found. Use the small model that comes with hermes?");
    terminal.press("\u{1b}");
    terminal.wait_for("Your text is kept");
    terminal.wait_for("/model");
    terminal.press("/quit\r");
    assert_eq!(terminal.leave().0, 0);
    assert!(!home.exists("config.yaml"));
}

#[test]
fn with_a_model_configured_nothing_is_asked_or_looked_for() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("as always"));
    let mut terminal = at_terminal(&setup.home, &setup.server, ["--plain"]);
    terminal.press("hi\r");
    terminal.wait_for("as always");
    let shown = everything(&terminal);
    assert!(!shown.contains("looking for a model"), "{shown}");
}

#[test]
fn setup_and_model_without_a_terminal_name_the_flags() {
    for (command, flag) in [
        ("setup", "--non-interactive --provider"),
        ("model", "model set MODEL"),
    ] {
        let run = CliHarness::new().run([command]);
        assert_eq!(run.code, Some(64), "{}", run.stderr);
        assert!(run.stderr.contains(flag), "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn flags_do_what_the_form_does() {
    let home = TempHome::new();
    home.config("# mine\nagent:\n  max_turns: 7   # few\n");
    let server = ModelServer::start();
    will_pass(&server);
    let run = hermes(&home)
        .args(["setup", "--non-interactive", "--model", "lab-1"])
        .args(["--base-url", &server.base_url(), "--key-env", "LAB_KEY"])
        .args(["--backend", "local", "--approvals", "manual"])
        .env("LAB_KEY", "lab-secret-0001")
        .run()
        .ok();
    assert!(run.stdout.contains("+   default: lab-1"), "{}", run.stdout);
    let asked = server.last_request();
    assert_eq!(
        asked.header("authorization"),
        Some("Bearer lab-secret-0001")
    );
    let text = home.read("config.yaml");
    for line in [
        "# mine",
        "max_turns: 7   # few",
        "key_env: LAB_KEY",
        "mode: manual",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("lab-secret"), "{text}");
    let again = hermes(&home)
        .args(["setup", "--non-interactive", "--approvals", "manual"])
        .run()
        .ok();
    assert_eq!(again.stdout, "nothing to change\n");
}

#[test]
fn what_does_not_work_is_not_written() {
    let home = TempHome::new();
    // Nothing listens on the discard port.
    let args = [
        "setup",
        "--model",
        "m",
        "--base-url",
        "http://127.0.0.1:9/v1",
    ];
    let run = hermes(&home).args(args).run();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("nothing was written"), "{}", run.stderr);
    assert!(!home.exists("config.yaml"));
    hermes(&home).args(args).args(["--no-test"]).run().done();
    assert!(home.read("config.yaml").contains("default: m"));
    let unset = hermes(&home)
        .args([
            "setup",
            "--provider",
            "openrouter",
            "--key-env",
            "NOT_THERE",
        ])
        .run();
    assert_eq!(unset.code, Some(64));
    let unknown = hermes(&home).args(["setup", "gateway"]).run();
    assert_eq!(unknown.code, Some(64));
}

#[test]
fn the_form_tests_fields_goes_back_and_shows_what_it_will_write() {
    let setup = CliHarness::with_config("# kept\n");
    let mut terminal = at_terminal(&setup.home, &setup.server, ["--plain", "setup"]);
    terminal.wait_for("✓ model");
    terminal.wait_for("section (1-4 or its name)");
    terminal.press("agent\r");
    terminal.wait_for("ask before dangerous commands");
    terminal.press("sometimes\r");
    terminal.wait_for("one of: smart, manual, off");
    terminal.press("manual\r");
    terminal.wait_for("maximum model calls per request");
    // Back to the first field, which remembers the answer.
    terminal.press("\x1b");
    terminal.wait_for("[manual]");
    terminal.press("\r");
    terminal.press("12\r");
    for field in ["reasoning effort", "remember things", "time zone"] {
        terminal.wait_for(field);
        terminal.press("\r");
    }
    terminal.wait_for("approvals manual, 12 calls per request");
    terminal.press("\r");
    terminal.wait_for("write them? [Y/n]");
    let shown = everything(&terminal);
    assert!(shown.contains("+   mode: manual"), "{shown}");
    assert!(!setup.home.read("config.yaml").contains("manual"));
    terminal.press("\r");
    assert_eq!(terminal.leave().0, 0);
    let text = setup.home.read("config.yaml");
    assert!(
        text.contains("# kept") && text.contains("max_turns: 12"),
        "{text}"
    );
}

#[test]
fn ctrl_c_leaves_setup_without_changes_and_the_terminal_as_it_was() {
    let setup = CliHarness::new();
    let before = setup.home.read("config.yaml");
    for args in [vec!["--plain", "setup", "agent"], vec!["setup", "agent"]] {
        let plain = args[0] == "--plain";
        let mut terminal = at_terminal(&setup.home, &setup.server, args);
        terminal.wait_for("ask before dangerous commands");
        if plain {
            terminal.press("off\r");
        } else {
            key(&mut terminal, DOWN);
            key(&mut terminal, "\r");
        }
        terminal.wait_for("maximum model calls per request");
        terminal.press("\x03");
        assert_eq!(terminal.end().exit_code(), 130);
        assert!(terminal.is_cooked());
        assert!(!terminal.alternate_screen());
        assert_eq!(setup.home.read("config.yaml"), before);
    }
}

#[test]
fn models_are_chosen_by_group_and_narrowed_by_typing() {
    let (home, server) = fresh(40_960);
    home.env_file("GROQ_API_KEY=gsk_0123456789abcdef\n");
    let mut terminal = at_terminal(&home, &server, ["--plain", "model"]);
    terminal.wait_for("number, words to filter");
    let shown = everything(&terminal);
    let place = |text: &str| {
        shown
            .find(text)
            .unwrap_or_else(|| panic!("{text} in\n{shown}"))
    };
    assert!(place("on this machine") < place("with your keys"));
    terminal.press("gemma\r");
    terminal.wait_until("one row", |rows| {
        rows.iter().any(|row| row.contains("1  gemma3:4b"))
    });
    terminal.press("1\r");
    terminal.wait_for("model is now gemma3:4b (ollama)");
    assert_eq!(terminal.leave().0, 0);
    assert!(home.read("config.yaml").contains("default: gemma3:4b"));
}

const DOWN: &str = "\x1b[B";

/// One key at the pace of a person.
fn key(terminal: &mut Terminal, key: &str) {
    terminal.press(key);
    terminal.wait_quiet(std::time::Duration::from_millis(80));
}

#[test]
fn a_model_is_chosen_with_arrows_and_a_filter() {
    let (home, server) = fresh(40_960);
    home.env_file("GROQ_API_KEY=gsk_0123456789abcdef\n");
    let mut terminal = at_terminal(&home, &server, ["model"]);
    terminal.wait_for("on this machine");
    terminal.wait_for("own endpoint: type its URL");
    assert!(terminal.alternate_screen());
    key(&mut terminal, "gemma3");
    terminal.wait_gone("nomic-embed-text");
    key(&mut terminal, "\r");
    terminal.wait_for("model is now gemma3:4b (ollama)");
    assert_eq!(terminal.leave().0, 0);
    assert!(home.read("config.yaml").contains("default: gemma3:4b"));
}

/// A server somewhere that wants a key for its list.
fn guarded() -> ModelServer {
    let server = ModelServer::start();
    let refused = json!({"error": {"message": "a key is needed"}});
    server.route("GET", "/v1/models", Reply::json(401, &refused));
    server
}

#[test]
fn an_own_endpoint_is_chosen_by_its_address() {
    let home = TempHome::new();
    let server = guarded();
    let mut terminal = TerminalBuilder::new(env!("CARGO_BIN_EXE_hermes"), &home)
        .args(["model"])
        .env("OLLAMA_HOST", "127.0.0.1:9")
        .size(110, 40)
        .start();
    terminal.wait_for("own endpoint: type its URL");
    key(&mut terminal, "own endpoint");
    key(&mut terminal, "\r");
    terminal.wait_for("address of the server");
    // Without its /v1, as people copy it.
    key(&mut terminal, &server.root_url());
    key(&mut terminal, "\r");
    terminal.wait_for("the server needs a key");
    let models = json!({"object": "list", "data": [{"id": "house-model"}, {"id": "other"}]});
    server.route("GET", "/v1/models", Reply::json(200, &models));
    terminal.press("s3cret-of-mine\r");
    terminal.wait_for("house-model");
    key(&mut terminal, "\r");
    terminal.wait_for("model is now house-model (custom)");
    assert!(!everything(&terminal).contains("s3cret"));
    assert_eq!(terminal.leave().0, 0);
    let config = home.read("config.yaml");
    for line in [
        "default: house-model",
        "provider: custom",
        &server.base_url(),
    ] {
        assert!(config.contains(line), "{line} in {config}");
    }
    assert!(home.read(".env").contains("=s3cret-of-mine"));
    server.push_default(Reply::text("from your own house"));
    let answer = hermes(&home).args(["-z", "hi"]).run().ok();
    assert_eq!(answer.stdout, "from your own house\n");
    let sent = server.last_request();
    assert_eq!(sent.header("authorization"), Some("Bearer s3cret-of-mine"));
}

#[test]
fn the_first_run_leads_to_an_own_endpoint() {
    let (home, local) = fresh(40_960);
    will_pass(&local);
    let own = ModelServer::start();
    own.serve_models([ServedModel::new("house-model").context_length(40_960)]);
    let mut terminal = at_terminal(&home, &local, ["--plain"]);
    terminal.wait_for("[u] your own endpoint");
    will_pass(&own);
    own.push_default(Reply::text("from your own house"));
    terminal.press("u");
    terminal.wait_for("address of the server");
    terminal.press("not an address\r");
    terminal.wait_for("is not a valid URL");
    terminal.press(&format!("{}\r", own.base_url()));
    terminal.wait_for("model [house-model]");
    terminal.press("\r");
    terminal.wait_for("model is now house-model (custom)");
    terminal.press("hi\r");
    terminal.wait_for("from your own house");
    assert!(home.read("config.yaml").contains(&own.base_url()));
}

#[test]
fn the_form_is_walked_with_arrows() {
    let setup = CliHarness::with_config("# kept\n");
    let mut terminal = at_terminal(&setup.home, &setup.server, ["setup"]);
    terminal.wait_for("see the changes");
    for _ in 0..3 {
        key(&mut terminal, DOWN);
    }
    key(&mut terminal, "\r");
    terminal.wait_for("ask before dangerous commands");
    key(&mut terminal, DOWN);
    key(&mut terminal, "\r");
    terminal.wait_for("maximum model calls per request");
    terminal.press("12\r");
    for field in ["reasoning effort", "remember things"] {
        terminal.wait_for(field);
        key(&mut terminal, "\r");
    }
    terminal.wait_for("time zone");
    terminal.press("\r");
    terminal.wait_for("approvals manual, 12 calls per request");
    key(&mut terminal, "\x1b");
    terminal.wait_for("write them? [Y/n]");
    terminal.press("\r");
    assert_eq!(terminal.leave().0, 0);
    let text = setup.home.read("config.yaml");
    for line in ["# kept", "max_turns: 12", "mode: manual"] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn tools_are_a_checklist_at_a_terminal() {
    let setup = CliHarness::new();
    let mut terminal = at_terminal(&setup.home, &setup.server, ["tools"]);
    terminal.wait_for("[x]");
    let first = |terminal: &Terminal| {
        let rows = terminal.screen();
        rows.into_iter()
            .find(|row| row.contains("[x]") || row.contains("[ ]"))
    };
    let before = first(&terminal).unwrap();
    key(&mut terminal, " ");
    terminal.wait_until("the other state", |rows| {
        let row = rows
            .iter()
            .find(|row| row.contains("[x]") || row.contains("[ ]"));
        row.is_some_and(|row| *row != before)
    });
    key(&mut terminal, "\x1b");
    terminal.wait_for("saved to config.yaml");
    assert_eq!(terminal.leave().0, 0);
    assert!(setup.home.read("config.yaml").contains("platform_toolsets"));
    let listed = setup.run(["tools", "list"]).ok().stdout;
    assert!(listed.contains("off"), "{listed}");
}
