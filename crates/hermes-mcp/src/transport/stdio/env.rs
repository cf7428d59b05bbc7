//! The program and environment of a child.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::transport::connect::StdioTarget;

/// Variables passed to a child. All others (API keys above all) must be configured.
const ALLOWED: &[&str] = &[
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "SHELL", "TMPDIR",
];

pub(super) struct StdioProgram {
    pub(super) path: PathBuf,
    pub(super) env: BTreeMap<String, String>,
}

/// Finds the program and builds its environment. The error tells the user what to do.
pub(super) fn program(
    target: &StdioTarget,
    own: &BTreeMap<String, String>,
    home: &Path,
) -> Result<StdioProgram, String> {
    let mut env: BTreeMap<String, String> = own
        .iter()
        .filter(|(name, _)| ALLOWED.contains(&name.as_str()) || name.starts_with("XDG_"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.extend(target.env.clone());
    let command = target.command.trim();
    if command.is_empty() {
        return Err("`command` is empty".to_owned());
    }
    let user = env.get("HOME").map(PathBuf::from);
    if command.contains('/') {
        let path = match (command.strip_prefix("~/"), &user) {
            (Some(rest), Some(user)) => user.join(rest),
            _ => PathBuf::from(command),
        };
        let path = match &target.cwd {
            Some(cwd) if path.is_relative() => cwd.join(path),
            _ => path,
        };
        if !path.exists() {
            return Err(format!("{} does not exist", path.display()));
        }
        return Ok(StdioProgram { path, env });
    }
    let search = env.get("PATH").cloned().unwrap_or_default();
    let folders = std::env::split_paths(&search).map(|folder| (folder, false));
    let extra = [
        Some(home.join("node").join("bin")),
        user.map(|user| user.join(".local").join("bin")),
        Some(PathBuf::from("/usr/local/bin")),
    ];
    let extra = extra.into_iter().flatten().map(|folder| (folder, true));
    for (folder, unlisted) in folders.chain(extra) {
        let path = folder.join(command);
        if !runnable(&path) {
            continue;
        }
        // npx must find its node beside it.
        if unlisted {
            let joined = format!("{search}:{}", folder.display());
            env.insert("PATH".to_owned(), joined);
        }
        return Ok(StdioProgram { path, env });
    }
    Err(format!(
        "no program `{command}` in PATH; install it or give the full path as `command`"
    ))
}

fn runnable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::stdio::Children;

    fn target(command: &str, home: &Path) -> StdioTarget {
        StdioTarget {
            command: command.to_owned(),
            args: Vec::new(),
            env: BTreeMap::from([("TOKEN".to_owned(), "mine".to_owned())]),
            cwd: None,
            children: Children::new(home, []),
        }
    }

    #[test]
    fn keys_of_the_gateway_stay_out_and_configured_ones_go_in() {
        let home = tempfile::tempdir().unwrap();
        let own = [
            ("PATH", "/usr/bin:/bin"),
            ("OPENAI_API_KEY", "secret"),
            ("XDG_CACHE_HOME", "/c"),
        ];
        let own = own.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let program = program(&target("sh", home.path()), &own, home.path()).unwrap();
        let names: Vec<&str> = program.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["PATH", "TOKEN", "XDG_CACHE_HOME"]);
        assert!(program.path.ends_with("sh"));
    }

    #[test]
    fn a_missing_program_says_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let own = BTreeMap::new();
        let error = |command| {
            program(&target(command, home.path()), &own, home.path())
                .err()
                .unwrap()
        };
        assert!(error("no-such-thing").contains("install it"));
        assert!(error("/no/such/thing").contains("does not exist"));
        assert!(error(" ").contains("empty"));
    }

    #[test]
    fn programs_of_the_home_are_found_and_join_the_path() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("node/bin");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("npx-of-home");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let found = program(
            &target("npx-of-home", home.path()),
            &BTreeMap::new(),
            home.path(),
        );
        let found = found.unwrap();
        assert_eq!(found.path, file);
        assert!(found.env["PATH"].ends_with("node/bin"));
    }
}
