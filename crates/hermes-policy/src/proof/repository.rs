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
/// Parts of names of settings that name a program, or a file that git writes.
const RUNNING_KEYS: [&str; 9] = [
    "hook", "command", "program", "helper", "editor", "pager", "cookie", "proxy", "socket",
];
const PLAIN_CORE: &str = "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf \
    quotepath abbrev compression bigfilethreshold commentchar commentstring whitespace sharedrepository preloadindex untrackedcache trustctime \
    checkstat protectntfs protecthfs hidedotfiles longpaths sparsecheckout sparsecheckoutcone warnambiguousrefs multipackindex commitgraph \
    packedgitlimit packedgitwindowsize deltabasecachelimit fscache excludesfile attributesfile fsync fsyncmethod";
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
        for repository in dirs.iter().flat_map(|dir| find(dir)) {
            self.is_plain(&repository, changes, DEPTH)?;
        }
        Ok(())
    }

    fn is_plain(&self, repository: &Repository, changes: bool, depth: usize) -> ProofResult {
        let mut hooks = vec![repository.common.join("hooks")];
        let mut is_sha256 = false;
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
                    ("core", "hookspath") if changes && self.writes => {
                        return refuse("hooks may be put in place by the same command");
                    }
                    ("core", "hookspath") => {
                        let starts = [&repository.files, &repository.data];
                        hooks.extend(starts.map(|dir| dir.join(self.expanded(&setting.value))));
                    }
                    ("core", "worktree") => {
                        let place = repository.data.join(self.expanded(&setting.value));
                        let place = place.canonicalize().unwrap_or(place);
                        let mut samples = self.samples().into_iter();
                        let is_private = samples.any(|sample| sample.starts_with(&place));
                        if is_private || !self.classifier.is_inside(&place) {
                            return refuse("this repository has its files outside the workspace");
                        }
                    }
                    ("extensions", "objectformat") => is_sha256 = setting.value != "sha1",
                    _ => {}
                }
            }
        }
        if let Some(hook) = hooks.iter().find_map(|dir| active_hook(dir, changes)) {
            return refuse(format!("this repository runs its hook {hook}"));
        }
        let links = linked_repositories(&repository.data.join("index"));
        let Some(links) = links.filter(|_| !is_sha256) else {
            return refuse("the list of files of this repository is not understood");
        };
        for link in links {
            let dir = repository.files.join(link);
            // git enters each of them.
            let inner = find(&dir).into_iter();
            for inner in inner.filter(|inner| inner.files.starts_with(&dir)) {
                if depth == 0 {
                    return refuse("repositories within repositories, deeper than is looked at");
                }
                self.is_plain(&inner, changes, depth - 1)?;
            }
        }
        Ok(())
    }

    /// A path in a setting, with `~` for the user's home.
    fn expanded(&self, value: &str) -> PathBuf {
        match value.strip_prefix("~/") {
            Some(below) => self.classifier.user_home().join(below),
            None => PathBuf::from(value),
        }
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

/// Whether git takes a directory for a repository, whatever its name is: objects and references may lie in
/// another directory that it names.
fn is_bare(dir: &Path) -> bool {
    let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

/// The repositories that git may use in `dir`: in it or in a directory above. Git passes over a `.git` that is
/// none, so that the next one above counts too.
fn find(dir: &Path) -> Vec<Repository> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let mut found = Vec::new();
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
            let is_certain = is_bare(&data);
            found.push(Repository {
                data,
                common,
                files: dir.to_path_buf(),
            });
            if is_certain {
                break;
            }
        }
    }
    found
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
        // Quotes, escapes and comments: git reads another value than the one that is written.
        let is_literal = !self.value.contains(['"', '\\', '#', ';']);
        let address =
            is_literal && !self.value.contains("::") && !self.value.starts_with(['-', '!']);
        // Git also expands `~user` and `%(prefix)`.
        let place = is_literal
            && !self.value.starts_with('%')
            && (!self.value.starts_with('~') || self.value.starts_with("~/"));
        match (self.section.as_str(), self.part.is_some()) {
            ("core", false) if matches!(self.key.as_str(), "hookspath" | "worktree") => place,
            ("extensions", false) if self.key == "objectformat" => is_literal,
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
            (section, _) => {
                let mut known = PLAIN_SECTIONS.split_whitespace();
                // `gc.recentObjectsHook`, `http.cookieFile`: also in these, and in those to come.
                known.any(|known| known == section)
                    && !RUNNING_KEYS.iter().any(|part| self.key.contains(part))
            }
        }
    }
}

/// A pager with options that only say how it shows text: others name files with settings of it.
fn is_known_pager(value: &str) -> bool {
    let mut words = value.split(' ');
    let is_known = matches!(words.next(), Some("cat" | "less" | "more"));
    let mut options = words.filter(|word| !word.is_empty());
    is_known
        && options.all(|option| {
            let letters = option.strip_prefix('-').unwrap_or("-");
            letters.chars().all(|c| "eEFiImMnNqQRrSsWwX".contains(c))
        })
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

/// The settings of a file, or `None` if its syntax is not modelled: only what git itself writes is.
fn settings(text: &str) -> Option<Vec<GitSetting>> {
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
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
            if !is_word(first) || second.is_some_and(|second| second.contains(['"', '\\'])) {
                return None;
            }
            section = first.to_ascii_lowercase();
            part = second.map(str::to_owned);
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        // Another section may begin on the same line, and a line may continue the one before.
        if line.ends_with('\\') || !is_word(key.trim()) {
            return None;
        }
        let value = value.trim();
        let inner = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'));
        found.push(GitSetting {
            section: section.clone(),
            part: part.clone(),
            key: key.trim().to_ascii_lowercase(),
            value: inner.unwrap_or(value).to_owned(),
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
    // The rest of the index may be in another file, which an extension names.
    while let (Some(name), Some(length)) = (bytes.get(at..at + 4), number(at + 4)) {
        if name == b"link" {
            return None;
        }
        at = at
            .checked_add(8)?
            .checked_add(usize::try_from(length).ok()?)?;
    }
    Some(links)
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
            "[user][core]fsmonitor = ./run\n",
            "[user] [core] fsmonitor = ./run\n",
            "[core]\n\thooksPath = \"h\" # x\n",
            "[core]\n\thooksPath = h ; x\n",
            "[core]\n\thooksPath = ~other/h\n",
            "[core]\n\tpager = less -kkeys\n",
            "[gc]\n\trecentObjectsHook = ./run\n",
            "[http]\n\tcookieFile = ./x\n",
            "[remote \"o\"]\n\turl = ext:\":\"./run\n",
            "[a b]\n\tc = d\n",
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
