//! From the files to a [`Config`]: defaults ← file ← old spellings ← `${VAR}` ← administrator.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::edit::KeyPath;
use crate::env::Env;
use crate::home::Home;
use crate::known;
use crate::migrate;
use crate::schema::rules::RuleCheck;
use crate::schema::{self, Config, NEWEST_KNOWN_VERSION, effect, untyped};
use crate::settings::{self, TERMINAL_VARIABLES};
use crate::warning::{ConfigProblem, ConfigWarning};
use crate::yaml::{self, YamlError};

/// Why config.yaml could not be used. The file is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be read as YAML, {source}", .path.display())]
    Yaml { path: PathBuf, source: YamlError },
    #[error("{} is not UTF-8 text (first bad byte: {at})", .path.display())]
    Encoding { path: PathBuf, at: usize },
    #[error("{} must consist of `key: value` settings, but it is {found}", .path.display())]
    NotAMapping { path: PathBuf, found: &'static str },
}

/// A loaded configuration with its sources.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    /// Everything merged and expanded, including unknown sections.
    pub tree: Value,
    /// The content of config.yaml itself; an empty mapping if there is no file.
    pub file_tree: Value,
    pub warnings: Vec<ConfigWarning>,
}

impl Config {
    /// Reads the home's config.yaml. Never writes.
    pub fn load(home: &Home, env: &Env) -> Result<Loaded, ConfigError> {
        let mut warnings = Vec::new();
        let file = read_tree(&home.config_path(), &mut warnings)?;
        let file_tree = Value::Object(file.clone());
        warn_about_version(&file, &mut warnings);
        known::check(&file, &mut warnings);
        warnings.extend(
            effect::ineffective_keys(&file)
                .into_iter()
                .map(|key| ConfigWarning::new(key, ConfigProblem::NoEffect)),
        );

        check_folded(&file_tree, &mut warnings);
        let mut file = migrate::fold(file, &mut warnings);
        fold_max_turns(&mut file, &mut warnings);
        let terminal_of_env = !file.contains_key("terminal");
        let mut tree = schema::defaults().clone();
        merge(&mut tree, file);
        if terminal_of_env {
            apply_terminal_env(&mut tree, env);
        }
        fold_model_keys(&mut tree, &mut warnings);
        let mut tree = Value::Object(tree);
        expand(&mut tree, "", env, &mut warnings);
        if let Some(dir) = env.managed_dir() {
            overlay(&mut tree, dir, env, &mut warnings);
        }
        settle(home, &mut tree, &mut warnings);
        let mut config = Self::from_tree(&tree, &mut warnings);
        // The variable wins, as in the original: jobs use it.
        if let Some(zone) = env.get("HERMES_TIMEZONE").map(str::trim)
            && !zone.is_empty()
        {
            zone.clone_into(&mut config.timezone);
        }
        Ok(Loaded {
            config,
            tree,
            file_tree,
            warnings,
        })
    }
}

/// Old spellings are converted before the typed settings are read; wrong types are reported here.
fn check_folded(file: &Value, warnings: &mut Vec<ConfigWarning>) {
    const FOLDED: [&str; 6] = [
        "/compression/summary_model",
        "/compression/summary_provider",
        "/compression/summary_base_url",
        "/memory/write_mode",
        "/skills/write_mode",
        "/delegation/max_async_children",
    ];
    let set: Vec<String> = FOLDED
        .iter()
        .filter(|pointer| file.pointer(pointer).is_some())
        .map(|pointer| pointer[1..].replace('/', "."))
        .collect();
    if !set.is_empty() {
        let mut found = Vec::new();
        Config::from_tree(file, &mut found);
        warnings.extend(found.into_iter().filter(|it| set.contains(&it.key)));
    }
}

/// Values that break a rule are reported, and replaced by the default if that is safe.
pub(crate) fn settle(home: &Home, tree: &mut Value, warnings: &mut Vec<ConfigWarning>) {
    untyped::settle(tree, warnings);
    let Value::Object(all) = &*tree else { return };
    let all = all.clone();
    RuleCheck { tree: &all, home }.settle(tree, warnings);
}

/// `TERMINAL_ENV` and similar variables apply if config.yaml does not configure the terminal: a
/// home of the original may select its environment only there, and commands must not run in another
/// one.
fn apply_terminal_env(tree: &mut Map<String, Value>, env: &Env) {
    let Some(Value::Object(section)) = tree.get_mut("terminal") else {
        return;
    };
    for (key, variable) in &TERMINAL_VARIABLES {
        if let Some(text) = env.get(variable).filter(|text| !text.trim().is_empty()) {
            let path = KeyPath::new(["terminal", key]);
            section.insert((*key).to_owned(), settings::coerce(&path, text));
        }
    }
}

/// The text of config.yaml without a byte order mark; empty when there is no file.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(source) => {
            return Err(ConfigError::Read {
                path: path.to_path_buf(),
                source,
            });
        }
    };
    String::from_utf8(bytes).map_err(|err| ConfigError::Encoding {
        path: path.to_path_buf(),
        at: err.utf8_error().valid_up_to(),
    })
}

/// The file's own settings.
fn read_tree(
    path: &Path,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<Map<String, Value>, ConfigError> {
    let text = read_text(path)?;
    let (value, duplicates) =
        yaml::parse(text.trim_start_matches('\u{feff}')).map_err(|source| ConfigError::Yaml {
            path: path.to_path_buf(),
            source,
        })?;
    warnings.extend(duplicates.into_iter().map(|twice| {
        ConfigWarning::new(twice.key, ConfigProblem::DuplicateKey { line: twice.line })
    }));
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(ConfigError::NotAMapping {
            path: path.to_path_buf(),
            found: match other {
                Value::Array(_) => "a list",
                _ => "a single value",
            },
        }),
    }
}

/// `_config_version`; anything but a whole number counts as the oldest.
pub(crate) fn version(file: &Map<String, Value>) -> u64 {
    match file.get("_config_version") {
        Some(Value::Number(number)) => number
            .as_u64()
            .or_else(|| number.as_f64().map(|number| number.max(0.0) as u64))
            .unwrap_or(0),
        Some(Value::String(text)) => text.trim().parse().unwrap_or(0),
        _ => 0,
    }
}

fn warn_about_version(file: &Map<String, Value>, warnings: &mut Vec<ConfigWarning>) {
    let found = version(file);
    if found > NEWEST_KNOWN_VERSION {
        let known = NEWEST_KNOWN_VERSION;
        warnings.push(ConfigWarning::new(
            "_config_version",
            ConfigProblem::NewerVersion { found, known },
        ));
    }
}

/// Merges `overrides` into `base`, mapping by mapping. An empty section does not remove its defaults.
pub(crate) fn merge(base: &mut Map<String, Value>, overrides: Map<String, Value>) {
    for (key, value) in overrides {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(_)), Value::Null) => {}
            (Some(Value::Object(base)), Value::Object(overrides)) => merge(base, overrides),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn legacy(warnings: &mut Vec<ConfigWarning>, key: &str, now: &str) {
    warnings.push(ConfigWarning::new(
        key,
        ConfigProblem::Legacy {
            now: now.to_owned(),
        },
    ));
}

fn fold_max_turns(file: &mut Map<String, Value>, warnings: &mut Vec<ConfigWarning>) {
    let Some(turns) = file.shift_remove("max_turns") else {
        return;
    };
    legacy(warnings, "max_turns", "read as agent.max_turns");
    let agent = file
        .entry("agent")
        .or_insert_with(|| Value::Object(Map::new()));
    if agent.is_null() {
        *agent = Value::Object(Map::new());
    }
    if let Value::Object(agent) = agent
        && agent.get("max_turns").is_none_or(Value::is_null)
    {
        agent.insert("max_turns".to_owned(), turns);
    }
}

/// Whether a value counts as set, by Python's truthiness.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Moves `provider`, `base_url`, `context_length` and `api_base` into `model`, unless it sets them
/// itself, and moves the model's name to `default`.
fn fold_model_keys(tree: &mut Map<String, Value>, warnings: &mut Vec<ConfigWarning>) {
    const ROOT: [&str; 4] = ["provider", "base_url", "context_length", "api_base"];
    let given = |map: &Map<String, Value>, key: &str| map.get(key).is_some_and(is_set);
    let at_root = ROOT.iter().any(|key| given(tree, key));
    let inside = tree
        .get("model")
        .and_then(Value::as_object)
        .is_some_and(|model| {
            ["api_base", "model", "name"]
                .iter()
                .any(|key| given(model, key))
        });
    if !at_root && !inside {
        return;
    }
    let mut model = match tree.get("model") {
        Some(Value::Object(model)) => model.clone(),
        Some(name) if is_set(name) => Map::from_iter([("default".to_owned(), name.clone())]),
        _ => Map::new(),
    };
    for key in ROOT {
        let target = if key == "api_base" { "base_url" } else { key };
        if let Some(value) = tree.shift_remove(key).filter(is_set) {
            legacy(warnings, key, &format!("read as model.{target}"));
            if !given(&model, target) {
                model.insert(target.to_owned(), value);
            }
        }
    }
    for (alias, target) in [
        ("api_base", "base_url"),
        ("model", "default"),
        ("name", "default"),
    ] {
        if let Some(value) = model.get(alias).filter(|value| is_set(value)).cloned() {
            legacy(
                warnings,
                &format!("model.{alias}"),
                &format!("read as model.{target}"),
            );
            if !given(&model, target) {
                model.insert(target.to_owned(), value);
            }
            model.shift_remove(alias);
        }
    }
    tree.insert("model".to_owned(), Value::Object(model));
}

/// Expands `${NAME}` in texts. An unset name is kept and reported.
fn expand(value: &mut Value, at: &str, env: &Env, warnings: &mut Vec<ConfigWarning>) {
    let path = |key: &str| {
        if at.is_empty() {
            key.to_owned()
        } else {
            format!("{at}.{key}")
        }
    };
    match value {
        Value::String(text) if text.contains("${") => {
            let (expanded, unset) = expand_text(text, env);
            *text = expanded;
            for name in unset {
                let why = format!("refers to ${{{name}}}, which is not set");
                warnings.push(ConfigWarning::new(at, ConfigProblem::Invalid { why }));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                expand(item, &path(&index.to_string()), env, warnings);
            }
        }
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                expand(value, &path(key), env, warnings);
            }
        }
        _ => {}
    }
}

fn expand_text(text: &str, env: &Env) -> (String, Vec<String>) {
    let (mut out, mut unset) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let after = &rest[start + 2..];
        let Some(end) = after.find('}').filter(|&end| end > 0) else {
            break;
        };
        // The form used by other programs in lists of MCP servers: `${env:NAME}`.
        let name = after[..end].trim();
        let name = name.strip_prefix("env:").unwrap_or(name);
        out.push_str(&rest[..start]);
        if let Some(value) = env.get(name) {
            out.push_str(value);
        } else {
            out.push_str(&rest[start..=start + 2 + end]);
            unset.push(name.to_owned());
        }
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    (out, unset)
}

/// Applies the administrator's settings, leaf by leaf. An unreadable file must not prevent Hermes
/// from starting, but must be reported.
fn overlay(tree: &mut Value, dir: &Path, env: &Env, warnings: &mut Vec<ConfigWarning>) {
    let (Value::Object(tree), Some(mut managed)) = (tree, managed_tree(dir, warnings)) else {
        return;
    };
    if let Some(model @ Value::String(_)) = managed.get_mut("model") {
        let name = model.take();
        *model = Value::Object(Map::from_iter([("default".to_owned(), name)]));
        // Merged into a bare name, the mapping would drop it.
        if let Some(old @ Value::String(_)) = tree.get_mut("model") {
            *old = Value::Object(Map::new());
        }
    }
    let mut managed = Value::Object(managed);
    expand(&mut managed, "", env, warnings);
    if let Value::Object(managed) = managed {
        merge(tree, managed);
    }
}

/// The administrator's settings, if any.
pub(crate) fn managed_tree(
    dir: &Path,
    warnings: &mut Vec<ConfigWarning>,
) -> Option<Map<String, Value>> {
    let path = dir.join("config.yaml");
    match read_tree(&path, &mut Vec::new()) {
        Ok(map) if map.is_empty() => None,
        Ok(map) => Some(map),
        Err(err) => {
            let why = err.to_string();
            warnings.push(ConfigWarning::new(
                "",
                ConfigProblem::ManagedUnreadable { why },
            ));
            None
        }
    }
}
