//! Files of a project that are run because a script names them: a hook of git, an `.envrc`, a command in the
//! configuration of Hermes. The script itself cannot be written; what it runs must not be either.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use hermes_core::paths::lexically_normal;

use super::repositories::path_exists;
use super::tracked_fs;

/// Larger scripts are not read.
const MAX_SCRIPT: u64 = 64 << 10;
/// Maximum number of hooks read in one directory.
const MAX_HOOKS: usize = 64;

/// Words of a line that runs or sources the files in it, whatever these are called.
const RUN_WORDS: &[&str] = &[
    ".",
    "source",
    "source_env",
    "source_env_if_exists",
    "source_up",
    "exec",
    "eval",
    "sh",
    "bash",
    "zsh",
    "dash",
    "python",
    "python3",
    "node",
    "deno",
    "bun",
    "ruby",
    "perl",
    "php",
];

/// Endings of files that are run by an interpreter.
const SCRIPT_ENDINGS: &[&str] = &[
    "sh", "bash", "zsh", "fish", "py", "js", "mjs", "cjs", "ts", "rb", "pl", "php", "lua",
];

/// Programs that run what a file of the project says, and the names of that file.
const NAMED_BY_PROGRAMS: &[(&str, &[&str])] = &[
    (
        "pre-commit",
        &[".pre-commit-config.yaml", ".pre-commit-config.yml"],
    ),
    (
        "lefthook",
        &[
            "lefthook.yml",
            "lefthook.yaml",
            "lefthook.toml",
            "lefthook.json",
            ".lefthook.yml",
            ".lefthook.yaml",
            "lefthook-local.yml",
            ".lefthook-local.yml",
        ],
    ),
    (
        "lint-staged",
        &[
            ".lintstagedrc",
            ".lintstagedrc.json",
            ".lintstagedrc.yaml",
            ".lintstagedrc.yml",
            ".lintstagedrc.js",
            ".lintstagedrc.mjs",
            ".lintstagedrc.cjs",
            "lint-staged.config.js",
            "lint-staged.config.mjs",
            "lint-staged.config.cjs",
        ],
    ),
    ("overcommit", &[".overcommit.yml"]),
    ("flake", &["flake.nix"]),
    ("nix", &["shell.nix", "default.nix"]),
    ("devenv", &["devenv.nix", "devenv.yaml"]),
];

/// Files below `base` that the hooks in a directory run, whether or not they exist, and the targets of hooks
/// that are links.
pub(super) fn files_run_by_hooks(dir: &Path, base: &Path) -> Vec<PathBuf> {
    let hooks = tracked_fs::list(dir).map(|entry| entry.path());
    let hooks = hooks.filter(|path| path.extension().is_none_or(|end| end != "sample"));
    let mut found = Vec::new();
    for hook in hooks.take(MAX_HOOKS) {
        if tracked_fs::is_link(&hook) {
            found.extend(tracked_fs::resolve(&hook));
        }
        found.extend(files_run_by_script(&hook, base));
    }
    found
}

/// Files below `base` that a script runs, whether or not they exist.
pub(super) fn files_run_by_script(script: &Path, base: &Path) -> Vec<PathBuf> {
    let is_short =
        tracked_fs::stat(script).is_ok_and(|data| data.is_file() && data.len() <= MAX_SCRIPT);
    if !is_short {
        return Vec::new();
    }
    let text = tracked_fs::read_bytes(script).unwrap_or_default();
    files_run_by(&String::from_utf8_lossy(&text), base)
}

/// Files below `base` that the text of a script or a command line runs, whether or not they exist.
pub(super) fn files_run_by(text: &str, base: &Path) -> Vec<PathBuf> {
    let separators = |letter: char| letter.is_whitespace() || "\"'`;|&()<>=,{}[]".contains(letter);
    let mut found = Vec::new();
    let lines = text.lines().map(str::trim_start);
    for line in lines.filter(|line| !line.starts_with('#')) {
        let words = || line.split(separators).filter(|word| !word.is_empty());
        let runs = words().any(|word| RUN_WORDS.contains(&name_of(word)));
        for word in words() {
            let path = path_in(word, base);
            found.extend(path.filter(|path| is_run(path, word, runs)));
            let programs = NAMED_BY_PROGRAMS.iter();
            let named = programs.filter(|(program, _)| *program == name_of(word));
            found.extend(named.flat_map(|(_, names)| names.iter().map(|name| base.join(name))));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn name_of(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The path below `base` that a word stands for. A word may begin with a directory known only at run time:
/// `$(git rev-parse --show-toplevel)/check.sh`, `$PWD/check.sh`.
fn path_in(word: &str, base: &Path) -> Option<PathBuf> {
    let word = match word.strip_prefix('$') {
        Some(rest) => rest.split_once('/')?.1,
        None => word,
    };
    let absolute = lexically_normal(Path::new(word));
    let path = if absolute.is_absolute() && absolute.starts_with(base) {
        absolute
    } else {
        lexically_normal(&base.join(word.trim_start_matches('/')))
    };
    (path.starts_with(base) && path != base && !word.contains(['$', '*', '?'])).then_some(path)
}

/// Whether a file that a line names is run by it: a program, a script, or any file on a line that runs files. Of
/// missing files only scripts: most words are no files.
fn is_run(path: &Path, word: &str, on_running_line: bool) -> bool {
    let ending = path.extension().and_then(|end| end.to_str());
    let is_script = ending.is_some_and(|end| SCRIPT_ENDINGS.contains(&end));
    match tracked_fs::stat(path) {
        Ok(data) if data.is_file() => {
            is_script || on_running_line || data.permissions().mode() & 0o111 != 0
        }
        Ok(_) => false,
        Err(_) => {
            let is_hidden_file = on_running_line && name_of(word).starts_with(".env");
            (is_script || is_hidden_file) && !path_exists(path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_runs_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["check", "lib/env", "README.md", "notes", "lint.sh"] {
            let path = base.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
        }
        let program = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(base.join("check"), program).unwrap();
        let text = format!(
            "#!/bin/sh\n./check && grep -q x README.md\n. lib/env\n\"$(git rev-parse --show-toplevel)/lint.sh\"\n\
             # sh notes\npython3 {}/later.py\nexec pre-commit hook-impl\n$PWD/../outside.sh\necho notes\n",
            base.display()
        );
        let found = files_run_by(&text, &base);
        let expected = [
            ".pre-commit-config.yaml",
            ".pre-commit-config.yml",
            "check",
            "later.py",
            "lib/env",
            "lint.sh",
        ];
        assert_eq!(found, expected.map(|name| base.join(name)));
    }
}
