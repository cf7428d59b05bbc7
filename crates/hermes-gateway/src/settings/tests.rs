use std::collections::HashMap;

use hermes_config::{Config, Env, Home, ProcessEnv};
use hermes_platforms::ReplyMode;
use pretty_assertions::assert_eq;

use super::*;
use crate::session::ResetMode;

struct SettingsHarness {
    dir: tempfile::TempDir,
}

impl SettingsHarness {
    fn new(config: &str, env: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.yaml"), config).unwrap();
        std::fs::write(dir.path().join(".env"), env).unwrap();
        Self { dir }
    }

    fn old(self, text: &str) -> Self {
        std::fs::write(self.dir.path().join("gateway.json"), text).unwrap();
        self
    }

    fn load(&self) -> Result<GatewaySettings, super::gateway::GatewaySettingsError> {
        let home = Home::at(self.dir.path());
        let process = ProcessEnv::from_vars(HashMap::<String, String>::new());
        let env = Env::load(&home, &process).unwrap();
        let loaded = Config::load(&home, &env).unwrap();
        GatewaySettings::load(&home, loaded, &env)
    }

    fn settings(&self) -> GatewaySettings {
        self.load().unwrap()
    }

    /// What every command says about the config.
    fn warnings(&self) -> Vec<String> {
        let home = Home::at(self.dir.path());
        let process = ProcessEnv::from_vars(HashMap::<String, String>::new());
        let env = Env::load(&home, &process).unwrap();
        let warnings = Config::load(&home, &env).unwrap().warnings;
        warnings.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn nothing_is_on_by_default() {
    let settings = SettingsHarness::new("", "").settings();
    assert_eq!(settings.enabled().count(), 0);
    assert_eq!(settings.busy, BusyMode::Steer);
    assert!(!settings.streaming.enabled);
    assert_eq!(settings.problems, Vec::<String>::new());
    assert_eq!(settings.access_summary(), AccessSummary::default());
}

#[test]
fn a_credential_switches_a_platform_on_unless_somebody_says_no() {
    let env = "TELEGRAM_BOT_TOKEN=123456:abcdefghij\nSLACK_BOT_TOKEN=xoxb-1-abcdefgh\n\
               TELEGRAM_HOME_CHANNEL=42\nTELEGRAM_HOME_CHANNEL_THREAD_ID=7\n";
    let settings = SettingsHarness::new("slack:\n  enabled: false\n", env).settings();
    let on: Vec<&str> = settings.enabled().map(|one| one.name.as_str()).collect();
    assert_eq!(on, ["telegram"]);
    let telegram = settings.platform("telegram").unwrap();
    assert_eq!(telegram.token.as_deref(), Some("123456:abcdefghij"));
    let home = telegram.home_channel.as_ref().unwrap();
    assert_eq!(
        (home.chat_id.as_str(), home.thread_id.as_deref()),
        ("42", Some("7"))
    );
    assert_eq!(settings.platform("slack").unwrap().enabled, Some(false));
}

#[test]
fn places_are_merged_the_stronger_last() {
    let config = "gateway:\n  platforms:\n    telegram:\n      token: nested-token-1\n      \
                  extra: {base_url: 'http://a', local_mode: true}\n\
                  platforms:\n  telegram:\n    extra: {base_url: 'http://b'}\n    enabled: true\n\
                  telegram:\n  require_mention: false\n  reply_to_mode: off\n";
    let written = SettingsHarness::new(config, "").old(
        r#"{"platforms": {"telegram": {"extra": {"base_url": "http://old", "dm_policy": "disabled"}}},
            "group_sessions_per_user": false}"#,
    );
    let settings = written.settings();
    let telegram = settings.platform("telegram").unwrap();
    assert_eq!(telegram.token.as_deref(), Some("nested-token-1"));
    assert_eq!(telegram.text("base_url").as_deref(), Some("http://b"));
    assert_eq!(telegram.flag("local_mode"), Some(true));
    assert_eq!(telegram.flag("require_mention"), Some(false));
    assert_eq!(telegram.text("dm_policy").as_deref(), Some("disabled"));
    assert_eq!(telegram.reply_to, ReplyMode::Off);
    assert!(!settings.sharing.group_per_user);
}

#[test]
fn what_is_wrong_is_said() {
    let config = "busy_input_mode: maybe\nsession_reset: {mode: weekly, at_hour: 30}\n\
                  unauthorized_dm_behavior: shout\nstreaming: {transport: pigeon}\n\
                  signal: {enabled: true}\nquick_commands: {up: {type: shell}}\n";
    let written = SettingsHarness::new(config, "TELEGRAM_BOT_TOKEN=your_token_here\n");
    let settings = written.settings();
    assert_eq!(settings.enabled().count(), 0);
    // What the rules of the config find is left out before the gateway sees it.
    let mut said = settings.problems.clone();
    said.extend(written.warnings());
    for word in [
        "busy_input_mode",
        "mode",
        "at_hour",
        "unauthorized",
        "pigeon",
        "quick_commands",
        "signal",
        "telegram",
    ] {
        assert!(
            said.iter().any(|problem| problem.contains(word)),
            "{word}: {said:?}"
        );
    }
    assert_eq!(settings.resets.default.mode, ResetMode::None);
    assert!(SettingsHarness::new("", "").old("[1").load().is_err());
}

#[test]
fn top_level_wins_over_gateway() {
    let config = "streaming: {mode: edit, edit_interval: 2}\n\
                  gateway:\n  streaming: {mode: off}\n  busy_input_mode: queue\n  \
                  session_reset: {mode: idle, idle_minutes: 5}\n  systemd_watchdog_seconds: 30\n";
    let settings = SettingsHarness::new(config, "").settings();
    assert!(settings.streaming.enabled);
    assert_eq!(settings.streaming.transport, StreamTransport::Edit);
    assert_eq!(settings.streaming.edit_interval.as_secs(), 2);
    assert_eq!(settings.busy, BusyMode::Queue);
    assert_eq!(settings.resets.default.mode, ResetMode::Idle);
    assert_eq!(settings.resets.default.idle_minutes, 5);
    assert_eq!(settings.watchdog.unwrap().as_secs(), 30);
}

#[test]
fn an_open_door_is_noticed() {
    let env = "TELEGRAM_BOT_TOKEN=123456:abcdefghij\n";
    let open = "telegram: {dm_policy: open}\n";
    assert_eq!(
        SettingsHarness::new(open, env)
            .settings()
            .access_summary()
            .unconfirmed_open,
        ["telegram"]
    );
    let meant = format!("{env}TELEGRAM_ALLOW_ALL_USERS=true\n");
    let access = SettingsHarness::new(open, &meant)
        .settings()
        .access_summary();
    assert_eq!(
        (
            access.unconfirmed_open,
            access.open_to_all,
            access.only_pairing
        ),
        (vec![], vec!["telegram".to_owned()], false)
    );
    assert!(
        SettingsHarness::new("", env)
            .settings()
            .access_summary()
            .only_pairing
    );
    let listed = format!("{env}TELEGRAM_ALLOWED_USERS=1\n");
    assert!(
        !SettingsHarness::new("", &listed)
            .settings()
            .access_summary()
            .only_pairing
    );
}
