//! One test per row of the contract in docs/exit-codes.md.

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{Reply, ReplyGate};
use hermes_testkit::process::finish;
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Signal, kill_process};

use crate::{CliHarness, hermes};

#[test]
fn an_unknown_command_is_64_with_a_close_one() {
    let done = hermes(&TempHome::new()).args(["sesions"]).run();
    assert_eq!(done.code, Some(64));
    assert_eq!(done.stdout, "");
    assert!(done.stderr.contains("sessions"), "{}", done.stderr);
    assert!(done.stderr.lines().count() <= 3, "{}", done.stderr);
}

#[test]
fn a_missing_argument_is_64_and_named() {
    let done = hermes(&TempHome::new()).args(["config", "get"]).run();
    assert_eq!(done.code, Some(64));
    assert!(
        done.stderr.contains("not provided: <KEY>"),
        "{}",
        done.stderr
    );
}

#[test]
fn an_unset_config_key_is_1() {
    let done = hermes(&TempHome::new())
        .args(["config", "get", "no.key"])
        .run();
    assert_eq!(done.code, Some(1));
    assert_eq!(done.stdout, "");
}

#[test]
fn an_answer_is_0_and_only_the_answer_is_on_stdout() {
    let setup = CliHarness::new();
    setup.server.push(Reply::text("Paris."));
    let done = setup.run(["-z", "capital of France?"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "Paris.\n"),
        "{}",
        done.stderr
    );
    assert_eq!(done.stderr, "");
}

#[test]
fn a_rejected_key_is_2_on_stderr_with_empty_stdout() {
    let setup = CliHarness::new();
    setup
        .server
        .push_default(Reply::error(401, "invalid api key"));
    let done = setup.run(["-z", "hi"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(2), ""),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("401"), "{}", done.stderr);
    assert!(done.stderr.contains("fix:"), "{}", done.stderr);
}

#[test]
fn a_server_error_is_2_after_its_retries() {
    let setup = CliHarness::with_config("agent:\n  api_max_retries: 0\n");
    setup.server.push_default(Reply::error(500, "boom"));
    let done = setup.run(["-z", "hi"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(2), ""),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("500"), "{}", done.stderr);
}

#[test]
fn nothing_configured_is_3_in_four_lines() {
    for args in [vec!["-z", "hi"], vec!["chat", "-q", "hi"], vec![]] {
        let done = hermes(&TempHome::new()).args(args).run();
        assert_eq!((done.code, done.stdout.as_str()), (Some(3), ""));
        assert_eq!(done.stderr.lines().count(), 4, "{}", done.stderr);
    }
}

#[test]
fn an_empty_prompt_is_64() {
    let setup = CliHarness::new();
    for args in [["-z", ""], ["-z", "  "], ["-z", "-"]] {
        let done = setup.program(args).stdin("").run();
        assert_eq!(done.code, Some(64), "{args:?}: {}", done.stderr);
    }
    assert!(setup.server.model_requests().is_empty());
}

#[test]
fn an_interrupt_is_130_and_termination_143() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let setup = CliHarness::new();
        let gate = ReplyGate::new();
        setup
            .server
            .push(Reply::text("never finished").hold_at(1, &gate));
        let child = setup.program(["-z", "hi"]).spawn();
        setup.server.block_until(|progress| progress.requests >= 1);
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
        let done = finish(child);
        assert_eq!(done.code, Some(code), "{}", done.stderr);
        assert_eq!(done.stdout, "");
        gate.release();
    }
}

#[test]
fn piped_text_goes_to_the_model_as_context() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ok"));
    let done = setup
        .program(["-z", "summarise this"])
        .stdin("the quick brown fox")
        .run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let sent = setup.server.last_request().last_user_text();
    assert!(
        sent.contains("summarise this") && sent.contains("the quick brown fox"),
        "{sent}"
    );
}

#[test]
fn a_dash_reads_the_prompt_and_a_bare_pipe_does_too() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ok"));
    for args in [vec!["-z", "-"], vec![]] {
        let done = setup.program(args).stdin("what is 2+2?\n").run();
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(0), "ok\n"),
            "{}",
            done.stderr
        );
        assert!(
            setup
                .server
                .last_request()
                .last_user_text()
                .contains("what is 2+2?")
        );
    }
}

#[test]
fn resuming_nothing_is_4() {
    let setup = CliHarness::new();
    for args in [
        vec!["-z", "hi", "--resume", "nosuch"],
        vec!["chat", "-qhi", "-r", "nosuch"],
        // Nobody to talk to, nothing to ask.
        vec!["--resume", "nosuch"],
    ] {
        let done = setup.run(args);
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(4), ""),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains("nosuch"), "{}", done.stderr);
    }
    assert!(setup.server.model_requests().is_empty());
}

#[test]
fn chat_q_prints_the_text_alone_where_stdout_is_no_terminal() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("fine"));
    for args in [
        vec!["chat", "-q", "how are you?"],
        vec!["chat", "-Q", "-q", "again?"],
    ] {
        let done = setup.run(args);
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(0), "fine\n"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn choosing_a_model_without_a_terminal_is_64_and_names_the_flags() {
    let done = hermes(&TempHome::new()).args(["model"]).run();
    assert_eq!(done.code, Some(64));
    assert!(done.stderr.contains("hermes model set"), "{}", done.stderr);
}

#[test]
fn doctor_is_1_with_problems_and_0_without() {
    let broken = TempHome::new();
    broken.config("model: [unclosed\n");
    let done = hermes(&broken).args(["doctor", "--offline"]).run();
    assert_eq!(done.code, Some(1), "{}", done.stdout);
    let fine = CliHarness::new();
    fine.server.push_default(Reply::text("pong"));
    let done = fine.run(["doctor"]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

#[test]
fn an_unreachable_provider_is_69() {
    let home = TempHome::new();
    // Port 9 (discard) is closed on any sane machine.
    home.use_server("http://127.0.0.1:9/v1", "agent:\n  api_max_retries: 0\n");
    let done = hermes(&home).args(["-z", "hi"]).run();
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(69), ""),
        "{}",
        done.stderr
    );
}

#[test]
fn a_missing_profile_is_4_and_is_not_created() {
    let home = TempHome::new();
    let done = hermes(&home).args(["-p", "ghost", "status"]).run();
    assert_eq!(done.code, Some(4), "{}", done.stderr);
    assert!(!home.exists("profiles"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = TempHome::new();
    let mut child = hermes(&home).args(["completion", "bash"]).spawn();
    drop(child.stdout.take());
    let done = finish(child);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.stderr, "");
}

#[test]
fn help_and_version_are_results() {
    let home = TempHome::new();
    for args in [["--help"], ["--version"], ["version"]] {
        let done = hermes(&home).args(args).run();
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
        assert!(
            done.stdout.to_lowercase().contains("hermes"),
            "{}",
            done.stdout
        );
    }
}

#[test]
fn chat_flags_do_not_go_with_other_commands() {
    let done = hermes(&TempHome::new()).args(["-m", "x", "version"]).run();
    assert_eq!(done.code, Some(64), "{}", done.stderr);
}

#[test]
fn wrong_usage_points_to_the_help_of_that_command() {
    let home = TempHome::new();
    for (args, hint) in [
        (vec!["config", "set"], "see: hermes config set --help"),
        (vec!["config", "bogus"], "see: hermes config --help"),
        (
            vec!["sessions", "list", "--limit", "x"],
            "see: hermes sessions list --help",
        ),
        (vec!["sessions", "lst"], "did you mean \"list\"?"),
        (vec!["what is the time?"], "hermes -z \"…\""),
        (vec!["chat", "what is the time?"], "hermes chat -q \"…\""),
        (vec!["-r", "a", "-c", "-z", "hi"], "see: hermes --help"),
    ] {
        let done = hermes(&home).args(&args).run();
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(64), ""),
            "{args:?}"
        );
        assert!(done.stderr.contains(hint), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn a_model_hidden_by_a_flag_is_not_called_unconfigured() {
    let setup = CliHarness::new();
    for flag in ["--safe-mode", "--ignore-user-config"] {
        let done = setup.run(["-z", "hi", flag]);
        assert_eq!(done.code, Some(3));
        assert!(
            done.stderr.contains("config.yaml is ignored"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn a_skill_that_is_not_there_is_4() {
    let done = CliHarness::new().run(["-z", "hi", "-s", "nosuch"]);
    assert_eq!(done.code, Some(4));
    assert!(
        done.stderr.contains("hermes skills list"),
        "{}",
        done.stderr
    );
}

#[test]
fn chat_q_quiet_keeps_warnings_off_stdout() {
    let setup = CliHarness::with_config("agent:\n  max_turns: many\n");
    setup.server.push_default(Reply::text("fine"));
    let done = setup.run(["chat", "-q", "how are you?"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "fine\n"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("max_turns"), "{}", done.stderr);
    let done = setup.run(["chat", "-Q", "-q", "again?"]);
    assert_eq!(done.stdout, "fine\n");
}

#[test]
fn what_needs_a_terminal_is_64_without_one() {
    let home = TempHome::new();
    for args in [
        &["model"][..],
        &["setup"],
        &["sessions", "browse"],
        &["sessions", "browse", "--no-input"],
    ] {
        let done = hermes(&home).args(args).run();
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(64), ""),
            "{args:?}: {}",
            done.stderr
        );
        assert!(done.stderr.contains("hermes "), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn tools_need_no_terminal_to_be_listed() {
    let done = hermes(&TempHome::new()).args(["tools"]).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("terminal"), "{}", done.stdout);
}

#[test]
fn a_server_that_does_not_answer_its_test_is_1() {
    let home = TempHome::new();
    home.config("mcp_servers:\n  gone:\n    command: /nonexistent/server\n");
    let done = hermes(&home).args(["mcp", "test", "gone"]).run();
    assert_eq!(done.code, Some(1), "{}{}", done.stdout, done.stderr);
    let done = hermes(&home).args(["mcp", "test", "nosuch"]).run();
    assert_eq!(done.code, Some(4), "{}{}", done.stdout, done.stderr);
}

#[test]
fn things_that_are_not_there_are_4() {
    let home = TempHome::new();
    home.config("model: {}\n");
    for args in [
        &["sessions", "show", "nosuch"][..],
        &["sessions", "delete", "nosuch", "--yes"],
        &["sessions", "rename", "nosuch", "x"],
        &["sessions", "export", "-", "--session-id", "nosuch"],
        &["skills", "view", "nosuch"],
        &["logs", "nosuch"],
        &["import", "nosuch.zip"],
        &["update", "--from", "nosuch", "--yes"],
        &["update", "--rollback", "--yes"],
        &["profile", "show", "nosuch"],
    ] {
        let done = hermes(&home).args(args).run();
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(4), ""),
            "{args:?}: {}",
            done.stderr
        );
        assert!(!done.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_database_in_use_is_75() {
    let home = TempHome::new();
    home.config("model: {}\n");
    let zip = home.work().join("b.zip");
    drop(
        hermes(&home)
            .args(["backup", "-o", zip.to_str().unwrap()])
            .run()
            .ok(),
    );
    let _gateway = hermes_config::fs::FileLock::try_acquire(&home.join("gateway.lock")).unwrap();
    let done = hermes(&home)
        .args(["import", "--force", zip.to_str().unwrap()])
        .run();
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(75), ""),
        "{}",
        done.stderr
    );
}

#[test]
fn colour_is_asked_for_taken_away_or_found_out() {
    let home = TempHome::new();
    home.write(
        "logs/agent.log",
        "2026-05-01 10:00:00,123 ERROR agent: broke\n",
    );
    let coloured = |args: &[&str], vars: &[(&str, &str)]| {
        let program = hermes(&home).args(["logs"]).args(args);
        let program = vars
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        program.run().ok().stdout.contains('\u{1b}')
    };
    assert!(!coloured(&[], &[]));
    assert!(coloured(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(!coloured(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(coloured(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(
        &[],
        &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]
    ));
}

#[test]
fn every_long_output_ends_quietly_with_its_reader() {
    let home = TempHome::new();
    let line = "2026-05-01 10:00:00,123 INFO agent: something happened\n";
    home.write("logs/agent.log", line.repeat(20_000));
    let message = |n: u32| serde_json::json!({"role": "user", "content": format!("words {n}"), "timestamp": 1.0});
    let sessions: Vec<String> = (0..300)
        .map(|n| {
            serde_json::json!({"id": format!("s{n:04}"), "source": "cli", "started_at": 1.0,
                "messages": (0..20).map(message).collect::<Vec<_>>()})
            .to_string()
        })
        .collect();
    let file = home.write("in.jsonl", sessions.join("\n"));
    drop(
        hermes(&home)
            .args(["sessions", "import", file.to_str().unwrap()])
            .run()
            .ok(),
    );
    for args in [
        &["logs", "-n", "20000"][..],
        &["logs", "-n", "20000", "--json"],
        &["sessions", "list", "--limit", "300"],
        &["sessions", "list", "--limit", "300", "--json"],
        &["sessions", "export", "-"],
        &["sessions", "export", "-", "--format", "md"],
        &["sessions", "export", "-", "--format", "html"],
        &["sessions", "search", "words", "--limit", "300"],
        &["sessions", "show", "s0001"],
        &["config", "show", "--all"],
        &["config", "show", "--all", "--json"],
        &["model", "list"],
        &["model", "list", "--json"],
        &["tools", "list"],
        &["insights"],
        &["insights", "--json"],
        &["help", "--all"],
        &["man"],
        &["completion", "zsh"],
        &["--help"],
        &["doctor", "--offline"],
        &["status", "--json"],
        &["version"],
    ] {
        let mut child = hermes(&home).args(args).spawn();
        drop(child.stdout.take());
        let done = finish(child);
        assert!(
            matches!(done.code, Some(0 | 1)),
            "{args:?}: {:?} {}",
            done.code,
            done.stderr
        );
        let loud = done.stderr.contains("panicked") || done.stderr.contains("roken pipe");
        assert!(!loud, "{args:?}: {}", done.stderr);
    }
}
