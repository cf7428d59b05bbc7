//! Settings of the gateway as a whole.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_config::{Config, Env, Home, Loaded};
use hermes_platforms::{PLATFORMS, PlatformSettings, Writers, setting_text};
use serde_json::{Map, Value};

use super::blocks::{ConfigSources, open};
use super::{FOREIGN, QuickCommand, read_quick_commands};
use crate::authorize::StrangerAction;
use crate::session::{ResetMode, ResetPolicies, ResetPolicy, SessionSharing};

/// The configuration of a gateway, from the files of a home.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    pub home: Home,
    pub config: Arc<Config>,
    /// config.yaml with everything in it, sections unknown to [`Config`] included.
    pub tree: Arc<Value>,
    /// config.yaml as it is, without defaults.
    pub file: Arc<Value>,
    /// `.env` and the process.
    pub env: Arc<HashMap<String, String>>,
    /// Configured platforms, in the order of [`PLATFORMS`].
    pub platforms: Vec<PlatformSettings>,
    pub resets: ResetPolicies,
    /// Platforms without notices about resets.
    pub quiet_resets: Vec<String>,
    pub sharing: SessionSharing,
    pub busy: BusyMode,
    pub streaming: StreamingSettings,
    /// The default reaction to unknown people.
    pub strangers: Option<StrangerAction>,
    /// Answers that only announce silence are not sent.
    pub filter_silence: bool,
    /// Conversations that run at the same time.
    pub max_sessions: Option<usize>,
    pub reset_triggers: Vec<String>,
    /// `quick_commands`, by name.
    pub quick: BTreeMap<String, QuickCommand>,
    /// How long running turns may continue when the process stops.
    pub drain: Duration,
    /// The watchdog interval of systemd.
    pub watchdog: Option<Duration>,
    /// Whether `sessions/sessions.json` is written for tools of the original.
    pub write_sessions_json: bool,
    /// How long the start of one platform may delay the others.
    pub connect_timeout: Duration,
    /// Problems and settings without effect, for display.
    pub problems: Vec<String>,
}

/// What a message does while a turn is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BusyMode {
    Interrupt,
    Queue,
    #[default]
    Steer,
}

/// `streaming`: answers are shown while they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamingSettings {
    pub enabled: bool,
    pub transport: StreamTransport,
    pub edit_interval: Duration,
    /// Number of new characters that trigger an edit before the interval is over.
    pub buffer: usize,
    pub cursor: String,
    /// The final is a new message when the preview is older than this.
    pub fresh_final_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamTransport {
    /// Drafts where the platform has them, else edits.
    #[default]
    Auto,
    Draft,
    Edit,
    Off,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", .path.display())]
pub struct GatewaySettingsError {
    path: PathBuf,
    why: String,
}

impl GatewaySettings {
    /// From files that were read already, and the old gateway.json.
    pub fn load(home: &Home, loaded: Loaded, env: &Env) -> Result<Self, GatewaySettingsError> {
        let old = old_file(home)?;
        let env = env.iter();
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self::from_parts(home, loaded, env.collect(), &old))
    }

    fn from_parts(home: &Home, loaded: Loaded, env: HashMap<String, String>, old: &Value) -> Self {
        let mut problems = Vec::new();
        let tree = &loaded.tree;
        let written = WrittenSettings {
            file: &loaded.file_tree,
            tree,
            old,
        };
        let sources = ConfigSources {
            tree,
            file: &loaded.file_tree,
            old,
        };
        let known = PLATFORMS.iter();
        let platforms = known
            .filter_map(|one| sources.platform(one.name, &env, &mut problems))
            .collect();
        for name in FOREIGN {
            let mut ignored = Vec::new();
            let there = sources.platform(name, &env, &mut ignored);
            if there.is_some_and(|there| there.enabled == Some(true)) {
                problems.push(format!("{name} is configured, but cannot be run yet"));
            }
        }
        let quick = read_quick_commands(&written.map("quick_commands"), &mut problems);
        let (resets, quiet_resets) = resets(&written, &mut problems);
        let drain = loaded.tree.pointer("/agent/restart_drain_timeout");
        let drain = drain.and_then(Value::as_f64).unwrap_or_default();
        let dm = env.get("UNAUTHORIZED_DM_BEHAVIOR").cloned();
        let strangers = dm.or_else(|| written.text("unauthorized_dm_behavior"));
        Self {
            home: home.clone(),
            platforms,
            resets,
            quiet_resets,
            sharing: SessionSharing {
                group_per_user: written.flag("group_sessions_per_user").unwrap_or(true),
                thread_per_user: written.flag("thread_sessions_per_user").unwrap_or(false),
            },
            busy: busy(&written, &env, &mut problems),
            streaming: streaming(&written, &mut problems),
            strangers: strangers.and_then(|word| stranger(&word, &mut problems)),
            filter_silence: written.flag("filter_silence_narration").unwrap_or(true),
            max_sessions: written.number("max_concurrent_sessions"),
            reset_triggers: written.string_list("reset_triggers").unwrap_or_else(|| {
                let usual = ["/new", "/reset"];
                usual.map(str::to_owned).to_vec()
            }),
            quick,
            drain: Duration::try_from_secs_f64(drain).unwrap_or_default(),
            watchdog: watchdog(&written, &mut problems),
            write_sessions_json: written.flag("write_sessions_json").unwrap_or(true),
            connect_timeout: Duration::from_secs(
                loaded.config.gateway.platform_connect_timeout.max(1),
            ),
            env: Arc::new(env),
            file: Arc::new(loaded.file_tree),
            tree: Arc::new(loaded.tree),
            config: Arc::new(loaded.config),
            problems,
        }
    }

    /// The settings of a platform that is to run.
    pub fn enabled(&self) -> impl Iterator<Item = &PlatformSettings> {
        let on = |settings: &&PlatformSettings| settings.enabled == Some(true);
        self.platforms.iter().filter(on)
    }

    pub fn platform(&self, name: &str) -> Option<&PlatformSettings> {
        self.platforms.iter().find(|platform| platform.name == name)
    }

    /// A variable, unless it is empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        let value = self.env.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    }

    /// A setting at the top level or under `gateway:`.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        let top = self.tree.get(name);
        top.or_else(|| self.tree.pointer(&format!("/gateway/{name}")))
    }
}

/// gateway.json, which old homes have.
fn old_file(home: &Home) -> Result<Value, GatewaySettingsError> {
    let path = home.join("gateway.json");
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Value::Null),
        Err(error) => {
            let why = error.to_string();
            return Err(GatewaySettingsError { path, why });
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(value @ (Value::Object(_) | Value::Null)) => Ok(value),
        Ok(_) => Err(GatewaySettingsError {
            path,
            why: "not an object; repair it, or remove it and use config.yaml".to_owned(),
        }),
        Err(error) => Err(GatewaySettingsError {
            path,
            why: format!("{error}; repair it, or remove it and use config.yaml"),
        }),
    }
}

/// Explicit settings by name, from all places.
struct WrittenSettings<'a> {
    file: &'a Value,
    tree: &'a Value,
    old: &'a Value,
}

impl WrittenSettings<'_> {
    /// Explicit settings only. Values come from the merged tree, where variables are expanded; its
    /// defaults are ignored.
    fn get(&self, name: &str) -> Option<&Value> {
        let nested = format!("/gateway/{name}");
        if self.file.get(name).is_some() {
            return self.tree.get(name);
        }
        if self.file.pointer(&nested).is_some() {
            return self.tree.pointer(&nested);
        }
        self.old.get(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        setting_text(self.get(name)?)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        switch(self.get(name)?)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.text(name)?.parse().ok().filter(|number| *number > 0)
    }

    fn string_list(&self, name: &str) -> Option<Vec<String>> {
        let Value::Array(values) = self.get(name)? else {
            return None;
        };
        Some(values.iter().filter_map(setting_text).collect())
    }

    /// An explicit setting of a section.
    fn map(&self, name: &str) -> Map<String, Value> {
        let mut map = Map::new();
        for pointer in [format!("/{name}"), format!("/gateway/{name}")] {
            if let Some(written @ Value::Object(_)) = self.file.pointer(&pointer) {
                open(Some(written), self.tree.pointer(&pointer), &mut map);
                return map;
            }
        }
        let old = self.old.get(name);
        open(old, old, &mut map);
        map
    }
}

fn switch(value: &Value) -> Option<bool> {
    match setting_text(value)?.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn stranger(word: &str, problems: &mut Vec<String>) -> Option<StrangerAction> {
    match word.trim().to_ascii_lowercase().as_str() {
        "" => None,
        "pair" => Some(StrangerAction::Pair),
        "ignore" => Some(StrangerAction::Ignore),
        other => {
            problems.push(format!(
                "unauthorized_dm_behavior is {other:?}: pair or ignore"
            ));
            None
        }
    }
}

fn busy(
    written: &WrittenSettings<'_>,
    env: &HashMap<String, String>,
    problems: &mut Vec<String>,
) -> BusyMode {
    let var = env.get("HERMES_GATEWAY_BUSY_INPUT_MODE");
    let shown = written.file.pointer("/display/busy_input_mode");
    let word = var
        .filter(|word| !word.trim().is_empty())
        .cloned()
        .or_else(|| written.text("busy_input_mode"))
        .or_else(|| shown.and_then(setting_text));
    match word.as_deref().map(str::trim) {
        None | Some("" | "steer") => BusyMode::Steer,
        Some("interrupt") => BusyMode::Interrupt,
        Some("queue") => BusyMode::Queue,
        Some(other) => {
            problems.push(format!(
                "busy_input_mode is {other:?}: interrupt, queue or steer"
            ));
            BusyMode::Steer
        }
    }
}

fn streaming(written: &WrittenSettings<'_>, problems: &mut Vec<String>) -> StreamingSettings {
    let section = written.map("streaming");
    let value = |key: &str| section.get(key);
    let word = |key: &str| value(key).map(transport_word);
    let transport = match word("transport").or_else(|| word("mode")).as_deref() {
        None | Some("" | "auto" | "on" | "true") => StreamTransport::Auto,
        Some("draft") => StreamTransport::Draft,
        Some("edit") => StreamTransport::Edit,
        Some("off" | "false") => StreamTransport::Off,
        Some(other) => {
            problems.push(format!(
                "streaming.transport is {other:?}: auto, draft, edit or off"
            ));
            StreamTransport::Auto
        }
    };
    let configured = value("enabled").and_then(switch);
    let by_mode = word("mode").map(|mode| !matches!(mode.as_str(), "off" | "false"));
    let seconds = |key: &str, usual: f64| {
        let given = value(key).and_then(setting_text);
        let given = given.and_then(|text| text.parse::<f64>().ok());
        Duration::try_from_secs_f64(given.unwrap_or(usual)).unwrap_or_default()
    };
    let fresh = seconds("fresh_final_after_seconds", 0.0);
    StreamingSettings {
        enabled: configured.or(by_mode).unwrap_or(false) && transport != StreamTransport::Off,
        transport,
        edit_interval: seconds("edit_interval", 0.8).max(Duration::from_millis(100)),
        buffer: value("buffer_threshold")
            .and_then(Value::as_u64)
            .map_or(24, |number| number as usize),
        cursor: value("cursor")
            .and_then(Value::as_str)
            .unwrap_or(" ▉")
            .to_owned(),
        fresh_final_after: (!fresh.is_zero()).then_some(fresh),
    }
}

fn transport_word(value: &Value) -> String {
    setting_text(value).unwrap_or_default().to_ascii_lowercase()
}

fn resets(
    written: &WrittenSettings<'_>,
    problems: &mut Vec<String>,
) -> (ResetPolicies, Vec<String>) {
    let section = written
        .get("session_reset")
        .or_else(|| written.old.get("default_reset_policy"));
    let by = |key: &str, problems: &mut Vec<String>| {
        let map = written.get(key).and_then(Value::as_object);
        let policies = map.into_iter().flatten();
        policies
            .map(|(name, value)| (name.clone(), policy(value, problems)))
            .collect()
    };
    let quiet = section.and_then(|section| section.get("notify_exclude_platforms"));
    let quiet = if let Some(Value::Array(values)) = quiet {
        values.iter().filter_map(setting_text).collect()
    } else {
        let programs = PLATFORMS
            .iter()
            .filter(|one| one.writers == Writers::Programs);
        programs.map(|one| one.name.to_owned()).collect()
    };
    let policies = ResetPolicies {
        default: section.map_or_else(ResetPolicy::default, |value| policy(value, problems)),
        by_type: by("reset_by_type", problems),
        by_platform: by("reset_by_platform", problems),
    };
    (policies, quiet)
}

fn policy(value: &Value, problems: &mut Vec<String>) -> ResetPolicy {
    let usual = ResetPolicy::default();
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    let mode = value.get("mode").and_then(setting_text).unwrap_or_default();
    let mode = match ResetMode::parse(&mode) {
        Some(mode) => mode,
        None if mode.is_empty() => usual.mode,
        None => {
            problems.push(format!(
                "session_reset.mode is {mode:?}: none, daily, idle or both"
            ));
            usual.mode
        }
    };
    let at_hour = number("at_hour").map_or(usual.at_hour, |hour| hour as u32);
    if at_hour > 23 {
        problems.push(format!("session_reset.at_hour is {at_hour}: 0 to 23"));
    }
    ResetPolicy {
        mode,
        at_hour: if at_hour > 23 { usual.at_hour } else { at_hour },
        idle_minutes: number("idle_minutes")
            .filter(|minutes| *minutes > 0)
            .map_or(usual.idle_minutes, |minutes| minutes as u32),
        notify: value.get("notify").and_then(switch).unwrap_or(usual.notify),
        process_hours: number("bg_process_max_age_hours")
            .map_or(usual.process_hours, |hours| hours as u32),
    }
}

/// Zero or nothing disables it; systemd needs a few seconds between notifications.
fn watchdog(written: &WrittenSettings<'_>, problems: &mut Vec<String>) -> Option<Duration> {
    let text = written.text("systemd_watchdog_seconds")?;
    match text.parse::<u64>() {
        Ok(0) => None,
        Ok(seconds) => Some(Duration::from_secs(seconds.max(10))),
        Err(_) => {
            problems.push(format!(
                "systemd_watchdog_seconds is {text:?}: a number of seconds"
            ));
            None
        }
    }
}
