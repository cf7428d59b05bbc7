//! The `read_file` tool: pages of text files, also of results that were spilled to a file.

mod guard;
mod page;
mod similar;

use std::path::PathBuf;
use std::sync::Arc;

use hermes_config::Config;
use hermes_core::BoxFuture;
use hermes_core::redact;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};

use super::{StoreTools, blocking, done, failed, spec};
use guard::Guard;
use hermes_core::args::Args;
use page::{Page, PageError};

const NAME: &str = "read_file";
const DEFAULT_LINES: i64 = 500;

/// How much of a file one call shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    pub lines: usize,
    pub line_chars: usize,
    /// Of the whole page, line numbers included (`file_read_max_chars`).
    pub chars: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            lines: 2_000,
            line_chars: 2_000,
            chars: 100_000,
        }
    }
}

impl ReadLimits {
    pub fn from_config(config: &Config) -> Self {
        let output = &config.tool_output;
        Self {
            lines: (output.max_lines as usize).clamp(1, 2_000),
            line_chars: (output.max_line_length as usize).max(80),
            chars: (config.file_read_max_chars as usize).max(1_000),
        }
    }
}

pub(super) struct ReadFile {
    spec: ToolSpec,
    deps: Arc<StoreTools>,
}

impl ReadFile {
    pub(super) fn new(deps: Arc<StoreTools>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file: absolute, from the working directory, or with ~.",
                },
                "offset": {
                    "type": "integer", "default": 1, "minimum": 1,
                    "description": "The first line to show, counted from 1.",
                },
                "limit": {
                    "type": "integer", "default": DEFAULT_LINES, "maximum": 2000,
                    "description": "How many lines to show.",
                },
            },
            "required": ["path"],
        });
        let description = "Read a text file, page by page, with line numbers. \
            Each line is shown as number|text; the number and the bar are not part of the file. \
            When truncated is true, go on with offset=next_offset. Also the way to read a tool \
            result that was saved to a file because of its length.";
        let mut spec = spec(
            NAME,
            "file",
            Effects::ReadsPaths(&["path"]),
            description,
            parameters,
        );
        spec.result_limit = Some(deps.read_limits.chars);
        Self { spec, deps }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let given = args
            .required("path", "the path of a file")?
            .trim()
            .to_owned();
        let limits = self.deps.read_limits;
        let offset = args.integer("offset")?.unwrap_or(1).max(1) as usize;
        let count = args.integer("limit")?.unwrap_or(DEFAULT_LINES);
        let count = (count.max(1) as usize).min(limits.lines);
        let path = cx.cwd.join(self.deps.home.expand_user(&given));
        let guard = Guard::new(&self.deps.home);
        let cancel = cx.cancel.clone();
        let read = blocking(move || {
            guard.check(&path).map_err(PageError::Refused)?;
            let mut page = page::read(&path, offset, count, limits, &|| cancel.is_cancelled())?;
            if guard.hides_keys(&path) {
                page.content = redact::secrets(&page.content).into_owned();
            }
            Ok(page)
        });
        match read.await? {
            Ok(page) => Ok(shown(&page, offset)),
            Err(error) => Err(self.explain(error, &given, cx).await),
        }
    }

    async fn explain(&self, error: PageError, given: &str, cx: &ToolContext) -> ToolOutcome {
        let fail =
            |text: String| ToolOutcome::error(ToolErrorKind::Failed, format!("{NAME}: {text}"));
        match error {
            PageError::Refused(why) => ToolOutcome::error(
                ToolErrorKind::Denied,
                format!("{NAME}: {given} is not read: {why}"),
            ),
            PageError::Cancelled => ToolOutcome::error(ToolErrorKind::Cancelled, "cancelled"),
            PageError::Missing => {
                let path = cx.cwd.join(self.deps.home.expand_user(given));
                self.missing(path, given).await
            }
            PageError::Directory(names) => {
                let value = json!({
                    "error": format!("{NAME}: {given} is a directory; pass one of its files"),
                    "entries": names,
                });
                failed(ToolErrorKind::BadArguments, &value)
            }
            PageError::Binary { bytes } => fail(format!(
                "{given} is not text ({bytes} bytes of binary data); use a tool made for its kind"
            )),
            PageError::Io(error) => fail(format!("{given}: {error}")),
        }
    }

    async fn missing(&self, path: PathBuf, given: &str) -> ToolOutcome {
        let found = blocking(move || similar::names(&path)).await;
        let (text, names) = match found {
            Ok(similar::Near::Names(names)) => (format!("{NAME}: there is no file {given}"), names),
            Ok(similar::Near::NoDirectory(dir)) => {
                let dir = dir.display();
                (
                    format!("{NAME}: there is no file {given}; {dir} does not exist"),
                    Vec::new(),
                )
            }
            Err(outcome) => return outcome,
        };
        if names.is_empty() {
            return ToolOutcome::error(ToolErrorKind::Failed, text);
        }
        failed(
            ToolErrorKind::Failed,
            &json!({ "error": text, "similar_files": names }),
        )
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            match self.run(&args, cx).await {
                Ok(value) => done(&value),
                Err(outcome) => outcome,
            }
        })
    }
}

fn shown(page: &Page, offset: usize) -> Value {
    let next = offset + page.shown;
    let more = next <= page.total_lines && page.shown > 0;
    let mut value = json!({
        "content": page.content,
        "total_lines": page.total_lines,
        "file_size": page.bytes,
        "truncated": more || page.cut_lines > 0,
    });
    let mut hints = Vec::new();
    if more {
        value["next_offset"] = json!(next);
        let total = page.total_lines;
        hints.push(format!(
            "Lines {offset}–{} of {total}; go on with offset={next}.",
            next - 1
        ));
    }
    if page.out_of_room {
        value["truncated_by"] = json!("chars");
    }
    if page.cut_lines > 0 {
        hints
            .push("Lines that end in … are cut; the rest of them cannot be shown here.".to_owned());
    }
    if page.lossy {
        hints.push(
            "The file is not clean UTF-8; unreadable bytes are shown as \u{fffd}.".to_owned(),
        );
    }
    if page.shown == 0 && page.total_lines > 0 {
        hints.push(format!("The file has only {} lines.", page.total_lines));
    }
    if page.total_lines == 0 {
        hints.push("The file is empty.".to_owned());
    }
    if !hints.is_empty() {
        value["hint"] = json!(hints.join(" "));
    }
    value
}
