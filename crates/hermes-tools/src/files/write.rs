//! The `write_file` tool: writes a whole file atomically.

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};

use super::change::{self, FileChange};
use super::location::LoadedFile;
use super::read::UNCHANGED;
use super::text::{TextFile, plain};
use super::{FileToolsShared, failed, lint};

const NAME: &str = "write_file";

pub(super) struct WriteFile {
    spec: ToolSpec,
    shared: Arc<FileToolsShared>,
}

impl WriteFile {
    pub(super) fn new(shared: Arc<FileToolsShared>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file: absolute, from the working directory, or with ~. Missing directories are made.",
                },
                "content": { "type": "string", "description": "All of the new content." },
                "cross_profile": {
                    "type": "boolean", "default": false,
                    "description": "Only when the person asked for it: write skills, plugins, jobs or memories of another profile.",
                },
            },
            "required": ["path", "content"],
        }));
        let description = "Write a whole file, replacing what was there. \
            For changes to an existing file use patch. Line ends, encoding and permissions of an \
            existing file are kept. JSON, YAML and TOML that do not parse are refused; for code, \
            lint tells of errors that this write brought in.";
        Self {
            spec: ToolSpec::new(
                NAME,
                "file",
                Effects::WritesPaths(&["path"]),
                description,
                parameters,
            ),
            shared,
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let given = args.required("path", "the path of a file")?.trim();
        let Some(content) = args.text("content")? else {
            return Err(args.bad("content is missing; pass all of the new content, or \"\""));
        };
        let cross_profile = args.flag("cross_profile")?;
        if is_display(content) {
            let text = format!(
                "{NAME}: this is how read_file shows a file, not what the file holds; pass the \
                 content without line numbers and notices"
            );
            return Err(failed(ToolErrorKind::BadArguments, text));
        }
        let fail = |text: String| failed(ToolErrorKind::Failed, format!("{NAME}: {text}"));
        let shared = &self.shared;
        let target = shared
            .target(given, cx)
            .await
            .map_err(|error| fail(format!("{given}: {error}")))?;
        let path = target.path.clone();
        shared.may_write(NAME, &[&path], cross_profile, cx).await?;
        let _lock = change::lock(&[&path]).await;
        let before = target
            .load()
            .await
            .map_err(|error| fail(format!("{given}: {error}")))?;
        let (bytes, recoded) = encoded(content, before.as_ref());
        if let Some(why) = lint::refusal(&path, before.as_ref().map(|b| &b.bytes[..]), content) {
            return Err(fail(format!(
                "{given} was not written, because the content does not parse: {why}. Correct it \
                 and try again"
            )));
        }
        let mut warnings: Vec<String> = shared
            .warning(&path, before.as_ref().map(|before| before.stamp), true, cx)
            .into_iter()
            .collect();
        if recoded {
            warnings.push(format!(
                "{given} is UTF-8 now: its old encoding lacks characters of the new text."
            ));
        }
        shared.snapshot(NAME, &[&path], cx).await;
        let written = bytes.len();
        let change = FileChange {
            target,
            before,
            after: Some(bytes),
            mode: None,
        };
        let changes = [change];
        let dirs_created = shared
            .commit(&changes, cx)
            .await
            .map_err(|error| fail(error.to_string()))?;
        let path = path.display().to_string();
        let mut value = json!({
            "bytes_written": written,
            "dirs_created": dirs_created,
            "resolved_path": path,
            "files_modified": [path],
        });
        if let Some(lint) = shared.lint(&changes[0], cx).await {
            value["lint"] = lint;
        }
        if !warnings.is_empty() {
            value["_warning"] = json!(warnings.join(" "));
        }
        Ok(value)
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

/// The bytes of the new content with the file's encoding, byte order mark and line ends. The second value says
/// whether the encoding had to change.
fn encoded(content: &str, before: Option<&LoadedFile>) -> (Vec<u8>, bool) {
    let old = before.and_then(|before| TextFile::decode(&before.bytes));
    let Some(old) = old.filter(|old| !old.chars.is_empty() || old.bom) else {
        return (content.as_bytes().to_vec(), false);
    };
    // A byte order mark in the content would be a second one.
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let text = if old.chars.contains("\r\n") {
        old.with_line_ends(&plain(content))
    } else {
        content.to_owned()
    };
    match old.encode(&text) {
        Ok(bytes) => (bytes, false),
        Err(_) => (text.into_bytes(), true),
    }
}

/// Whether this is output of `read_file`: mostly consecutively numbered lines, or its notice.
fn is_display(content: &str) -> bool {
    let trimmed = content.trim();
    if trimmed.contains(UNCHANGED) && trimmed.len() <= 2 * UNCHANGED.len() {
        return true;
    }
    let lines: Vec<&str> = content
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let numbers: Vec<u64> = lines
        .iter()
        .filter_map(|line| line.trim_start().split_once('|')?.0.parse().ok())
        .collect();
    let mostly = numbers.len() >= 2 && numbers.len() * 10 >= lines.len() * 6;
    mostly && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_display_of_a_file_is_not_its_content() {
        assert!(is_display("1|fn main() {\n2|}\n"));
        assert!(is_display("  7|a\n  8|b\n  9|c\nnote\n"));
        assert!(is_display(UNCHANGED));
        assert!(is_display(&format!("Note: {UNCHANGED}\n")));
        for content in [
            "1|x\n",
            "1|a\n5|b\n",
            "a|b\nc|d\n",
            "",
            "1|a\ntext\ntext\n2|b\n",
        ] {
            assert!(!is_display(content), "{content:?}");
        }
    }
}
