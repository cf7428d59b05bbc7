//! `config get`, `set` and `unset`: which file a key belongs to, and how its text is parsed.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::edit::{ConfigDoc, EditError, KeyPath, PathError, put};
use crate::env::Env;
use crate::env::writer::{self, EnvWriteError};
use crate::home::{Home, HomeError};
use crate::known;
use crate::load::{self, Loaded};
use crate::schema::{self, Config};
use crate::warning::{ConfigProblem, ConfigWarning};
use crate::yaml;

/// Where a setting is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingTarget {
    /// A variable in `.env`: keys and tokens.
    Env(String),
    /// A path in config.yaml.
    Config(KeyPath),
}

#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error(transparent)]
    Env(#[from] EnvWriteError),
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error("{key} is fixed by the administrator ({}) and cannot be changed here", .file.display())]
    Managed { key: String, file: PathBuf },
    #[error("{key} takes {expected}, not {given:?} (--force writes it anyway)")]
    WrongType {
        key: String,
        expected: &'static str,
        given: String,
    },
    #[error("{key}: {why} (--force writes it anyway)")]
    Invalid { key: String, why: String },
    #[error("{0} is a section; name the key within it (--force replaces the whole section)")]
    Section(String),
    #[error("{0:?} is not JSON: {1}")]
    Json(String, serde_json::Error),
}

/// How the text of a value is parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetOptions {
    /// The text is JSON.
    pub json: bool,
    /// Write values that the key does not accept, too.
    pub force: bool,
}

/// The result of a change, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingChange {
    /// The key as given.
    pub key: String,
    pub file: PathBuf,
    /// `None` after an unset, and for variables.
    pub value: Option<Value>,
    pub notes: Vec<String>,
}

/// Keys without a dot that are variables although their names do not look like one.
const VARIABLES: [&str; 9] = [
    "VOICE_TOOLS_OPENAI_KEY",
    "FIRECRAWL_API_URL",
    "FIRECRAWL_GATEWAY_URL",
    "TOOL_GATEWAY_DOMAIN",
    "TOOL_GATEWAY_SCHEME",
    "BROWSERBASE_PROJECT_ID",
    "FAL_KEY",
    "SUDO_PASSWORD",
    "OPENAI_BASE_URL",
];

/// `terminal.*` settings that the original's tools read from the environment.
pub(crate) const TERMINAL_VARIABLES: [(&str, &str); 27] = [
    ("backend", "TERMINAL_ENV"),
    ("modal_mode", "TERMINAL_MODAL_MODE"),
    ("timeout", "TERMINAL_TIMEOUT"),
    ("lifetime_seconds", "TERMINAL_LIFETIME_SECONDS"),
    ("docker_image", "TERMINAL_DOCKER_IMAGE"),
    ("docker_forward_env", "TERMINAL_DOCKER_FORWARD_ENV"),
    ("singularity_image", "TERMINAL_SINGULARITY_IMAGE"),
    ("modal_image", "TERMINAL_MODAL_IMAGE"),
    ("daytona_image", "TERMINAL_DAYTONA_IMAGE"),
    ("ssh_host", "TERMINAL_SSH_HOST"),
    ("ssh_user", "TERMINAL_SSH_USER"),
    ("ssh_port", "TERMINAL_SSH_PORT"),
    ("ssh_key", "TERMINAL_SSH_KEY"),
    ("container_cpu", "TERMINAL_CONTAINER_CPU"),
    ("container_memory", "TERMINAL_CONTAINER_MEMORY"),
    ("container_disk", "TERMINAL_CONTAINER_DISK"),
    ("container_persistent", "TERMINAL_CONTAINER_PERSISTENT"),
    ("docker_volumes", "TERMINAL_DOCKER_VOLUMES"),
    ("docker_env", "TERMINAL_DOCKER_ENV"),
    (
        "docker_mount_cwd_to_workspace",
        "TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE",
    ),
    ("docker_network", "TERMINAL_DOCKER_NETWORK"),
    ("docker_extra_args", "TERMINAL_DOCKER_EXTRA_ARGS"),
    (
        "docker_run_as_host_user",
        "TERMINAL_DOCKER_RUN_AS_HOST_USER",
    ),
    (
        "docker_persist_across_processes",
        "TERMINAL_DOCKER_PERSIST_ACROSS_PROCESSES",
    ),
    ("docker_orphan_reaper", "TERMINAL_DOCKER_ORPHAN_REAPER"),
    ("sandbox_dir", "TERMINAL_SANDBOX_DIR"),
    ("persistent_shell", "TERMINAL_PERSISTENT_SHELL"),
];

/// The file that `key` belongs to.
pub fn target(key: &str) -> Result<SettingTarget, PathError> {
    let upper = key.trim().to_uppercase();
    let variable = !key.contains('.')
        && (upper.ends_with("_API_KEY")
            || upper.ends_with("_TOKEN")
            || upper.starts_with("TERMINAL_SSH")
            || VARIABLES.contains(&upper.as_str()));
    if variable {
        return Ok(SettingTarget::Env(upper));
    }
    let path = KeyPath::parse(key)?;
    let parts: Vec<&str> = path.parts().iter().map(String::as_str).collect();
    // A name used by other programs.
    if matches!(parts.as_slice(), ["api_base"] | ["model", "api_base"]) {
        return Ok(SettingTarget::Config(KeyPath::new(["model", "base_url"])));
    }
    Ok(SettingTarget::Config(path))
}

/// The effective value. `None`: not set.
pub fn get(loaded: &Loaded, env: &Env, key: &str) -> Result<Option<Value>, PathError> {
    Ok(match target(key)? {
        SettingTarget::Env(name) => env.get(&name).map(|value| json!(value)),
        SettingTarget::Config(path) if path.get(&loaded.file_tree).is_none() => {
            let unwritten = schema::unwritten(path.parts());
            unwritten.or_else(|| in_effect(loaded, &path))
        }
        SettingTarget::Config(path) => in_effect(loaded, &path),
    })
}

fn in_effect(loaded: &Loaded, path: &KeyPath) -> Option<Value> {
    path.get(&loaded.tree)
        .filter(|value| !(path.parts() == ["model"] && value.as_str() == Some("")))
        .cloned()
        .or_else(|| schema::default_of(path.parts()))
}

/// Why there is no value: the key is not set and has no default, or it does not exist.
pub fn absent(key: &str) -> String {
    let known = match target(key) {
        Ok(SettingTarget::Config(path)) => {
            let parts: Vec<&str> = path.parts().iter().map(String::as_str).collect();
            known::lookup(&parts)
        }
        _ => Ok(()),
    };
    match known {
        Ok(()) => format!("{key} is not set, and has no default"),
        Err(Some(close)) => {
            format!("{key} is not set; there is no such key, did you mean {close}?")
        }
        Err(None) => format!("{key} is not set; there is no such key"),
    }
}

pub fn set(
    home: &Home,
    env: &Env,
    key: &str,
    text: &str,
    options: SetOptions,
) -> Result<SettingChange, SettingError> {
    match target(key)? {
        SettingTarget::Env(name) => set_variable(home, env, name, text),
        SettingTarget::Config(path) => set_config(home, env, &path, text, options),
    }
}

fn set_variable(
    home: &Home,
    env: &Env,
    name: String,
    text: &str,
) -> Result<SettingChange, SettingError> {
    refuse_managed_variable(env, &name)?;
    home.ensure()?;
    let file = home.env_path();
    let written = writer::set(&file, &name, text)?;
    let mut notes = Vec::new();
    if written.stripped > 0 {
        notes.push(format!(
            "left out {} character(s) that a key cannot contain; copy the key again if it is refused",
            written.stripped
        ));
    }
    if !crate::env::is_usable_secret(text) {
        notes.push("this looks like a placeholder and will be ignored".to_owned());
    }
    Ok(SettingChange {
        key: name,
        file,
        value: None,
        notes,
    })
}

fn set_config(
    home: &Home,
    env: &Env,
    path: &KeyPath,
    text: &str,
    options: SetOptions,
) -> Result<SettingChange, SettingError> {
    refuse_managed(env, path)?;
    let value = if options.json {
        serde_json::from_str(text).map_err(|err| SettingError::Json(text.to_owned(), err))?
    } else {
        coerce(path, text)
    };
    let file = home.config_path();
    let mut doc = ConfigDoc::open(&file)?;
    let model = KeyPath::new(["model", "default"]);
    let path = match path.get(doc.tree()) {
        Some(Value::Object(_)) if path.parts() == ["model"] && value.is_string() => &model,
        Some(Value::Object(map)) if !map.is_empty() && !value.is_object() && !options.force => {
            return Err(SettingError::Section(path.to_string()));
        }
        _ => path,
    };
    if !options.force {
        check_value(home, doc.tree(), path, &value, text)?;
    }
    name_model(&mut doc, path)?;
    doc.set(path, &value)?;
    home.ensure()?;
    doc.save()?;
    let mut notes = Vec::new();
    if let Some(name) = terminal_variable(path) {
        writer::set(&home.env_path(), name, &python_text(&value))?;
        notes.push(format!("{name} in .env follows it"));
    }
    let parts: Vec<&str> = path.parts().iter().map(String::as_str).collect();
    if let Err(close) = known::lookup(&parts)
        && !options.force
    {
        let hint = close
            .map(|close| format!("; did you mean {close}?"))
            .unwrap_or_default();
        notes.push(format!("{path} is not a key that Hermes knows{hint}"));
    }
    if schema::effect::is_without_effect(path.parts()) {
        notes.push(format!(
            "{path} is a setting of Hermes Agent that does nothing here"
        ));
    }
    Ok(SettingChange {
        key: path.to_string(),
        file,
        value: Some(value),
        notes,
    })
}

/// Turns `model: name` into a section, so that other fields can be set without losing the name.
fn name_model(doc: &mut ConfigDoc, path: &KeyPath) -> Result<(), EditError> {
    let below_model = path.parts().len() > 1 && path.parts()[0] == "model";
    match doc.tree().get("model") {
        Some(Value::String(name)) if below_model => {
            let section = if name.is_empty() {
                json!({})
            } else {
                json!({ "default": name })
            };
            doc.set(&KeyPath::new(["model"]), &section)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

pub fn unset(home: &Home, env: &Env, key: &str) -> Result<Option<SettingChange>, SettingError> {
    let path = match target(key)? {
        SettingTarget::Env(name) => {
            refuse_managed_variable(env, &name)?;
            let file = home.env_path();
            let removed = writer::unset(&file, &name)?;
            return Ok(removed.then(|| SettingChange {
                key: name,
                file,
                value: None,
                notes: Vec::new(),
            }));
        }
        SettingTarget::Config(path) => path,
    };
    refuse_managed(env, &path)?;
    let file = home.config_path();
    let mut doc = ConfigDoc::open(&file)?;
    let mut removed = doc.unset(&path)?;
    doc.save()?;
    let mut notes = Vec::new();
    if let Some(name) = terminal_variable(&path)
        && writer::unset(&home.env_path(), name)?
    {
        notes.push(format!("{name} was removed from .env with it"));
        removed = true;
    }
    Ok(removed.then(|| SettingChange {
        key: path.to_string(),
        file,
        value: None,
        notes,
    }))
}

fn terminal_variable(path: &KeyPath) -> Option<&'static str> {
    match path.parts() {
        [section, key] if section == "terminal" => TERMINAL_VARIABLES
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, variable)| *variable),
        _ => None,
    }
}

/// A value as the original writes it into `.env`.
fn python_text(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The meaning of `text` for this key. If the default is text, everything is text.
pub fn coerce(path: &KeyPath, text: &str) -> Value {
    let default = default_of(path);
    if matches!(default, Some(Value::String(_))) {
        return json!(text);
    }
    let trimmed = text.trim();
    if trimmed.starts_with(['[', '{'])
        && let Ok((value @ (Value::Array(_) | Value::Object(_)), _)) = yaml::parse(trimmed)
    {
        return value;
    }
    match trimmed.to_lowercase().as_str() {
        "true" | "yes" | "on" => return json!(true),
        "false" | "no" | "off" => return json!(false),
        "null" | "~" if default.is_some() => return Value::Null,
        _ => {}
    }
    let digits = trimmed.strip_prefix('-').unwrap_or(trimmed);
    let numeric = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    if numeric {
        if let Ok(whole) = trimmed.parse::<i64>() {
            return json!(whole);
        }
        if let Ok(float) = trimmed.parse::<f64>() {
            return json!(float);
        }
    }
    json!(text)
}

fn default_of(path: &KeyPath) -> Option<Value> {
    schema::default_of(path.parts())
}

/// Refuses a value that would have no effect: of a wrong type, or against the rule of its key.
/// `file` contains the settings so far, to which the value may refer.
fn check_value(
    home: &Home,
    file: &Value,
    path: &KeyPath,
    value: &Value,
    given: &str,
) -> Result<(), SettingError> {
    let mut tree = file.clone();
    if put(&mut tree, path.parts(), value, "").is_err() {
        // Such as a bare name that becomes a section.
        if let (Value::Object(map), Some(root)) = (&mut tree, path.parts().first()) {
            map.shift_remove(root);
        }
        if put(&mut tree, path.parts(), value, "").is_err() {
            return Ok(());
        }
    }
    let mut warnings = Vec::new();
    load::settle(home, &mut tree.clone(), &mut warnings);
    Config::from_tree(&tree, &mut warnings);
    let key = path.parts().join(".");
    let about = |warning: &ConfigWarning| {
        let below = warning.key.strip_prefix(&key);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for warning in warnings.into_iter().filter(about) {
        match warning.problem {
            ConfigProblem::WrongType { expected, .. } => {
                return Err(SettingError::WrongType {
                    key: warning.key,
                    expected,
                    given: given.to_owned(),
                });
            }
            ConfigProblem::Invalid { why } => {
                // The rest of the message describes what loading does about it.
                let why = why.split("; ").next().unwrap_or(&why).to_owned();
                return Err(SettingError::Invalid {
                    key: warning.key,
                    why,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

fn refuse_managed_variable(env: &Env, name: &str) -> Result<(), SettingError> {
    match env.managed_dir() {
        Some(dir) if env.is_managed(name) => Err(SettingError::Managed {
            key: name.to_owned(),
            file: dir.join(".env"),
        }),
        _ => Ok(()),
    }
}

fn refuse_managed(env: &Env, path: &KeyPath) -> Result<(), SettingError> {
    let Some(dir) = env.managed_dir() else {
        return Ok(());
    };
    let managed = load::managed_tree(dir, &mut Vec::new()).map(Value::Object);
    match managed.as_ref().and_then(|tree| path.get(tree)) {
        Some(value) if !value.is_object() => Err(SettingError::Managed {
            key: path.to_string(),
            file: dir.join("config.yaml"),
        }),
        _ => Ok(()),
    }
}
