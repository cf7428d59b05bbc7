//! Changing one variable of a `.env` file and nothing else.

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
    #[error("cannot change {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvWritten {
    /// The variable was there before.
    pub existed: bool,
    /// Characters outside ASCII were left out of the value: a key with them cannot be sent.
    pub stripped: usize,
}

/// Sets `name` in the file at `path`, which is created (0600) when missing.
pub fn set(path: &Path, name: &str, value: &str) -> Result<EnvWritten, EnvWriteError> {
    check_name(name)?;
    if is_denied(name) {
        return Err(EnvWriteError::DeniedName(name.to_owned()));
    }
    let clean: String = value
        .chars()
        .filter(|c| c.is_ascii() && !matches!(c, '\n' | '\r' | '\0'))
        .collect();
    let stripped = value.chars().filter(|c| !c.is_ascii()).count();
    let assignment = format!("{name}={}", quote(&clean));
    let mut lines = read_lines(path)?;
    let found = lines.iter_mut().find(|line| assigns(line, name));
    let existed = found.is_some();
    if let Some(line) = found {
        let end = if line.ends_with("\r\n") { "\r\n" } else { "\n" };
        *line = format!("{assignment}{end}");
    } else {
        if let Some(last) = lines.last_mut()
            && !last.ends_with('\n')
        {
            last.push('\n');
        }
        lines.push(format!("{assignment}\n"));
    }
    write(path, &lines)?;
    Ok(EnvWritten { existed, stripped })
}

/// Removes every line that sets `name`. Says whether there was one; without one nothing is written.
pub fn unset(path: &Path, name: &str) -> Result<bool, EnvWriteError> {
    check_name(name)?;
    let mut lines = read_lines(path)?;
    let before = lines.len();
    lines.retain(|line| !assigns(line, name));
    if lines.len() == before {
        return Ok(false);
    }
    write(path, &lines)?;
    Ok(true)
}

/// Whether the writer refuses `name` because it steers how programs start.
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

/// Splits glued lines in the file itself (`config migrate`). Says how many lines were added.
pub fn repair(path: &Path, dry_run: bool) -> Result<usize, EnvWriteError> {
    let old = read_text(path)?;
    let new = dotenv::split_glued(&old);
    let added = new.lines().count().saturating_sub(old.lines().count());
    if added > 0 && !dry_run {
        write(path, &[new])?;
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

fn assigns(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("export ").map_or(line, str::trim_start);
    line.strip_prefix(name)
        .is_some_and(|rest| rest.trim_start_matches([' ', '\t']).starts_with('='))
}

fn quote(value: &str) -> String {
    if !value.contains(['#', '"', '\'', '$']) && !value.contains(char::is_whitespace) {
        return value.to_owned();
    }
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

/// The lines with their ends. Glued ones come apart, else a variable among them could not be found.
fn read_lines(path: &Path) -> Result<Vec<String>, EnvWriteError> {
    let text = dotenv::split_glued(&read_text(path)?);
    Ok(text.split_inclusive('\n').map(str::to_owned).collect())
}

fn write(path: &Path, lines: &[String]) -> Result<(), EnvWriteError> {
    write_atomic(path, lines.concat().as_bytes(), 0o600).map_err(|source| EnvWriteError::Io {
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
    fn the_first_assignment_changes_and_the_rest_stays() {
        let (_dir, path) = file("# secrets\nexport A_TOKEN=\"1\"\n\nB=2 # keep\nA_TOKEN=3");
        let done = set(&path, "A_TOKEN", "x y").unwrap();
        assert!(done.existed);
        assert_eq!(
            read(&path),
            "# secrets\nA_TOKEN=\"x y\"\n\nB=2 # keep\nA_TOKEN=3"
        );
        set(&path, "NEW", "v").unwrap();
        assert!(read(&path).ends_with("A_TOKEN=3\nNEW=v\n"));
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
