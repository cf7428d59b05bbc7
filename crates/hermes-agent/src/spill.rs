//! Writes oversized tool results to a file; the model gets a preview and the path for reading on.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::fence;

const PREVIEW_CHARS: usize = 1_500;
/// The tool that pages through spilled files must not have its own pages spilled.
const PAGER: &str = "read_file";
const CHARS_PER_TOKEN: u64 = 4;
const MIN_RESULT_CHARS: usize = 8_000;
const MIN_STEP_CHARS: usize = 16_000;
/// Spilled files are kept this long.
pub const SPILL_RETENTION: Duration = Duration::from_hours(24 * 7);
const SWEEP_INTERVAL: Duration = Duration::from_hours(1);
/// Directories that are remembered as swept.
const MAX_SWEPT_DIRS: usize = 16;

/// How many characters may enter the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLimits {
    pub result: usize,
    pub step: usize,
}

impl ResultLimits {
    /// The configured limits, scaled down to 15 % and 30 % of the window.
    pub fn for_window(context_tokens: u32, result: usize, step: usize) -> Self {
        let chars = u64::from(context_tokens) * CHARS_PER_TOKEN;
        let share = |percent: u64| (chars * percent / 100) as usize;
        Self {
            result: result.min(share(15).max(MIN_RESULT_CHARS)),
            step: step.min(share(30).max(MIN_STEP_CHARS)),
        }
    }
}

/// A tool result on its way into the conversation.
#[derive(Clone, Copy, Debug)]
pub struct SizedResult<'a> {
    pub tool: &'a str,
    pub call_id: &'a str,
    pub text: &'a str,
    pub untrusted: bool,
    /// What a scan for orders found in it; it is then fenced, whoever brought it.
    pub suspicious: &'a [String],
}

impl SizedResult<'_> {
    /// Whether the result must be spilled, given its limit and what the step has left.
    pub fn exceeds(&self, limit: usize, left: usize) -> bool {
        if self.tool == PAGER || limit == usize::MAX {
            return false;
        }
        let limit = limit.min(left.max(PREVIEW_CHARS));
        // Bytes bound characters from above: short texts need no count.
        self.text.len() > limit && self.text.chars().count() > limit
    }

    /// Writes the result below `dir` and gives the text that stands for it.
    pub async fn spill(&self, dir: Option<&Path>) -> String {
        let preview = self.fenced(hermes_core::text::first_chars(self.text, PREVIEW_CHARS));
        let total = self.text.chars().count();
        let Some(dir) = dir else {
            return format!(
                "[Result of {total} characters, cut to the first {PREVIEW_CHARS}: ask for less at a time.]\n{preview}"
            );
        };
        let path = dir.join(format!("{}.txt", file_name(self.call_id)));
        match write(dir, &path, self.whole()).await {
            Ok(()) => format!(
                "<spilled-output path=\"{}\" chars=\"{total}\">\nThis result is too long to stand here in full. The whole of it is in the file named above: page through it with {PAGER} (offset and limit), or search in it. It begins:\n{preview}\n</spilled-output>",
                path.display()
            ),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a tool result could not be spilled");
                format!(
                    "[Result of {total} characters, cut to the first {PREVIEW_CHARS}; the rest could not be saved ({error}). Ask for less at a time.]\n{preview}"
                )
            }
        }
    }

    /// The result as it stands.
    pub fn whole(&self) -> String {
        self.fenced(self.text)
    }

    fn fenced(&self, text: &str) -> String {
        if self.untrusted || !self.suspicious.is_empty() {
            fence::fence_flagged(self.tool, text, self.suspicious)
        } else {
            text.to_owned()
        }
    }
}

/// A file name made of an id that somebody else chose.
pub fn file_name(id: &str) -> String {
    let safe: String = id
        .chars()
        .take(80)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if safe.is_empty() {
        "result".to_owned()
    } else {
        safe
    }
}

/// Writes a file that only this user can read.
pub(crate) async fn write(dir: &Path, path: &Path, text: String) -> std::io::Result<()> {
    tokio::fs::create_dir_all(dir).await?;
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    options.mode(0o600);
    let mut file = options.open(path).await?;
    tokio::io::AsyncWriteExt::write_all(&mut file, text.as_bytes()).await?;
    tokio::io::AsyncWriteExt::flush(&mut file).await
}

/// Whether this process has not swept this directory for a while. Sessions begin by the thousand
/// in a gateway; the first one of an hour sweeps for all.
pub(crate) fn is_due(root: &Path, now: SystemTime) -> bool {
    static LAST: Mutex<VecDeque<(PathBuf, SystemTime)>> = Mutex::new(VecDeque::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let recent = last.iter().any(|(dir, at)| {
        let age = now.duration_since(*at);
        dir == root && age.is_ok_and(|age| age < SWEEP_INTERVAL)
    });
    if !recent {
        last.push_back((root.to_owned(), now));
        while last.len() > MAX_SWEPT_DIRS {
            last.pop_front();
        }
    }
    !recent
}

/// Removes spilled files of sessions that nobody touched for [`SPILL_RETENTION`]. Blocking.
pub fn sweep(root: &Path, now: SystemTime) {
    let Ok(sessions) = std::fs::read_dir(root) else {
        return;
    };
    let old = |path: &PathBuf| {
        let age = std::fs::metadata(path)
            .and_then(|meta| meta.modified())
            .ok()
            .and_then(|at| now.duration_since(at).ok());
        age.is_some_and(|age| age > SPILL_RETENTION)
    };
    for session in sessions.flatten().map(|entry| entry.path()).filter(old) {
        if let Err(error) = std::fs::remove_dir_all(&session) {
            tracing::debug!(path = %session.display(), %error, "an old result was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_window() {
        let limits = |context| ResultLimits::for_window(context, 100_000, 200_000);
        let both = |result, step| ResultLimits { result, step };
        assert_eq!(limits(65_536), both(39_321, 78_643));
        assert_eq!(limits(4_096), both(8_000, 16_000));
        assert_eq!(limits(1_000_000), both(100_000, 200_000));
    }

    fn result<'a>(tool: &'a str, call_id: &'a str, text: &'a str) -> SizedResult<'a> {
        SizedResult {
            tool,
            call_id,
            text,
            untrusted: tool == "web",
            suspicious: &[],
        }
    }

    #[test]
    fn pages_of_a_spilled_file_are_never_spilled_again() {
        let text = "x".repeat(10_000);
        assert!(!result("read_file", "c", &text).exceeds(8_000, 0));
        assert!(result("terminal", "c", &text).exceeds(8_000, 50_000));
        assert!(result("terminal", "c", &text).exceeds(50_000, 3));
        assert!(!result("terminal", "c", "short").exceeds(8_000, 0));
    }

    #[tokio::test]
    async fn the_whole_text_is_in_the_file_and_its_beginning_in_the_result() {
        let dir = tempfile::tempdir().unwrap();
        let text = "ä".repeat(9_000);
        let shown = result("web", "call/../1", &text)
            .spill(Some(dir.path()))
            .await;
        let path = dir.path().join("call____1.txt");
        let stored = std::fs::read_to_string(&path).unwrap();
        assert!(stored.contains(&text) && stored.starts_with("<untrusted_tool_result"));
        assert!(shown.contains(path.to_str().unwrap()));
        assert_eq!(shown.matches('ä').count(), PREVIEW_CHARS);
        assert!(shown.contains("<untrusted_tool_result"));
    }

    #[tokio::test]
    async fn without_a_place_the_result_is_cut_and_says_so() {
        let text = "x".repeat(9_000);
        let shown = result("terminal", "c", &text).spill(None).await;
        assert!(shown.contains("9000 characters"));
    }

    #[test]
    fn old_results_are_swept_and_new_ones_stay() {
        let root = tempfile::tempdir().unwrap();
        let session = root.path().join("s1");
        std::fs::create_dir(&session).unwrap();
        sweep(root.path(), SystemTime::now());
        assert!(session.exists());
        sweep(
            root.path(),
            SystemTime::now() + SPILL_RETENTION + Duration::from_hours(1),
        );
        assert!(!session.exists());
    }

    #[test]
    fn a_directory_is_swept_once_an_hour() {
        let root = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        assert!(is_due(root.path(), now));
        assert!(!is_due(root.path(), now + SWEEP_INTERVAL / 2));
        assert!(is_due(root.path(), now + SWEEP_INTERVAL));
    }
}
