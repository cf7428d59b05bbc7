//! Parses git config: which settings execute nothing, and which files the others name.

use std::path::{Path, PathBuf};

use hermes_core::paths::lexically_normal;

use super::paths::canonical;
use super::tracked_fs;

/// Larger files are not parsed.
const MAX_SETTINGS: u64 = 256 << 10;
/// Maximum depth of includes.
const MAX_INCLUDED: usize = 4;

/// Keys that execute no program, whatever their value. `*` stands for a subsection.
const HARMLESS_KEYS: &[&str] = &[
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.worktree",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.quotepath",
    "core.excludesfile",
    "blame.ignorerevsfile",
    "mailmap.file",
    "commit.template",
    "core.longpaths",
    "core.hidedotfiles",
    "core.abbrev",
    "core.commentchar",
    "core.compression",
    "core.untrackedcache",
    "extensions.objectformat",
    "extensions.compatobjectformat",
    "extensions.refstorage",
    "extensions.partialclone",
    "extensions.preciousobjects",
    "extensions.relativeworktrees",
    "remote.*.url",
    "remote.*.pushurl",
    "remote.*.fetch",
    "remote.*.push",
    "remote.*.mirror",
    "remote.*.prune",
    "remote.*.tagopt",
    "remote.*.promisor",
    "remote.*.partialclonefilter",
    "branch.*.remote",
    "branch.*.pushremote",
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.description",
    "branch.*.vscode-merge-base",
    "submodule.*.url",
    "submodule.*.active",
    "submodule.*.branch",
    "submodule.*.ignore",
    "submodule.active",
    "submodule.recurse",
    "user.name",
    "user.email",
    "init.defaultbranch",
    "pull.rebase",
    "pull.ff",
    "push.default",
    "push.autosetupremote",
    "push.followtags",
    "fetch.prune",
    "merge.conflictstyle",
    "rebase.autostash",
    "commit.gpgsign",
    "tag.gpgsign",
    "gc.auto",
    "index.version",
    "lfs.repositoryformatversion",
    "lfs.*.access",
];

/// One setting; section and key are in lower case.
struct Setting {
    key: String,
    value: String,
}

/// Whether all settings of a file are known to execute nothing. Unusual syntax counts as unknown.
/// `may_receive`: whether a push to a directory runs nothing.
pub(super) fn are_harmless(file: &Path, may_receive: &dyn Fn(&Path) -> bool) -> bool {
    let Ok(data) = tracked_fs::lstat(file) else {
        return true;
    };
    let dir = file.parent().unwrap_or(file);
    data.is_file()
        && read(file).is_some_and(|text| {
            let (settings, is_plain) = parse(&text);
            is_plain
                && settings.iter().all(|setting| {
                    is_harmless(&setting.key)
                        && (!names_repository(&setting.key)
                            || is_harmless_address(&setting.value, dir, may_receive))
                })
        })
}

/// Keys with the address of another repository. A push to a directory runs the hooks in it.
fn names_repository(key: &str) -> bool {
    ["remote.", "branch.", "submodule."]
        .iter()
        .any(|section| key.starts_with(section))
        && [".url", ".pushurl", ".remote", ".pushremote"]
            .iter()
            .any(|name| key.ends_with(name))
}

/// Another machine, the name of a remote, or a directory in which a push runs nothing.
fn is_harmless_address(value: &str, git_dir: &Path, may_receive: &dyn Fn(&Path) -> bool) -> bool {
    // Git reads another value than the one that is written, or runs a helper that it names.
    if value.contains(['"', '\\', '#', ';']) || value.contains("::") {
        return false;
    }
    let (scheme, rest) = value.split_once("://").unwrap_or(("", value));
    let is_name = !value.contains(['/', ':']);
    let is_remote = match scheme {
        "" => value
            .split('/')
            .next()
            .is_some_and(|host| host.contains(':')),
        "file" => false,
        _ => true,
    };
    // Relative to the work tree, or to a directory without one.
    let starts = [Some(git_dir), git_dir.parent()];
    is_name
        || is_remote
        || starts
            .into_iter()
            .flatten()
            .all(|start| may_receive(&canonical(&lexically_normal(&start.join(rest)))))
}

/// Files and directories named by the settings, relative to `work_tree`, the config's directory or the user's
/// home: programs, hooks, includes. They need not exist.
pub(super) fn files_named_by(
    file: &Path,
    work_tree: Option<&Path>,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    let mut named = Vec::new();
    let mut waiting = vec![(file.to_owned(), 0)];
    while let Some((file, depth)) = waiting.pop() {
        let (Some(text), Some(dir)) = (read(&file), file.parent()) else {
            continue;
        };
        for setting in parse(&text).0 {
            if is_harmless(&setting.key) {
                continue;
            }
            let last = setting.key.rsplit('.').next();
            let is_include = setting.key.starts_with("include") && last == Some("path");
            let bases = [Some(dir), work_tree];
            for path in paths_in(&setting, &bases, home) {
                if is_include && depth < MAX_INCLUDED {
                    waiting.push((path.clone(), depth + 1));
                }
                named.push(path);
            }
        }
    }
    named
}

/// The user's global config files, relative to the home.
pub(super) const GLOBAL_SETTINGS: [&str; 2] = [".gitconfig", ".config/git/config"];

/// Files in a work tree that the user's config makes git run in every repository.
pub(super) fn hooks_named_by_user(
    file: &Path,
    work_tree: Option<&Path>,
    home: &Path,
) -> Vec<PathBuf> {
    let Some(text) = read(file) else {
        return Vec::new();
    };
    let settings = parse(&text).0.into_iter();
    settings
        .filter(|setting| ["core.hookspath", "core.fsmonitor"].contains(&setting.key.as_str()))
        .flat_map(|setting| paths_in(&setting, &[work_tree], Some(home)))
        .collect()
}

/// The value and each of its words as paths. A single word is a program on the search path, unless the key
/// names files.
fn paths_in(setting: &Setting, bases: &[Option<&Path>], home: Option<&Path>) -> Vec<PathBuf> {
    let names_files = ["path", "file", "fsmonitor", "template"]
        .iter()
        .any(|end| setting.key.ends_with(end));
    let value = setting.value.as_str();
    let words = value.split_whitespace().chain([value]);
    let mut paths = Vec::new();
    for word in words {
        let word = word.trim_start_matches('!').trim_matches(['"', '\'']);
        let is_path = names_files || word.contains('/');
        if !is_path || word.is_empty() || word == "." || word == "/" {
            continue;
        }
        match (word.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => paths.push(home.join(rest)),
            _ => paths.extend(bases.iter().flatten().map(|base| base.join(word))),
        }
    }
    paths
}

fn read(file: &Path) -> Option<String> {
    let data = tracked_fs::stat(file).ok()?;
    if !data.is_file() || data.len() > MAX_SETTINGS {
        return None;
    }
    let bytes = tracked_fs::read_bytes(file).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_harmless(key: &str) -> bool {
    HARMLESS_KEYS
        .iter()
        .any(|known| match known.split_once(".*.") {
            Some((section, name)) => key
                .strip_prefix(section)
                .and_then(|rest| rest.strip_prefix('.'))
                .and_then(|rest| rest.strip_suffix(name))
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => key == *known,
        })
}

/// The settings, and whether every line has the plain syntax that git itself writes.
fn parse(text: &str) -> (Vec<Setting>, bool) {
    let mut settings = Vec::new();
    let mut is_plain = true;
    let mut section = String::new();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        // A continued line may hide a setting.
        is_plain &= !line.ends_with('\\');
        let mut rest = line;
        if let Some(after) = line.strip_prefix('[') {
            // Git ends a section header at the first bracket outside of quotes.
            let Some((name, behind)) = section_header(after) else {
                is_plain = false;
                continue;
            };
            section = section_name(name);
            is_plain &= is_plain_section(name);
            rest = behind.trim();
            is_plain &= rest.is_empty();
        }
        if rest.is_empty() || rest.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = rest.split_once('=').unwrap_or((rest, "true"));
        let key = key.trim().to_ascii_lowercase();
        is_plain &= key
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
        settings.push(Setting {
            key: format!("{section}.{key}"),
            value: value.trim().trim_matches('"').to_owned(),
        });
    }
    (settings, is_plain)
}

/// The name of a section, and the rest of the line.
fn section_header(after: &str) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, letter) in after.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ']' if !is_quoted => return Some((&after[..at], &after[at + 1..])),
            _ => {}
        }
    }
    None
}

/// Whether a section name is written as git writes it: a word, and a quoted subsection.
fn is_plain_section(name: &str) -> bool {
    let (word, about) = match name.split_once(' ') {
        Some((word, about)) => (word, Some(about)),
        None => (name, None),
    };
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let is_quoted =
        |about: &str| about.len() >= 2 && about.starts_with('"') && about.ends_with('"');
    !word.is_empty() && word.chars().all(is_word) && about.is_none_or(is_quoted)
}

fn section_name(name: &str) -> String {
    match name.split_once('"') {
        Some((section, rest)) => {
            let rest = rest.strip_suffix('"').unwrap_or(rest);
            format!("{}.{rest}", section.trim().to_ascii_lowercase())
        }
        None => name.trim().to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, text).unwrap();
        are_harmless(&file, &|path| path.starts_with("/protected"))
    }

    #[test]
    fn settings_of_a_fresh_clone_are_harmless_and_nothing_else_is() {
        assert!(judged(
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = https://x/y.git\n\t\
             fetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"a.b\"]\n\tmerge = refs/heads/main\n# note\n"
        ));
        assert!(judged("[branch \"a]b\"]\n\tmerge = refs/heads/main\n"));
        for address in [
            "/protected/x",
            "git@host:a/b.git",
            "ssh://h/x",
            "origin",
            ".",
        ] {
            let text = format!(
                "[remote \"a\"]\n\turl = {address}\n[branch \"b\"]\n\tremote = {address}\n"
            );
            assert!(judged(&text), "{address}");
        }
        for address in [
            "/tmp/x",
            "file:///tmp/x",
            "../x",
            "x/y",
            "/protected/../tmp/x",
            "ext::sh -c x",
            "\"/tmp\"/x",
        ] {
            let text = format!("[remote \"a\"]\n\tpushurl = {address}\n");
            assert!(!judged(&text), "{address}");
        }
        for text in [
            "[core]\n\tfsmonitor = ./evil\n",
            "[CORE]\n\tFsMonitor = ./evil\n",
            "[core] fsmonitor = evil\n",
            "[core]\n\tbare = false\\\n",
            "[include]\n\tpath = ../x\n",
            "[includeIf \"gitdir:/\"]\n\tpath = x\n",
            "[submodule \"x\"]\n\tupdate = !evil\n",
            "[filter \"x\"]\n\tclean = evil\n",
            "[remote \"origin\"]\n\tuploadpack = evil\n",
            "[remote \"a.url\"]\n\tvcs = evil\n",
            "[alias]\n\tst = !evil\n",
            "[core\n\tbare = x\n",
            "[extensions]\n\tworktreeConfig = true\n",
            // A bracket in what git takes for a comment or a value.
            "[core]fsmonitor = ./evil #]\n",
            "[core]fsmonitor = ./evil ;]\n",
            "[core]\tfsmonitor = \"./evil ]\"\n",
            "[core] fsmonitor = ./evil]\n[core]\n\tbare = false\n",
            "[remote \"a\"]vcs = evil #\"]\n",
            "[remote \"a\\\"]\n\tvcs = evil\n[b \"]\n\turl = x\n",
            "[core.x]\n\tbare = false\n",
            "[core \"x]\n\tbare = false\n",
        ] {
            assert!(!judged(text), "{text}");
        }
    }

    /// Pieces that git reads in different ways depending on what is around them.
    const PIECES: &[&str] = &[
        "[core]",
        "[core",
        "[remote \"a\"]",
        "[remote \"",
        "[",
        "]",
        "\"",
        "\\",
        "#",
        ";",
        "=",
        " ",
        "\t",
        "\n",
        "\n\t",
        "\r\n",
        "\u{feff}",
        "bare = false",
        "fsmonitor = evil",
        "fsmonitor",
        "url = x",
        "vcs = evil",
        "core",
        "evil",
    ];

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(192))]

        /// Whatever git finds in a file of settings, it is not called harmless unless all of it is.
        #[test]
        fn nothing_that_git_reads_is_overlooked(
            parts in proptest::collection::vec(proptest::sample::select(PIECES), 1..12),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("config");
            std::fs::write(&file, parts.concat()).unwrap();
            let listed = std::process::Command::new("git")
                .args(["config", "--list", "--name-only", "-z", "--file"])
                .arg(&file)
                .output()
                .unwrap();
            let keys = String::from_utf8_lossy(&listed.stdout);
            // What it cannot read it does not obey.
            if listed.status.success() && !keys.split_terminator('\0').all(is_harmless) {
                proptest::prop_assert!(!are_harmless(&file, &|_| true));
            }
        }
    }

    #[test]
    fn files_that_settings_name_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        std::fs::write(
            git.join("config"),
            "[core]\n\thooksPath = scripts/hooks\n[include]\n\tpath = ../shared.config\n[remote \"o\"]\n\turl = ../other\n",
        )
        .unwrap();
        std::fs::write(
            dir.path().join("shared.config"),
            "[diff \"x\"]\n\ttextconv = tools/show.sh --fast\n",
        )
        .unwrap();
        let named = files_named_by(&git.join("config"), Some(dir.path()), None);
        for name in ["scripts/hooks", ".git/../shared.config", "tools/show.sh"] {
            assert!(named.contains(&dir.path().join(name)), "{name}: {named:?}");
        }
        assert!(!named.iter().any(|path| path.ends_with("other")));
    }
}
