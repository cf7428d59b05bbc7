//! Auto-run files outside projects: directories on `PATH`, and files named by shell start-up files
//! and the git config.

use std::path::{Path, PathBuf};

use hermes_core::private::runs_later_in_home;
use hermes_core::programs::is_own_directory;

use super::git_settings::{GLOBAL_SETTINGS, files_named_by};
use super::path_state::PathState;
use super::protect::CachedLookup;
use super::repositories::path_exists;
use super::tracked_fs;

/// Larger start files are not read.
const MAX_START_FILE: u64 = 256 << 10;
/// Maximum number of links followed along one path.
const MAX_LINKS: usize = 40;

/// Start files that name other files.
const START_FILES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_aliases",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".xprofile",
    ".xinitrc",
    ".xsession",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".vimrc",
    ".tmux.conf",
    ".inputrc",
    ".config/fish/config.fish",
    ".config/git/config",
    ".config/tmux/tmux.conf",
    ".config/nvim/init.lua",
    ".config/nvim/init.vim",
    ".gitconfig",
];

/// Directories of the user with links to start files or settings.
const DIRECTORIES_OF_LINKS: &[&str] = &[".config", ".config/systemd/user", ".config/autostart"];

/// Directories with links to programs: a user who works on such a program wants to run it.
const DIRECTORIES_OF_PROGRAMS: &[&str] = &["bin", ".local/bin", ".local/share"];

/// Lists of directories from which programs and libraries are loaded.
const SEARCH_PATHS: &[&str] = &[
    "PATH",
    "path",
    "fpath",
    "FPATH",
    "fish_add_path",
    "fish_user_paths",
    "pathmunge",
    "path_add",
    "PATH_add",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "NODE_PATH",
    "PERL5LIB",
    "RUBYLIB",
];

/// Words of a line that executes or sources the files in it.
const RUN_COMMANDS: &[&str] = &[
    ".",
    "source",
    "eval",
    "exec",
    "sh",
    "bash",
    "zsh",
    "source-file",
    "luafile",
    "dofile",
];

/// Maximum number of start files read.
const MAX_READ: usize = 64;

/// Paths named by start files, whether or not they exist.
#[derive(Clone, Debug, Default)]
pub(super) struct StartFilePaths {
    /// Any named file. A directory may be named for many reasons.
    files: Vec<PathBuf>,
    /// Those that are executed or sourced.
    run: Vec<PathBuf>,
    /// Directories on a search path.
    directories: Vec<PathBuf>,
    /// Hidden links to settings and start files.
    links: Vec<PathBuf>,
    /// Links to programs.
    programs: Vec<PathBuf>,
}

impl StartFilePaths {
    /// Existing paths, and the links on the way to them. `is_home`: the user's home is writable.
    pub(super) fn existing(&self, is_home: bool) -> Vec<PathBuf> {
        let files = self.files.iter().filter(|path| tracked_fs::is_file(path));
        let directories = self
            .directories
            .iter()
            .filter(|path| tracked_fs::is_dir(path));
        let mut found = Vec::new();
        for path in files.chain(directories) {
            found.extend(tracked_fs::resolve(path));
            found.extend(links_along(path));
        }
        let programs = self.programs.iter().filter(|_| is_home);
        let links = self.links.iter().chain(programs);
        found.extend(links.filter_map(|link| tracked_fs::resolve(link).ok()));
        found
    }

    /// Files that are executed and do not exist.
    pub(super) fn absent_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.run.iter().filter(|path| !path_exists(path))
    }

    /// Search directories that do not exist.
    pub(super) fn absent_directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.directories.iter().filter(|path| !path_exists(path))
    }
}

/// Reads the start files.
pub(super) fn read_start_files(home: Option<&Path>) -> CachedLookup<StartFilePaths> {
    let mut named = StartFilePaths::default();
    let mut states = Vec::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    named.directories.extend(std::env::split_paths(&path));
    if let Some(home) = home {
        states.push(PathState::of_content(home));
        let mut read = 0;
        let mut waiting = below(START_FILES, home);
        while let Some(file) = waiting.pop().filter(|_| read < MAX_READ) {
            if path_exists(&file) {
                read += 1;
                states.push(PathState::of_content(&file));
                let before = named.run.len();
                named.read(&file, home);
                let mut more = named.run[before..].to_vec();
                more.retain(|path| path.starts_with(home) && !named.run[..before].contains(path));
                waiting.splice(0..0, more);
            }
        }
        for name in GLOBAL_SETTINGS {
            let mut in_git = files_named_by(&home.join(name), None, Some(home));
            // Some settings name repositories, which are no programs.
            in_git.retain(|path| !path_exists(&path.join(".git")));
            named.directories.extend_from_slice(&in_git);
            named.files.extend_from_slice(&in_git);
            named.run.extend(in_git);
        }
        let hidden = tracked_fs::list(home);
        let hidden =
            hidden.filter(|entry| runs_later_in_home(&entry.file_name().to_string_lossy()));
        let hidden: Vec<PathBuf> = hidden.map(|entry| entry.path()).collect();
        named.links.extend(
            hidden
                .iter()
                .filter(|path| tracked_fs::is_link(path))
                .cloned(),
        );
        let programs = below(DIRECTORIES_OF_PROGRAMS, home);
        let known = below(DIRECTORIES_OF_LINKS, home);
        for dir in hidden.into_iter().chain(known) {
            if !programs.contains(&dir) {
                named.links.extend(symlinks_in(&dir, &mut states));
            }
        }
        for dir in &programs {
            named.programs.extend(symlinks_in(dir, &mut states));
        }
    }
    // An active virtual environment belongs to its project.
    named.directories.retain(|dir| is_own_directory(dir));
    for paths in [&mut named.files, &mut named.run, &mut named.directories] {
        paths.retain(|path| path.parent().is_some() && home.is_none_or(|home| path != home));
        paths.sort();
        paths.dedup();
    }
    CachedLookup {
        value: named,
        states,
    }
}

fn below(names: &[&str], home: &Path) -> Vec<PathBuf> {
    names.iter().map(|name| home.join(name)).collect()
}

fn symlinks_in(dir: &Path, states: &mut Vec<PathState>) -> Vec<PathBuf> {
    if !tracked_fs::is_dir(dir) {
        return Vec::new();
    }
    states.push(PathState::of_content(dir));
    tracked_fs::list(dir)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .map(|entry| entry.path())
        .collect()
}

impl StartFilePaths {
    /// Records all paths that a start file names.
    fn read(&mut self, file: &Path, home: &Path) {
        let is_short =
            tracked_fs::stat(file).is_ok_and(|data| data.is_file() && data.len() <= MAX_START_FILE);
        let text = is_short
            .then(|| tracked_fs::read_bytes(file).ok())
            .flatten()
            .unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let separators = |letter: char| letter.is_whitespace() || "\"'`;|&()<>=:,".contains(letter);
        for line in text.lines() {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let mut names = line.split(|letter| !is_name(letter));
            let is_search_path = names.any(|name| SEARCH_PATHS.contains(&name));
            let is_run = line
                .split(separators)
                .any(|word| RUN_COMMANDS.contains(&word.trim_start_matches('\\')));
            let words = line.split(separators);
            for path in words.filter_map(|word| expand_path(word, home)) {
                if is_search_path {
                    self.directories.push(path.clone());
                }
                if is_run {
                    self.run.push(path.clone());
                }
                self.files.push(path);
            }
        }
    }
}

/// The path that a word of a start file stands for.
fn expand_path(word: &str, home: &Path) -> Option<PathBuf> {
    let prefixes = ["~/", "$HOME/", "${HOME}/"];
    let below = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix));
    let path = match below {
        Some(below) => home.join(below),
        None => PathBuf::from(word),
    };
    let is_known = path.is_absolute() && !path.to_string_lossy().contains(['$', '*', '?']);
    is_known.then_some(path)
}

/// The links along a path.
pub(super) fn links_along(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut waiting: Vec<std::ffi::OsString> = path.iter().rev().map(ToOwned::to_owned).collect();
    let mut at = PathBuf::new();
    while let Some(part) = waiting.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(&part);
        if let Ok(target) = tracked_fs::link_target(&at)
            && links.len() < MAX_LINKS
        {
            links.push(at.clone());
            at.pop();
            waiting.extend(target.iter().rev().map(ToOwned::to_owned));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_start_up_files_name_is_found_whether_or_not_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let at = |name: &str| home.join(name);
        std::fs::write(
            at(".bashrc"),
            "export PATH=\"$HOME/tools:${HOME}/later/bin:$PATH\"\n[ -f ~/lib/a.sh ] && . ~/lib/a.sh\n. ~/lib/b.sh\n\
             alias w='cd ~/work'\nexport GOPATH=$HOME/go\n",
        )
        .unwrap();
        for name in ["tools", "lib", "work", "go"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("lib/a.sh"), ". ~/lib/c.sh\nLOG=~/lib/log\n").unwrap();
        std::os::unix::fs::symlink("dotfiles/zshrc", at(".zshrc")).unwrap();
        std::fs::create_dir(at("dotfiles")).unwrap();
        std::fs::write(at("dotfiles/zshrc"), "").unwrap();
        let named = read_start_files(Some(&home)).value;
        let there = named.existing(false);
        for name in ["tools", "lib/a.sh", "dotfiles/zshrc"] {
            assert!(there.contains(&at(name)), "{name}: {there:?}");
        }
        for name in ["work", "go"] {
            assert!(!there.contains(&at(name)), "{name}: {there:?}");
        }
        let absent: Vec<&PathBuf> = named.absent_files().collect();
        assert_eq!(absent, [&at("lib/b.sh"), &at("lib/c.sh")]);
        let mut absent = named.absent_directories();
        assert!(absent.any(|path| *path == at("later/bin")));
    }
}
