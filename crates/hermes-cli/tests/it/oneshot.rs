//! Whole turns through the binary: tools, formats, usage, failures on the way.

use std::io::Read as _;

use hermes_testkit::model_server::{Reply, ReplyGate, ReplyUsage};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::CliHarness;

#[test]
fn a_tool_is_called_and_its_result_reaches_the_model() {
    let setup = CliHarness::new();
    let call = json!({"action": "add", "target": "memory", "content": "the cat is called Miso"});
    setup.server.push(Reply::tool_call("c1", "memory", &call));
    setup.server.push(Reply::text("Noted."));
    let done = setup.run(["-z", "remember my cat Miso"]).ok();
    assert_eq!(done.stdout, "Noted.\n");
    assert_eq!(
        setup.home.read("memories/MEMORY.md"),
        "the cat is called Miso"
    );
    let results = setup.server.last_request().tool_results();
    assert_eq!(results.len(), 1);
}

/// Names of the home work in every front end; everything else that begins with a slash is a message.
#[test]
fn quick_commands_and_skills_work_in_one_shots() {
    let setup = CliHarness::with_config(
        "quick_commands:\n  hello: {type: exec, command: echo hello from the shell}\n  who: {type: alias, target: tone}\n",
    );
    setup.home.write(
        "skills/tone/SKILL.md",
        "---\nname: tone\ndescription: how to speak\n---\nSpeak like a SAILOR.\n",
    );
    setup.server.push_default(Reply::text("aye"));
    let result = setup.run(["-z", "/hello", "--json"]).ok().json();
    assert_eq!(result["text"], "hello from the shell");
    assert_eq!((&result["ok"], &result["calls"]), (&json!(true), &json!(0)));
    for args in [vec!["-z"], vec!["chat", "-q"]] {
        let run = |text: &str| setup.run(args.iter().copied().chain([text])).ok().stdout;
        setup.server.forget_requests();
        assert_eq!(run("/hello"), "hello from the shell\n");
        assert!(setup.server.model_requests().is_empty());
        for text in ["/tone greet me", "/who greet me"] {
            assert_eq!(run(text), "aye\n", "{text}");
            let asked = setup.server.last_request().body.to_string();
            assert!(
                asked.contains("SAILOR") && asked.contains("greet me"),
                "{asked}"
            );
        }
        for text in ["/etc/hosts is what?", "/nothing of that name", "/help"] {
            assert_eq!(run(text), "aye\n", "{text}");
            let asked = setup.server.last_request().body.to_string();
            assert!(asked.contains(text), "{asked}");
        }
    }
}

#[test]
fn json_has_one_object_with_text_usage_and_session() {
    let setup = CliHarness::new();
    setup.server.push(Reply::text("hello").usage(ReplyUsage {
        prompt: 100,
        completion: 7,
        cached: 40,
        ..ReplyUsage::default()
    }));
    let result = setup.run(["-z", "hi", "--json"]).ok().json();
    assert_eq!(result["text"], "hello");
    assert_eq!(result["ok"], true);
    assert_eq!(result["usage"]["input"], 60);
    assert_eq!(result["usage"]["cache_read"], 40);
    assert_eq!(result["usage"]["output"], 7);
    assert!(
        result["session_id"]
            .as_str()
            .is_some_and(|id| !id.is_empty())
    );
}

#[test]
fn stream_json_tells_the_turn_event_by_event() {
    let setup = CliHarness::new();
    setup
        .server
        .push(Reply::tool_call("c1", "todo", &json!({})).reasoning("thinking"));
    setup.server.push(Reply::text("done").deltas(2));
    let done = setup
        .run(["-z", "hi", "--output-format", "stream-json"])
        .ok();
    let events: Vec<Value> = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds.first(), Some(&"init"));
    assert_eq!(kinds.last(), Some(&"result"));
    for kind in ["reasoning", "tool_start", "tool_end", "text", "usage"] {
        assert!(kinds.contains(&kind), "{kind} is missing in {kinds:?}");
    }
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "text")
        .filter_map(|event| event["text"].as_str())
        .collect();
    assert_eq!(text, "done");
    let seqs: Vec<u64> = events
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
}

#[test]
fn the_usage_file_is_written_even_when_the_turn_fails() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::error(401, "no"));
    let file = setup.home.work().join("usage.json");
    let done = setup.run(["-z", "hi", "--usage-file", file.to_str().unwrap()]);
    assert_eq!(done.code, Some(2));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(report["failed"], true);
    assert_eq!(report["completed"], false);
}

#[test]
fn a_usage_file_that_cannot_be_written_is_named_and_the_session_still_ends() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ok"));
    let blocked = setup.home.work().join("file");
    std::fs::write(&blocked, "not a directory").unwrap();
    let path = blocked.join("usage.json");
    let done = setup.run(["-z", "hi", "--usage-file", path.to_str().unwrap()]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), "ok\n"));
    assert!(done.stderr.contains("usage.json"), "{}", done.stderr);
    let listed = setup.run(["sessions", "list", "--json"]).ok().json();
    assert_eq!(listed[0]["end_reason"], "agent_close");
}

#[test]
fn a_rate_limit_is_waited_out_and_the_answer_comes() {
    let setup = CliHarness::new();
    setup.server.push(Reply::rate_limited(0));
    setup.server.push(Reply::text("at last"));
    let done = setup.run(["-z", "hi"]).ok();
    assert_eq!(done.stdout, "at last\n");
    assert_eq!(setup.server.model_requests().len(), 2);
}

#[test]
fn toolsets_limit_what_is_offered() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ok"));
    let _ = setup.run(["-z", "hi", "-t", "memory"]).ok();
    assert_eq!(setup.server.last_request().tool_names(), ["memory"]);
    let _ = setup.run(["-z", "hi", "-t", "none"]).ok();
    assert!(!setup.server.last_request().offers_tools());
    let done = setup.run(["-z", "hi", "-t", "nosuch"]);
    assert_eq!(done.code, Some(64), "{}", done.stderr);
}

#[test]
fn a_project_file_is_told_to_the_model_unless_rules_are_ignored() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ok"));
    std::fs::write(
        setup.home.work().join("AGENTS.md"),
        "Always answer in French.",
    )
    .unwrap();
    let _ = setup.run(["-z", "hi"]).ok();
    assert!(
        setup
            .server
            .last_request()
            .system()
            .contains("Always answer in French.")
    );
    let _ = setup.run(["-z", "hi", "--ignore-rules"]).ok();
    assert!(
        !setup
            .server
            .last_request()
            .system()
            .contains("Always answer in French.")
    );
}

#[test]
fn an_unreadable_config_stops_with_line_and_column_and_changes_nothing() {
    let setup = CliHarness::new();
    let broken = "model:\n  default: x\n bad indent: [\n";
    setup.home.config(broken);
    let done = setup.run(["-z", "hi"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(
        done.stderr.contains("config.yaml") && done.stderr.contains("line 3"),
        "{}",
        done.stderr
    );
    assert_eq!(setup.home.read("config.yaml"), broken);
}

#[test]
fn nothing_of_the_home_is_rewritten_by_a_turn() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ok"));
    let before = setup.home.read("config.yaml");
    let _ = setup.run(["-z", "hi"]).ok();
    assert_eq!(setup.home.read("config.yaml"), before);
    assert!(!setup.home.exists(".env"));
    assert!(!setup.home.exists("skills/.bundled_manifest"));
}

#[test]
fn verbose_shows_reasoning_beside_the_answer() {
    let setup = CliHarness::new();
    for (flag, told) in [("-v", "six times seven\n"), ("-vQ", "")] {
        setup
            .server
            .push(Reply::text("42").reasoning("six times seven"));
        let done = setup.run(["-z", "well?", flag]).ok();
        assert_eq!(done.stdout, "42\n");
        assert_eq!(done.stderr, told, "{flag}");
    }
}

#[test]
fn both_kinds_of_json_say_who_answered() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("42"));
    for format in ["json", "stream-json"] {
        let done = setup.run(["-z", "well?", "--output-format", format]).ok();
        let result: Value = match format {
            "json" => done.json(),
            _ => serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap(),
        };
        assert_eq!(result["type"], "result");
        assert_eq!(result["provider"], "custom", "{result}");
        assert!(result["model"].is_string(), "{result}");
    }
}

#[test]
fn an_image_the_model_cannot_see_is_told_and_can_be_allowed() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("ok"));
    std::fs::write(setup.home.work().join("p.gif"), b"GIF89a").unwrap();
    let ask = ["-z", "what is it?", "--image", "p.gif"];
    let done = setup.run(ask).ok();
    assert!(
        done.stderr.contains("model.supports_vision"),
        "{}",
        done.stderr
    );
    assert!(!setup.server.last_request().body_text().contains("R0lG"));
    let _ = setup
        .run(["config", "set", "model.supports_vision", "true"])
        .ok();
    let done = setup.run(ask).ok();
    assert_eq!(done.stderr, "");
    assert!(setup.server.last_request().body_text().contains("R0lG"));
}

#[test]
fn a_query_streams_into_a_pipe_and_oneshot_waits_for_the_end() {
    for (args, streams) in [
        (vec!["chat", "-q", "hi"], true),
        (vec!["chat", "-q", "hi", "--quiet"], false),
        (vec!["-z", "hi"], false),
    ] {
        let setup = CliHarness::new();
        let gate = ReplyGate::new();
        let reply = Reply::text_deltas(["first \x1b[1m", "second"]);
        setup.server.push(reply.hold_at(2, &gate));
        let mut child = setup.program(args.clone()).spawn();
        let mut out = child.stdout.take().unwrap();
        let mut seen = Vec::new();
        if streams {
            // Before the rest is let go: a program gets it as it is.
            while seen.len() < 10 {
                let mut bytes = [0; 64];
                let count = out.read(&mut bytes).unwrap();
                assert!(count > 0, "{args:?}");
                seen.extend_from_slice(&bytes[..count]);
            }
        } else {
            setup.server.block_until(|progress| progress.requests > 0);
        }
        gate.release();
        out.read_to_end(&mut seen).unwrap();
        assert_eq!(
            String::from_utf8(seen).unwrap(),
            "first \x1b[1msecond\n",
            "{args:?}"
        );
        assert!(child.wait().unwrap().success());
    }
}

/// A provider that refuses one of our optional fields: the person gets an answer and the next run
/// does not ask for the field.
#[test]
fn a_refused_field_is_left_out_and_remembered_between_runs() {
    let setup = CliHarness::with_config("agent:\n  reasoning_effort: xhigh\n");
    setup.server.answer_with(|request| {
        if request.body["reasoning_effort"] == "xhigh" || request.body["reasoning_effort"] == "high" {
            let error = json!({"error": {
                "message": "Unsupported value: 'reasoning_effort' does not support this with this model. Supported values are: 'low' and 'medium'.",
                "type": "invalid_request_error", "param": "reasoning_effort", "code": "unsupported_value",
            }});
            return Reply::json(400, &error);
        }
        Reply::text("fine")
    });
    for requests in [2, 3] {
        assert_eq!(setup.run(["-z", "hi"]).ok().stdout, "fine\n");
        assert_eq!(setup.server.model_requests().len(), requests);
    }
    let last = setup.server.last_request();
    assert_eq!(last.body["reasoning_effort"], "medium");
    assert!(
        setup
            .home
            .read("model_fields.json")
            .contains("reasoning_effort")
    );
}

/// The free tier's minute is over: money is mentioned, but so is the time to wait.
#[test]
fn a_rate_limit_that_mentions_billing_is_waited_for() {
    let setup = CliHarness::new();
    let error = json!([{"error": {
        "code": 429, "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota, please check your plan and billing details. Please retry in 0.2s.",
    }}]);
    setup.server.push(Reply::json(429, &error));
    setup.server.push(Reply::text("fine"));
    assert_eq!(setup.run(["-z", "hi"]).ok().stdout, "fine\n");
}

/// What a message refers to goes along with it, as far as the tools would read it.
#[test]
fn references_are_attached_to_the_message() {
    let setup = CliHarness::new();
    let work = setup.home.work();
    std::fs::write(work.join("note.txt"), "one\ntwo is the answer\nthree\n").unwrap();
    std::fs::write(work.join(".env"), "PRIVATE_TOKEN=plain-env-secret-123456\n").unwrap();
    setup.server.push_default(Reply::text("ok"));
    let ask = |text: &str| {
        let _ = setup.program(["-z", text]).cwd(&work).run().ok();
        let body = setup.server.last_request().body;
        body["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .to_string()
    };
    let sent = ask("what does @file:note.txt:2 say?");
    assert!(
        sent.contains("Attached Context") && sent.contains("two is the answer"),
        "{sent}"
    );
    assert!(!sent.contains("three"), "{sent}");
    for text in [
        "see @file:../config.yaml",
        "see @file:/etc/passwd",
        "see @file:~/.ssh/id_rsa",
    ] {
        let sent = ask(text);
        assert!(
            sent.contains("outside the directory of this conversation"),
            "{text}: {sent}"
        );
    }
    let sent = ask("see @file:.env");
    assert!(!sent.contains("plain-env-secret"), "{sent}");
    let sent = ask("see @url:http://169.254.169.254/latest");
    assert!(
        sent.contains("not attached") || sent.contains("private"),
        "{sent}"
    );
    let sent = ask("see @file:missing.txt");
    assert!(sent.contains("not attached"), "{sent}");
}

#[test]
fn a_diff_is_attached_without_running_an_external_diff() {
    let setup = CliHarness::new();
    let work = setup.home.work();
    let git = |args: &[&str]| {
        let done = std::process::Command::new("git")
            .args(args)
            .current_dir(&work)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    git(&["init", "-q"]);
    std::fs::write(work.join("a.txt"), "before\n").unwrap();
    git(&["add", "a.txt"]);
    git(&[
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "first",
    ]);
    std::fs::write(work.join("a.txt"), "after\n").unwrap();
    let marker = work.join("marker");
    let hook = work.join("hook.sh");
    std::fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    std::process::Command::new("chmod")
        .arg("+x")
        .arg(&hook)
        .status()
        .unwrap();
    git(&["config", "diff.external", hook.to_str().unwrap()]);
    let _ = std::fs::remove_file(&marker);
    setup.server.push_default(Reply::text("ok"));
    let _ = setup.program(["-z", "review @diff"]).cwd(&work).run().ok();
    let sent = setup.server.last_request().body.to_string();
    assert!(
        sent.contains("+after") && sent.contains("-before"),
        "{sent}"
    );
    assert!(!marker.exists(), "something of the project ran");
}

#[test]
fn a_server_of_this_machine_that_is_not_there_is_tried_twice() {
    let setup = CliHarness::new();
    let text = setup.home.read("config.yaml");
    // Nothing listens there.
    let text = text.replace(&setup.server.base_url(), "http://127.0.0.1:9/v1");
    std::fs::write(setup.home.join("config.yaml"), text).unwrap();
    let done = setup.run(["-z", "hi"]);
    assert_eq!(done.code, Some(69), "{}", done.stderr);
    assert_eq!(
        done.stderr.matches("; attempt ").count(),
        1,
        "{}",
        done.stderr
    );
}

/// A tool without a row would have neither a kind nor an icon in front ends, and no place among the small
/// sets of tools.
#[test]
fn every_built_in_tool_has_its_traits() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("hello"));
    drop(setup.run(["-z", "hi"]).ok());
    let request = &setup.server.model_requests()[0];
    let tools = request.body["tools"].as_array().unwrap();
    assert!(tools.len() > 10, "{tools:?}");
    for tool in tools {
        let name = tool["function"]["name"].as_str().unwrap();
        assert_eq!(hermes_core::tool_traits::tool_traits(name).name, name);
    }
}
