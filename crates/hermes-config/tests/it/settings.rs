//! `config set` and `unset` on a home.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use hermes_config::settings::{self, SetOptions, SettingError};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::TestHome;

fn set(home: &TestHome, key: &str, text: &str) -> Result<settings::SettingChange, SettingError> {
    settings::set(&home.home, &home.env(), key, text, SetOptions::default())
}

#[test]
fn keys_and_tokens_go_to_env() {
    let home = TestHome::new("a: 1\n");
    let change = set(&home, "openrouter_api_key", "sk-or-xyz").unwrap();
    assert_eq!(change.key, "OPENROUTER_API_KEY");
    assert_eq!(home.read(".env"), "OPENROUTER_API_KEY=sk-or-xyz\n");
    assert_eq!(
        std::fs::metadata(home.path(".env")).unwrap().mode() & 0o777,
        0o600
    );
    assert_eq!(home.read("config.yaml"), "a: 1\n");
    set(&home, "HF_TOKEN", "hf_123").unwrap();
    assert_eq!(
        settings::get(&home.load(), &home.env(), "HF_TOKEN").unwrap(),
        Some(json!("hf_123"))
    );
    assert!(
        settings::unset(&home.home, &home.env(), "HF_TOKEN")
            .unwrap()
            .is_some()
    );
    assert!(
        settings::unset(&home.home, &home.env(), "HF_TOKEN")
            .unwrap()
            .is_none()
    );
    assert!(matches!(
        set(&home, "LD_PRELOAD_TOKEN", "x"),
        Err(SettingError::Env(_))
    ));
}

#[test]
fn text_becomes_what_the_key_takes() {
    let home = TestHome::new("# keep\n");
    for (key, text, want) in [
        ("agent.max_turns", "60", json!(60)),
        ("display.compact", "yes", json!(true)),
        ("approvals.mode", "off", json!("off")),
        ("compression.threshold", "0.75", json!(0.75)),
        ("model.default", "123", json!("123")),
        ("model.context_length", "32000", json!(32000)),
        ("toolsets", "[web, file]", json!(["web", "file"])),
        ("agent.environment_hint", "1:30", json!("1:30")),
        ("brand.new.deep", "5", json!(5)),
        ("brand.new.text", "-x", json!("-x")),
        ("agent.max_cost_usd", "null", json!(null)),
    ] {
        let change = set(&home, key, text).unwrap();
        assert_eq!(change.value, Some(want.clone()), "{key}");
        let loaded = home.load();
        assert_eq!(
            settings::get(&loaded, &home.env(), key).unwrap(),
            Some(want),
            "{key}"
        );
    }
    assert!(home.read("config.yaml").starts_with("# keep\n"));
    let note = &set(&home, "agent.max_turn", "1").unwrap().notes[0];
    assert!(note.contains("did you mean agent.max_turns?"), "{note}");
}

#[test]
fn a_value_of_the_wrong_type_is_refused_unless_forced() {
    let home = TestHome::new("a: 1\n");
    let error = set(&home, "agent.max_turns", "many")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("agent.max_turns takes a whole number"),
        "{error}"
    );
    assert_eq!(home.read("config.yaml"), "a: 1\n");
    let force = SetOptions {
        force: true,
        ..SetOptions::default()
    };
    settings::set(&home.home, &home.env(), "agent.max_turns", "many", force).unwrap();
    let json = SetOptions {
        json: true,
        ..SetOptions::default()
    };
    settings::set(&home.home, &home.env(), "x", r#"{"a": [1, "off"]}"#, json).unwrap();
    assert_eq!(home.load().tree["x"], json!({"a": [1, "off"]}));
    assert!(settings::set(&home.home, &home.env(), "x", "{", json).is_err());
}

#[test]
fn terminal_settings_are_mirrored_for_the_original() {
    let home = TestHome::new("").file(".env", "# c\n");
    set(&home, "terminal.timeout", "90").unwrap();
    set(&home, "terminal.docker_network", "no").unwrap();
    set(&home, "terminal.cwd", "/srv").unwrap();
    assert_eq!(
        home.read(".env"),
        "# c\nTERMINAL_TIMEOUT=90\nTERMINAL_DOCKER_NETWORK=False\n"
    );
    settings::unset(&home.home, &home.env(), "terminal.timeout")
        .unwrap()
        .unwrap();
    assert_eq!(home.read(".env"), "# c\nTERMINAL_DOCKER_NETWORK=False\n");
}

#[test]
fn a_bare_model_name_is_kept_when_a_section_is_needed() {
    let home = TestHome::new("model: big # c\n");
    set(&home, "model.provider", "nous").unwrap();
    set(&home, "model.api_base", "http://x/v1").unwrap();
    let model = home.load().config.model;
    assert_eq!(
        (
            model.default.as_str(),
            model.provider.as_str(),
            model.base_url.as_str()
        ),
        ("big", "nous", "http://x/v1")
    );
    assert!(home.read("config.yaml").contains("# c"));
}

#[test]
fn a_section_is_not_replaced_by_a_word() {
    let home = TestHome::new("model: {default: a, provider: p}\ntts: {provider: x}\n");
    let change = set(&home, "model", "b").unwrap();
    assert_eq!(change.key, "model.default");
    assert!(matches!(
        set(&home, "tts", "off"),
        Err(SettingError::Section(_))
    ));
    assert_eq!(
        home.read("config.yaml"),
        "model: {default: b, provider: p}\ntts: {provider: x}\n"
    );
}

#[test]
fn the_file_keeps_its_mode_and_its_link() {
    let home = TestHome::new("");
    let real = home.path("real.yaml");
    std::fs::rename(home.path("config.yaml"), &real).unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, home.path("config.yaml")).unwrap();
    set(&home, "agent.max_turns", "5").unwrap();
    assert!(
        std::fs::symlink_metadata(home.path("config.yaml"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(std::fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
    assert_eq!(home.read("real.yaml"), "agent:\n  max_turns: 5\n");
}

#[test]
fn a_broken_file_is_not_touched() {
    let home = TestHome::new("a: [\n");
    let error = set(&home, "agent.max_turns", "5").unwrap_err().to_string();
    assert!(
        error.contains("line 1, column") && error.contains('^'),
        "{error}"
    );
    assert!(settings::unset(&home.home, &home.env(), "a").is_err());
    assert_eq!(home.read("config.yaml"), "a: [\n");
}

#[test]
fn what_the_administrator_fixed_stays() {
    let home = TestHome::new("a: 1\n")
        .managed("config.yaml", "agent: {max_turns: 9}\n")
        .managed(".env", "A_TOKEN=x\n");
    assert!(matches!(
        set(&home, "agent.max_turns", "5"),
        Err(SettingError::Managed { .. })
    ));
    assert!(matches!(
        set(&home, "A_TOKEN", "5"),
        Err(SettingError::Managed { .. })
    ));
    set(&home, "agent.api_max_retries", "5").unwrap();
    assert!(settings::unset(&home.home, &home.env(), "agent.max_turns").is_err());
}
