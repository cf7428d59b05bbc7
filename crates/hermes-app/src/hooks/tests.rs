use hermes_config::Home;
use serde_json::json;

use super::*;

fn home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path());
    (dir, home)
}

fn happening(tool: &str) -> HookEvent {
    HookEvent {
        session: "s1".to_owned(),
        tool: Some((tool.to_owned(), json!({"command": "ls"}))),
        extra: json!({"platform": "telegram"}),
    }
}

#[tokio::test]
async fn only_what_was_agreed_to_runs_and_it_can_say_no() {
    let (_dir, home) = home();
    let says_no = r#"printf '{"decision":"block","reason":"not on Sundays"}'; exit 1"#;
    let config = json!({"pre_tool_call": [{"command": says_no, "matcher": "term.*"}]});
    let (list, problems) = load(&home, Some(&config), false);
    assert!(problems.is_empty(), "{problems:?}");
    let hooks = Hooks::new(list);
    assert!(!hooks.has_hooks_for("pre_tool_call"));
    assert_eq!(hooks.objection(&happening("terminal")).await, None);

    let mut consent = consent::Consent::open(&home).unwrap();
    consent
        .give("pre_tool_call", says_no, "2026-01-01T00:00:00Z")
        .unwrap();
    let hooks = Hooks::new(load(&home, Some(&config), false).0);
    let objection = hooks.objection(&happening("terminal")).await;
    assert_eq!(objection.as_deref(), Some("not on Sundays"));
    // The whole name counts.
    assert_eq!(hooks.objection(&happening("my_terminal")).await, None);

    assert_eq!(consent.take_back(says_no).unwrap(), 1);
    let hooks = Hooks::new(load(&home, Some(&config), false).0);
    assert!(!hooks.has_hooks_for("pre_tool_call"));
}

#[tokio::test]
async fn a_hook_reads_the_event_and_its_failure_stops_nothing() {
    let (dir, home) = home();
    let seen = dir.path().join("seen");
    let config = json!({
        "agent:end": [
            {"command": "exit 7"},
            {"command": "sleep 60", "timeout": 1},
            {"command": format!("cat > {}", seen.display())},
        ],
        "agent:ends": [{"command": "true"}],
        "session:start": [{"matcher": "("}, {"command": "true", "timeout": "soon"}],
    });
    let (list, problems) = load(&home, Some(&config), true);
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(
        problems
            .iter()
            .any(|p| p.starts_with("hooks.agent:ends: no such event"))
    );
    let hooks = Hooks::new(list);
    hooks.ask("agent:end", &happening("terminal")).await;
    let read: Value = serde_json::from_str(&std::fs::read_to_string(seen).unwrap()).unwrap();
    assert_eq!(read["hook_event_name"], "agent:end");
    assert_eq!(read["tool_input"]["command"], "ls");
    assert_eq!(read["session_id"], "s1");
    assert_eq!(read["extra"]["platform"], "telegram");
}

#[tokio::test]
async fn handlers_in_directories_run_as_they_did() {
    let (dir, home) = home();
    let place = dir.path().join("hooks/note");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(
        place.join("HOOK.yaml"),
        "name: note\nevents:\n  - command:*\n  - agent:end\n",
    )
    .unwrap();
    std::fs::write(
        place.join("handler.py"),
        "async def handle(event_type, context):\n    return {'heard': event_type, 'who': context['platform'], 'in': context['session_id']}\n",
    )
    .unwrap();
    std::fs::create_dir_all(dir.path().join("hooks/broken")).unwrap();
    std::fs::write(dir.path().join("hooks/broken/HOOK.yaml"), "name: broken\n").unwrap();
    let (list, problems) = load(&home, None, false);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let hooks = Hooks::new(list);
    assert!(hooks.has_hooks_for("command:status") && !hooks.has_hooks_for("agent:start"));
    let answers = hooks.ask("command:status", &happening("terminal")).await;
    assert_eq!(
        answers,
        [json!({"heard": "command:status", "who": "telegram", "in": "s1"})]
    );
}
