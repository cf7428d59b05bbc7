//! Settings and hooks of a repository: git executes what they name, even if it only reads.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{ProofResult, Prover, refuse};
use crate::shell::ShellWord;

/// Maximum number of nested repositories.
const DEPTH: usize = 3;
/// Maximum size of an index.
const INDEX: u64 = 64 * 1024 * 1024;
/// Maximum number of entries scanned for a repository in a directory.
const ENTRIES: usize = 2_000;

/// Sections in which nothing names a program.
const PLAIN_SECTIONS: &str = "user author committer color advice init pull push fetch gc pack rerere rebase status log format tag stash index \
    feature receive transfer checkout column blame commit grep notes maintenance gui extensions http alias branch safe clean repack showbranch \
    versionsort worktree submodule";
const PLAIN_CORE: &str = "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf \
    quotepath abbrev compression bigfilethreshold commentchar commentstring whitespace sharedrepository preloadindex untrackedcache trustctime \
    checkstat protectntfs protecthfs hidedotfiles longpaths sparsecheckout sparsecheckoutcone warnambiguousrefs multipackindex commitgraph \
    packedgitlimit packedgitwindowsize deltabasecachelimit fscache excludesfile attributesfile hookspath worktree fsync fsyncmethod";
const PLAIN_REMOTE: &str = "url pushurl fetch push mirror prune prunetags tagopt skipdefaultupdate skipfetchall promisor partialclonefilter gh-resolved lfsurl";
const PLAIN_DRIVER: &str = "funcname xfuncname binary algorithm cachetextconv wordregex";
/// Hooks that only a push or a server runs.
const ELSEWHERE: &str = "pre-push pre-receive update post-receive post-update push-to-checkout proc-receive sendemail-validate \
    fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit";

/// The git directory of a directory.
struct Repository {
    data: PathBuf,
    common: PathBuf,
    files: PathBuf,
}

/// One setting.
struct GitSetting {
    section: String,
    part: Option<String>,
    key: String,
    value: String,
}

impl Prover<'_, '_> {
    /// The repositories that git would find from `dirs` execute no program. `changes`: hooks run as well.
    pub(super) fn repositories_are_plain(&self, dirs: &[PathBuf], changes: bool) -> ProofResult {
        if self.repositories_moved {
            return refuse("settings of git may be put in place by the same command");
        }
        if !self.classifier.disk {
            return Ok(());
        }
        for dir in dirs {
            if let Some(repository) = find(dir) {
                self.is_plain(&repository, changes, DEPTH)?;
            }
        }
        Ok(())
    }

    fn is_plain(&self, repository: &Repository, changes: bool, depth: usize) -> ProofResult {
        let mut hooks = repository.common.join("hooks");
        let files = [
            repository.common.join("config"),
            repository.common.join("config.worktree"),
            repository.data.join("config.worktree"),
        ];
        for file in files {
            let Ok(text) = std::fs::read(&file) else {
                continue;
            };
            let Some(settings) = settings(&String::from_utf8_lossy(&text)) else {
                return refuse("the settings of this repository are not understood");
            };
            for setting in settings {
                if !setting.is_plain() {
                    return refuse(format!(
                        "this repository sets {}, which may run a program",
                        setting.name()
                    ));
                }
                match (setting.section.as_str(), setting.key.as_str()) {
                    ("core", "hookspath") => hooks = repository.files.join(&setting.value),
                    ("core", "worktree") if changes => {
                        let place = repository.data.join(&setting.value);
                        let place = place.canonicalize().unwrap_or(place);
                        if !self.classifier.is_inside(&place) {
                            return refuse("this repository has its files outside the workspace");
                        }
                    }
                    _ => {}
                }
            }
        }
        if let Some(hook) = active_hook(&hooks, changes) {
            return refuse(format!("this repository runs its hook {hook}"));
        }
        let Some(links) = linked_repositories(&repository.data.join("index")) else {
            return refuse("the list of files of this repository is not understood");
        };
        for link in links {
            let dir = repository.files.join(link);
            // git enters each of them.
            if dir.join(".git").exists()
                && let Some(inner) = find(&dir)
            {
                if depth == 0 {
                    return refuse("repositories within repositories, deeper than is looked at");
                }
                self.is_plain(&inner, changes, depth - 1)?;
            }
        }
        Ok(())
    }

    /// Whether a directory that is copied or moved contains git settings.
    pub(super) fn holds_repository(&self, word: &ShellWord) -> bool {
        self.classifier.disk
            && self
                .classifier
                .resolve(&word.text)
                .iter()
                .any(|path| holds_repository(path))
    }
}

fn holds_repository(path: &Path) -> bool {
    if path.file_name().is_some_and(|name| name == ".git") || is_bare(path) {
        return true;
    }
    let mut waiting = vec![path.to_path_buf()];
    let mut seen = 0;
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            seen += 1;
            if seen > ENTRIES || entry.file_name() == ".git" || entry.file_name() == "HEAD" {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    false
}

fn is_bare(dir: &Path) -> bool {
    dir.join("HEAD").exists() && dir.join("objects").exists() && dir.join("refs").exists()
}

/// The repository that git finds from `dir`: in it or in a directory above.
fn find(dir: &Path) -> Option<Repository> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    for dir in dir.ancestors() {
        let entry = dir.join(".git");
        let data = if entry.is_dir() {
            Some(entry)
        } else if entry.is_file() {
            let text = std::fs::read_to_string(&entry).unwrap_or_default();
            let target = text.strip_prefix("gitdir:").unwrap_or_default().trim();
            Some(dir.join(target))
        } else {
            is_bare(dir).then(|| dir.to_path_buf())
        };
        if let Some(data) = data {
            let common = std::fs::read_to_string(data.join("commondir"))
                .map_or_else(|_| data.clone(), |text| data.join(text.trim()));
            return Some(Repository {
                data,
                common,
                files: dir.to_path_buf(),
            });
        }
    }
    None
}

/// The first hook that would run. Even reading may write the index.
fn active_hook(dir: &Path, changes: bool) -> Option<String> {
    let entries = std::fs::read_dir(dir).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let runs = std::fs::metadata(entry.path())
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
        let is_hook = !name.contains('.') && !name.starts_with('_');
        let used = if changes {
            !ELSEWHERE.split_whitespace().any(|known| known == name)
        } else {
            name == "post-index-change"
        };
        (runs && is_hook && used).then_some(name)
    })
}

impl GitSetting {
    fn name(&self) -> String {
        match &self.part {
            Some(part) => format!("{}.{part}.{}", self.section, self.key),
            None => format!("{}.{}", self.section, self.key),
        }
    }

    /// Names no program and no other config file.
    fn is_plain(&self) -> bool {
        let listed = |list: &str| list.split_whitespace().any(|known| known == self.key);
        let is_switch = matches!(
            self.value.to_ascii_lowercase().as_str(),
            "" | "true" | "false" | "yes" | "no" | "on" | "off" | "0" | "1"
        );
        let words = self
            .value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " -_".contains(c));
        let address = !self.value.contains("::") && !self.value.starts_with(['-', '!']);
        match (self.section.as_str(), self.part.is_some()) {
            ("core", false) => {
                listed(PLAIN_CORE)
                    || self.key == "fsmonitor" && is_switch
                    || self.key == "pager" && words && is_known_pager(&self.value)
            }
            ("pager", false) => is_switch || words && is_known_pager(&self.value),
            ("remote", _) => listed(PLAIN_REMOTE) && address,
            ("branch", _) => self.key != "mergeoptions",
            ("submodule", _) => address,
            ("url", _) => address && self.part.as_ref().is_some_and(|part| !part.contains("::")),
            ("commit", false) => self.key != "template",
            ("init", false) => self.key != "templatedir",
            ("merge", false) => true,
            ("diff", false) => self.key != "external",
            ("diff", true) => listed(PLAIN_DRIVER),
            ("credential", _) => self.key != "helper" || words && !self.value.is_empty(),
            ("lfs", _) => {
                !self.name().contains("customtransfer") && !self.name().contains("extension")
            }
            ("filter", true) => {
                self.part.as_deref() == Some("lfs") && (is_switch || lfs_commands(&self.value))
            }
            (section, _) => PLAIN_SECTIONS
                .split_whitespace()
                .any(|known| known == section),
        }
    }
}

fn is_known_pager(value: &str) -> bool {
    matches!(value.split(' ').next(), Some("cat" | "less" | "more"))
}

fn lfs_commands(value: &str) -> bool {
    matches!(
        value,
        "git-lfs clean -- %f"
            | "git-lfs smudge -- %f"
            | "git-lfs smudge --skip -- %f"
            | "git-lfs filter-process"
            | "git-lfs filter-process --skip"
    )
}

/// The settings of a file, or `None` if its syntax is not modelled.
fn settings(text: &str) -> Option<Vec<GitSetting>> {
    let mut found = Vec::new();
    let mut section = String::new();
    let mut part = None;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let end = rest.find(']')?;
            let name = &rest[..end];
            line = rest[end + 1..].trim();
            let (first, second) = if let Some((first, second)) = name.split_once([' ', '\t']) {
                let second = second.trim().strip_prefix('"')?.strip_suffix('"')?;
                (first, Some(second))
            } else if let Some((first, second)) = name.split_once('.') {
                (first, Some(second))
            } else {
                (name, None)
            };
            section = first.to_ascii_lowercase();
            part = second.map(str::to_owned);
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.ends_with('\\') {
            return None;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        found.push(GitSetting {
            section: section.clone(),
            part: part.clone(),
            key: key.trim().to_ascii_lowercase(),
            value: value.trim().trim_matches('"').to_owned(),
        });
    }
    Some(found)
}

/// Paths in the index that are repositories of their own. `None`: its format is not modelled.
fn linked_repositories(index: &Path) -> Option<Vec<String>> {
    let Ok(data) = std::fs::metadata(index) else {
        return Some(Vec::new());
    };
    if data.len() > INDEX {
        return None;
    }
    let bytes = std::fs::read(index).ok()?;
    let number = |at: usize| -> Option<u32> {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
    };
    let version = number(4)?;
    if bytes.get(..4)? != b"DIRC" || !(2..=3).contains(&version) {
        return None;
    }
    let mut links = Vec::new();
    let mut at = 12;
    for _ in 0..number(8)? {
        // Ten numbers, a 20-byte hash and the flags precede the name.
        let mode = number(at + 24)?;
        let flags = u16::from_be_bytes([*bytes.get(at + 60)?, *bytes.get(at + 61)?]);
        let name = at + if flags & 0x4000 != 0 { 64 } else { 62 };
        let length = bytes.get(name..)?.iter().position(|byte| *byte == 0)?;
        if mode >> 12 == 0o16 {
            links.push(String::from_utf8_lossy(&bytes[name..name + length]).into_owned());
        }
        at += (name + length - at + 8) / 8 * 8;
    }
    // The rest of the index may be in another file.
    (bytes.get(at..at + 4) != Some(b"link".as_slice())).then_some(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_plain(text: &str) -> bool {
        settings(text).is_some_and(|found| found.iter().all(GitSetting::is_plain))
    }

    #[test]
    fn settings_that_name_programs_are_not_plain() {
        for text in [
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = true\n",
            "[remote \"origin\"]\n\turl = git@host:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\tname = A\n",
            "[diff \"rust\"]\n\txfuncname = x\n[core]\n\tpager = less -FRX\n",
        ] {
            assert!(is_plain(text), "{text}");
        }
        for text in [
            "[core]\n\tfsmonitor = ./run\n",
            "[core] fsmonitor = ./run\n",
            "[CORE]\nFSMonitor=./run",
            "[core]\n\tsshCommand = ./run\n",
            "[core]\n\tpager = ./run\n",
            "[core]\n\tpager = less; ./run\n",
            "[diff \"x\"]\n\ttextconv = ./run\n",
            "[diff]\n\texternal = ./run\n",
            "[diff.x]\n\tcommand = ./run\n",
            "[filter \"x\"]\n\tclean = ./run\n",
            "[filter \"lfs\"]\n\tclean = git-lfs clean; ./run\n",
            "[include]\n\tpath = ../other\n",
            "[includeIf \"gitdir:/\"]\n\tpath = x\n",
            "[merge \"x\"]\n\tdriver = ./run\n",
            "[gpg]\n\tprogram = ./run\n",
            "[credential]\n\thelper = !./run\n",
            "[remote \"o\"]\n\tuploadpack = ./run\n",
            "[remote \"o\"]\n\turl = ext::./run\n",
            "[submodule \"s\"]\n\tupdate = !./run\n",
            "[core]\n\tfsmonitor = \\\n./run\n",
        ] {
            assert!(!is_plain(text), "{text}");
        }
    }
}
