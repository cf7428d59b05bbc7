//! What is run from elsewhere without being asked for: directories on the search path, and files that start-up
//! files of the person and settings of git name.

use std::path::{Path, PathBuf};

use hermes_core::private::runs_later_in_home;

use super::git_settings::{GLOBAL_SETTINGS, named_by};
use super::look;
use super::protect::Looked;
use super::repositories::is_there;
use super::seen::Seen;
use crate::shell::is_in_environment;

/// Start-up files are short.
const MAX_START_FILE: u64 = 256 << 10;
/// Links that are followed on one way.
const MAX_LINKS: usize = 40;

/// Start-up files that name others.
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

/// Directories of the person in which links lead to what is run.
const DIRECTORIES_OF_LINKS: &[&str] = &[".config", ".config/systemd/user", ".config/autostart"];

/// The same for links that lead to programs: a person who works on such a program wants to run it.
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

/// Words of a line that runs or reads the files in it.
const RUNNING: &[&str] = &[
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

/// Files that are read because others name them.
const MAX_READ: usize = 64;

/// The paths that are named, whether or not they exist.
#[derive(Clone, Debug, Default)]
pub(super) struct StartFileNames {
    /// Whatever they are named for, if they are files. A directory may be named for many reasons.
    files: Vec<PathBuf>,
    /// Those of them that are run or read.
    run: Vec<PathBuf>,
    /// Programs are looked for in them.
    directories: Vec<PathBuf>,
    /// Hidden links to settings and start-up files.
    links: Vec<PathBuf>,
    /// Links to programs.
    programs: Vec<PathBuf>,
}

impl StartFileNames {
    /// Those that are there, with the links on the way to them. `is_home`: the person's directory can be written.
    pub(super) fn there(&self, is_home: bool) -> Vec<PathBuf> {
        let files = self.files.iter().filter(|path| look::is_file(path));
        let directories = self.directories.iter().filter(|path| look::is_dir(path));
        let mut found = Vec::new();
        for path in files.chain(directories) {
            found.extend(look::real(path));
            found.extend(links_on_the_way(path));
        }
        let programs = self.programs.iter().filter(|_| is_home);
        let links = self.links.iter().chain(programs);
        found.extend(links.filter_map(|link| look::real(link).ok()));
        found
    }

    /// The files that are run and not there.
    pub(super) fn absent_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.run.iter().filter(|path| !is_there(path))
    }

    /// The directories that are not there.
    pub(super) fn absent_directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.directories.iter().filter(|path| !is_there(path))
    }
}

/// Reads them.
pub(super) fn look_at_start_files(home: Option<&Path>) -> Looked<StartFileNames> {
    let mut named = StartFileNames::default();
    let mut seen = Vec::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    named.directories.extend(std::env::split_paths(&path));
    if let Some(home) = home {
        seen.push(Seen::listed(home));
        let mut read = 0;
        let mut waiting = below(START_FILES, home);
        while let Some(file) = waiting.pop().filter(|_| read < MAX_READ) {
            if is_there(&file) {
                read += 1;
                seen.push(Seen::listed(&file));
                let before = named.run.len();
                named.read(&file, home);
                let mut more = named.run[before..].to_vec();
                more.retain(|path| path.starts_with(home) && !named.run[..before].contains(path));
                waiting.splice(0..0, more);
            }
        }
        for name in GLOBAL_SETTINGS {
            let mut in_git = named_by(&home.join(name), None, Some(home));
            // Some settings name repositories, which are no programs.
            in_git.retain(|path| !is_there(&path.join(".git")));
            named.directories.extend_from_slice(&in_git);
            named.files.extend_from_slice(&in_git);
            named.run.extend(in_git);
        }
        let hidden = look::list(home);
        let hidden =
            hidden.filter(|entry| runs_later_in_home(&entry.file_name().to_string_lossy()));
        let hidden: Vec<PathBuf> = hidden.map(|entry| entry.path()).collect();
        named
            .links
            .extend(hidden.iter().filter(|path| look::is_link(path)).cloned());
        let programs = below(DIRECTORIES_OF_PROGRAMS, home);
        let known = below(DIRECTORIES_OF_LINKS, home);
        for dir in hidden.into_iter().chain(known) {
            if !programs.contains(&dir) {
                named.links.extend(links_in(&dir, &mut seen));
            }
        }
        for dir in &programs {
            named.programs.extend(links_in(dir, &mut seen));
        }
    }
    // What is installed into an environment that is in use belongs to its project.
    named
        .directories
        .retain(|dir| dir.is_absolute() && !is_in_environment(dir));
    for paths in [&mut named.files, &mut named.run, &mut named.directories] {
        paths.retain(|path| path.parent().is_some() && home.is_none_or(|home| path != home));
        paths.sort();
        paths.dedup();
    }
    Looked { found: named, seen }
}

fn below(names: &[&str], home: &Path) -> Vec<PathBuf> {
    names.iter().map(|name| home.join(name)).collect()
}

fn links_in(dir: &Path, seen: &mut Vec<Seen>) -> Vec<PathBuf> {
    if !look::is_dir(dir) {
        return Vec::new();
    }
    seen.push(Seen::listed(dir));
    look::list(dir)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .map(|entry| entry.path())
        .collect()
}

impl StartFileNames {
    /// Takes note of what a start-up file names, in whatever way.
    fn read(&mut self, file: &Path, home: &Path) {
        let is_short =
            look::target(file).is_ok_and(|data| data.is_file() && data.len() <= MAX_START_FILE);
        let text = is_short
            .then(|| look::read(file).ok())
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
                .any(|word| RUNNING.contains(&word.trim_start_matches('\\')));
            let words = line.split(separators);
            for path in words.filter_map(|word| path_of(word, home)) {
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

/// The path that a word of a start-up file stands for.
fn path_of(word: &str, home: &Path) -> Option<PathBuf> {
    let prefixes = ["~/", "$HOME/", "${HOME}/"];
    let below = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix));
    let path = match below {
        Some(below) => home.join(below),
        None => PathBuf::from(word),
    };
    let is_known = path.is_absolute() && !path.to_string_lossy().contains(['$', '*', '?']);
    is_known.then_some(path)
}

/// The links on the way to a directory, as it is named.
pub(super) fn links_on_the_way(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut waiting: Vec<std::ffi::OsString> = path.iter().rev().map(ToOwned::to_owned).collect();
    let mut at = PathBuf::new();
    while let Some(part) = waiting.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(&part);
        if let Ok(target) = look::link(&at)
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
        let named = look_at_start_files(Some(&home)).found;
        let there = named.there(false);
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
