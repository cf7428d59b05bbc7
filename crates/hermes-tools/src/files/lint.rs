//! Whether a file still makes sense to the program that reads it. Nothing of it is executed.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hermes_core::tool::ToolContext;
use hermes_exec::{Confinement, Exec, Exit, Sink, Stdin, Stream};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::Shared;
use super::text::Text;

const PATIENCE: Duration = Duration::from_secs(5);
/// What is kept of the complaints.
const MAX_OUTPUT: usize = 4_000;
/// Larger files are not checked.
const MAX_SIZE: usize = 2 * 1024 * 1024;

/// What a check says.
enum Verdict {
    Clean,
    Errors(String),
    /// There is no check for it here, and why.
    Unchecked(String),
}

/// Why content of structured data is not to be written: it does not parse, and the file did
/// before (or is new). Templates and files with comments are no clear cases.
pub(super) fn refusal(path: &Path, before: Option<&[u8]>, content: &str) -> Option<String> {
    let Data::Broken(why) = structured(path, content) else {
        return None;
    };
    let was_broken = before
        .and_then(Text::decode)
        .is_some_and(|old| matches!(structured(path, &old.chars), Data::Broken(_)));
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

/// Structured data by its name.
enum Data {
    Other,
    Parses,
    Broken(String),
}

fn structured(path: &Path, content: &str) -> Data {
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
        _ => return Data::Other,
    };
    error.map_or(Data::Parses, Data::Broken)
}

fn extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default();
    extension.to_string_lossy().to_lowercase()
}

/// The `lint` of a result: what an edit from `before` to `after` broke. The file at `path` holds
/// `after` already.
pub(super) async fn delta(
    shared: &Shared,
    path: &Path,
    before: Option<&str>,
    after: &str,
    cx: &ToolContext,
) -> Value {
    let errors = match check(shared, path, after, true, cx).await {
        Verdict::Clean => return json!({ "status": "ok", "output": "" }),
        Verdict::Unchecked(why) => return json!({ "status": "skipped", "message": why }),
        Verdict::Errors(errors) => errors,
    };
    let old = match before {
        Some(before) => check(shared, path, before, false, cx).await,
        None => Verdict::Clean,
    };
    let Verdict::Errors(old) = old else {
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

/// Lines move when something is put in above them.
fn without_numbers(line: &str) -> String {
    line.trim()
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect()
}

async fn check(
    shared: &Shared,
    path: &Path,
    content: &str,
    on_disk: bool,
    cx: &ToolContext,
) -> Verdict {
    match structured(path, content) {
        Data::Parses => return Verdict::Clean,
        Data::Broken(error) => return Verdict::Errors(error),
        Data::Other => {}
    }
    let extension = extension(path);
    if content.len() > MAX_SIZE {
        return Verdict::Unchecked("the file is too large to be checked".to_owned());
    }
    let Some(command) = command(&extension, path, on_disk) else {
        return Verdict::Unchecked(format!("there is no check for .{extension} files"));
    };
    run(shared, command, content, cx).await
}

/// A program that parses its standard input (or the file) and complains, and no more.
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

/// The first of what a command says.
struct Head(Vec<u8>);

impl Sink for Head {
    fn push(&mut self, _: Stream, bytes: &[u8]) {
        let room = MAX_OUTPUT.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

async fn run(shared: &Shared, script: String, content: &str, cx: &ToolContext) -> Verdict {
    let cwd = match shared.cwd(cx).await {
        Ok(cwd) => cwd,
        Err(error) => return Verdict::Unchecked(format!("the check could not run: {error}")),
    };
    let confinement = match (shared.deps.confining)(&cwd) {
        // It has nothing to write, and nobody to call.
        Confinement::Workspace { unreadable, .. } => Confinement::Workspace {
            writable: Vec::new(),
            unreadable,
            network: false,
        },
        Confinement::Off => Confinement::Off,
    };
    let mut exec = Exec::new(script, cwd);
    exec.timeout = PATIENCE;
    exec.cancel = cx.cancel.clone();
    exec.stdin = Stdin::Bytes(Bytes::copy_from_slice(content.as_bytes()));
    exec.confinement = confinement;
    let mut output = Head(Vec::new());
    let finished = match shared.deps.environment.exec(exec, &mut output).await {
        Ok(finished) => finished,
        Err(error) => return Verdict::Unchecked(format!("the check could not run: {error}")),
    };
    let said = String::from_utf8_lossy(&output.0).trim().to_owned();
    match finished.exit {
        Exit::Code(0) => Verdict::Clean,
        Exit::Code(126 | 127) => {
            Verdict::Unchecked("no program to check it is installed".to_owned())
        }
        Exit::Code(_) if !said.is_empty() => Verdict::Errors(shortened(&said)),
        _ => Verdict::Unchecked("the check did not finish".to_owned()),
    }
}

/// Without the traces of the checker itself.
fn shortened(said: &str) -> String {
    let lines: Vec<&str> = said
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
