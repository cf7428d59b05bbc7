//! Migration between versions of config.yaml.
//!
//! Old spellings are understood when the file is read ([`fold`]); the file itself is only rewritten
//! on request ([`plan`]).

use serde_json::{Map, Value, json};

use crate::edit::{self, ConfigDoc, KeyPath};
use crate::env::Env;
use crate::env::writer::{self, EnvWriteError};
use crate::home::Home;
use crate::load::version;
use crate::schema::CONFIG_VERSION;
use crate::warning::{ConfigProblem, ConfigWarning};

/// One change to a file.
#[derive(Clone, Debug, PartialEq)]
pub enum MigrationChange {
    Set(KeyPath, Value),
    Unset(KeyPath),
    /// Removes a variable from `.env` that is no longer used.
    ClearEnv(&'static str),
}

/// Changes that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationStep {
    /// The first version that does not need this step.
    pub version: u64,
    pub note: String,
    pub changes: Vec<MigrationChange>,
}

impl MigrationStep {
    fn new(version: u64, note: impl Into<String>, changes: Vec<MigrationChange>) -> Self {
        Self {
            version,
            note: note.into(),
            changes,
        }
    }
}

fn at(path: &str) -> KeyPath {
    KeyPath::new(path.split('.'))
}

fn get<'t>(tree: &'t Value, path: &str) -> Option<&'t Value> {
    at(path).get(tree).filter(|value| !value.is_null())
}

fn text<'t>(tree: &'t Value, path: &str) -> Option<&'t str> {
    get(tree, path)?
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// Renames for files of any version: they replace keys that are invalid today.
fn renames(tree: &Value) -> Vec<MigrationStep> {
    [
        stt_model,
        tool_progress_overrides,
        compression_summary,
        write_mode,
        async_children,
    ]
    .iter()
    .filter_map(|rename| rename(tree))
    .collect()
}

fn stt_model(tree: &Value) -> Option<MigrationStep> {
    const LOCAL: [&str; 17] = [
        "tiny.en",
        "tiny",
        "base.en",
        "base",
        "small.en",
        "small",
        "medium.en",
        "medium",
        "large-v1",
        "large-v2",
        "large-v3",
        "large",
        "distil-large-v2",
        "distil-medium.en",
        "distil-small.en",
        "large-v3-turbo",
        "turbo",
    ];
    let model = get(tree, "stt.model")?;
    let provider = text(tree, "stt.provider").unwrap_or("local");
    let local = matches!(provider, "local" | "local_command");
    let section = if local { "local" } else { provider };
    let target = KeyPath::new(["stt", section, "model"]);
    let mut changes = vec![MigrationChange::Unset(at("stt.model"))];
    let fits = !local || model.as_str().is_some_and(|model| LOCAL.contains(&model));
    if fits && target.get(tree).is_none() {
        changes.push(MigrationChange::Set(target.clone(), model.clone()));
    }
    Some(MigrationStep::new(
        14,
        format!("stt.model is now {target}"),
        changes,
    ))
}

fn tool_progress_overrides(tree: &Value) -> Option<MigrationStep> {
    let overrides = get(tree, "display.tool_progress_overrides")?.as_object()?;
    let mut changes = Vec::new();
    for (platform, mode) in overrides {
        let target = KeyPath::new(["display", "platforms", platform.as_str(), "tool_progress"]);
        if target.get(tree).is_none() {
            changes.push(MigrationChange::Set(target, mode.clone()));
        }
    }
    if changes.is_empty() {
        return None;
    }
    Some(MigrationStep::new(
        16,
        "display.tool_progress_overrides is now display.platforms",
        changes,
    ))
}

fn compression_summary(tree: &Value) -> Option<MigrationStep> {
    let mut changes = Vec::new();
    for field in ["model", "provider", "base_url"] {
        let old = format!("compression.summary_{field}");
        if at(&old).get(tree).is_none() {
            continue;
        }
        let target = format!("auxiliary.compression.{field}");
        let existing =
            text(tree, &target).is_some_and(|value| field != "provider" || value != "auto");
        if let Some(value) = text(tree, &old).filter(|value| *value != "auto" && !existing) {
            changes.push(MigrationChange::Set(at(&target), json!(value)));
        }
        changes.push(MigrationChange::Unset(at(&old)));
    }
    let step = || {
        MigrationStep::new(
            17,
            "compression.summary_* is now auxiliary.compression",
            changes.clone(),
        )
    };
    (!changes.is_empty()).then(step)
}

fn write_mode(tree: &Value) -> Option<MigrationStep> {
    let mut changes = Vec::new();
    for section in ["memory", "skills"] {
        if let Some(mode) = get(tree, &format!("{section}.write_mode")) {
            let approve = mode
                .as_str()
                .is_some_and(|mode| mode.trim().eq_ignore_ascii_case("approve"));
            changes.push(MigrationChange::Unset(at(&format!("{section}.write_mode"))));
            changes.push(MigrationChange::Set(
                at(&format!("{section}.write_approval")),
                json!(approve),
            ));
        }
    }
    let step = || {
        MigrationStep::new(
            29,
            "write_mode is now write_approval: true or false",
            changes.clone(),
        )
    };
    (!changes.is_empty()).then(step)
}

fn async_children(tree: &Value) -> Option<MigrationStep> {
    let number = |path: &str| {
        let value = get(tree, path)?;
        value
            .as_u64()
            .or_else(|| value.as_str()?.trim().parse().ok())
    };
    get(tree, "delegation.max_async_children")?;
    let mut changes = vec![MigrationChange::Unset(at("delegation.max_async_children"))];
    let children = number("delegation.max_concurrent_children").unwrap_or(3);
    if let Some(old) = number("delegation.max_async_children").filter(|old| *old > children.max(3))
    {
        changes.push(MigrationChange::Set(
            at("delegation.max_concurrent_children"),
            json!(old),
        ));
    }
    let note = "delegation.max_async_children is now part of delegation.max_concurrent_children";
    Some(MigrationStep::new(33, note, changes))
}

/// Converts old keys without changing the file.
pub(crate) fn fold(
    file: Map<String, Value>,
    warnings: &mut Vec<ConfigWarning>,
) -> Map<String, Value> {
    let mut tree = Value::Object(file);
    for step in renames(&tree) {
        for change in &step.changes {
            match change {
                // Below a value that is not a section, which is reported on reading.
                MigrationChange::Set(path, value) => {
                    drop(edit::put(&mut tree, path.parts(), value, ""));
                }
                MigrationChange::Unset(path) => drop(edit::remove(&mut tree, path.parts())),
                MigrationChange::ClearEnv(_) => {}
            }
        }
        warnings.push(ConfigWarning::new(
            "",
            ConfigProblem::Legacy { now: step.note },
        ));
    }
    match tree {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// All steps to [`CONFIG_VERSION`], in order. Empty: the file is up to date.
pub fn plan(file: &Value, env: &Env, home: &Home) -> Vec<MigrationStep> {
    let empty = Map::new();
    let found = version(file.as_object().unwrap_or(&empty));
    if found >= CONFIG_VERSION {
        return Vec::new();
    }
    let mut steps: Vec<MigrationStep> = [
        tool_progress(file, env),
        timezone(file, env),
        dead_variable(9, "ANTHROPIC_TOKEN", env),
        custom_providers(file),
        dead_variable(13, "LLM_MODEL", env),
        dead_variable(13, "OPENAI_MODEL", env),
        plugins(file, home),
        catalog_ttl(file),
        verify_on_stop(file, found),
    ]
    .into_iter()
    .flatten()
    .chain(renames(file))
    .filter(|step| step.version > found)
    .collect();
    steps.sort_by_key(|step| step.version);
    let bump = MigrationChange::Set(at("_config_version"), json!(CONFIG_VERSION));
    steps.push(MigrationStep::new(
        CONFIG_VERSION,
        format!("version {found} → {CONFIG_VERSION}"),
        vec![bump],
    ));
    steps
}

fn tool_progress(tree: &Value, env: &Env) -> Option<MigrationStep> {
    if get(tree, "display.tool_progress").is_some() {
        return None;
    }
    let lower = |name: &str| env.get(name).map(str::to_lowercase).unwrap_or_default();
    let mode = match lower("HERMES_TOOL_PROGRESS_MODE").as_str() {
        _ if matches!(lower("HERMES_TOOL_PROGRESS").as_str(), "false" | "0" | "no") => "off",
        "new" => "new",
        "verbose" => "verbose",
        _ => "all",
    };
    let change = MigrationChange::Set(at("display.tool_progress"), json!(mode));
    Some(MigrationStep::new(
        4,
        format!("display.tool_progress is {mode}"),
        vec![change],
    ))
}

fn timezone(tree: &Value, env: &Env) -> Option<MigrationStep> {
    if at("timezone").get(tree).is_some() {
        return None;
    }
    let zone = env
        .get("HERMES_TIMEZONE")
        .map(str::trim)
        .filter(|zone| !zone.is_empty())?;
    let change = MigrationChange::Set(at("timezone"), json!(zone));
    Some(MigrationStep::new(
        5,
        format!("timezone is {zone}, as HERMES_TIMEZONE says"),
        vec![change],
    ))
}

fn dead_variable(version: u64, name: &'static str, env: &Env) -> Option<MigrationStep> {
    env.get(name).filter(|value| !value.is_empty())?;
    (env.source(name) == Some(crate::env::EnvSource::DotEnv)).then(|| {
        MigrationStep::new(
            version,
            format!("{name} in .env is no longer read"),
            vec![MigrationChange::ClearEnv(name)],
        )
    })
}

/// The list `custom_providers` becomes the mapping `providers`.
fn custom_providers(tree: &Value) -> Option<MigrationStep> {
    let list = get(tree, "custom_providers")?.as_array()?;
    let mut existing: Vec<String> = get(tree, "providers")
        .and_then(Value::as_object)
        .map(|map| map.keys().cloned().collect())
        .unwrap_or_default();
    let mut changes = Vec::new();
    for entry in list {
        let (key, new) = provider_entry(entry)?;
        let mut unique = key.clone();
        for suffix in 1..=existing.len() {
            if existing.contains(&unique) {
                unique = format!("{key}-{suffix}");
            }
        }
        changes.push(MigrationChange::Set(
            KeyPath::new(["providers", unique.as_str()]),
            new,
        ));
        existing.push(unique);
    }
    if changes.is_empty() {
        return None;
    }
    changes.push(MigrationChange::Unset(at("custom_providers")));
    Some(MigrationStep::new(
        12,
        "custom_providers is now providers",
        changes,
    ))
}

/// The key and the new form of an entry. `None`: it cannot be converted without loss, so the list
/// is kept (it is still read).
fn provider_entry(entry: &Value) -> Option<(String, Value)> {
    const RENAMED: [(&str, &str); 8] = [
        ("base_url", "api"),
        ("url", "api"),
        ("model", "default_model"),
        ("api_mode", "transport"),
        ("api_key_env", "key_env"),
        ("apiKey", "api_key"),
        ("baseUrl", "api"),
        ("apiMode", "transport"),
    ];
    let entry = entry.as_object()?;
    let mut new = Map::new();
    for (field, value) in entry {
        let name = RENAMED
            .iter()
            .find(|(old, _)| old == field)
            .map_or(field.as_str(), |(_, new)| new);
        let stand_in =
            name == "api_key" && matches!(value.as_str(), Some("" | "no-key" | "no-key-required"));
        if !stand_in {
            new.entry(name).or_insert_with(|| value.clone());
        }
    }
    let url = new.get("api")?.as_str()?.to_owned();
    let name = entry
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kebab = name
        .trim()
        .to_lowercase()
        .replace(' ', "-")
        .replace(['(', ')'], "");
    let kebab = kebab
        .split('-')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    if !kebab.is_empty() {
        return Some((kebab, Value::Object(new)));
    }
    let host = url
        .split("://")
        .nth(1)?
        .split(['/', ':'])
        .next()?
        .replace('.', "-");
    Some((host, Value::Object(new)))
}

/// Plugins used to run unless disabled; now only listed ones run.
fn plugins(tree: &Value, home: &Home) -> Option<MigrationStep> {
    if at("plugins.enabled").get(tree).is_some() {
        return None;
    }
    let disabled = get(tree, "plugins.disabled").and_then(Value::as_array);
    let off = |name: &str| disabled.is_some_and(|list| list.iter().any(|item| item == name));
    let mut names: Vec<String> = std::fs::read_dir(home.join("plugins"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|dir| plugin_name(&dir.path()))
        .filter(|name| !off(name))
        .collect();
    names.sort();
    let note = format!("plugins run only when listed; {} listed", names.len());
    Some(MigrationStep::new(
        21,
        note,
        vec![MigrationChange::Set(at("plugins.enabled"), json!(names))],
    ))
}

fn plugin_name(dir: &std::path::Path) -> Option<String> {
    let manifest = ["plugin.yaml", "plugin.yml"]
        .iter()
        .map(|name| dir.join(name))
        .find(|path| path.is_file())?;
    let named = std::fs::read_to_string(manifest).ok().and_then(|text| {
        let (tree, _) = crate::yaml::parse(&text).ok()?;
        tree.get("name")?.as_str().map(str::to_owned)
    });
    named.or_else(|| Some(dir.file_name()?.to_string_lossy().into_owned()))
}

fn catalog_ttl(tree: &Value) -> Option<MigrationStep> {
    (get(tree, "model_catalog.ttl_hours")?.as_f64() == Some(24.0)).then(|| {
        let change = MigrationChange::Set(at("model_catalog.ttl_hours"), json!(1));
        MigrationStep::new(
            25,
            "model_catalog.ttl_hours: the old default 24 is now 1",
            vec![change],
        )
    })
}

/// Off, unless it was chosen: version 30 wrote `true` on its own.
fn verify_on_stop(tree: &Value, found: u64) -> Option<MigrationStep> {
    let value = get(tree, "agent.verify_on_stop");
    let undecided = match value {
        None => found < 31,
        Some(Value::String(word)) => found < 31 && word.trim().eq_ignore_ascii_case("auto"),
        Some(value) => *value == Value::Bool(true),
    };
    undecided.then(|| {
        let change = MigrationChange::Set(at("agent.verify_on_stop"), json!(false));
        MigrationStep::new(
            32,
            "agent.verify_on_stop is off; set it to true to have it back",
            vec![change],
        )
    })
}

/// What a migration did, or would do.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationReport {
    pub from: u64,
    pub to: u64,
    /// One line per change.
    pub notes: Vec<String>,
}

impl MigrationReport {
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Edit(#[from] edit::EditError),
    #[error(transparent)]
    Env(#[from] EnvWriteError),
}

/// Migrates config.yaml and `.env`. All changes of config.yaml are made or none.
pub fn run(home: &Home, env: &Env, dry_run: bool) -> Result<MigrationReport, MigrateError> {
    let mut notes = Vec::new();
    let glued = writer::repair(&home.env_path(), dry_run)?;
    if glued > 0 {
        notes.push(format!(".env: {glued} variable(s) get a line of their own"));
    }
    let path = home.config_path();
    let mut doc = ConfigDoc::open(&path)?;
    let empty = Map::new();
    let from = version(doc.tree().as_object().unwrap_or(&empty));
    let steps = if path.exists() {
        plan(doc.tree(), env, home)
    } else {
        Vec::new()
    };
    let mut dead = Vec::new();
    for step in steps {
        for change in step.changes {
            match change {
                MigrationChange::Set(path, value) => drop(doc.set(&path, &value)?),
                MigrationChange::Unset(path) => drop(doc.unset_keeping_comments(&path)?),
                MigrationChange::ClearEnv(name) => dead.push(name),
            }
        }
        notes.push(step.note);
    }
    if !dry_run {
        doc.save()?;
        for name in dead {
            writer::unset(&home.env_path(), name)?;
        }
    }
    let to = if path.exists() {
        from.max(CONFIG_VERSION)
    } else {
        from
    };
    Ok(MigrationReport { from, to, notes })
}
