//! `sudo` without a keyboard: passes the configured password to its standard input. The password is
//! in no argument, in no environment variable and in no output.

use std::sync::LazyLock;

use bytes::Bytes;
use hermes_exec::Stdin;
use regex::Regex;

static SUDO: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::unwrap_used, reason = "a constant, used by the tests below")]
    Regex::new(r"\bsudo\b").unwrap()
});

/// Asks nothing and fails at once where a password is needed.
const NEVER_ASKS: &str = "sudo() { command sudo -n \"$@\"; }\n";

/// The password comes as the first line of standard input. It is offered only where sudo will read
/// it: `-k` makes it forget that it was asked before, and where none is needed none is sent.
const WITH_PASSWORD: &str = "IFS= read -r __hermes_pass; exec </dev/null\n\
    sudo() {\n\
    if command sudo -k -n true 2>/dev/null; then command sudo -n \"$@\"; return; fi\n\
    { printf '%s\\n' \"$__hermes_pass\"; cat; } | command sudo -k -S -p '' \"$@\"\n\
    }\n";

/// The script to run, and its input.
pub(super) fn prepare(command: &str, password: Option<&str>, pty: bool) -> (String, Stdin) {
    if !SUDO.is_match(command) {
        return (command.to_owned(), Stdin::Closed);
    }
    match password {
        Some(password) if !pty => {
            let script = format!("{WITH_PASSWORD}{command}");
            (script, Stdin::Bytes(Bytes::from(format!("{password}\n"))))
        }
        _ => (format!("{NEVER_ASKS}{command}"), Stdin::Closed),
    }
}

/// What sudo complained about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SudoProblem {
    WrongPassword,
    NeedsPassword,
}

pub(super) fn trouble(command: &str, output: &str) -> Option<SudoProblem> {
    if !SUDO.is_match(command) {
        return None;
    }
    let has = |texts: &[&str]| texts.iter().any(|text| output.contains(text));
    if has(&["Sorry, try again", "incorrect password attempt"]) {
        Some(SudoProblem::WrongPassword)
    } else if has(&["a password is required", "a terminal is required"]) {
        Some(SudoProblem::NeedsPassword)
    } else {
        None
    }
}

impl SudoProblem {
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::WrongPassword => {
                "[sudo refused the password in SUDO_PASSWORD. Ask the person to correct it in the home's .env; do not try others.]"
            }
            Self::NeedsPassword => {
                "[sudo needs a password and nobody can type one here. The person can set SUDO_PASSWORD in the home's .env, or allow the command without one in sudoers.]"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    /// A sudo that wants a password on standard input, or none.
    fn run(command: &str, password: Option<&str>, needs: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let sudo = dir.path().join("sudo");
        let needs = i32::from(needs);
        std::fs::write(
            &sudo,
            format!(
                "#!/bin/bash\nasks=; while [[ $1 == -* ]]; do case $1 in -n) asks=no;; -S) asks=yes;; -p) shift;; esac; shift; done\n\
                 if [ {needs} = 1 ]; then if [ \"$asks\" = no ]; then echo 'sudo: a password is required' >&2; exit 1; fi\n\
                 IFS= read -r pass; [ \"$pass\" = right ] || {{ echo 'Sorry, try again.' >&2; exit 1; }}; fi\n\
                 \"$@\"\n"
            ),
        )
        .unwrap();
        std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (script, stdin) = prepare(command, password, false);
        assert!(!script.contains("right"));
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let Stdin::Bytes(bytes) = stdin {
            child.stdin.take().unwrap().write_all(&bytes).unwrap();
        }
        drop(child.stdin.take());
        let out = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
    }

    #[test]
    fn the_password_reaches_sudo_and_nobody_else() {
        assert_eq!(
            run("sudo echo as root; cat; echo end", Some("right"), true),
            "as root\nend\n"
        );
        assert_eq!(run("echo piped | sudo cat", Some("right"), true), "piped\n");
        assert_eq!(
            run("sudo cat; cat; env | grep -c r[i]ght", Some("right"), true),
            "0\n"
        );
        let wrong = run("sudo true", Some("wrong"), true);
        assert_eq!(
            trouble("sudo true", &wrong),
            Some(SudoProblem::WrongPassword)
        );
    }

    #[test]
    fn no_password_is_sent_where_none_is_needed() {
        assert_eq!(run("sudo cat", Some("right"), false), "");
        assert_eq!(run("sudo echo x", None, false), "x\n");
        let refused = run("sudo true", None, true);
        assert_eq!(
            trouble("sudo true", &refused),
            Some(SudoProblem::NeedsPassword)
        );
        assert_eq!(trouble("cat log", &refused), None);
        assert_eq!(prepare("echo hi", Some("right"), false).1, Stdin::Closed);
    }
}
