//! The `patch` tool: find and replace in one file, or a patch of many files.

mod apply;
mod plan;
mod v4a;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::edit::{self, ReplaceError};
use hermes_core::ids::SessionId;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Map, Value, json};
use similar::TextDiff;

use super::change::{self, FileChange};
use super::text::{TextFile, plain};
use super::{FileToolsShared, failed, failed_with, lint};

const NAME: &str = "patch";
/// Consecutive failures after which another approach is suggested.
const FAILURES_BEFORE_HINT: u32 = 3;
/// Maximum number of files whose failures are counted.
const MAX_COUNTED: usize = 256;
/// Maximum length of a shown diff.
const MAX_DIFF: usize = 40_000;

pub(super) struct Patch {
    spec: ToolSpec,
    shared: Arc<FileToolsShared>,
    /// Consecutive failures by session and file.
    misses: Mutex<HashMap<(SessionId, PathBuf), u32>>,
}

impl Patch {
    pub(super) fn new(shared: Arc<FileToolsShared>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "mode": {
                    "type": "string", "enum": ["replace", "patch"], "default": "replace",
                    "description": "replace: one text in one file. patch: a V4A patch over one or more files.",
                },
                "path": { "type": "string", "description": "For replace: the file." },
                "old_string": {
                    "type": "string",
                    "description": "For replace: the text to replace, with enough around it to be unique.",
                },
                "new_string": {
                    "type": "string",
                    "description": "For replace: what comes in its place; empty to delete it.",
                },
                "replace_all": {
                    "type": "boolean", "default": false,
                    "description": "For replace: every place where the text stands.",
                },
                "patch": {
                    "type": "string",
                    "description": "For patch: *** Begin Patch, then *** Update File: path with hunks (@@ a line before the place @@, lines beginning with a blank, - or +), *** Add File: path with + lines, *** Delete File: path, *** Move File: old -> new, then *** End Patch.",
                },
                "cross_profile": {
                    "type": "boolean", "default": false,
                    "description": "Only when the person asked for it: change skills, plugins, jobs or memories of another profile.",
                },
            },
            "required": ["mode"],
        }));
        let description = "Change files: find and replace, or a patch over several files. \
            Small differences in white space, indentation or quotes are forgiven, several fitting \
            places are not. A patch is checked as a whole first and applied completely or not at \
            all. The result has the diff, and lint tells of errors that the change brought in.";
        Self {
            spec: ToolSpec::new(NAME, "file", Effects::Exclusive, description, parameters),
            shared,
            misses: Mutex::default(),
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        match args.text("mode")?.unwrap_or("replace") {
            "replace" => self.replace(&args, cx).await,
            "patch" => self.patch(&args, cx).await,
            other => Err(args.bad(&format!("mode is {other:?}; use replace or patch"))),
        }
    }

    async fn replace(&self, args: &Args<'_>, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let given = args.required("path", "the path of a file")?.trim();
        let old = args.text("old_string")?;
        let new = args.text("new_string")?;
        let (Some(old), Some(new)) = (old, new) else {
            return Err(args.bad("old_string and new_string are both needed"));
        };
        let all = args.flag("replace_all")?;
        let cross_profile = args.flag("cross_profile")?;
        let target = self
            .shared
            .target(given, cx)
            .await
            .map_err(|error| fail(format!("{given}: {error}")))?;
        let path = target.path.clone();
        self.shared
            .may_write(NAME, &[&path], cross_profile, cx)
            .await?;
        self.readable(given, &path, cx)?;
        let _lock = change::lock(&[&path]).await;
        let loaded = target
            .load()
            .await
            .map_err(|error| fail(format!("{given}: {error}")))?
            .ok_or_else(|| {
                let path = path.display();
                fail(format!(
                    "there is no file {given} ({path}); write_file makes one"
                ))
            })?;
        let text =
            TextFile::decode(&loaded.bytes).ok_or_else(|| fail(format!("{given} is not text")))?;
        let content = text.plain();
        let replaced = match edit::replace(&content, &plain(old), &plain(new), all) {
            Ok(replaced) => replaced,
            Err(error) => {
                let count = match error {
                    ReplaceError::NotFound => self.count_miss(&path, cx),
                    _ => 0,
                };
                return Err(missed(given, &error, old, &content, count));
            }
        };
        let after = text.with_line_ends(&replaced.text);
        let bytes = text.encode(&after).map_err(|c| {
            fail(format!(
                "{given} is in an encoding that has no {c:?}; nothing was changed"
            ))
        })?;
        if let Some(why) = lint::refusal(&path, Some(&loaded.bytes), &after) {
            return Err(fail(format!(
                "{given} was not changed, because it would not parse any more: {why}"
            )));
        }
        let change = FileChange {
            target,
            before: Some(loaded),
            after: Some(bytes),
            mode: None,
        };
        let shown = path.display().to_string();
        let diff = diff(&shown, &content, &plain(&after));
        let mut value = self.commit(vec![change], cx).await?;
        self.forget_misses(&path, cx);
        value["diff"] = json!(diff);
        value["files_modified"] = json!([shown]);
        value["resolved_path"] = json!(shown);
        if let Some(lint) = value.get_mut("lint").map(Value::take) {
            let own = lint
                .as_object()
                .and_then(|lint| lint.values().next().cloned());
            value["lint"] = own.unwrap_or(Value::Null);
        }
        Ok(value)
    }

    async fn patch(&self, args: &Args<'_>, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let patch = args.required("patch", "the text of the patch")?;
        let cross_profile = args.flag("cross_profile")?;
        let operations = v4a::parse(patch).map_err(|error| {
            failed(
                ToolErrorKind::BadArguments,
                format!("{NAME}: {error}. Nothing was changed"),
            )
        })?;
        let targets = self.targets(&operations, cx).await?;
        let paths: Vec<&Path> = targets
            .values()
            .map(|target| target.path.as_path())
            .collect();
        self.shared
            .may_write(NAME, &paths, cross_profile, cx)
            .await?;
        for (given, target) in &targets {
            self.readable(given, &target.path, cx)?;
        }
        let _lock = change::lock(&paths).await;
        let plan = plan::plan(&operations, &targets)
            .await
            .map_err(|problems| {
                let list: Vec<String> = problems
                    .iter()
                    .map(|problem| format!("- {problem}"))
                    .collect();
                fail(format!(
                    "nothing was changed, because not all of it fits:\n{}",
                    list.join("\n")
                ))
            })?;
        let mut value = self.commit(plan.changes, cx).await?;
        value["diff"] = json!(cut(plan.diffs.join("\n")));
        for (key, files) in [
            ("files_modified", &plan.modified),
            ("files_created", &plan.created),
            ("files_deleted", &plan.deleted),
        ] {
            if !files.is_empty() || key == "files_modified" {
                value[key] = json!(files);
            }
        }
        Ok(value)
    }

    /// Every file that the patch names.
    async fn targets(
        &self,
        operations: &[v4a::PatchOperation],
        cx: &ToolContext,
    ) -> Result<plan::Targets, ToolOutcome> {
        let mut targets = plan::Targets::new();
        for given in operations.iter().flat_map(plan::paths) {
            if !targets.contains_key(given) {
                let target = self.shared.target(given, cx).await;
                let target = target
                    .map_err(|error| fail(format!("{given}: {error}. Nothing was changed")))?;
                targets.insert(given.to_owned(), target);
            }
        }
        Ok(targets)
    }

    /// A diff could show what may not be read.
    fn readable(&self, given: &str, path: &Path, cx: &ToolContext) -> Result<(), ToolOutcome> {
        match self.shared.guard_in(cx).unreadable(path) {
            Some(why) => Err(failed(
                ToolErrorKind::Denied,
                format!("{NAME}: {given} is not patched: {why}"),
            )),
            None => Ok(()),
        }
    }

    /// Makes the changes and reports them.
    async fn commit(
        &self,
        changes: Vec<FileChange>,
        cx: &ToolContext,
    ) -> Result<Value, ToolOutcome> {
        let shared = &self.shared;
        let warnings: Vec<String> = changes
            .iter()
            .filter_map(|change| {
                let now = change.before.as_ref().map(|before| before.stamp);
                shared.warning(&change.target.path, now, false, cx)
            })
            .collect();
        let paths: Vec<&Path> = changes
            .iter()
            .map(|change| change.target.path.as_path())
            .collect();
        shared.snapshot(NAME, &paths, cx).await;
        let committed = shared.commit(&changes, cx).await;
        committed.map_err(|error| fail(error.to_string()))?;
        let mut value = json!({ "success": true });
        let mut lints = Map::new();
        for change in &changes {
            if let Some(lint) = shared.lint(change, cx).await {
                lints.insert(change.target.path.display().to_string(), lint);
            }
        }
        if !lints.is_empty() {
            value["lint"] = Value::Object(lints);
        }
        if !warnings.is_empty() {
            value["_warning"] = json!(warnings.join(" "));
        }
        Ok(value)
    }

    fn count_miss(&self, path: &Path, cx: &ToolContext) -> u32 {
        let mut misses = self.misses.lock().unwrap_or_else(PoisonError::into_inner);
        if misses.len() >= MAX_COUNTED {
            misses.clear();
        }
        let count = misses
            .entry((cx.session.clone(), path.to_owned()))
            .or_default();
        *count += 1;
        *count
    }

    fn forget_misses(&self, path: &Path, cx: &ToolContext) {
        let mut misses = self.misses.lock().unwrap_or_else(PoisonError::into_inner);
        misses.remove(&(cx.session.clone(), path.to_owned()));
    }
}

impl Tool for Patch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

fn missed(given: &str, error: &ReplaceError, old: &str, content: &str, count: u32) -> ToolOutcome {
    let mut text = format!("{NAME}: {given}: {error}");
    if *error != ReplaceError::NotFound {
        return failed_with(ToolErrorKind::Failed, text, json!({ "success": false }));
    }
    let near = edit::nearest(content, old);
    let hint = if count >= FAILURES_BEFORE_HINT {
        format!(
            "This failed {count} times in a row on this file. Read it again and copy the text \
             from there, take a longer piece, or write the whole file with write_file."
        )
    } else if near.is_none() {
        "Read the file again, or look for the text with search_files.".to_owned()
    } else {
        "Copy the text from the file exactly.".to_owned()
    };
    if let Some(near) = near {
        text.push_str("\n\nPlaces that look alike:\n");
        text.push_str(&near);
    }
    let details = json!({ "success": false, "_hint": hint });
    failed_with(ToolErrorKind::Failed, text, details)
}

fn fail(text: impl std::fmt::Display) -> ToolOutcome {
    let text = format!("{NAME}: {text}");
    failed_with(ToolErrorKind::Failed, text, json!({ "success": false }))
}

/// A unified diff of one file.
fn diff(path: &str, before: &str, after: &str) -> String {
    let path = path.trim_start_matches('/');
    let text = TextDiff::from_lines(before, after)
        .unified_diff()
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    cut(text)
}

fn cut(diff: String) -> String {
    if diff.len() <= MAX_DIFF {
        return diff;
    }
    let head = &diff[..diff.floor_char_boundary(MAX_DIFF)];
    let head = head.rsplit_once('\n').map_or(head, |(head, _)| head);
    format!("{head}\n… {} more bytes of diff", diff.len() - head.len())
}
