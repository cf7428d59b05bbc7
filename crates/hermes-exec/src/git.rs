//! Runs git, without limits, on a repository that confined commands can write to: nothing in the repository can
//! make it execute a program. It gets only our settings (not those of the system, the user or the repository),
//! no hooks and no variables of this process.
//!
//! Settings of a repository cannot be disabled one by one, because filters and converters have arbitrary names.
//! So git sees an empty repository of ours with the objects and the index of the real one.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use hermes_core::programs::own_search_path;
use tokio::process::Command;

use crate::scratch::Scratch;

/// Longer than any legitimate query takes.
const LIMIT: Duration = Duration::from_secs(30);
/// Files that point to a repository are short.
const MAX_POINTER: u64 = 4096;
/// The empty tree, which every git knows.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
/// Settings that control how files are written and objects are named. They execute nothing, and without them
/// every file would look changed.
const HARMLESS: &str = "^(core\\.(autocrlf|eol|filemode|symlinks|ignorecase|safecrlf|precomposeunicode)\
    |extensions\\.objectformat)$";

/// Plain text diffs without external programs.
const PLAIN_DIFF: [&str; 4] = [
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    // Entering a submodule would start another git there, with its settings.
    "--ignore-submodules=dirty",
];

/// A git command with only our settings.
pub fn neutral<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("git");
    command
        .env_clear()
        .env("PATH", own_search_path())
        .env("LC_ALL", "C")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "")
        .env("GIT_PAGER", "cat")
        .args([
            "--no-pager",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
        ])
        .args(["-c", "credential.helper=", "-c", "protocol.allow=never"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// A repository that may contain malicious settings.
pub struct ForeignRepository {
    work_tree: PathBuf,
    index: PathBuf,
    objects: PathBuf,
    /// `None`: there is no commit yet.
    head: Option<String>,
    /// Our repository, without its settings.
    own: Scratch,
}

impl ForeignRepository {
    /// The repository around `dir`, if any. No confined command can write to `own`.
    pub async fn around(dir: &Path, own: &Path) -> io::Result<Option<Self>> {
        let Some((work_tree, git_dir)) = find(dir) else {
            return Ok(None);
        };
        let common = read_pointer(&git_dir.join("commondir"))
            .map_or_else(|| git_dir.clone(), |path| git_dir.join(path));
        std::fs::create_dir_all(own)?;
        let own = Scratch::within(own, "run-")?;
        let head = text(
            // This executes nothing: neither the index nor files are read.
            neutral(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
                .env("GIT_DIR", &git_dir)
                .env("GIT_COMMON_DIR", &common),
        )
        .await
        .ok();
        let kept = harmless_settings(&common.join("config")).await;
        for name in ["objects", "refs"] {
            std::fs::create_dir(own.path().join(name))?;
        }
        std::fs::write(own.path().join("HEAD"), "ref: refs/heads/none\n")?;
        std::fs::write(own.path().join("config"), kept)?;
        Ok(Some(Self {
            work_tree,
            index: git_dir.join("index"),
            objects: common.join("objects"),
            head,
            own,
        }))
    }

    /// The last commit, or the empty tree if there is none.
    pub fn head(&self) -> &str {
        self.head.as_deref().unwrap_or(EMPTY_TREE)
    }

    /// Runs git with these arguments in `dir` and returns its output.
    pub async fn ask(&self, dir: &Path, args: &[&str]) -> io::Result<String> {
        text(
            neutral(args.iter().copied())
                .env("GIT_DIR", self.own.path())
                .env("GIT_WORK_TREE", &self.work_tree)
                .env("GIT_INDEX_FILE", &self.index)
                .env("GIT_OBJECT_DIRECTORY", &self.objects)
                .current_dir(dir),
        )
        .await
    }

    /// Changes since the last commit, or staged changes, in all files or in one.
    pub async fn diff(
        &self,
        dir: &Path,
        is_staged: bool,
        path: Option<&str>,
    ) -> io::Result<String> {
        let mut args = vec!["diff"];
        args.extend(PLAIN_DIFF);
        if is_staged {
            args.push("--cached");
        }
        args.push(self.head());
        args.push("--");
        args.extend(path);
        self.ask(dir, &args).await
    }

    /// Changes that are not staged.
    pub async fn unstaged(&self, dir: &Path) -> io::Result<String> {
        let mut args = vec!["diff"];
        args.extend(PLAIN_DIFF);
        self.ask(dir, &args).await
    }

    /// The newest commits with their changes.
    pub async fn commits(&self, dir: &Path, count: usize) -> io::Result<String> {
        let Some(head) = &self.head else {
            return Err(io::Error::other("there is no commit yet"));
        };
        let count = format!("--max-count={count}");
        let mut args = vec!["log", "--patch", &count];
        args.extend(PLAIN_DIFF);
        args.push(head);
        self.ask(dir, &args).await
    }
}

/// Settings without which the repository would be read incorrectly.
async fn harmless_settings(config: &Path) -> String {
    let file = config.to_string_lossy();
    let args = [
        "config",
        "--file",
        &file,
        "--no-includes",
        "--get-regexp",
        HARMLESS,
    ];
    // Most repositories have none of them.
    let found = text(&mut neutral(args)).await.unwrap_or_default();
    let mut kept = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n".to_owned();
    for line in found.lines() {
        let (name, value) = line.split_once(' ').unwrap_or((line, "true"));
        let plain = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric());
        if let Some((section, key)) = name.split_once('.')
            && plain(section)
            && plain(key)
            && plain(value)
        {
            let _ = writeln!(kept, "[{section}]\n\t{key} = {value}");
        }
    }
    kept
}

async fn text(command: &mut Command) -> io::Result<String> {
    let done: Output = tokio::time::timeout(LIMIT, command.output())
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "git does not answer"))??;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        let why = why.lines().next().unwrap_or("git failed").to_owned();
        return Err(io::Error::other(why));
    }
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    Ok(match text.strip_suffix('\n') {
        Some(line) if !line.contains('\n') => line.to_owned(),
        _ => text,
    })
}

/// The work tree and the git directory.
fn find(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let dir = dir.canonicalize().ok()?;
    for above in dir.ancestors() {
        let git = above.join(".git");
        if git.join("HEAD").is_file() {
            return Some((above.to_owned(), git));
        }
        if let Some(target) =
            read_pointer(&git).and_then(|text| text.strip_prefix("gitdir:").map(str::to_owned))
        {
            return Some((above.to_owned(), above.join(target.trim())));
        }
    }
    None
}

/// Reads a short file that names a path.
pub(crate) fn read_pointer(file: &Path) -> Option<String> {
    let data = file.metadata().ok()?;
    if !data.is_file() || data.len() > MAX_POINTER {
        return None;
    }
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned())
}
