//! Which files of a home a backup contains.

use std::path::Path;

/// Files to keep, relative to the root.
#[derive(Debug, Default)]
pub(super) struct BackupFiles {
    pub(super) files: Vec<String>,
    pub(super) left_out: Vec<String>,
    pub(super) unreadable: Vec<String>,
}

/// Directories that can be made again, wherever they are.
const MADE_AGAIN: &[&str] = &[
    "__pycache__",
    ".git",
    "node_modules",
    ".venv",
    "venv",
    "site-packages",
    ".cache",
    ".tox",
    ".nox",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
];

/// Directories of a home (or of a profile) that are no part of its state: caches, other backups,
/// programs that were downloaded, the source of the original.
const NOT_STATE: &[&str] = &[
    "hermes-agent",
    "backups",
    "checkpoints",
    "state-snapshots",
    "cache",
    "image_cache",
    "audio_cache",
    "sandboxes",
    "node",
];

/// Files that mean something on one machine at one time only.
const OF_THE_MOMENT: &[&str] = &[
    "gateway.pid",
    "gateway_control.json",
    "cron.pid",
    "models_dev_cache.json",
    "provider_models_cache.json",
    "context_length_cache.yaml",
    ".skills_prompt_snapshot.json",
    ".update_check",
];

const SIDE_FILES: &[&str] = &["-wal", "-shm", "-journal"];
const DATABASES: &[&str] = &["db", "sqlite", "sqlite3"];

/// What the quick copy takes: the list of the original program, and what people wrote.
const STATE: &[&str] = &[
    "state.db",
    "config.yaml",
    ".env",
    "auth.json",
    "SOUL.md",
    "memories",
    "cron/jobs.json",
    "cron/executions.db",
    "channel_directory.json",
    "channel_aliases.json",
    "processes.json",
    "gateway_state.json",
    "gateway/discord_message_recovery.db",
    "projects.db",
    "response_store.db",
    "memory_store.db",
    "verification_evidence.db",
    "kanban.db",
    "pairing",
    "platforms/pairing",
    "feishu_comment_pairing.json",
];

pub(crate) fn is_database(path: &Path) -> bool {
    path.extension()
        .and_then(|end| end.to_str())
        .is_some_and(|end| DATABASES.contains(&end))
}

/// Whether a file means nothing outside this moment and machine.
pub(crate) fn is_of_the_moment(name: &str) -> bool {
    let side_file = SIDE_FILES.iter().any(|end| {
        name.strip_suffix(end)
            .is_some_and(|name| is_database(Path::new(name)))
    });
    let ends = |end: &str| {
        Path::new(name)
            .extension()
            .is_some_and(|of| of.eq_ignore_ascii_case(end))
    };
    side_file
        || OF_THE_MOMENT.contains(&name)
        || is_lock(name)
        || ["pid", "sock", "pyc", "pyo"].into_iter().any(ends)
        || name.starts_with(".hermes-backup-")
}

/// Locks of a home: `.tick.lock`, `MEMORY.md.lock`, `auth.lock`. A `Cargo.lock` in a skill is none.
fn is_lock(name: &str) -> bool {
    name.strip_suffix(".lock").is_some_and(|rest| {
        rest.starts_with('.')
            || matches!(rest, "auth" | "gateway" | "cron")
            || [".md", ".json", ".yaml"]
                .iter()
                .any(|end| rest.ends_with(end))
    })
}

pub(super) fn all(root: &Path) -> BackupFiles {
    let mut found = BackupFiles::default();
    walk(root, "", true, &mut found);
    found.files.sort();
    found.left_out.sort();
    found
}

pub(super) fn state(root: &Path) -> BackupFiles {
    let mut found = BackupFiles::default();
    for name in STATE {
        let path = root.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => found.files.push((*name).to_owned()),
            Ok(meta) if meta.is_dir() => walk(&path, &format!("{name}/"), false, &mut found),
            _ => {}
        }
    }
    found
}

/// `home`: the directory is a home, whose caches are left out. Links are not followed: what they
/// lead to is not in the home.
fn walk(dir: &Path, prefix: &str, home: bool, found: &mut BackupFiles) {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            found.unreadable.push(format!("{prefix}: {error}"));
            return;
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let shown = name.to_string_lossy();
            found
                .unreadable
                .push(format!("{prefix}{shown}: the name is not UTF-8"));
            continue;
        };
        let relative = format!("{prefix}{name}");
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if MADE_AGAIN.contains(&name) || (home && NOT_STATE.contains(&name)) {
                found.left_out.push(format!("{relative}/"));
            } else {
                // Each profile is a home of its own.
                let is_home = prefix == "profiles/";
                walk(&entry.path(), &format!("{relative}/"), is_home, found);
            }
        } else if kind.is_file() && !is_of_the_moment(name) {
            found.files.push(relative);
        } else if kind.is_symlink() {
            found.left_out.push(format!("{relative} (a link)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_kept_and_the_rest_is_not() {
        let dir = tempfile::tempdir().unwrap();
        for file in [
            "config.yaml",
            "state.db",
            "state.db-wal",
            "gateway.pid",
            "cron/.tick.lock",
            "cache/images/a.png",
            "skills/cache/SKILL.md",
            "skills/a/hermes-agent/SKILL.md",
            "hermes-agent/setup.py",
            "checkpoints/store/HEAD",
            "profiles/work/config.yaml",
            "profiles/work/cache/x",
            "plugins/p/node_modules/a.js",
            "skills/.archive/old/SKILL.md",
            "skills/a/Cargo.lock",
            "memories/MEMORY.md.lock",
        ] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        let found = all(dir.path());
        assert_eq!(
            found.files,
            [
                "config.yaml",
                "profiles/work/config.yaml",
                "skills/.archive/old/SKILL.md",
                "skills/a/Cargo.lock",
                "skills/a/hermes-agent/SKILL.md",
                "skills/cache/SKILL.md",
                "state.db",
            ]
        );
        assert_eq!(
            found.left_out,
            [
                "cache/",
                "checkpoints/",
                "hermes-agent/",
                "link (a link)",
                "plugins/p/node_modules/",
                "profiles/work/cache/",
            ]
        );
    }
}
