//! The bash program around a command: enter the directory, run, report the resulting state.
//!
//! The report is written when bash exits, however it exits: a command that calls `exit` keeps its exports and
//! its directory.

use std::path::{Path, PathBuf};

use crate::environment::{ShellState, Variables};

/// Variables that belong to one shell, not to the session.
const OWN: [&str; 5] = ["_", "SHLVL", "PWD", "BASHOPTS", "SHELLOPTS"];
/// Marks the processes of one command, so that they can be found anywhere.
pub const MARK: &str = "_HERMES_RUN";
/// Prefix of the session's own variables, which are not carried over.
const INTERNAL: &str = "_HERMES_";
/// Set once the state is written, so that it is not written twice.
const TOLD: &str = "_HERMES_TOLD";
/// Larger reports are not read.
pub const MAX_REPORT: usize = 4 << 20;

/// The bash program that wraps a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct BashProgram<'a> {
    /// Sourced first: functions and aliases of the login shell.
    pub prelude: Option<&'a Path>,
    /// Set and exported first, for backends that cannot pass an environment.
    pub exports: Option<&'a Variables>,
    /// Entered first; a failure exits with 126. `None`: bash starts there.
    pub cwd: Option<&'a Path>,
    /// Where the state is written at the end.
    pub report: Option<&'a Path>,
}

impl BashProgram<'_> {
    /// The text for `bash -c`.
    pub fn wrap(&self, command: &str) -> String {
        self.with(&format!("eval {}", quote(command)))
    }

    /// Like [`Self::wrap`], for a command in a file because it is too long for an argument.
    pub fn wrap_file(&self, command: &Path) -> String {
        self.with(&format!(". {}", quote_path(command)))
    }

    fn with(&self, run: &str) -> String {
        let mut lines = Vec::new();
        for (name, value) in self.exports.into_iter().flatten() {
            if is_name(name) {
                lines.push(format!("export {name}={}", quote(value)));
            }
        }
        if let Some(prelude) = self.prelude {
            lines.push("shopt -s expand_aliases".to_owned());
            lines.push(format!(". {} >/dev/null 2>&1", quote_path(prelude)));
        }
        if let Some(cwd) = self.cwd {
            lines.push(format!("cd -- {} || exit 126", quote_path(cwd)));
        }
        if let Some(report) = self.report {
            let report = format!(
                "{{ builtin printf '%s\\0' \"$PWD\"; builtin declare -px; }} >|{} 2>/dev/null",
                quote_path(report)
            );
            let unless_told = format!("case ${{{TOLD}-}} in '') {report};; esac");
            lines.push(format!("trap {} EXIT", quote(&unless_told)));
            lines.push(run.to_owned());
            // Here too, because the command may have set its own trap.
            lines.push(format!(
                "{{ set -- \"$?\"; {report}; {TOLD}=1; }} 2>/dev/null"
            ));
            lines.push("exit \"$1\"".to_owned());
        } else {
            lines.push(run.to_owned());
        }
        lines.join("\n")
    }
}

/// Parses a report. `None`: the shell did not get that far.
pub fn parse_report(report: &[u8]) -> Option<ShellState> {
    let end = report.iter().position(|&byte| byte == 0)?;
    let cwd = std::str::from_utf8(&report[..end]).ok()?;
    if !cwd.starts_with('/') {
        return None;
    }
    let declarations = String::from_utf8_lossy(&report[end + 1..]);
    Some(ShellState {
        cwd: PathBuf::from(cwd),
        exports: parse_exports(&declarations),
    })
}

/// Parses the output of `declare -px`.
pub fn parse_exports(declarations: &str) -> Variables {
    let mut exports = Variables::new();
    let mut rest = declarations;
    while !rest.is_empty() {
        let (declaration, after) = match parse_declaration(rest) {
            Some((name, value, after)) => (Some((name, value)), after),
            // Not a declaration with a value: skip the line.
            None => (None, rest.split_once('\n').map_or("", |(_, after)| after)),
        };
        if let Some((name, value)) = declaration
            && !OWN.contains(&name)
            && !name.starts_with(INTERNAL)
            && !value.contains('\u{fffd}')
        {
            exports.insert(name.to_owned(), value);
        }
        rest = after;
    }
    exports
}

/// Parses one `declare -x NAME="value"` at the beginning of `text`; also returns the rest.
fn parse_declaration(text: &str) -> Option<(&str, String, &str)> {
    let rest = text
        .strip_prefix("declare -")
        .or_else(|| text.strip_prefix("export "))?;
    let rest = if text.starts_with("declare") {
        let (flags, rest) = rest.split_once(' ')?;
        flags
            .bytes()
            .all(|byte| byte.is_ascii_alphabetic())
            .then_some(rest)?
    } else {
        rest
    };
    let (name, rest) = rest.split_once('=')?;
    if !is_name(name) {
        return None;
    }
    let (value, rest) = if let Some(quoted) = rest.strip_prefix('"') {
        parse_double_quoted(quoted)?
    } else if let Some(quoted) = rest.strip_prefix("$'") {
        parse_ansi_quoted(quoted)?
    } else {
        return None;
    };
    Some((name, value, rest.strip_prefix('\n').unwrap_or(rest)))
}

fn parse_double_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                escaped @ ('"' | '\\' | '$' | '`') => value.push(escaped),
                '\n' => {}
                other => value.extend(['\\', other]),
            },
            _ => value.push(c),
        }
    }
    None
}

/// `$'…'`, as bash prints values with control characters.
fn parse_ansi_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            b'\'' => {
                let value = String::from_utf8_lossy(&value).into_owned();
                return Some((value, &text[at + 1..]));
            }
            b'\\' => {
                let escape = *bytes.get(at + 1)?;
                at += 2;
                match escape {
                    b'a' => value.push(7),
                    b'b' => value.push(8),
                    b'e' | b'E' => value.push(27),
                    b'f' => value.push(12),
                    b'n' => value.push(b'\n'),
                    b'r' => value.push(b'\r'),
                    b't' => value.push(b'\t'),
                    b'v' => value.push(11),
                    b'0'..=b'7' => {
                        let end = (at..bytes.len().min(at + 2))
                            .find(|&i| !matches!(bytes[i], b'0'..=b'7'))
                            .unwrap_or(bytes.len().min(at + 2));
                        let digits = text.get(at - 1..end)?;
                        value.push(u8::from_str_radix(digits, 8).ok()?);
                        at = end;
                    }
                    other => value.push(other),
                }
            }
            byte => {
                value.push(byte);
                at += 1;
            }
        }
    }
}

/// Whether this is a valid name of a bash variable.
pub fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Quotes `text` as one shell word.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a path as one shell word. Our paths are UTF-8.
pub fn quote_path(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn report_of(script: &str, env: &[(&str, &str)]) -> (i32, ShellState) {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("it's report");
        let program = BashProgram {
            report: Some(&report),
            ..BashProgram::default()
        };
        let status = Command::new("bash")
            .arg("-c")
            .arg(program.wrap(script))
            .current_dir("/")
            .env_clear()
            .envs(env.iter().copied())
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        let bytes = std::fs::read(&report).unwrap();
        (
            status.status.code().unwrap(),
            parse_report(&bytes).expect("a report"),
        )
    }

    #[test]
    fn exports_and_directory_survive_exit() {
        let (code, state) = report_of("cd /usr; export A=1 B='x y'; exit 7; echo no", &[]);
        assert_eq!(code, 7);
        assert_eq!(state.cwd, Path::new("/usr"));
        assert_eq!(state.exports["A"], "1");
        assert_eq!(state.exports["B"], "x y");
        assert!(!state.exports.contains_key("PWD"));
    }

    #[test]
    fn strict_mode_traps_and_syntax_errors_keep_the_state() {
        let (code, state) = report_of("export A=1; set -euo pipefail; false; echo no", &[]);
        assert_eq!((code, state.exports["A"].as_str()), (1, "1"));
        let (code, state) = report_of("export A=1; trap 'true' EXIT; (exit 3)", &[]);
        assert_eq!((code, state.exports["A"].as_str()), (3, "1"));
        let (code, state) = report_of("if then", &[("A", "1")]);
        assert_eq!((code, state.exports["A"].as_str()), (2, "1"));
        let (_, state) = report_of("set -o posix; export A='posix \"mode\"'", &[]);
        assert_eq!(state.exports["A"], "posix \"mode\"");
    }

    #[test]
    fn no_report_is_no_state() {
        for report in ["", "/usr", "relative\0"] {
            assert_eq!(parse_report(report.as_bytes()), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Any value survives the round trip.
        #[test]
        fn values_come_back(value in any::<String>().prop_map(|s| s.replace('\0', ""))) {
            let (_, state) = report_of("true", &[("VALUE", &value)]);
            if !value.contains('\u{fffd}') {
                prop_assert_eq!(state.exports.get("VALUE"), Some(&value));
            }
        }

        #[test]
        fn quoted_text_is_one_word(text in any::<String>().prop_map(|s| s.replace('\0', ""))) {
            let out = Command::new("bash")
                .arg("-c")
                .arg(format!("printf %s {}", quote(&text)))
                .output()
                .unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&out.stdout), text.as_str());
        }

        #[test]
        fn reports_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_report(&bytes);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let _ = parse_exports(&format!("declare -x A={text}"));
        }
    }
}
