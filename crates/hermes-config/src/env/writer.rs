//! Changes one variable of a `.env` file and nothing else.

use std::io;
use std::path::{Path, PathBuf};

use super::dotenv;
use crate::fs::write_atomic;

#[derive(Debug, thiserror::Error)]
pub enum EnvWriteError {
    #[error("{0:?} is not a variable name: use letters, digits and '_', not starting with a digit")]
    InvalidName(String),
    #[error(
        "{0} is not written to .env: it decides which programs run or where the home is. If you mean it, edit the file yourself"
    )]
    DeniedName(String),
    #[error("{} is not text in an encoding we know (UTF-32?); it was left alone", .0.display())]
    Encoding(PathBuf),
    #[error(
        "{} has a quote that is never closed, so that a change could not be read back; it was left alone. Close the quote and try again", .0.display()
    )]
    NotClosed(PathBuf),
    #[error("cannot change {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvWritten {
    /// The variable existed before.
    pub existed: bool,
    /// Non-ASCII characters were removed from the value: a key with them cannot be sent.
    pub stripped: usize,
}

/// Sets `name` in the file at `path`, which is created (0600) when missing.
pub fn set(path: &Path, name: &str, value: &str) -> Result<EnvWritten, EnvWriteError> {
    check_name(name)?;
    if is_denied(name) {
        return Err(EnvWriteError::DeniedName(name.to_owned()));
    }
    let (text, written) = with(&read_text(path)?, name, value).ok_or_else(|| not_closed(path))?;
    write(path, &text)?;
    Ok(written)
}

/// Removes every assignment of `name`. Returns whether there was one; without one nothing is
/// written.
pub fn unset(path: &Path, name: &str) -> Result<bool, EnvWriteError> {
    check_name(name)?;
    let text = dotenv::split_glued(&read_text(path)?);
    if dotenv::assignments(&text)
        .iter()
        .all(|entry| entry.name != name)
    {
        return Ok(false);
    }
    let left = without(&text, name).ok_or_else(|| not_closed(path))?;
    write(path, &left)?;
    Ok(true)
}

fn not_closed(path: &Path) -> EnvWriteError {
    EnvWriteError::NotClosed(path.to_path_buf())
}

/// The text with `name` set. If it is assigned more than once, every assignment is changed: the
/// last one counts, and the original changes the first. `None`: the rest would be parsed
/// differently, because a quote before it is not closed.
pub(super) fn with(text: &str, name: &str, value: &str) -> Option<(String, EnvWritten)> {
    let clean: String = value
        .chars()
        .filter(|c| c.is_ascii() && !matches!(c, '\n' | '\r' | '\0'))
        .collect();
    let assignment = assignment(name, &clean);
    // Glued lines are split, otherwise a variable among them could not be found.
    let text = dotenv::split_glued(text);
    let assigned = dotenv::assignments(&text);
    let mut changed = String::with_capacity(text.len() + assignment.len() + 1);
    let mut at = 0;
    for entry in assigned.iter().filter(|entry| entry.name == name) {
        changed.push_str(&text[at..entry.range.start]);
        changed.push_str(&assignment);
        at = entry.range.end;
    }
    changed.push_str(&text[at..]);
    let existed = assigned.iter().any(|entry| entry.name == name);
    if !existed {
        if !changed.is_empty() && !changed.ends_with(['\n', '\r']) {
            changed.push('\n');
        }
        changed.push_str(&assignment);
        changed.push('\n');
    }
    let written = EnvWritten {
        existed,
        stripped: value.chars().filter(|c| !c.is_ascii()).count(),
    };
    reads_as(&changed, &assigned, name, Some(&clean)).then_some((changed, written))
}

/// The text without `name`. `None`: the rest would be parsed differently.
pub(super) fn without(text: &str, name: &str) -> Option<String> {
    let text = dotenv::split_glued(text);
    let assigned = dotenv::assignments(&text);
    let mut left = String::with_capacity(text.len());
    let mut at = 0;
    for entry in assigned.iter().filter(|entry| entry.name == name) {
        left.push_str(&text[at..entry.range.start]);
        at = entry.range.end;
        let ends = ["\r\n", "\n", "\r"].iter();
        at += ends
            .filter(|end| text[at..].starts_with(**end))
            .map(|end| end.len())
            .next()
            .unwrap_or(0);
    }
    left.push_str(&text[at..]);
    reads_as(&left, &assigned, name, None).then_some(left)
}

/// Whether `text` assigns what `before` does, but `value` to `name`.
fn reads_as(text: &str, before: &[dotenv::Assignment], name: &str, value: Option<&str>) -> bool {
    // What will be read is the text with its glued lines apart.
    let after = dotenv::assignments(&dotenv::split_glued(text));
    let others = |assigned: &[dotenv::Assignment]| {
        let others = assigned.iter().filter(|entry| entry.name != name);
        let values = others.map(|entry| (entry.name.clone(), entry.value.clone()));
        values.collect::<Vec<_>>()
    };
    let of_name = after.iter().rfind(|entry| entry.name == name);
    of_name.map(|entry| entry.value.as_deref()) == value.map(Some)
        && others(&after) == others(before)
}

/// Whether the writer refuses `name` because it affects how programs start.
pub fn is_denied(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "PATH",
        "SHELL",
        "BROWSER",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "HOME",
        "HERMES_HOME",
        "HERMES_PROFILE",
        "HERMES_CONFIG",
        "HERMES_ENV",
    ];
    const PREFIXES: [&str; 5] = ["LD_", "DYLD_", "PYTHON", "NODE_", "GIT_"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Splits glued lines in the file itself (`config migrate`). Returns how many lines were added.
pub fn repair(path: &Path, dry_run: bool) -> Result<usize, EnvWriteError> {
    let old = read_text(path)?;
    let new = dotenv::split_glued(&old);
    let added = new.lines().count().saturating_sub(old.lines().count());
    if added > 0 && !dry_run {
        write(path, &new)?;
    }
    Ok(added)
}

fn check_name(name: &str) -> Result<(), EnvWriteError> {
    let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    if name.bytes().all(word) && name.starts_with(|c: char| !c.is_ascii_digit()) {
        Ok(())
    } else {
        Err(EnvWriteError::InvalidName(name.to_owned()))
    }
}

/// `name=value`, quoted if necessary.
fn assignment(name: &str, value: &str) -> String {
    let plain = format!("{name}={value}");
    let special = value.contains(['#', '"', '\'', '$']) || value.contains(char::is_whitespace);
    if special || dotenv::split_glued(&plain) != plain {
        return format!("{name}={}", quote(value));
    }
    plain
}

fn quote(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn read_text(path: &Path) -> Result<String, EnvWriteError> {
    match std::fs::read(path) {
        Ok(bytes) => {
            dotenv::decode(&bytes).ok_or_else(|| EnvWriteError::Encoding(path.to_path_buf()))
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(EnvWriteError::Io {
            path: path.to_path_buf(),
            source,
        }),
    }
}

fn write(path: &Path, text: &str) -> Result<(), EnvWriteError> {
    write_atomic(path, text.as_bytes(), 0o600).map_err(|source| EnvWriteError::Io {
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn assignments_of_the_name_change_and_the_rest_stays() {
        let (_dir, path) = file("# secrets\nexport A_TOKEN=\"1\"\n\nB=2 # keep\nA_TOKEN=3");
        let done = set(&path, "A_TOKEN", "x y").unwrap();
        assert!(done.existed);
        // The last one is the one that counts.
        assert_eq!(
            read(&path),
            "# secrets\nA_TOKEN=\"x y\"\n\nB=2 # keep\nA_TOKEN=\"x y\""
        );
        set(&path, "NEW", "v").unwrap();
        assert!(read(&path).ends_with("A_TOKEN=\"x y\"\nNEW=v\n"));
    }

    #[test]
    fn a_value_of_several_lines_is_one_assignment() {
        let text = "KEY=\"-----BEGIN\nA=1\n-----END\" # pem\r\nB=2\n";
        let (_dir, path) = file(text);
        // A line within the quotes is no assignment.
        set(&path, "A", "x").unwrap();
        assert_eq!(read(&path), format!("{text}A=x\n"));
        assert!(unset(&path, "A").unwrap());
        assert_eq!(read(&path), text);
        set(&path, "KEY", "short").unwrap();
        assert_eq!(read(&path), "KEY=short\r\nB=2\n");
        let (_dir, path) = file(text);
        assert!(unset(&path, "KEY").unwrap());
        assert_eq!(read(&path), "B=2\n");
    }

    #[test]
    fn any_line_end_separates_assignments() {
        let (_dir, path) = file("A=1\rB=2\rC=3");
        set(&path, "B", "x").unwrap();
        assert_eq!(read(&path), "A=1\rB=x\rC=3");
        assert!(unset(&path, "A").unwrap());
        assert_eq!(read(&path), "B=x\rC=3");
    }

    #[test]
    fn a_quote_that_is_not_closed_swallows_nothing() {
        // What cannot be read is replaced where it was meant for this variable.
        let (_dir, path) = file("A=\"open\nB=2\n");
        set(&path, "A", "x y").unwrap();
        assert_eq!(read(&path), "A=\"x y\"\nB=2\n");
        // Before another one, the quotes of the new value would close it.
        let text = "A=\"open\nB=2\n";
        let (_dir, path) = file(text);
        let refused = set(&path, "C", "x y");
        assert!(
            matches!(refused, Err(EnvWriteError::NotClosed(_))),
            "{refused:?}"
        );
        assert_eq!(read(&path), text);
        set(&path, "C", "x").unwrap();
        assert_eq!(read(&path), format!("{text}C=x\n"));
    }

    #[test]
    fn a_value_that_looks_like_another_assignment_stays_one() {
        let (_dir, path) = file("");
        set(&path, "OPENAI_API_KEY", "xOPENROUTER_API_KEY=y").unwrap();
        let parsed = dotenv::parse(&read(&path), &|_| None, dotenv::Precedence::File);
        let expected = (
            "OPENAI_API_KEY".to_owned(),
            "xOPENROUTER_API_KEY=y".to_owned(),
        );
        assert_eq!(parsed.values, [expected]);
    }

    #[test]
    fn a_new_file_is_private() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        set(&path, "A", "1").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for value in [
            "plain",
            "a b",
            "a#b",
            " # x",
            "q\"q",
            "it's",
            "back\\slash \\n",
            "",
            "$A ${A",
        ] {
            let (_dir, path) = file("");
            set(&path, "V", value).unwrap();
            let parsed = dotenv::parse(&read(&path), &|_| None, dotenv::Precedence::File);
            assert_eq!(parsed.values, [("V".to_owned(), value.to_owned())]);
        }
        let (_dir, path) = file("");
        let done = set(&path, "V", "a\u{28b}b\nc").unwrap();
        assert_eq!((done.stripped, read(&path).as_str()), (1, "V=abc\n"));
    }

    #[test]
    fn removal_takes_every_line_of_the_name() {
        let (_dir, path) = file("A=1\n# A=2\nexport A=3\nAB=4\n");
        assert!(unset(&path, "A").unwrap());
        assert_eq!(read(&path), "# A=2\nAB=4\n");
        assert!(!unset(&path, "A").unwrap());
    }

    #[test]
    fn names_that_steer_programs_are_refused() {
        let (_dir, path) = file("");
        for name in [
            "PATH",
            "LD_PRELOAD",
            "PYTHONPATH",
            "NODE_OPTIONS",
            "GIT_SSH_COMMAND",
            "HERMES_HOME",
        ] {
            assert!(
                matches!(set(&path, name, "x"), Err(EnvWriteError::DeniedName(_))),
                "{name}"
            );
        }
        for name in ["", "1A", "A-B", "A B", "A="] {
            assert!(
                matches!(set(&path, name, "x"), Err(EnvWriteError::InvalidName(_))),
                "{name}"
            );
        }
        assert_eq!(read(&path), "");
    }

    #[test]
    fn repair_splits_glued_lines_once() {
        let (_dir, path) = file("OPENAI_API_KEY=1OPENROUTER_API_KEY=2\n");
        assert_eq!(repair(&path, true).unwrap(), 1);
        assert_eq!(repair(&path, false).unwrap(), 1);
        assert_eq!(repair(&path, false).unwrap(), 0);
    }
}
