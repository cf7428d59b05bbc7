//! Checks whether a file is still valid for the program that reads it. Nothing is executed.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hermes_core::tool::ToolContext;
use hermes_exec::{Confinement, Exec, OutputSink, OutputStream, ProcessExit, Stdin};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::FileToolsShared;
use super::text::TextFile;

const LINT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of the reported errors.
const MAX_OUTPUT: usize = 4_000;
/// Larger files are not checked.
const MAX_SIZE: usize = 2 * 1024 * 1024;

/// Result of a check.
enum LintResult {
    Clean,
    Errors(String),
    /// There is no check for it here, with the reason.
    Unchecked(String),
}

/// Why structured data is not written: it does not parse, but the file did before (or is new). Templates and
/// files with comments are no clear cases.
pub(super) fn refusal(path: &Path, before: Option<&[u8]>, content: &str) -> Option<String> {
    let DataFormat::Broken(why) = structured(path, content) else {
        return None;
    };
    let was_broken = before
        .and_then(TextFile::decode)
        .is_some_and(|old| matches!(structured(path, &old.chars), DataFormat::Broken(_)));
    (!was_broken && !is_template(path, content)).then_some(why)
}

fn is_template(path: &Path, content: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let in_editor = path.components().any(|part| part.as_os_str() == ".vscode");
    let commented = name.starts_with("tsconfig")
        || name.starts_with("jsconfig")
        || name == "devcontainer.json"
        || name == ".eslintrc.json"
        || in_editor;
    let template = content.contains("{{") || content.contains("{%");
    match extension(path).as_str() {
        "json" => commented,
        _ => template,
    }
}

/// Structured data formats by file name.
enum DataFormat {
    Other,
    Parses,
    Broken(String),
}

fn structured(path: &Path, content: &str) -> DataFormat {
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let error = match extension(path).as_str() {
        "json" => serde_json::from_str::<IgnoredAny>(content)
            .err()
            .map(|error| format!("JSON: {error}")),
        "yaml" | "yml" => saphyr_parser::Parser::new_from_str(content)
            .find_map(Result::err)
            .map(|error| format!("YAML: {error}")),
        "toml" => toml::from_str::<IgnoredAny>(content)
            .err()
            .map(|error| format!("TOML: {}", error.to_string().trim())),
        _ => return DataFormat::Other,
    };
    error.map_or(DataFormat::Parses, DataFormat::Broken)
}

fn extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default();
    extension.to_string_lossy().to_lowercase()
}

/// The `lint` field of a result: what an edit from `before` to `after` broke. The file at `path` already
/// contains `after`.
pub(super) async fn delta(
    shared: &FileToolsShared,
    path: &Path,
    before: Option<&str>,
    after: &str,
    cx: &ToolContext,
) -> Value {
    let errors = match check(shared, path, after, true, cx).await {
        LintResult::Clean => return json!({ "status": "ok", "output": "" }),
        LintResult::Unchecked(why) => return json!({ "status": "skipped", "message": why }),
        LintResult::Errors(errors) => errors,
    };
    let old = match before {
        Some(before) => check(shared, path, before, false, cx).await,
        None => LintResult::Clean,
    };
    let LintResult::Errors(old) = old else {
        return json!({ "status": "error", "output": errors });
    };
    let known: Vec<String> = old.lines().map(without_numbers).collect();
    let new: Vec<&str> = errors
        .lines()
        .filter(|line| !line.trim().is_empty() && !known.contains(&without_numbers(line)))
        .collect();
    if new.is_empty() {
        return json!({
            "status": "error",
            "output": errors,
            "message": "These errors were there before; this edit added none.",
        });
    }
    json!({
        "status": "error",
        "output": new.join("\n"),
        "message": "Only errors that this edit brought in; there were others before.",
    })
}

/// Line numbers change when something is inserted above them.
fn without_numbers(line: &str) -> String {
    line.trim()
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect()
}

async fn check(
    shared: &FileToolsShared,
    path: &Path,
    content: &str,
    on_disk: bool,
    cx: &ToolContext,
) -> LintResult {
    match structured(path, content) {
        DataFormat::Parses => return LintResult::Clean,
        DataFormat::Broken(error) => return LintResult::Errors(error),
        DataFormat::Other => {}
    }
    let extension = extension(path);
    if content.len() > MAX_SIZE {
        return LintResult::Unchecked("the file is too large to be checked".to_owned());
    }
    let Some(command) = command(&extension, path, on_disk) else {
        return LintResult::Unchecked(format!("there is no check for .{extension} files"));
    };
    run(shared, command, content, cx).await
}

/// A program that only parses its standard input (or the file) and reports errors.
fn command(extension: &str, path: &Path, on_disk: bool) -> Option<String> {
    Some(match extension {
        "py" | "pyi" => format!("exec python3 -I -c {}", quoted(PYTHON)),
        "js" | "cjs" | "mjs" if on_disk => {
            format!("exec node --check {}", quoted(&path.display().to_string()))
        }
        "js" | "cjs" => "exec node --check -".to_owned(),
        "sh" | "bash" => "exec bash -n".to_owned(),
        "rs" => "exec rustfmt --edition 2024 --quiet --emit stdout >/dev/null".to_owned(),
        "go" => "exec gofmt -e >/dev/null".to_owned(),
        _ => return None,
    })
}

const PYTHON: &str = "\
import ast, sys
try:
    ast.parse(sys.stdin.buffer.read())
except (SyntaxError, ValueError) as e:
    at = f' (line {e.lineno}, column {e.offset})' if getattr(e, 'lineno', None) else ''
    print(f'{type(e).__name__}: {getattr(e, \"msg\", e)}{at}')
    sys.exit(1)
";

pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The first part of a command's output.
struct LintOutput(Vec<u8>);

impl OutputSink for LintOutput {
    fn push(&mut self, _: OutputStream, bytes: &[u8]) {
        let available = MAX_OUTPUT.saturating_sub(self.0.len());
        self.0
            .extend_from_slice(&bytes[..bytes.len().min(available)]);
    }
}

async fn run(
    shared: &FileToolsShared,
    script: String,
    content: &str,
    cx: &ToolContext,
) -> LintResult {
    let cwd = match shared.cwd(cx).await {
        Ok(cwd) => cwd,
        Err(error) => return LintResult::Unchecked(format!("the check could not run: {error}")),
    };
    let confinement = match (shared.deps.confining)(&cwd) {
        // It has nothing to write and needs no network.
        Confinement::Workspace { unreadable, .. } => Confinement::Workspace {
            writable: Vec::new(),
            unreadable,
            network: false,
        },
        Confinement::Off => Confinement::Off,
    };
    let mut exec = Exec::new(script, cwd);
    exec.timeout = LINT_TIMEOUT;
    exec.cancel = cx.cancel.clone();
    exec.stdin = Stdin::Bytes(Bytes::copy_from_slice(content.as_bytes()));
    exec.confinement = confinement;
    let mut output = LintOutput(Vec::new());
    let finished = match shared.deps.environment.exec(exec, &mut output).await {
        Ok(finished) => finished,
        Err(error) => return LintResult::Unchecked(format!("the check could not run: {error}")),
    };
    let output_text = String::from_utf8_lossy(&output.0).trim().to_owned();
    match finished.exit {
        ProcessExit::Code(0) => LintResult::Clean,
        ProcessExit::Code(126 | 127) => {
            LintResult::Unchecked("no program to check it is installed".to_owned())
        }
        ProcessExit::Code(_) if !output_text.is_empty() => {
            LintResult::Errors(shortened(&output_text))
        }
        _ => LintResult::Unchecked("the check did not finish".to_owned()),
    }
}

/// Removes traces of the checker itself.
fn shortened(output_text: &str) -> String {
    let lines: Vec<&str> = output_text
        .lines()
        .filter(|line| {
            let line = line.trim_start();
            !line.starts_with("at ") && !line.starts_with("Node.js v")
        })
        .collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_data_is_refused_unless_it_was_broken_before() {
        let json = Path::new("a.json");
        assert_eq!(refusal(json, None, "{\"a\": 1}"), None);
        assert!(
            refusal(json, None, "{\"a\": }")
                .unwrap()
                .starts_with("JSON")
        );
        assert!(refusal(json, Some(b"{}"), "{").is_some());
        assert_eq!(refusal(json, Some(b"{,"), "{"), None);
        assert_eq!(refusal(Path::new("tsconfig.json"), None, "{ // x\n}"), None);
        assert_eq!(refusal(Path::new("a.txt"), None, "{"), None);
        let yaml = Path::new("a.yaml");
        assert_eq!(refusal(yaml, None, "a: !Sub x\n---\nb: [1, 2]\n"), None);
        assert!(refusal(yaml, None, "a: [1,\nb: 'x\n").is_some());
        assert_eq!(refusal(yaml, None, "{{- if .Values.x }}\na: [1\n"), None);
        assert_eq!(
            refusal(Path::new("a.toml"), None, "[a]\nb = 1979-05-27\n"),
            None
        );
        assert!(
            refusal(Path::new("a.toml"), None, "a = \n")
                .unwrap()
                .starts_with("TOML")
        );
    }

    #[test]
    fn errors_that_only_moved_are_not_new() {
        assert_eq!(
            without_numbers(" SyntaxError: x (line 3, column 1)"),
            without_numbers("SyntaxError: x (line 14, column 1)")
        );
    }
}
