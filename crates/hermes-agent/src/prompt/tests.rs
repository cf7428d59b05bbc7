use std::path::Path;

use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

const ALL_TOOLS: &[&str] = &[
    "memory",
    "read_file",
    "session_search",
    "skill_manage",
    "skill_view",
    "skills_list",
    "terminal",
    "todo",
];

fn with<R>(
    change: impl FnOnce(&mut PromptInputs<'_>),
    then: impl FnOnce(&PromptInputs<'_>) -> R,
) -> R {
    let guidance = Guidance::default();
    let environment = PromptEnvironment {
        os: "Linux (6.8)".into(),
        home: "/home/u".into(),
        cwd: "/home/u/p".into(),
        ..PromptEnvironment::default()
    };
    let mut inputs = PromptInputs {
        mode: PromptSize::Full,
        soul: None,
        tools: ALL_TOOLS.iter().copied().collect(),
        skills: None,
        model: "claude-x",
        provider: "anthropic",
        guidance: &guidance,
        environment: &environment,
        profile: Profile {
            name: "default",
            home: Path::new("/home/u/.hermes"),
        },
        platform: "cli",
        default_hint: None,
        platform_hint: PlatformHint::default(),
        system_message: None,
        project: None,
        memory: None,
        user: None,
        external_memory: None,
        date: NaiveDate::from_ymd_opt(2026, 11, 15).unwrap(),
        session_id: None,
    };
    change(&mut inputs);
    then(&inputs)
}

fn prompt(change: impl FnOnce(&mut PromptInputs<'_>)) -> String {
    with(change, |inputs| build(inputs).join())
}

#[test]
fn a_model_that_only_chats_is_told_little_and_nothing_of_tools() {
    let chat = prompt(|inputs| {
        inputs.mode = PromptSize::Chat;
        inputs.memory = Some("the cat is called Miso");
        inputs.project = Some("use tabs");
        inputs.system_message = Some("Be brief.");
    });
    assert!(is_for_chat(&chat) && !is_for_chat(&prompt(|_| {})));
    assert!(crate::tokens::text(&chat) <= 300, "{chat}");
    assert!(chat.contains("no tools") && chat.contains("Be brief."));
    for absent in ["Miso", "tabs", "skill_view", "Environment"] {
        assert!(!chat.contains(absent), "{absent} in {chat}");
    }
    assert_eq!(told_date(&chat), NaiveDate::from_ymd_opt(2026, 11, 15));
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    assert_eq!(prompt(|_| {}), prompt(|_| {}));
}

#[test]
fn own_text_stays_small() {
    let full = prompt(|inputs| inputs.model = "gpt-5");
    assert!(full.len() <= 4_096, "{} bytes", full.len());
    let lean = prompt(|inputs| inputs.mode = PromptSize::Lean);
    assert!(lean.len() < full.len());
}

#[test]
fn tiers_come_in_order_and_the_model_last() {
    let text = prompt(|inputs| {
        inputs.soul = Some("I am the soul.");
        inputs.system_message = Some("Caller says.");
        inputs.project = Some("## AGENTS.md\n\nRules.");
        inputs.memory = Some("MEMORY-BLOCK");
        inputs.user = Some("USER-BLOCK");
        inputs.external_memory = Some("EXTERNAL");
        inputs.session_id = Some("s1");
    });
    assert!(text.starts_with("I am the soul.\n\n"));
    assert!(!text.contains("You are Hermes"));
    let order = [
        "## Working",
        "## Environment",
        "Caller says.",
        "Rules.",
        "MEMORY-BLOCK",
        "USER-BLOCK",
        "EXTERNAL",
        "Conversation started: Sunday, November 15, 2026",
        "Session ID: s1",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|part| text.find(part).expect(part))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(text.ends_with("\nModel: claude-x\nProvider: anthropic"));
}

#[test]
fn another_model_changes_only_the_last_lines() {
    let one = prompt(|_| {});
    let two = prompt(|inputs| {
        inputs.model = "claude-y";
        inputs.provider = "openrouter";
    });
    let common = one
        .bytes()
        .zip(two.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    assert!(one[common..].lines().count() <= 2);
}

#[test]
fn a_switch_is_told_late_and_only_when_it_is_one() {
    let stored = prompt(|_| {});
    assert_eq!(identity_note(&stored, "claude-x", "anthropic"), None);
    let note = identity_note(&stored, "qwen", "custom").unwrap();
    assert!(note.contains("qwen") && note.contains("custom"));
    assert_eq!(identity_note("a prompt that names nobody", "m", "p"), None);
}

#[test]
fn the_day_is_told_again_only_when_it_changed() {
    let day = |d| NaiveDate::from_ymd_opt(2026, 1, d).unwrap();
    assert_eq!(date_note(day(1), day(1)), None);
    assert!(date_note(day(1), day(2)).unwrap().contains("January 02"));
}

#[test]
fn guidance_names_only_loaded_tools() {
    let none = prompt(|inputs| inputs.tools.clear());
    for word in [
        "memory:",
        "session_search",
        "todo:",
        "## Working",
        STEER_OPEN,
    ] {
        assert!(!none.contains(word), "{word}");
    }
    let some = prompt(|inputs| inputs.tools.retain(|tool| *tool == "memory"));
    assert!(some.contains("- memory:"));
    assert!(!some.contains("session_search"));
    assert!(!some.contains("one step"), "one tool has nothing beside it");
}

#[test]
fn the_steer_markers_are_declared_as_they_are_used() {
    let text = prompt(|_| {});
    let block = steer_block("stop that");
    for line in [STEER_OPEN, STEER_CLOSE] {
        assert!(text.contains(line));
        assert!(block.contains(line));
    }
}

/// Each program uses the lines that the prompt of the session declares, and ours declares both.
#[test]
fn a_session_is_steered_by_the_lines_that_its_prompt_declares() {
    let ours = prompt(|_| {});
    assert_eq!(steer_block_for(&ours, "stop"), steer_block("stop"));
    let line = "[OUT-OF-BAND USER MESSAGE — a direct message from the user, delivered mid-turn; not tool output]";
    assert!(ours.contains(line) && ours.contains("[/OUT-OF-BAND USER MESSAGE]"));
    let other = "[OUT-OF-BAND USER MESSAGE — of an older version]";
    for declared in [line, other] {
        let theirs =
            format!("You are Hermes.\n{declared}\n<their message>\n[/OUT-OF-BAND USER MESSAGE]\n");
        let block = steer_block_for(&theirs, "stop");
        assert_eq!(
            block,
            format!("\n\n{declared}\nstop\n[/OUT-OF-BAND USER MESSAGE]")
        );
        assert_eq!(steered(&block).collect::<Vec<_>>(), ["stop"]);
    }
    assert_eq!(steered(&steer_block("a\nb")).collect::<Vec<_>>(), ["a\nb"]);
}

#[test]
fn enforcement_by_family_and_config() {
    let acting = |model: &'static str, value: serde_json::Value| {
        with(
            |_| {},
            |inputs| {
                let guidance = Guidance {
                    enforcement: Enforcement::parse(&value),
                    ..Guidance::default()
                };
                let inputs = PromptInputs {
                    model,
                    guidance: &guidance,
                    ..inputs.clone()
                };
                build(&inputs).join().contains("## Acting")
            },
        )
    };
    assert!(acting("openai/GPT-5", json!("auto")));
    assert!(!acting("claude-opus", json!("auto")));
    assert!(acting("claude-opus", json!(true)));
    assert!(acting("claude-opus", json!("on")));
    assert!(!acting("gpt-5", json!("never")));
    assert!(acting("My-Model", json!(["my-"])));
    assert!(!acting("gpt-5", json!(["my-"])));
    assert!(acting("gpt-5", json!(7)), "nonsense means auto");
}

#[test]
fn platform_hints_append_or_replace() {
    let hint = |value: serde_json::Value, platform: &'static str| {
        prompt(|inputs| {
            inputs.platform = platform;
            inputs.platform_hint = PlatformHint::parse(&value);
        })
    };
    let appended = hint(json!("Always rhyme."), "cli");
    assert!(appended.contains("appear in a terminal") && appended.contains("Always rhyme."));
    let replaced = hint(
        json!({"replace": "Only this.", "append": "And this."}),
        "cli",
    );
    assert!(!replaced.contains("appear in a terminal"));
    assert!(replaced.contains("Only this.\n\nAnd this."));
    let unknown = hint(json!("Mine."), "carrier-pigeon");
    assert!(unknown.contains("Mine."));
    let broken = hint(json!(["x"]), "cli");
    assert!(broken.contains("appear in a terminal"));
}

#[test]
fn a_backend_hides_the_host() {
    let environment = PromptEnvironment {
        os: "Linux (6.8)".into(),
        home: "/home/secret".into(),
        backend: Some(Backend {
            name: "docker".into(),
            probe: None,
        }),
        extra: Some("Proxy on 8080.".into()),
        ..PromptEnvironment::default()
    };
    let text = with(
        |_| {},
        |inputs| {
            build(&PromptInputs {
                environment: &environment,
                ..inputs.clone()
            })
            .join()
        },
    );
    assert!(!text.contains("/home/secret"));
    assert!(text.contains("inside a docker environment"));
    assert!(text.contains("Proxy on 8080."));
}

#[test]
fn skills_are_offered_only_with_the_tool_that_loads_them() {
    let text = prompt(|inputs| inputs.skills = Some("INDEX"));
    assert!(text.contains("## Skills") && text.contains("INDEX"));
    let without = prompt(|inputs| {
        inputs.skills = Some("INDEX");
        inputs.tools.remove("skill_view");
    });
    assert!(!without.contains("INDEX"));
}

#[test]
fn a_stored_prompt_says_which_day_it_named() {
    let day = NaiveDate::from_ymd_opt(2026, 3, 1).unwrap();
    let stored = format!(
        "You are …\n\nConversation started: {}\nModel: m",
        day.format("%A, %B %d, %Y")
    );
    assert_eq!(told_date(&stored), Some(day));
    assert_eq!(date_note(day, day), None);
    assert_eq!(told_date("nothing of the kind"), None);
}
