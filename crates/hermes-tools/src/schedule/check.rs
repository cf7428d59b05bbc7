//! Checks jobs.

use std::io::Read as _;
use std::path::{Component, Path};
use std::sync::LazyLock;

use hermes_core::threat_scan::{self, ScanScope};
use regex::{RegexSet, RegexSetBuilder};

/// Commands that stop the gateway. Text about one does not count.
const ENDS_GATEWAY: [&str; 5] = [
    r"hermes\s+gateway\s+(?:restart|stop|uninstall)\b",
    r"launchctl\s+(?:kickstart|unload|load|stop|restart)\b[^\n]*\bhermes[.\-]?gateway",
    r"systemctl\s+(?:-\S+\s+)*(?:restart|stop|start)\b[^\n]*\bhermes[.\-]?gateway",
    r"p?kill\b[^\n]*\bhermes\b[^\n]*\bgateway",
    r"p?kill\b[^\n]*\bgateway\b[^\n]*\bhermes",
];

/// A job that stops its own gateway would be started again by the next one, forever.
fn keeps_the_gateway(text: &str) -> Result<(), String> {
    static PATTERNS: LazyLock<Result<RegexSet, regex::Error>> = LazyLock::new(|| {
        RegexSetBuilder::new(ENDS_GATEWAY)
            .case_insensitive(true)
            .build()
    });
    let ends = PATTERNS
        .as_ref()
        .map_or(true, |patterns| patterns.is_match(text));
    if ends {
        return Err(
            "it would stop the gateway that runs the job; do that in a terminal instead".to_owned(),
        );
    }
    Ok(())
}

/// Checks an existing script.
pub(super) fn script_content(name: &str, scripts: &Path) -> Result<(), String> {
    const LONGEST: u64 = 1024 * 1024;
    let Ok(file) = std::fs::File::open(scripts.join(name)) else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    file.take(LONGEST)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("script {name:?}: {error}"))?;
    keeps_the_gateway(&String::from_utf8_lossy(&bytes))
        .map_err(|why| format!("script {name:?}: {why}"))
}

/// A prompt acts later and unattended: one that looks like an attack is refused.
pub(super) fn prompt(text: &str) -> Result<(), String> {
    match threat_scan::first(text, ScanScope::Strict) {
        None => keeps_the_gateway(text),
        Some(found) => Err(format!(
            "the prompt was refused ({found}): it reads like an attempt to turn the agent against its person. Say plainly what is to be done"
        )),
    }
}

/// A script is named relative to the scripts directory and is in it, with links resolved.
pub(super) fn script(name: &str, scripts: &Path) -> Result<(), String> {
    let shown = scripts.display();
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain || name.starts_with('~') || name.contains('\0') {
        return Err(format!(
            "script {name:?} must be a path below {shown}, without .. and not absolute: put the script there and give its name"
        ));
    }
    let full = scripts.join(path);
    let Ok(real) = full.canonicalize() else {
        // It may be created before the job runs.
        return Ok(());
    };
    let root = scripts
        .canonicalize()
        .map_err(|error| format!("{shown}: {error}"))?;
    if !real.starts_with(&root) {
        return Err(format!("script {name:?} leads out of {shown} by a link"));
    }
    if !real.is_file() {
        return Err(format!("script {name:?} is not a file"));
    }
    Ok(())
}

pub(super) fn workdir(dir: &str) -> Result<(), String> {
    let path = Path::new(dir);
    if !path.is_absolute() {
        return Err(format!("workdir {dir:?} must be an absolute path"));
    }
    if !path.is_dir() {
        return Err(format!("workdir {dir:?} is not a directory"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_ends_its_gateway() {
        for ends in [
            "run `hermes gateway restart` every night",
            "systemctl --user restart hermes-gateway.service",
            "launchctl kickstart -k gui/501/ai.hermes.gateway",
            "pkill -f 'hermes.*gateway'",
            "kill $(cat gateway.pid) # hermes",
        ] {
            assert!(prompt(ends).is_err(), "{ends}");
        }
        for fine in [
            "Sum up how the Kong API gateway restarts under load",
            "hermes gateway status",
            "systemctl restart nginx",
        ] {
            assert_eq!(prompt(fine), Ok(()), "{fine}");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.sh"), "hermes  gateway stop\n").unwrap();
        assert!(script_content("a.sh", dir.path()).is_err());
        assert_eq!(script_content("none.sh", dir.path()), Ok(()));
    }
}
