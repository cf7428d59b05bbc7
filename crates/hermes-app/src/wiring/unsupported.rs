//! Reports settings of the original that have no effect here, so that no one relies on them.

use hermes_config::Config;
use hermes_config::fs::write_atomic;

use super::tool_hooks;
use crate::context::{AppContext, Audience};

/// Maximum number of plugins listed by name.
const MAX_NAMED_PLUGINS: usize = 20;

/// The directories below `plugins/` that contain a Python plugin, also one level deeper.
pub fn plugins(cx: &AppContext) -> Vec<String> {
    let is_plugin = |dir: &std::path::Path| {
        ["plugin.yaml", "plugin.yml"]
            .iter()
            .any(|file| dir.join(file).is_file())
    };
    let below = |dir: &std::path::Path| {
        let mut dirs: Vec<std::path::PathBuf> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect();
        dirs.sort();
        dirs
    };
    let root = cx.home.join("plugins");
    let mut found = Vec::new();
    for dir in below(&root) {
        if is_plugin(&dir) {
            found.push(dir);
        } else {
            found.extend(below(&dir).into_iter().filter(|dir| is_plugin(dir)));
        }
    }
    let name = |dir: &std::path::PathBuf| {
        let name = dir.strip_prefix(&root).unwrap_or(dir);
        name.display().to_string()
    };
    found.iter().map(name).collect()
}

/// One line about the plugins, if there are any.
pub fn plugins_warning(cx: &AppContext) -> Option<String> {
    let names = plugins(cx);
    let shown = names
        .iter()
        .take(MAX_NAMED_PLUGINS)
        .cloned()
        .collect::<Vec<_>>();
    let more = match names.len().saturating_sub(MAX_NAMED_PLUGINS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| format!("Python plugins are not run: {}{more}", shown.join(", ")))
}

/// Everything of the kind, in lines for people.
fn lines(cx: &AppContext, config: &Config) -> Vec<String> {
    let (hooks, problems) = tool_hooks::read_hooks(cx, config);
    let waiting = hooks.iter().filter(|hook| !hook.agreed).map(|hook| {
        format!(
            "the hook {} on {} does not run until you approve it: hermes hooks allow",
            hook.name(),
            hook.event
        )
    });
    let hooks = problems.into_iter().chain(waiting);
    plugins_warning(cx).into_iter().chain(hooks).collect()
}

/// Warns on stderr, and again only when something has changed.
pub fn warn_once(cx: &AppContext, config: &Config) {
    // A warning printed for a script was not read by a person.
    let reader = match cx.process.audience() {
        Audience::Nobody => return,
        Audience::Person => "person",
        Audience::Program => "program",
    };
    let lines = lines(cx, config);
    let path = cx.home.cache_dir().join(format!("not_run.{reader}.txt"));
    let now = lines.join("\n");
    if std::fs::read_to_string(&path).unwrap_or_default() == now {
        return;
    }
    for line in &lines {
        cx.process.remark(line);
    }
    if !lines.is_empty() {
        cx.process
            .remark("(shown once; hermes doctor shows it again)");
    }
    // If it cannot be recorded, the warning is repeated.
    if std::fs::create_dir_all(cx.home.cache_dir()).is_ok()
        && let Err(error) = write_atomic(&path, now.as_bytes(), 0o600)
    {
        tracing::warn!("{}: {error}", path.display());
    }
}
