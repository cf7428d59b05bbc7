//! The `search_files` tool: text in files, or files by name.

mod content;
mod names;
mod query;
mod remote;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::location::{self, PathProbe};
use super::{FileToolsShared, SessionFiles, failed, failed_with};
use query::SearchQuery;

const NAME: &str = "search_files";
/// From this many matches on, each file is named once instead of in every match.
const MIN_DENSE_MATCHES: usize = 5;

pub(super) struct SearchFiles {
    spec: ToolSpec,
    shared: Arc<FileToolsShared>,
}

/// A matching line, or one beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LineHit {
    path: String,
    line: u64,
    text: String,
}

/// The result of a search.
#[derive(Debug, Default)]
struct SearchResults {
    hits: Vec<LineHit>,
    files: Vec<String>,
    counts: Vec<(String, u64)>,
    /// Matching lines or files in total, shown or not.
    total: u64,
    /// There is more than was shown.
    more: bool,
    /// Why the search ended early.
    stopped: Option<&'static str>,
    /// Files that may not be read and were not searched.
    omitted: u64,
    warning: Option<String>,
}

/// Why a search was not done.
#[derive(Debug)]
enum SearchError {
    Pattern(String),
    Cancelled,
    Failed(String),
}

impl SearchFiles {
    pub(super) fn new(shared: Arc<FileToolsShared>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "pattern": {
                    "type": "string",
                    "description": "For content: a regular expression (Rust syntax, no look-around). For files: a glob such as *.rs or src/**/*.ts.",
                },
                "target": {
                    "type": "string", "enum": ["content", "files"], "default": "content",
                    "description": "content searches inside files; files finds files by name, newest first.",
                },
                "path": {
                    "type": "string", "default": ".",
                    "description": "The directory or file to search.",
                },
                "file_glob": {
                    "type": "string",
                    "description": "For content: only files like this, e.g. *.py.",
                },
                "limit": {
                    "type": "integer", "default": 50,
                    "description": "How many results to show.",
                },
                "offset": {
                    "type": "integer", "default": 0,
                    "description": "How many results to skip.",
                },
                "output_mode": {
                    "type": "string", "enum": ["content", "files_only", "count"], "default": "content",
                    "description": "For content: the matching lines, the files that have some, or how many each has.",
                },
                "context": {
                    "type": "integer", "default": 0,
                    "description": "For content: lines to show around each match.",
                },
            },
            "required": ["pattern"],
        }));
        let description = "Search inside files or for files by name. \
            Files that git ignores and hidden ones are left out, unless path names them. Much \
            faster than grep or find in the terminal. total_count counts everything found; when \
            truncated is true, go on with a larger offset.";
        Self {
            spec: ToolSpec::new(NAME, "file", Effects::ReadOnly, description, parameters),
            shared,
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let query = SearchQuery::read(&args)?;
        let given = args.text("path")?.map_or(".", str::trim);
        let given = if given.is_empty() { "." } else { given };
        let found = match &self.shared.disk {
            SessionFiles::Local => {
                let root = self.root(given, cx).await?;
                self.local(query.clone(), root, cx).await
            }
            SessionFiles::Remote(environment) => {
                let cwd =
                    self.shared.cwd(cx).await.map_err(|error| {
                        failed(ToolErrorKind::Failed, format!("{NAME}: {error}"))
                    })?;
                remote::search(environment, &self.shared.guard, &query, given, &cwd, cx).await
            }
        };
        match found {
            Ok(found) => Ok(shown(found, &query)),
            Err(SearchError::Cancelled) => Err(failed(ToolErrorKind::Cancelled, "cancelled")),
            Err(SearchError::Pattern(why)) => Err(failed(
                ToolErrorKind::BadArguments,
                format!("{NAME}: the pattern cannot be used: {why}"),
            )),
            Err(SearchError::Failed(why)) => {
                Err(failed(ToolErrorKind::Failed, format!("{NAME}: {why}")))
            }
        }
    }

    /// What is searched, with links resolved.
    async fn root(&self, given: &str, cx: &ToolContext) -> Result<SearchRoot, ToolOutcome> {
        let located = self.shared.located(given, cx).await;
        let path =
            located.map_err(|error| failed(ToolErrorKind::Failed, format!("{NAME}: {error}")))?;
        let guard = self.shared.guard_in(cx);
        let refused = |why: &str| {
            let text = format!("{NAME}: {given} is not searched: {why}");
            failed(ToolErrorKind::Denied, text)
        };
        if let Some(why) = guard.unreadable_as_named(&path) {
            return Err(refused(why));
        }
        let looked_at = path.clone();
        let probe = location::blocking(move || Ok(location::probe(&looked_at)))
            .await
            .map_err(|error| failed(ToolErrorKind::Failed, format!("{NAME}: {error}")))?;
        let real = match probe {
            Ok(PathProbe::Directory(real)) => real,
            Ok(PathProbe::File(file)) => file.path,
            Ok(PathProbe::Other) => return Err(refused("it is not a regular file")),
            Err(error) => return Err(missing(given, path, &error).await),
        };
        if let Some(why) = guard.unreadable(&real) {
            return Err(refused(why));
        }
        Ok(SearchRoot {
            real,
            shown: given.trim_end_matches('/').to_owned(),
        })
    }

    async fn local(
        &self,
        query: SearchQuery,
        root: SearchRoot,
        cx: &ToolContext,
    ) -> Result<SearchResults, SearchError> {
        let guard = self.shared.guard_in(cx);
        let cancel = cx.cancel.clone();
        let work = move || {
            let watch = tree::SearchDeadline::new(cancel);
            Ok(if query.files {
                names::search(&query, &root, &guard, &watch)
            } else {
                content::search(&query, &root, &guard, &watch)
            })
        };
        location::blocking(work)
            .await
            .unwrap_or_else(|error| Err(SearchError::Failed(error.to_string())))
    }
}

/// The searched file or directory.
#[derive(Clone, Debug)]
struct SearchRoot {
    real: PathBuf,
    /// As given.
    shown: String,
}

impl SearchRoot {
    /// The name of a file below it, usable by the model.
    fn show(&self, path: &Path) -> String {
        match path.strip_prefix(&self.real) {
            Ok(below) if below.as_os_str().is_empty() => self.shown.clone(),
            Ok(below) if self.shown == "." => below.display().to_string(),
            Ok(below) => format!("{}/{}", self.shown, below.display()),
            Err(_) => path.display().to_string(),
        }
    }
}

impl Tool for SearchFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

async fn missing(given: &str, path: PathBuf, error: &std::io::Error) -> ToolOutcome {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    if !matches!(error.kind(), NotFound | NotADirectory) {
        return failed(ToolErrorKind::Failed, format!("{NAME}: {given}: {error}"));
    }
    let near = location::blocking(move || Ok(super::read::similar_names(&path))).await;
    let text = format!("{NAME}: there is no {given}");
    match near {
        Ok(names) if !names.is_empty() => failed_with(
            ToolErrorKind::Failed,
            text,
            json!({ "similar_files": names, "total_count": 0 }),
        ),
        _ => failed_with(ToolErrorKind::Failed, text, json!({ "total_count": 0 })),
    }
}

fn shown(found: SearchResults, query: &SearchQuery) -> Value {
    let mut value = json!({ "total_count": found.total });
    if found.hits.len() >= MIN_DENSE_MATCHES {
        value["matches_format"] =
            json!("each file on a line of its own, below it its lines as '  number: text'");
        value["matches_text"] = json!(dense(&found.hits));
    } else if !found.hits.is_empty() {
        let hits = found
            .hits
            .iter()
            .map(|hit| json!({ "path": hit.path, "line": hit.line, "content": hit.text }));
        value["matches"] = hits.collect();
    }
    if !found.files.is_empty() {
        value["files"] = json!(found.files);
    }
    if !found.counts.is_empty() {
        let counts: Map<String, Value> = found
            .counts
            .into_iter()
            .map(|(path, count)| (path, json!(count)))
            .collect();
        value["counts"] = Value::Object(counts);
    }
    if found.more || found.stopped.is_some() {
        value["truncated"] = json!(true);
    }
    if found.more {
        value["next_offset"] = json!(query.offset + query.limit);
    }
    if let Some(reason) = found.stopped {
        value["limit_reason"] = json!(reason);
    }
    if let Some(warning) = found.warning {
        value["warning"] = json!(warning);
    }
    if found.omitted > 0 {
        value["_omitted"] = json!(format!(
            "{} files that may hold credentials were left out",
            found.omitted
        ));
    }
    value
}

fn dense(hits: &[LineHit]) -> String {
    let mut text = String::new();
    let mut path = "";
    for hit in hits {
        if hit.path != path || text.is_empty() {
            path = &hit.path;
            text.push_str(path);
            text.push('\n');
        }
        text += "  ";
        text += &hit.line.to_string();
        text += ": ";
        text += hit.text.trim_end();
        text.push('\n');
    }
    text.pop();
    text
}
