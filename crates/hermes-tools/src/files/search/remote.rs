//! Searches in another environment with its ripgrep, else its grep and find. The pattern is passed as the value
//! of an option, so that it cannot be an option itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::tool::ToolContext;
use hermes_exec::{Environment, Exec, OutputSink, OutputStream, ProcessExit};

use super::query::{SearchOutput, SearchQuery};
use super::{LineHit, SearchError, SearchResults};
use crate::files::guard::FileGuard;
use crate::files::lint::quoted;

const SEARCH_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum size of processed output.
const MAX_BYTES: usize = 8 * 1024 * 1024;
const MAX_LINE: usize = 500;

struct BoundedOutput {
    bytes: Vec<u8>,
    cut: bool,
}

impl OutputSink for BoundedOutput {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        if stream == OutputStream::Out {
            let available = MAX_BYTES - self.bytes.len();
            self.cut |= bytes.len() > available;
            self.bytes
                .extend_from_slice(&bytes[..bytes.len().min(available)]);
        }
    }
}

pub(super) async fn search(
    environment: &Arc<dyn Environment>,
    guard: &FileGuard,
    query: &SearchQuery,
    given: &str,
    cwd: &Path,
    cx: &ToolContext,
) -> Result<SearchResults, SearchError> {
    let mut exec = Exec::new(script(query, given), cwd);
    exec.timeout = SEARCH_TIMEOUT;
    exec.cancel = cx.cancel.clone();
    exec.split = true;
    let mut head = BoundedOutput {
        bytes: Vec::new(),
        cut: false,
    };
    let finished = environment
        .exec(exec, &mut head)
        .await
        .map_err(|error| SearchError::Failed(error.to_string()))?;
    let mut stopped = head
        .cut
        .then_some("there was too much to look at; narrow the search");
    match finished.exit {
        ProcessExit::Interrupted => return Err(SearchError::Cancelled),
        ProcessExit::TimedOut => stopped = Some("the search took longer than 60 s; narrow it"),
        ProcessExit::Code(3) => return Err(SearchError::Failed(format!("there is no {given}"))),
        ProcessExit::Code(4) => {
            return Err(SearchError::Failed(
                "neither ripgrep nor grep is installed there".to_owned(),
            ));
        }
        ProcessExit::Code(2) if head.bytes.is_empty() => {
            return Err(SearchError::Pattern(
                "the search program there refused it".to_owned(),
            ));
        }
        _ => {}
    }
    let text = String::from_utf8_lossy(&head.bytes);
    let found = if query.files {
        names(&text, query, guard)
    } else {
        matches(&text, query, guard)
    };
    Ok(SearchResults { stopped, ..found })
}

fn script(query: &SearchQuery, given: &str) -> String {
    let path = quoted(given);
    let begin = format!("[ -e {path} ] || exit 3\n");
    let have = "command -v rg >/dev/null 2>&1";
    if query.files {
        let glob = quoted(&query.pattern);
        let name = quoted(query.pattern.rsplit('/').next().unwrap_or(&query.pattern));
        return format!(
            "{begin}if {have}; then rg --no-config --no-messages --files --null --sortr modified --glob={glob} -- {path}\n\
             else find {path} -name '.?*' -prune -o -type f -name {name} -print0; fi"
        );
    }
    let pattern = quoted(&query.pattern);
    let glob = |option: &str| {
        query
            .glob
            .as_ref()
            .map(|glob| format!(" {option}={}", quoted(glob)))
            .unwrap_or_default()
    };
    let context = if query.output == SearchOutput::Content && query.context > 0 {
        format!(" -C {}", query.context)
    } else {
        String::new()
    };
    format!(
        "{begin}if {have}; then rg --no-config --no-messages --color=never --no-heading --with-filename \
         --line-number --null --sort path{context}{rg} -e {pattern} -- {path}\n\
         elif command -v grep >/dev/null 2>&1; then grep -rnHIZ -E --exclude-dir='.?*'{context}{grep} -e {pattern} -- {path}\n\
         else exit 4; fi",
        rg = glob("--glob"),
        grep = glob("--include"),
    )
}

fn names(text: &str, query: &SearchQuery, guard: &FileGuard) -> SearchResults {
    let mut found = SearchResults::default();
    let allowed: Vec<&str> = text
        .split('\0')
        .filter(|path| !path.is_empty())
        .filter(|path| {
            let blocked = guard.unreadable_as_named(Path::new(path)).is_some();
            found.omitted += u64::from(blocked);
            !blocked
        })
        .collect();
    found.total = allowed.len() as u64;
    found.more = allowed.len() > query.end();
    let page = allowed.iter().skip(query.offset).take(query.limit);
    found.files = page.map(|path| (*path).to_owned()).collect();
    found
}

/// One line of output: `path NUL number (: or -) text`.
fn parsed(line: &str) -> Option<(&str, u64, bool, &str)> {
    let (path, rest) = line.split_once('\0')?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let number = rest[..end].parse().ok()?;
    let is_match = match rest[end..].chars().next()? {
        ':' => true,
        '-' => false,
        _ => return None,
    };
    Some((path, number, is_match, &rest[end + 1..]))
}

fn matches(text: &str, query: &SearchQuery, guard: &FileGuard) -> SearchResults {
    let mut found = SearchResults::default();
    let mut files: Vec<(String, u64)> = Vec::new();
    let mut ahead: Vec<LineHit> = Vec::new();
    let mut blocked_path = String::new();
    for line in text.lines() {
        let Some((path, number, is_match, text)) = parsed(line) else {
            ahead.clear();
            continue;
        };
        if path == blocked_path {
            continue;
        }
        if guard.unreadable_as_named(Path::new(path)).is_some() {
            path.clone_into(&mut blocked_path);
            found.omitted += 1;
            continue;
        }
        let hit = LineHit {
            path: path.to_owned(),
            line: number,
            text: text.chars().take(MAX_LINE).collect(),
        };
        let shown = |total: u64| total > query.offset as u64 && total <= query.end() as u64;
        if is_match {
            found.total += 1;
            match files.last_mut() {
                Some((last, count)) if last == path => *count += 1,
                _ => files.push((path.to_owned(), 1)),
            }
            if shown(found.total) {
                found.hits.append(&mut ahead);
                found.hits.push(hit);
            }
            ahead.clear();
        } else if found
            .hits
            .last()
            .is_some_and(|last| last.path == path && last.line + 1 == number)
            && shown(found.total)
        {
            found.hits.push(hit);
        } else {
            ahead.push(hit);
        }
    }
    found.more = found.total > query.end() as u64;
    if query.output != SearchOutput::Content {
        found.hits.clear();
        found.more = files.len() > query.end();
        let total = files.len() as u64;
        let page = files.into_iter().skip(query.offset).take(query.limit);
        if query.output == SearchOutput::Files {
            found.total = total;
            found.files = page.map(|(path, _)| path).collect();
        } else {
            found.counts = page.collect();
        }
    }
    found
}
