//! What a job may not be.

use std::path::{Component, Path};

use hermes_store::scan::{self, Scope};

/// A prompt acts later, with nobody watching: one that reads like an attack is refused.
pub(super) fn prompt(text: &str) -> Result<(), String> {
    match scan::first(text, Scope::Strict) {
        None => Ok(()),
        Some(found) => Err(format!(
            "the prompt was refused ({found}): it reads like an attempt to turn the agent against its person. Say plainly what is to be done"
        )),
    }
}

/// A script is named relative to the scripts directory and lies in it, links followed.
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
        // Not there yet: it may be written before the job runs.
        return Ok(());
    };
    let root = scripts
        .canonicalize()
        .map_err(|error| format!("{shown}: {error}"))?;
    if !real.starts_with(&root) {
        return Err(format!("script {name:?} leads out of {shown} by a link"));
    }
    if !real.is_file() {
        return Err(format!("script {name:?} is no file"));
    }
    Ok(())
}

pub(super) fn workdir(dir: &str) -> Result<(), String> {
    let path = Path::new(dir);
    if !path.is_absolute() {
        return Err(format!("workdir {dir:?} must be an absolute path"));
    }
    if !path.is_dir() {
        return Err(format!("workdir {dir:?} is no directory"));
    }
    Ok(())
}
