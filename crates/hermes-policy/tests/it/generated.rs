//! Commands that are made up and run: what has an effect must not have been called harmless.
//!
//! Every command that the policy lets run unasked is run by a real bash in a directory of its own, with
//! a program on its path that leaves a mark, and where the machine has them in namespaces of its own: without a
//! network, among its own processes, with the rest of the disk read-only. The generator only writes commands whose worst effect is
//! that mark or a file below that directory. `HERMES_POLICY_CASES` sets how many are drawn,
//! `HERMES_POLICY_SEED` which.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use hermes_policy::{CommandClass, CommandRequest, ConfinementLevel, Gate, PolicyConfig};

use crate::corners::{CORNERS, EVERY_DAY, PLANT};
use crate::pieces::{CODE, INDIRECT, READING, WRITING};
use crate::support::{config, gate, request};
use crate::words::{LONG, OPERANDS, PROGRAMS, TAILS};

const SECRET: &str = "planted-secret-4711";

pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    pub(crate) fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A command around another one.
fn nested(command: &str, draw: &mut Draw) -> String {
    match draw.below(24) {
        0 => format!("bash -c {}", quoted(command)),
        1 => format!("({command}\n)"),
        2 => format!("{{ {command}\n}}"),
        3 => format!("if true; then {command}\nfi"),
        4 => format!("for i in 1; do {command}\ndone"),
        5 => format!("true && {command}"),
        6 => format!("f() {{ {command}\n}}; f"),
        7 => format!("echo \"$({command}\n)\""),
        8 => format!("{command}\ntrue"),
        9 => format!("case a in *) {command}\n;; esac"),
        10 => format!("[[ -n a ]] && {command}"),
        11 => format!("timeout 5 bash -c {}", quoted(command)),
        12 => format!("while true; do {command}\nbreak; done"),
        13 => format!("! {{ {command}\n}}"),
        14 => format!("time {{ {command}\n}}"),
        15 => format!("{{ {command}\n}} | cat"),
        16 => format!("echo x | {{ {command}\n}}"),
        17 => format!("x=$({command}\n); echo \"$x\""),
        18 => format!("until false; do {command}\nbreak; done"),
        19 => format!("false || {{ {command}\n}}"),
        20 => format!("cat <({command}\n)"),
        21 => format!("cat <<END\n$({command}\n)\nEND"),
        22 => format!("env bash -c {}", quoted(command)),
        _ => command.to_owned(),
    }
}

fn random_command(draw: &mut Draw) -> String {
    let mut words = vec![draw.of(PROGRAMS).to_owned()];
    for _ in 0..draw.below(5) {
        let word = match draw.below(6) {
            0 => format!("--{}", draw.of(LONG)),
            1 => {
                let letter =
                    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0"[draw.below(53)];
                format!("-{}", char::from(letter))
            }
            2 => {
                let letter =
                    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0"[draw.below(53)];
                format!("-{}{}", char::from(letter), draw.of(OPERANDS))
            }
            _ => draw.of(OPERANDS).to_owned(),
        };
        words.push(word);
    }
    let assigned = if draw.below(4) == 0 { "x=.env; " } else { "" };
    format!("{assigned}{}{}", words.join(" "), draw.of(TAILS))
}

/// A workspace with a repository, secrets and a program that leaves a mark.
pub(crate) struct Yard {
    dir: tempfile::TempDir,
    /// Commands run in namespaces of their own.
    apart: bool,
    plant: &'static str,
}

/// `$0` is the yard, `$1` the workspace; the rest is the command. Next to it runs a process with a secret
/// among its variables.
const APART: &str = "mount --make-rprivate / 2>/dev/null; mount --bind \"$0\" \"$0\" 2>/dev/null; \
    mount -o remount,bind,ro / 2>/dev/null; mount -o remount,bind,rw \"$0\" 2>/dev/null";
const BESIDE: &str = "(exec env KEY_OF_ANOTHER=planted-secret-4711 sleep 20) >/dev/null 2>&1 & cd \"$1\"; shift; \
    timeout -k 1 10 \"$@\"; kill $! 2>/dev/null";
const UNSHARE: [&str; 6] = [
    "--map-root-user",
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--mount-proc",
];

fn has_namespaces() -> bool {
    Command::new("unshare")
        .args(UNSHARE)
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Yard {
    fn new() -> Self {
        Self::planted("true")
    }

    pub(crate) fn planted(plant: &'static str) -> Self {
        let yard = Self {
            dir: tempfile::tempdir().unwrap(),
            apart: has_namespaces(),
            plant,
        };
        yard.fill();
        yard
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("home/work")
    }

    pub(crate) fn fill(&self) {
        let work = self.workspace();
        let _ = std::fs::remove_dir_all(self.dir.path().join("home"));
        for dir in ["bin", "alt", "sub", "template/hooks"] {
            std::fs::create_dir_all(work.join(dir)).unwrap();
        }
        std::fs::create_dir_all(self.dir.path().join("home/.ssh")).unwrap();
        let write = |path: &str, text: &str| std::fs::write(work.join(path), text).unwrap();
        write("data.txt", "one\ntwo\n");
        write("big.txt", &"line of text that is long enough\n".repeat(500));
        write(".env", &format!("KEY={SECRET}\n"));
        write("env.sh", "mark\n");
        write("Makefile", "all:\n\tmark\n");
        write(
            "p.diff",
            "--- a/data.txt\n+++ b/data.txt\n@@ -1 +1 @@\n-one\n+uno\n",
        );
        std::fs::write(
            self.dir.path().join("home/.ssh/id_ed25519"),
            format!("{SECRET}\n"),
        )
        .unwrap();
        let mark = format!("#!/bin/sh\n: > {}\n", self.mark().display());
        for program in [
            "bin/mark",
            "alt/ls",
            "template/hooks/post-commit",
            "template/hooks/pre-commit",
        ] {
            write(program, &mark);
            std::fs::set_permissions(work.join(program), PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink("../.ssh/id_ed25519", work.join("link")).unwrap();
        self.bash("tar --mtime=@0 -cf in.tar data.txt; git init -q .; git add data.txt Makefile; git -c user.name=a -c user.email=b commit -qm x; rm -f home");
        self.bash(self.plant);
        let _ = std::fs::remove_file(self.mark());
    }

    pub(crate) fn mark(&self) -> PathBuf {
        self.dir.path().join("mark")
    }

    pub(crate) fn bash(&self, command: &str) -> String {
        let work = self.workspace();
        let mut run = if self.apart {
            let mut run = Command::new("unshare");
            run.args(UNSHARE).arg("sh");
            run.args(["-c", &format!("{APART}; {BESIDE}")]);
            run
        } else {
            let mut run = Command::new("sh");
            run.args(["-c", BESIDE]);
            run
        };
        let output = run
            .arg(self.dir.path())
            .arg(&work)
            .args(["bash", "--noprofile", "--norc", "-c", command])
            .current_dir(&work)
            .env_clear()
            .env(
                "PATH",
                format!(
                    "/usr/local/bin:/usr/bin:/bin:{}",
                    work.join("bin").display()
                ),
            )
            .env("HOME", self.dir.path().join("home"))
            .env("TMPDIR", self.dir.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        text
    }

    /// What lies in the workspace, without what git keeps for itself.
    pub(crate) fn state(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![self.dir.path().join("home")];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    if entry.file_name() != ".git" {
                        waiting.push(path.clone());
                    }
                    found.insert(path, Vec::new());
                } else if kind.is_file() {
                    let text = std::fs::read(&path).unwrap_or_default();
                    found.insert(path, text);
                } else {
                    found.insert(path, b"other".to_vec());
                }
            }
        }
        found
    }

    fn gate(&self) -> Gate {
        Gate::new(PolicyConfig {
            user_home: self.dir.path().join("home"),
            hermes_home: self.dir.path().join("home/.hermes"),
            ..config()
        })
    }

    pub(crate) fn class(&self, command: &str) -> CommandClass {
        self.gate()
            .assess(&CommandRequest::terminal(command, &self.workspace()))
            .class
    }
}

pub(crate) fn cases() -> usize {
    number("HERMES_POLICY_CASES").unwrap_or(300)
}

pub(crate) fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `command` where the policy lets it run unasked, and says what was wrong with that.
fn judge(
    yard: &Yard,
    before: &BTreeMap<PathBuf, Vec<u8>>,
    command: &str,
) -> (bool, Option<String>) {
    let class = yard.class(command);
    if class > CommandClass::WorkspaceWrite {
        return (false, None);
    }
    let output = yard.bash(command);
    let marked = yard.mark().exists();
    let told = output.contains(SECRET);
    let changed = (class == CommandClass::ReadOnly)
        .then(|| difference(before, &yard.state()))
        .flatten();
    let wrong = match (marked, told, &changed) {
        (true, ..) => Some(format!("{command:?} is {class} and runs code")),
        (_, true, _) => Some(format!("{command:?} is {class} and reads a secret")),
        (.., Some(path)) => Some(format!(
            "{command:?} is {class} and changes {}",
            path.display()
        )),
        _ => None,
    };
    if marked || class != CommandClass::ReadOnly || changed.is_some() {
        yard.fill();
    }
    (true, wrong)
}

fn difference(
    before: &BTreeMap<PathBuf, Vec<u8>>,
    after: &BTreeMap<PathBuf, Vec<u8>>,
) -> Option<PathBuf> {
    let gone = before.keys().find(|path| !after.contains_key(*path));
    let other = after
        .iter()
        .find(|(path, text)| before.get(*path) != Some(text))
        .map(|(path, _)| path);
    gone.or(other).cloned()
}

pub(crate) fn have_tools() -> bool {
    ["bash", "timeout", "git", "tar"].iter().all(|tool| {
        std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).exists()))
    })
}

#[test]
fn what_has_an_effect_is_not_called_harmless() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::new();
    let before = yard.state();
    let mut draw = Draw(number("HERMES_POLICY_SEED").unwrap_or(1_234_567) as u64 | 1);
    let mut wrong = Vec::new();
    let mut ran = 0;
    let fixed = CODE
        .iter()
        .chain(INDIRECT)
        .chain(READING)
        .chain(WRITING)
        .map(|text| text.replace('§', "mark"));
    let mut commands: Vec<String> = fixed.collect();
    for at in 0..commands.len() {
        commands.push(nested(&commands[at].clone(), &mut draw));
    }
    for _ in 0..cases() {
        let command = random_command(&mut draw);
        commands.push(if draw.below(3) == 0 {
            nested(&command, &mut draw)
        } else {
            command
        });
    }
    for command in &commands {
        let (was_run, problem) = judge(&yard, &before, command);
        ran += usize::from(was_run);
        wrong.extend(problem);
    }
    assert!(
        wrong.is_empty(),
        "{} wrong of {ran} that ran:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        ran > commands.len() / 20,
        "only {ran} of {} ran: nothing was tried",
        commands.len()
    );
}

/// Each of these had an effect while it was called harmless.
#[test]
fn corners_are_not_called_harmless() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::planted(PLANT);
    let before = yard.state();
    let mut draw = Draw(31);
    let mut wrong = Vec::new();
    for text in CORNERS {
        let command = text.replace('§', "mark");
        for command in [command.clone(), nested(&command, &mut draw)] {
            wrong.extend(judge(&yard, &before, &command).1);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn what_is_written_every_day_is_not_asked_about() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::new();
    let asked: Vec<&&str> = EVERY_DAY
        .iter()
        .filter(|command| yard.class(command) > CommandClass::WorkspaceWrite)
        .collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

/// The constructs above do run code where they are run: the test would notice.
#[test]
fn the_constructs_do_run_code() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let yard = Yard::new();
    let mut fired = 0;
    for text in CODE.iter().filter(|text| {
        text.starts_with("x='") || text.starts_with("compgen") || text.starts_with("test")
    }) {
        yard.bash(&text.replace('§', "mark"));
        fired += usize::from(yard.mark().exists());
        let _ = std::fs::remove_file(yard.mark());
    }
    assert!(fired >= 8, "only {fired} constructs ran code");
}

#[test]
fn a_forbidden_command_is_forbidden_in_every_construct() {
    let gate = gate();
    let mut draw = Draw(99);
    let mut wrong = Vec::new();
    // These name the program that leaves a mark themselves, or only make a word of it.
    let carriers = CODE
        .iter()
        .filter(|text| text.contains('§') && !text.contains("PATH="));
    for text in carriers {
        for forbidden in ["reboot", "rm -rf /"] {
            if forbidden.contains(' ')
                && ["s/.*/", "x=§", "echo §", "bisect"]
                    .iter()
                    .any(|part| text.contains(part))
            {
                continue;
            }
            let command = text.replace('§', forbidden);
            for command in [command.clone(), nested(&command, &mut draw)] {
                let class = gate
                    .assess(&request(&command, ConfinementLevel::None))
                    .class;
                if class != CommandClass::Forbidden {
                    wrong.push(format!("{command:?} is {class}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// What bash itself does not accept as a command is never called harmless.
#[test]
fn what_bash_does_not_read_is_not_called_harmless() {
    if !have_tools() {
        eprintln!("skipped: bash, timeout, git and tar are needed");
        return;
    }
    let mut draw = Draw(7);
    let pieces = [
        "ls",
        "echo",
        "a",
        "$(",
        ")",
        "\"",
        "'",
        "\\",
        ";",
        "&&",
        "|",
        "&",
        "<<E",
        "\nE\n",
        "<",
        ">",
        "/dev/null",
        "{",
        "}",
        "(",
        "[[",
        "]]",
        "-n",
        "if",
        "then",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "case",
        "esac",
        "${x}",
        "$x",
        "a=b",
        "#",
        "!",
        "\n",
        "`",
        "$((",
        "))",
        "1",
    ];
    for _ in 0..cases() {
        let text: Vec<&str> = (0..=draw.below(9)).map(|_| draw.of(&pieces)).collect();
        let text = text.join(if draw.below(3) == 0 { "" } else { " " });
        let class = gate().assess(&request(&text, ConfinementLevel::None)).class;
        if class > CommandClass::ReadOnly {
            continue;
        }
        let read = Command::new("bash")
            .args(["-n", "-c", &text])
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(read.success(), "bash does not read {text:?}");
    }
}
