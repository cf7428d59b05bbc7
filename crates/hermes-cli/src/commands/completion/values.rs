//! Words that only the home knows. They are found without the network, within a fixed time, and
//! a home that cannot be read has none.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use hermes_app::toolsets;
use hermes_config::env::{Env, ProcessEnv};
use hermes_config::home::Home;
use hermes_config::{Config, Loaded};
use hermes_core::clock::SystemClock;
use hermes_models::{catalogue, providers};
use hermes_store::jobs::JobTable;
use hermes_store::skills::SkillLibrary;
use hermes_store::{ListFilter, SessionOrder, Store};
use serde_json::Value;

/// A later answer is of no use.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(80);
const MAX_SESSIONS: usize = 60;

/// What is being completed: the home depends on the words typed so far.
#[derive(Clone, Debug, Default)]
pub(super) struct CompletionRequest {
    profile: Option<String>,
}

impl CompletionRequest {
    pub(super) fn from_args(words: &[OsString]) -> Self {
        let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
        let profile = words.iter().enumerate().find_map(|(at, word)| match *word {
            "-p" | "--profile" => words.get(at + 1).map(|&name| name.to_owned()),
            word => word.strip_prefix("--profile=").map(str::to_owned),
        });
        Self {
            profile: profile.filter(|name| !name.is_empty()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompletionKind {
    Sessions,
    Models,
    Providers,
    Skills,
    Profiles,
    Servers,
    Keys,
    Toolsets,
    Jobs,
    Logs,
}

/// What an argument stands for, told by its name and its command.
fn kind(path: &[String], arg: &str) -> Option<CompletionKind> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let kind = match (path.as_slice(), arg) {
        (_, "profile") => CompletionKind::Profiles,
        (["profile", "create" | "import"], _) => return None,
        (["profile", _], "name" | "old") => CompletionKind::Profiles,
        (["sessions", ..], "session" | "session_id") | (["logs"], "session") | (_, "resume") => {
            CompletionKind::Sessions
        }
        ([] | ["chat" | "setup"] | ["model" | "fallback", ..], "model") => CompletionKind::Models,
        (_, "provider") => CompletionKind::Providers,
        ([] | ["chat"], "skills") | (["skills", ..], "name" | "skill" | "skills") => {
            CompletionKind::Skills
        }
        (["mcp", "add"], _) => return None,
        (["mcp", _], "name" | "names" | "server" | "servers") => CompletionKind::Servers,
        (["config", _], "key") => CompletionKind::Keys,
        (_, "toolsets") | (["tools", _], "name" | "names") => CompletionKind::Toolsets,
        (["cron", _], "job") => CompletionKind::Jobs,
        (["logs"], "log") => CompletionKind::Logs,
        _ => return None,
    };
    Some(kind)
}

/// Tells the arguments of the tree where their words come from.
pub(super) fn attach(command: Command, request: &CompletionRequest) -> Command {
    below(command, &mut Vec::new(), request)
}

fn below(mut command: Command, path: &mut Vec<String>, request: &CompletionRequest) -> Command {
    // All at once: arguments changed one by one would lose their order.
    command = command.mut_args(|arg| match kind(path, arg.get_id().as_str()) {
        Some(kind) => completed(arg, kind, request),
        None => arg,
    });
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        path.push(name.clone());
        command = command.mut_subcommand(name, |sub| below(sub, path, request));
        path.pop();
    }
    command
}

fn completed(arg: Arg, kind: CompletionKind, request: &CompletionRequest) -> Arg {
    let request = request.clone();
    arg.add(ArgValueCompleter::new(move |current: &OsStr| {
        let Some(current) = current.to_str() else {
            return Vec::new();
        };
        in_time(kind, request.clone())
            .into_iter()
            .filter(|(value, _)| value.starts_with(current))
            .map(|(value, about)| {
                CompletionCandidate::new(value).help((!about.is_empty()).then(|| about.into()))
            })
            .collect()
    }))
}

type Words = Vec<(String, String)>;

fn in_time(kind: CompletionKind, request: CompletionRequest) -> Words {
    let (sender, answers) = mpsc::sync_channel(1);
    // The process ends after its answer, and with it a search that takes too long.
    std::thread::spawn(move || {
        // Nobody listens any more when it is late.
        let _ = sender.send(words(kind, &request).unwrap_or_default());
    });
    answers.recv_timeout(COMPLETION_TIMEOUT).unwrap_or_default()
}

fn words(kind: CompletionKind, request: &CompletionRequest) -> Option<Words> {
    let process = ProcessEnv::current();
    let home = Home::resolve(&process, request.profile.as_deref());
    if kind == CompletionKind::Profiles {
        // Also for who has typed half a name.
        let home = home
            .or_else(|_| Home::resolve(&process, Some("default")))
            .ok()?;
        return Some(profiles(&home));
    }
    let home = home.ok()?;
    let loaded = || -> Option<Loaded> {
        let env = Env::load(&home, &process).ok()?;
        Config::load(&home, &env).ok()
    };
    let config = || Some(loaded()?.config);
    Some(match kind {
        CompletionKind::Sessions => sessions(&home)?,
        CompletionKind::Models => models(&config()?),
        CompletionKind::Providers => plain(providers::PROVIDERS.iter().map(|provider| provider.id)),
        CompletionKind::Skills => SkillLibrary::of_home(&home, &config()?, Some("cli"))
            .scan()
            .into_iter()
            .map(|skill| (skill.name, short(&skill.description)))
            .collect(),
        CompletionKind::Servers => config()?
            .mcp_servers?
            .into_iter()
            .map(|(name, _)| (name, String::new()))
            .collect(),
        CompletionKind::Keys => {
            let mut keys = Words::new();
            leaves(&loaded()?.tree, &mut String::new(), &mut keys);
            keys
        }
        CompletionKind::Toolsets => plain(toolsets::switchable("cli").map(|set| set.name)),
        CompletionKind::Jobs => JobTable::new(home.cron_dir())
            .list()
            .ok()?
            .into_iter()
            .map(|job| (job.id().to_owned(), short(&job.name())))
            .collect(),
        CompletionKind::Logs => logs(&home),
        CompletionKind::Profiles => profiles(&home),
    })
}

/// `section.key` of every setting.
fn leaves(tree: &Value, path: &mut String, keys: &mut Words) {
    match tree {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                leaves(value, path, keys);
                path.truncate(length);
            }
        }
        _ if path.is_empty() => {}
        _ => keys.push((path.clone(), String::new())),
    }
}

fn plain<'a>(names: impl IntoIterator<Item = &'a str>) -> Words {
    names
        .into_iter()
        .map(|name| (name.to_owned(), String::new()))
        .collect()
}

/// One line, as shells show it.
fn short(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|ch| if ch.is_control() { ' ' } else { ch })
        .take(60)
        .collect();
    line.trim().to_owned()
}

fn sessions(home: &Home) -> Option<Words> {
    let store = Store::open_read_only(home.state_db(), Arc::new(SystemClock)).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
    let found = runtime.block_on(store.list(ListFilter {
        exclude_sources: vec!["tool".to_owned()],
        // By an index: what was active last would have to be found among all messages.
        order: SessionOrder::Started,
        limit: MAX_SESSIONS,
        ..ListFilter::default()
    }));
    let words = found.ok()?.into_iter().map(|session| {
        let about = session.title.unwrap_or(session.preview);
        (session.id, short(&about))
    });
    Some(words.collect())
}

/// The model in use and those of its provider; all of them would be no help.
fn models(config: &Config) -> Words {
    let mut words = Words::new();
    let current = config.model.default.clone();
    if !current.is_empty() {
        words.push((current, "in use".to_owned()));
    }
    for entry in catalogue::models_by_provider(&config.model.provider) {
        if !words.iter().any(|(known, _)| *known == entry.id) {
            words.push((entry.id.to_owned(), String::new()));
        }
    }
    words
}

fn profiles(home: &Home) -> Words {
    let mut names = vec!["default".to_owned()];
    let found = std::fs::read_dir(home.profiles_root().join("profiles"));
    for entry in found.into_iter().flatten().flatten() {
        if let Ok(name) = entry.file_name().into_string()
            && hermes_config::home::is_profile_id(&name)
            && entry.path().is_dir()
        {
            names.push(name);
        }
    }
    names.sort();
    names
        .into_iter()
        .map(|name| (name, String::new()))
        .collect()
}

fn logs(home: &Home) -> Words {
    let mut names: Vec<String> = vec!["list".to_owned()];
    let found = std::fs::read_dir(home.logs_dir());
    for entry in found.into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".log")) {
            names.push(if name == "mcp-stderr" { "mcp" } else { name }.to_owned());
        }
    }
    names.sort();
    names
        .into_iter()
        .map(|name| (name, String::new()))
        .collect()
}
