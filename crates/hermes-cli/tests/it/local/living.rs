//! Answers, and the life of the server behind them.

use hermes_testkit::process::finish;
use hermes_testkit::terminal::TerminalBuilder;
use hermes_testkit::web_server::{Page, WebServer};
use pretty_assertions::assert_eq;
use rustix::process::Signal;

use super::{FILE, LocalHarness, lives, signal, until, weights};

const QUESTION: &str = "What is the capital of France? Answer with one word.";

#[test]
fn one_question_is_answered_and_only_the_answer_is_printed() {
    if weights("local::living::one_question").is_none() {
        return;
    }
    let place = LocalHarness::furnished();
    let done = place
        .program(["--local", "-z", QUESTION])
        .env("OPENROUTER_API_KEY", "sk-or-v1-not-for-the-model")
        .run()
        .ok();
    assert!(done.stdout.contains("Paris"), "{done:?}");
    assert_eq!(done.stdout.trim().lines().count(), 1, "{done:?}");
    // The config was not touched, and no key reached the server.
    assert!(!place.home.exists("config.yaml"));
    let pid = place.server();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("sk-or-v1"));

    let status = place.program(["status", "--json"]).run().ok().json();
    let server = &status["local"][0];
    assert_eq!(server["pid"], pid);
    assert!(
        server["rss_bytes"].as_u64().unwrap() > 50_000_000,
        "{server}"
    );
    assert!(server["decode_tokens_per_second"].as_f64().unwrap() > 0.0);
    let shown = place.program(["status"]).run().ok().stdout;
    assert!(shown.contains(&format!("pid {pid}")), "{shown}");

    // The next process finds the same server.
    let _ = place.program(["--local", "-z", "Say hello."]).run().ok();
    assert_eq!(place.server(), pid);
}

#[test]
fn a_chat_only_model_gets_no_tools_and_a_short_prompt() {
    if weights("local::living::chat_only").is_none() {
        return;
    }
    let place = LocalHarness::configured("");
    let done = place
        .program(["-z", "Hello!", "--output-format", "json"])
        .run()
        .ok()
        .json();
    // Prompt and question together; the full prompt alone would be ten times as long.
    let read = done["usage"]["input"].as_u64().unwrap()
        + done["usage"]["cache_read"].as_u64().unwrap_or_default();
    assert!(read < 400, "{done}");
    let shown = place.program(["model", "show", "--json"]).run().ok().json();
    assert_eq!(shown["tools"], false);
    assert_eq!(shown["context_length"], 8_192);
}

#[test]
fn two_processes_at_once_share_one_server() {
    if weights("local::living::two_processes").is_none() {
        return;
    }
    let place = LocalHarness::furnished();
    let both = [
        place.program(["--local", "-z", QUESTION]).spawn(),
        place.program(["--local", "-z", "Say hello."]).spawn(),
    ];
    let done = both.map(finish);
    for one in done {
        assert!(!one.ok().stdout.trim().is_empty());
    }
    let pid = place.server();
    let status = place.program(["status", "--json"]).run().ok().json();
    assert_eq!(status["local"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status["local"][0]["requests"], 2, "{status}");
    assert!(lives(pid));
}

#[test]
fn killing_hermes_leaves_nothing_behind() {
    if weights("local::living::killing_hermes").is_none() {
        return;
    }
    let place = LocalHarness::configured("local:\n  grace_seconds: 1\n");
    let mut terminal = place.at_terminal(["--plain"]).start();
    terminal.press(&format!("{QUESTION}\r"));
    until("the server runs", || !place.servers().is_empty());
    terminal.wait_for("Paris");
    let server = place.server();
    // The model is in the other process alone.
    let pid = terminal.pid();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(
        !maps.contains(".gguf") && !maps.contains("SmolLM2"),
        "{maps}"
    );
    assert!(lives(server));
    terminal.signal(Signal::KILL);
    until("the server ends by itself", || !lives(server));
    until("what it wrote down is gone", || place.servers().is_empty());
}

#[test]
fn a_server_that_was_killed_is_there_again_for_the_next_question() {
    if weights("local::living::server_killed").is_none() {
        return;
    }
    let place = LocalHarness::configured("");
    let mut terminal = place.at_terminal(["--plain"]).start();
    terminal.press(&format!("{QUESTION}\r"));
    terminal.wait_for("Paris");
    let first = place.server();
    signal(first, Signal::KILL);
    until("it is dead", || !lives(first));
    terminal.press("What is the capital of Japan? Answer with one word.\r");
    terminal.wait_for("Tokyo");
    assert_ne!(place.server(), first);
    terminal.press("/quit\r");
    assert_eq!(terminal.leave().0, 0);
}

#[test]
fn a_server_that_is_to_end_at_once_still_answers() {
    if weights("local::living::end_at_once").is_none() {
        return;
    }
    let place = LocalHarness::configured("local:\n  grace_seconds: 0\n  idle_seconds: 0\n");
    let done = place.program(["-z", QUESTION]).run().ok();
    assert!(done.stdout.contains("Paris"), "{done:?}");
}

#[test]
fn a_server_whose_starter_was_killed_is_waited_for() {
    if weights("local::living::starter_killed").is_none() {
        return;
    }
    let place = LocalHarness::configured("");
    let mut starter = place.program(["-z", QUESTION]).spawn();
    let log = place.home.join("logs/local-SmolLM2-135M-Instruct.Q4_1.log");
    until("it is started", || log.exists());
    starter.kill().unwrap();
    starter.wait().unwrap();
    let done = place.program(["-z", QUESTION]).run().ok();
    assert!(done.stdout.contains("Paris"), "{done:?}");
    let said = std::fs::read_to_string(log).unwrap();
    assert!(!said.contains("another server runs already"), "{said}");
    assert!(lives(place.server()));
}

#[test]
fn what_a_dead_server_left_hurts_nobody() {
    let place = LocalHarness::empty();
    let file = place
        .home
        .write("cache/local/Qwen3-0.6B-Q8_0.gguf", "weights");
    // Its port and its pid are somebody else's by now.
    let stranger = WebServer::start(|_| {
        Page::json(&serde_json::json!({"status": "ok", "model": "Qwen3-0.6B-Q8_0"}))
    });
    // It ends with this test, whatever comes of it.
    let mut other = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let left = serde_json::json!({
        "pid": other.id(), "port": stranger.port(), "token": "t", "model": file
    });
    let written = |place: &LocalHarness| {
        place
            .home
            .write("run/local-0123456789ab.json", left.to_string())
    };
    written(&place);
    let status = place.program(["status", "--json"]).run().ok().json();
    assert_eq!(status["local"], serde_json::json!([]));
    written(&place);
    let removed = place
        .program(["model", "local", "remove", "qwen3-0.6b"])
        .run()
        .ok();
    assert!(removed.stdout.contains("was deleted"), "{removed:?}");
    assert!(lives(i32::try_from(other.id()).unwrap()));
    assert!(place.servers().is_empty(), "what was left is taken away");
    assert_eq!(stranger.asked().len(), 0);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn without_the_second_program_it_is_said_why_nothing_is_offered() {
    let place = LocalHarness::empty();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = dir.path().join("hermes");
    std::fs::hard_link(env!("CARGO_BIN_EXE_hermes"), &alone).unwrap();
    let mut terminal = TerminalBuilder::new(alone, &place.home)
        .args(["--plain"])
        .env("OLLAMA_HOST", "127.0.0.1:9")
        .size(110, 40)
        .start();
    terminal.wait_for("the program hermes-local is missing");
    terminal.wait_for("nothing found");
    // The chat opens without a model.
    terminal.press("\r");
    terminal.wait_for("Your text is kept");
    terminal.press("/quit\r");
    assert_eq!(terminal.leave().0, 0);
}

#[test]
fn with_nothing_at_all_one_enter_leads_to_a_reply() {
    if weights("local::living::one_enter").is_none() {
        return;
    }
    let place = LocalHarness::furnished();
    let mut terminal = place.at_terminal(["--plain"]).start();
    terminal.wait_for("looking for a model");
    terminal.wait_for("Use the small model that comes with hermes? smollm2-135m");
    terminal.wait_for("has no tools");
    terminal.press("\r");
    terminal.wait_for("model is now smollm2-135m (local)");
    terminal.press(&format!("{QUESTION}\r"));
    terminal.wait_for("Paris");
    terminal.press("/quit\r");
    assert_eq!(terminal.leave().0, 0);
    let config = place.home.read("config.yaml");
    for line in [
        "provider: local",
        "default: smollm2-135m",
        "model: smollm2-135m",
    ] {
        assert!(config.contains(line), "{line} in {config}");
    }
}

#[test]
fn the_status_line_says_that_it_only_chats() {
    if weights("local::living::status_line").is_none() {
        return;
    }
    let place = LocalHarness::configured("");
    let terminal = place.at_terminal([]).env("TERM", "xterm-256color").start();
    terminal.wait_for("local (chat only)");
    assert_eq!(crate::tui::quit(terminal).0, 0);
}

#[test]
fn doctor_starts_it_and_setup_takes_it_without_a_question() {
    if weights("local::living::doctor").is_none() {
        return;
    }
    let place = LocalHarness::furnished();
    let done = place
        .program(["setup", "--non-interactive", "--provider", "local"])
        .run()
        .ok();
    assert!(done.stdout.contains("smollm2-135m"), "{done:?}");
    let findings = place.program(["doctor", "--json"]).run().json();
    let of_local: Vec<&str> = findings
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["check"] == "local")
        .map(|finding| {
            assert_eq!(finding["level"], "ok", "{finding}");
            finding["text"].as_str().unwrap()
        })
        .collect();
    for piece in ["program", "chat only", "its server was ready"] {
        assert!(
            of_local.iter().any(|text| text.contains(piece)),
            "{piece} in {of_local:?}"
        );
    }
    // Without the weights, doctor says how to get them.
    let bare = LocalHarness::empty();
    bare.home
        .config("model:\n  provider: local\n  default: smollm2-135m\n");
    let findings = bare.program(["doctor", "--offline", "--json"]).run().json();
    let text = findings.to_string();
    assert!(
        text.contains("hermes model local pull smollm2-135m"),
        "{text}"
    );
}

#[test]
fn an_own_file_is_used_by_its_path() {
    let Some(file) = weights("local::living::own_file") else {
        return;
    };
    let place = LocalHarness::furnished();
    let own = place.home.work().join("mine.gguf");
    std::os::unix::fs::symlink(&file, &own).unwrap();
    place.home.config("local:\n  tools: off\n");
    let path = own.to_str().unwrap();
    let _ = place.program(["model", "local", "use", path]).run().ok();
    let done = place.program(["-z", QUESTION]).run().ok();
    assert!(done.stdout.contains("Paris"), "{done:?}");
    let rows = place
        .program(["model", "local", "list", "--json"])
        .run()
        .ok()
        .json();
    let rows = rows.as_array().unwrap();
    let mine = rows.iter().find(|row| row["in_use"] == true).unwrap();
    assert_eq!(mine["path"], path);
    assert!(rows.iter().any(|row| row["file"] == FILE));
}
