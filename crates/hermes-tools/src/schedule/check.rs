//! Checks prompts and scripts of jobs: refuses attack texts and prompts that stop the gateway.

use std::io::Read as _;
use std::path::{Component, Path};

use hermes_core::job_check::refuse_gateway_stop;

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
    refuse_gateway_stop(&String::from_utf8_lossy(&bytes))
        .map_err(|why| format!("script {name:?}: {why}"))
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
    fn no_script_ends_its_gateway() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.sh"), "hermes  gateway stop\n").unwrap();
        assert!(script_content("a.sh", dir.path()).is_err());
        assert_eq!(script_content("none.sh", dir.path()), Ok(()));
    }
}
