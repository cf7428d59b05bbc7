//! Editing a message in the person's own editor.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hermes_core::programs::own_program;
use tokio::sync::oneshot;

/// Used where neither VISUAL nor EDITOR says otherwise.
const EDITORS: [&str; 3] = ["nano", "vi", "vim"];

/// Runs the editor on a thread of its own; the terminal must be released first. The result is the
/// text, or an error message.
pub(super) fn start(text: String) -> oneshot::Receiver<Result<String, String>> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("editor".to_owned());
    // The receiver may be gone.
    let spawned = thread.spawn(move || drop(sender.send(edit(&text, editor_command().as_deref()))));
    if let Err(error) = spawned {
        tracing::warn!("no thread for the editor: {error}");
    }
    receiver
}

fn editor_command() -> Option<String> {
    let named = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .filter(|editor| !editor.trim().is_empty());
    named.or_else(|| {
        let path = std::env::var_os("PATH")?;
        let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let is_installed = |name: &&&str| dirs.iter().any(|dir| dir.join(name).is_file());
        EDITORS
            .iter()
            .find(is_installed)
            .map(|name| (*name).to_owned())
    })
}

fn edit(text: &str, editor: Option<&str>) -> Result<String, String> {
    let editor = editor.ok_or("no editor was found; name one in EDITOR")?;
    let file = DraftFile::write(text)
        .map_err(|error| format!("the message cannot be put into a file: {error}"))?;
    // The variable is a command line: "code --wait".
    let status = own_program("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(&file.0)
        .status()
        .map_err(|error| format!("{editor} cannot be started: {error}"))?;
    if !status.success() {
        return Err(format!(
            "{editor} failed ({status}); the message is unchanged"
        ));
    }
    fs::read_to_string(&file.0)
        .map_err(|error| format!("what {editor} wrote cannot be read: {error}"))
}

/// A private temporary file, deleted on drop.
struct DraftFile(PathBuf);

impl DraftFile {
    fn write(text: &str) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let dir = std::env::temp_dir();
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("hermes-message-{}-{count}.md", std::process::id()));
            match create(&path) {
                Ok(mut file) => {
                    let draft = Self(path);
                    file.write_all(text.as_bytes())?;
                    return Ok(draft);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn create(path: &Path) -> std::io::Result<fs::File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        // It may have been deleted already.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_editor_changes_the_text_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("my editor");
        fs::write(
            &script,
            "#!/bin/sh\nprintf ' and more' >> \"$2\"; echo \"$2\" > \"$1\"\n",
        )
        .unwrap();
        let seen = dir.path().join("seen");
        let line = format!("sh '{}' '{}'", script.display(), seen.display());
        assert_eq!(edit("words", Some(&line)).unwrap(), "words and more");
        let file = fs::read_to_string(seen).unwrap();
        assert!(!Path::new(file.trim()).exists(), "{file}");
    }

    #[test]
    fn an_editor_that_fails_changes_nothing() {
        let error = edit("words", Some("false")).unwrap_err();
        assert!(error.contains("unchanged"), "{error}");
        assert!(edit("words", None).unwrap_err().contains("EDITOR"));
    }
}
