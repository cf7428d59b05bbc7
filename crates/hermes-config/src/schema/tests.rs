//! Every leaf of the schema: what is invalid is refused by `set` and reported by loading, what is
//! valid is taken by both.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::field::ConfigShape;
use super::rules::{ROWS, ValueRule, rule_of};
use super::{default_of, effect, shape};
use crate::edit::put;
use crate::settings::{self, SetOptions};
use crate::warning::ConfigWarning;
use crate::{Config, Env, Home, ProcessEnv};

struct Leaf {
    path: Vec<String>,
    expected: &'static str,
}

impl Leaf {
    fn key(&self) -> String {
        self.path.join(".")
    }
}

fn leaves() -> Vec<Leaf> {
    let mut found = Vec::new();
    walk(shape(), &mut Vec::new(), &mut found);
    assert!(found.len() > 250, "{} leaves", found.len());
    found
}

fn walk(shape: &ConfigShape, path: &mut Vec<String>, found: &mut Vec<Leaf>) {
    match shape {
        ConfigShape::Leaf(expected) => found.push(Leaf {
            path: path.clone(),
            expected,
        }),
        ConfigShape::Secret => found.push(Leaf {
            path: path.clone(),
            expected: "text",
        }),
        ConfigShape::Section(keys) => {
            for (name, below) in keys {
                path.push((*name).to_owned());
                walk(&below(), path, found);
                path.pop();
            }
        }
        // Any name; tasks and platforms of the original are as good as others.
        ConfigShape::Names(below) => {
            path.push("vision".to_owned());
            walk(&below(), path, found);
            path.pop();
        }
        // Lists take indices of what is there: see the test on lists.
        ConfigShape::List(_) | ConfigShape::Open => {}
    }
}

/// Values that the leaf does not take.
fn invalid(leaf: &Leaf) -> Vec<Value> {
    let mut values = vec![json!({"no": "value"}), json!([{"no": "value"}])];
    match leaf.expected {
        "true or false" => values.extend([json!("banana"), json!(7), json!("2")]),
        "a number" => values.extend([json!("many"), json!("1x"), json!(true)]),
        "a whole number, 0 or more" => {
            values.extend([json!("many"), json!(-1), json!(1.5), json!(true)]);
        }
        "a whole number" => values.extend([json!("many"), json!(1.5)]),
        "text" | "a word" => {}
        other => panic!("{}: {other} is not known to this test", leaf.key()),
    }
    match rule_of(&leaf.path) {
        Some(ValueRule::Words(_)) => values.extend([json!("banana"), json!(4711), json!("of f")]),
        Some(ValueRule::Range(low, high)) => values.extend([json!(high + 1.0), json!(low - 1.0)]),
        Some(ValueRule::Address) => {
            values.extend([json!("moon"), json!("ftp://x"), json!("http://")]);
        }
        Some(ValueRule::TimeZone) => values.extend([json!("Mars/Olympus"), json!("1:30")]),
        Some(ValueRule::Provider) => values.extend([json!("nosuch"), json!("bedrock")]),
        Some(ValueRule::Toolset) => values.push(json!("nosuch")),
        Some(ValueRule::Voice(..)) => values.extend([json!("nosuch"), json!("gemini")]),
        Some(ValueRule::Directory) => values.extend([json!("/no/such/place"), json!("relative/x")]),
        Some(ValueRule::Variable) => values.extend([json!("a b"), json!("1X"), json!("K=V")]),
        Some(ValueRule::Seconds) => values.extend([json!("soon"), json!(-1)]),
        Some(ValueRule::Number(low, _)) => values.extend([json!("many"), json!(low - 1.0)]),
        Some(ValueRule::Flag) => values.extend([json!("banana"), json!(7)]),
        None => {}
    }
    let is_free = ["text", "a word"].contains(&leaf.expected);
    let is_judged = !matches!(rule_of(&leaf.path), None | Some(ValueRule::Directory));
    let has_default = default_of(&leaf.path).is_some_and(|default| !is_unset(&default));
    if !is_free || is_judged && has_default {
        values.extend([json!(""), json!("  ")]);
    }
    values
}

fn is_unset(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

/// Values that the leaf takes.
fn valid(leaf: &Leaf) -> Vec<Value> {
    let mut values: Vec<Value> = default_of(&leaf.path)
        .into_iter()
        .filter(|value| !value.is_null())
        .collect();
    match rule_of(&leaf.path) {
        Some(ValueRule::Words(words)) => {
            values.extend(words.iter().map(|word| json!(word)));
            values.extend(words.iter().map(|word| json!(word.to_uppercase())));
        }
        Some(ValueRule::Range(low, high)) if leaf.expected.starts_with("a whole") => {
            values.extend([json!(low.ceil() as i64), json!(high.min(4e9) as i64)]);
        }
        Some(ValueRule::Range(low, high) | ValueRule::Number(low, high)) => {
            values.extend([json!(low), json!(high)]);
        }
        Some(ValueRule::Address) => values.push(json!("https://host.example:8443/v1")),
        Some(ValueRule::TimeZone) => values.push(json!("Europe/Berlin")),
        Some(ValueRule::Provider) => values.extend([json!("openrouter"), json!("Mine")]),
        Some(ValueRule::Toolset) => values.push(json!("web")),
        Some(ValueRule::Directory) => values.extend([json!("/"), json!("~"), json!(".")]),
        Some(ValueRule::Variable) => values.push(json!("MY_KEY")),
        Some(ValueRule::Seconds) => values.extend([json!(0), json!(2.5)]),
        Some(ValueRule::Flag) => values.extend([json!(true), json!("no")]),
        Some(ValueRule::Voice(_, known)) => values.extend(known.iter().map(|name| json!(name))),
        None => match leaf.expected {
            "true or false" => values.extend([json!(true), json!(false)]),
            "text" | "a word" => values.push(json!("anything at all")),
            _ => values.push(json!(7)),
        },
    }
    values
}

struct Tried {
    home: Home,
    env: Env,
    _dir: tempfile::TempDir,
}

impl Tried {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let managed = dir.path().join("managed").to_string_lossy().into_owned();
        let home = Home::at(dir.path());
        let vars = vec![
            ("HERMES_MANAGED_DIR".to_owned(), managed),
            ("HOME".to_owned(), dir.path().to_string_lossy().into_owned()),
        ];
        let env = Env::load(&home, &ProcessEnv::from_vars(vars)).unwrap();
        Self {
            home,
            env,
            _dir: dir,
        }
    }

    fn begin() -> Value {
        json!({"providers": {"mine": {"base_url": "http://127.0.0.1:1/v1"}}})
    }

    fn set(&self, key: &str, value: &Value) -> Result<(), String> {
        std::fs::write(self.home.config_path(), Self::begin().to_string()).unwrap();
        let options = SetOptions {
            json: true,
            force: false,
        };
        settings::set(&self.home, &self.env, key, &value.to_string(), options)
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    /// What loading says about that key.
    fn problems(&self, path: &[String], value: &Value) -> Vec<String> {
        let mut tree = Self::begin();
        put(&mut tree, path, value, "").unwrap();
        std::fs::write(self.home.config_path(), tree.to_string()).unwrap();
        let key = path.join(".");
        Config::load(&self.home, &self.env)
            .unwrap()
            .warnings
            .iter()
            .filter(|warning| warning.is_problem() && warning.key.starts_with(&key))
            .map(ToString::to_string)
            .collect()
    }
}

#[test]
fn invalid_values_are_refused_and_reported_and_valid_ones_are_not() {
    let tried = Tried::new();
    let mut wrong = Vec::new();
    for leaf in leaves() {
        let key = leaf.key();
        // Variables of .env and old spellings of it are settings of another file.
        if !matches!(
            settings::target(&key),
            Ok(settings::SettingTarget::Config(_))
        ) {
            continue;
        }
        for value in invalid(&leaf) {
            if tried.set(&key, &value).is_ok() {
                wrong.push(format!("set takes {key} = {value}"));
            }
            if tried.problems(&leaf.path, &value).is_empty() {
                wrong.push(format!("loading is silent about {key} = {value}"));
            }
        }
        for value in valid(&leaf) {
            if let Err(error) = tried.set(&key, &value) {
                wrong.push(format!("set refuses {key} = {value}: {error}"));
            }
            for problem in tried.problems(&leaf.path, &value) {
                wrong.push(format!(
                    "loading complains about {key} = {value}: {problem}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A leaf that takes one word out of a few says which.
#[test]
fn every_word_has_its_list() {
    let without: Vec<String> = leaves()
        .iter()
        .filter(|leaf| leaf.expected == "a word" && rule_of(&leaf.path).is_none())
        .filter(|leaf| !effect::is_without_effect(&leaf.path))
        .map(Leaf::key)
        .collect();
    // Themes are files of the home; the others are old spellings that are folded away.
    let known = [
        "terminal.env_type",
        "display.busy_text_mode",
        "memory.write_mode",
        "skills.write_mode",
        "tui.theme",
    ];
    let unknown: Vec<_> = without
        .iter()
        .filter(|key| !known.contains(&key.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Names of one's own, and those of the original that nobody speaks for here.
#[test]
fn voices_are_built_in_or_own() {
    let tried = Tried::new();
    for section in ["tts", "stt"] {
        let load = |provider: &str| {
            let own = json!({"mine": {"command": "true"}});
            let tree = json!({section: {"provider": provider, "providers": own}});
            std::fs::write(tried.home.config_path(), tree.to_string()).unwrap();
            Config::load(&tried.home, &tried.env).unwrap()
        };
        let own = load("mine");
        assert_eq!(own.tree[section]["provider"], "mine");
        let problems = own.warnings.iter().filter(|it| it.is_problem());
        assert_eq!(problems.count(), 0, "{section}");
        for foreign in ["xai", "gemini", "nosuch"] {
            let said = load(foreign).warnings;
            assert!(
                said.iter().any(ConfigWarning::is_problem),
                "{section} {foreign}"
            );
        }
    }
}

/// Keys that the docs name have a default, or none is possible.
const WITHOUT_DEFAULT: &[&str] = &[
    "agent.system_prompt",
    "api_server.ignore_fields",
    "platforms.email.extra",
    // Below a server of mcp_servers.
    "tools.exclude",
    "tools.include",
    "tools.prompts",
    "tools.resources",
];

/// Names in the docs that look like keys: files of the home.
const FILES: &[&str] = &["gateway.lock", "gateway.pid"];

/// `config get` knows every key that the docs name, and the value that counts without it.
#[test]
fn keys_of_the_docs_are_known_and_have_their_defaults() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        files.extend(Some(entry.unwrap().path()).filter(|path| path.is_file()));
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for span in text.split('`').skip(1).step_by(2) {
            let path: Vec<String> = span.split('.').map(str::to_owned).collect();
            let word = |part: &String| {
                !part.is_empty() && part.chars().all(|ch| ch.is_ascii_lowercase() || ch == '_')
            };
            let ours = super::shape_at(&path[..1]).is_some() || default_of(&path[..1]).is_some();
            let ends = ["md", "db", "yaml", "json", "log", "txt", "py", "sh"];
            let file_name = path
                .last()
                .is_some_and(|last| ends.contains(&last.as_str()));
            let other = FILES.contains(&span) || WITHOUT_DEFAULT.contains(&span);
            if path.len() < 2 || !path.iter().all(word) || !ours || file_name || other {
                continue;
            }
            seen += 1;
            if default_of(&path).is_none() {
                wrong.push(format!("{}: {span}", file.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} keys were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_leads_to_a_key() {
    for row in ROWS {
        let path: Vec<String> = row
            .path
            .split('.')
            .map(|part| if part == "*" { "vision" } else { part }.to_owned())
            .collect();
        let typed = super::shape_at(&path).is_some();
        let untyped = default_of(&path).is_some();
        let elsewhere = [
            "moa",
            "gateway",
            "mcp_servers",
            "display",
            "unauthorized_dm_behavior",
            "fallback_model",
        ]
        .contains(&path[0].as_str())
            || row.path == "auxiliary.transient_retries";
        assert!(typed || untyped || elsewhere, "{}", row.path);
    }
}

#[test]
fn items_of_lists_are_looked_at() {
    let tried = Tried::new();
    for (key, value) in [
        ("toolsets", json!(["web", "nosuch"])),
        ("toolsets", json!("nosuch")),
        ("platform_toolsets", json!({"cli": ["nosuch"]})),
        (
            "fallback_providers",
            json!([{"provider": "nosuch", "model": "m"}]),
        ),
        (
            "custom_providers",
            json!([{"name": "a", "base_url": "moon"}]),
        ),
        ("mcp_servers", json!({"a": {"url": "moon"}})),
        ("stt.provider", json!("banana")),
        ("browser.headed", json!("banana")),
        ("kanban.failure_limit", json!("many")),
        ("tts.openai.voice", json!(["a", "b"])),
        ("stt.provider", json!(["local"])),
        ("_config_version", json!("banana")),
        ("gateway.api_server.max_concurrent_runs", json!("many")),
        ("gateway.api_server.max_concurrent_runs", json!(true)),
        ("gateway.api_server.max_concurrent_runs", json!("")),
        ("gateway.api_server.port", json!(99999)),
        ("platforms.webhook.extra.port", json!("harbour")),
        ("platforms.api_server.port", json!(0)),
        ("moa.presets.mine.max_tokens", json!(-5)),
        ("moa.presets.mine.max_tokens", json!([1])),
        ("moa.presets.mine.enabled", json!("banana")),
        ("display.platforms.telegram.streaming", json!({"a": 1})),
        ("display.platforms.telegram.streaming", json!("")),
        ("discord.max_attachment_bytes", json!(-5)),
        ("discord.missed_message_backfill.limit", json!(-5)),
    ] {
        let error = tried.set(key, &value);
        assert!(error.is_err(), "{key} = {value}");
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        let problems = tried.problems(&path, &value);
        assert!(!problems.is_empty(), "{key} = {value}");
    }
}

/// The values that the docs, ours and the original's, give a meaning of their own.
#[test]
fn a_zero_that_switches_a_limit_off_is_accepted() {
    let tried = Tried::new();
    for key in [
        "gateway.api_server.max_concurrent_runs",
        "max_concurrent_sessions",
        "max_live_sessions",
        "agent.gateway_timeout",
        "agent.gateway_timeout_warning",
        "agent.gateway_notify_interval",
        "agent.gateway_auto_continue_freshness",
        "agent.restart_drain_timeout",
        "approvals.timeout",
        "checkpoints.max_total_size_mb",
        "checkpoints.max_file_size_mb",
        "compression.protect_first_n",
        "delegation.child_timeout_seconds",
        "discord.max_attachment_bytes",
        "display.tool_preview_length",
        "local.threads",
        "local.idle_seconds",
        "terminal.daemon_term_grace_seconds",
    ] {
        let value = json!(0);
        assert!(tried.set(key, &value).is_ok(), "{key}");
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        assert_eq!(tried.problems(&path, &value), [""; 0], "{key}");
    }
}

#[test]
fn a_value_that_cannot_be_used_gives_way_to_the_default_where_that_is_safe() {
    let tried = Tried::new();
    let load = |text: &str| {
        std::fs::write(tried.home.config_path(), text).unwrap();
        Config::load(&tried.home, &tried.env).unwrap()
    };
    let loaded = load("session_reset: {at_hour: 25}\nlogging: {level: LOUD}\n");
    assert_eq!(loaded.config.session_reset.unwrap().at_hour, 4);
    assert_eq!(loaded.config.logging.level, "INFO");
    let problems: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "logging.level: \"LOUD\" is not one of debug, info, warning, warn, error, critical, fatal; INFO is used",
            "session_reset.at_hour: 25 is not between 0 and 23; 4 is used",
        ]
    );
    // Commands run where the file says, or not at all.
    assert_eq!(
        load("terminal: {backend: moon}\n").config.terminal.backend,
        "moon"
    );
}

#[test]
fn keys_without_effect_are_named() {
    let tried = Tried::new();
    std::fs::write(
        tried.home.config_path(),
        "kanban: {failure_limit: 3}\ndisplay: {skin: dark, timestamps: true}\nwhatsapp: {}\nvoice: {record_key: ''}\n",
    )
    .unwrap();
    let loaded = Config::load(&tried.home, &tried.env).unwrap();
    let said: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "kanban.failure_limit: a setting of Hermes Agent that does nothing here; kept",
            "display.skin: a setting of Hermes Agent that does nothing here; kept",
        ]
    );
}

/// The list of keys without effect against what the code reads: the name of a key that has an
/// effect is read as a field or named in quotes somewhere outside this crate.
#[test]
fn the_list_of_keys_without_effect_is_true() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut words = BTreeSet::new();
    collect_words(crates, &mut words);
    // Read by this crate itself, or folded into other keys when the file is read.
    let ours = [
        "env_type",
        "summary_model",
        "summary_provider",
        "summary_base_url",
        "write_mode",
        "bell_on_complete",
        "busy_input_mode",
        "tool_progress_overrides",
        "api_key_env",
        "max_async_children",
        "session_reset",
        "animations",
    ];
    let unread: Vec<String> = leaves()
        .iter()
        .filter(|leaf| !effect::is_without_effect(&leaf.path))
        .filter(|leaf| {
            let name = leaf.path.last().unwrap().as_str();
            !words.contains(name) && !ours.contains(&name)
        })
        .map(Leaf::key)
        .collect();
    assert!(unread.is_empty(), "nobody reads {unread:?}");
    // Only names that one key has, and that are no ordinary word, show which key is read.
    let leaves = leaves();
    let is_telling = |name: &str| {
        name.contains('_')
            && leaves
                .iter()
                .filter(|leaf| leaf.path.last().is_some_and(|last| last == name))
                .count()
                == 1
    };
    let read: Vec<String> = leaves
        .iter()
        .filter(|leaf| effect::is_without_effect(&leaf.path))
        .filter(|leaf| {
            let name = leaf.path.last().unwrap().as_str();
            is_telling(name) && words.contains(name)
        })
        .map(Leaf::key)
        .collect();
    assert!(read.is_empty(), "listed, but the code reads {read:?}");
}

fn collect_words(dir: &Path, words: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(
                name.as_str(),
                "hermes-config" | "hermes-testkit" | "tests" | "target"
            ) {
                collect_words(&path, words);
            }
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            collect_read(without_inline_tests(&text), words);
        }
    }
}

/// Inline test modules are at the end of a file; `mod tests;` may be anywhere.
fn without_inline_tests(text: &str) -> &str {
    const MARK: &str = "\n#[cfg(test)]\nmod ";
    let inline = text.match_indices(MARK).find(|(at, _)| {
        let line = text[at + MARK.len()..].lines().next();
        line.is_some_and(|line| line.ends_with('{'))
    });
    inline.map_or(text, |(at, _)| &text[..at])
}

/// Names that stand behind a dot and are no calls, in braces of a pattern, or in quotes.
fn collect_read(code: &str, words: &mut BTreeSet<String>) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = code;
    while let Some(at) = rest.find(is_name) {
        let before = rest[..at].trim_end().chars().next_back();
        let name = &rest[at..];
        let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        let next = after.trim_start();
        let is_field = before == Some('.') && !next.starts_with('(') && !next.starts_with("::");
        let is_quoted = matches!(before, Some('"' | '/')) && after.starts_with(['"', '/']);
        if is_field || is_quoted {
            words.insert(name.to_owned());
        }
        rest = after;
    }
}

/// Tasks that nobody asks a helper for are listed, and no others.
#[test]
fn helpers_that_are_never_asked_are_listed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut words = BTreeSet::new();
    collect_words(crates, &mut words);
    let tasks = super::defaults()["auxiliary"].as_object().unwrap();
    for task in tasks.keys().filter(|task| *task != "transient_retries") {
        let path = ["auxiliary", task, "model"].map(str::to_owned);
        // These are names of tools and sections as well.
        let is_asked = words.contains(task)
            && ![
                "web_extract",
                "curator",
                "background_review",
                "moa_reference",
            ]
            .contains(&task.as_str());
        assert_eq!(effect::is_without_effect(&path), !is_asked, "{task}");
    }
}
