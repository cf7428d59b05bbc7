//! What a message refers to: `@file:`, `@folder:`, `@diff`, `@staged`, `@git:N`, `@url:`.
//!
//! Each is fetched by the tool that the model itself would use, with everything that guards it: a
//! file by `read_file`, a page by `web_extract`. So a reference reaches nothing that a call could not, in
//! every front end alike. A repository of this machine is read as `/diff` reads it: nothing that its
//! settings name is started. On another machine git runs there, by `terminal`.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use hermes_core::event::UserInput;
use hermes_core::message::{Content, ToolCall};
use hermes_core::tool::{ToolArgs, ToolContext, ToolOutcome};
use serde_json::{Value, json};

use super::{Turn, call, outside};
use crate::session::RepositoryPart;

/// References in one message; more are named and left alone.
const MOST: usize = 8;
/// For one of them.
const PATIENCE: Duration = Duration::from_mins(1);
/// On another machine, by the tool of commands.
const GIT: &str = "git --no-pager";

/// One reference, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reference {
    written: String,
    to: Referred,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Referred {
    /// A file, and which of its lines.
    File(String, Option<(usize, usize)>),
    Folder(String),
    Url(String),
    Diff,
    Staged,
    /// The newest commits.
    Commits(usize),
}

/// The references of a text, in order, each once.
fn read(text: &str) -> Vec<Reference> {
    let mut found: Vec<Reference> = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(at) = rest.find('@') {
        let previous = rest[..at].chars().next_back().unwrap_or(before);
        let after = &rest[at + 1..];
        let starts = previous.is_whitespace() || "([{\"'`,;".contains(previous);
        if let Some((to, used)) = starts.then(|| one(after)).flatten() {
            let reference = Reference {
                written: format!("@{}", &after[..used]),
                to,
            };
            if !found.contains(&reference) {
                found.push(reference);
            }
            rest = &after[used..];
            before = 'x';
        } else {
            rest = after;
            before = '@';
        }
    }
    found
}

/// The reference that a text begins with, and how many bytes of it that is.
fn one(text: &str) -> Option<(Referred, usize)> {
    let name = text
        .find(|c: char| !c.is_ascii_lowercase())
        .unwrap_or(text.len());
    let (name, after) = text.split_at(name);
    if let Some(value) = after.strip_prefix(':') {
        let (value, used) = value_of(value)?;
        let used = name.len() + 1 + used;
        let to = match name {
            "file" => {
                let (path, lines) = lines_of(value);
                Referred::File(path.to_owned(), lines)
            }
            "folder" => Referred::Folder(value.to_owned()),
            "url" => Referred::Url(value.to_owned()),
            "git" => Referred::Commits(value.parse::<usize>().ok().filter(|it| *it > 0)?.min(10)),
            _ => return None,
        };
        return Some((to, used));
    }
    match name {
        "diff" => Some((Referred::Diff, name.len())),
        "staged" => Some((Referred::Staged, name.len())),
        _ => None,
    }
}

/// A value up to white space, or between quotes. Punctuation behind it is the sentence's.
fn value_of(text: &str) -> Option<(&str, usize)> {
    if let Some(quote) = text.chars().next().filter(|c| "\"'`".contains(*c)) {
        let end = text[1..].find(quote)?;
        return (end > 0).then(|| (&text[1..=end], end + 2));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let value = text[..end].trim_end_matches(['.', ',', ';', '!', '?', ')', ']', '}', '"', '\'']);
    (!value.is_empty()).then_some((value, value.len()))
}

/// `path:3-9` and `path:3`.
fn lines_of(value: &str) -> (&str, Option<(usize, usize)>) {
    let Some((path, lines)) = value.rsplit_once(':') else {
        return (value, None);
    };
    let (from, to) = lines.split_once('-').unwrap_or((lines, lines));
    match (from.parse::<usize>(), to.parse::<usize>()) {
        (Ok(from), Ok(to)) if from > 0 && to >= from && !path.is_empty() => {
            (path, Some((from, to)))
        }
        _ => (value, None),
    }
}

/// The tool that fetches it, and its arguments.
fn fetching(to: &Referred) -> (&'static str, Value) {
    let terminal = |command: String| ("terminal", json!({"command": command, "timeout": 60}));
    let diff = "diff --no-ext-diff --no-textconv --no-color";
    match to {
        Referred::File(path, None) => ("read_file", json!({ "path": path })),
        Referred::File(path, Some((from, to))) => (
            "read_file",
            json!({"path": path, "offset": from, "limit": to - from + 1}),
        ),
        Referred::Folder(path) => (
            "search_files",
            json!({"pattern": "*", "target": "files", "path": path, "limit": 200}),
        ),
        Referred::Url(url) => ("web_extract", json!({ "urls": [url] })),
        Referred::Diff => terminal(format!("{GIT} {diff}")),
        Referred::Staged => terminal(format!("{GIT} {diff} --staged")),
        Referred::Commits(count) => terminal(format!(
            "{GIT} log -n {count} -p --no-ext-diff --no-textconv --no-color"
        )),
    }
}

/// The part of a repository that it means.
fn part_of(to: &Referred) -> Option<RepositoryPart> {
    match to {
        Referred::Diff => Some(RepositoryPart::Unstaged),
        Referred::Staged => Some(RepositoryPart::Staged),
        Referred::Commits(count) => Some(RepositoryPart::Commits(*count)),
        _ => None,
    }
}

/// Files of a reference lie where the conversation works; elsewhere the person asks for them in
/// words, and the model decides.
fn is_within(cwd: &Path, path: &str) -> bool {
    if path.starts_with('~') {
        return false;
    }
    let mut normal = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    if !normal.starts_with(cwd) {
        return false;
    }
    // A link may lead elsewhere; what is not here is the tool's to say.
    match (normal.canonicalize(), cwd.canonicalize()) {
        (Ok(real), Ok(root)) => real.starts_with(root),
        _ => true,
    }
}

/// What a result holds, without what is around it.
fn content_of(text: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return text.to_owned();
    };
    let field = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let error = field("error").filter(|error| !error.is_empty());
    error
        .or_else(|| field("content"))
        .or_else(|| field("output"))
        .unwrap_or_else(|| text.to_owned())
}

impl Turn<'_> {
    /// Puts what the message refers to beside it.
    pub(super) async fn attach_references(&mut self, input: &mut UserInput) {
        let references = read(&input.text);
        if references.is_empty() {
            return;
        }
        let mut room = self.room();
        let mut blocks = Vec::new();
        for (at, reference) in references.iter().enumerate() {
            let block = if at < MOST {
                self.fetch(reference, &mut room).await
            } else {
                format!("[not attached: at most {MOST} references in one message]")
            };
            blocks.push(format!("{}\n{block}", reference.written));
        }
        let attached = format!("--- Attached Context ---\n\n{}", blocks.join("\n\n"));
        let known = input.context.take().into_iter().chain([attached]);
        input.context = Some(known.collect::<Vec<_>>().join("\n\n"));
    }

    async fn fetch(&mut self, reference: &Reference, room: &mut super::result::Room) -> String {
        let not = |why: &str| format!("[not attached: {why}]");
        if let Referred::File(path, _) | Referred::Folder(path) = &reference.to
            && !is_within(&self.conv.cwd, path)
        {
            return not("it is outside the directory of this conversation");
        }
        let (name, args) = fetching(&reference.to);
        let reader = self.scope.deps.repositories.clone();
        if let (Some(reader), Some(part)) = (reader, part_of(&reference.to)) {
            let work = reader.read(&self.conv.cwd, part);
            let read = tokio::select! {
                done = tokio::time::timeout(PATIENCE, work) => done,
                () = self.scope.cancel.cancelled() => return not("stopped"),
            };
            return match read {
                Ok(Ok(text)) => self.shown(name, text, room).await,
                Ok(Err(why)) => not(&why),
                Err(_) => not("it took too long"),
            };
        }
        let Some(tool) = self.registry.get(name).cloned() else {
            return not(&format!("the tool {name} is switched off here"));
        };
        let id = format!("reference-{}", reference.written.len());
        let context = ToolContext {
            session: self.conv.id.clone(),
            turn: self.scope.id,
            call_id: id.clone(),
            cwd: self.conv.cwd.clone(),
            cancel: self.scope.cancel.child_token(),
            clock: self.scope.deps.clock.clone(),
            approver: self.scope.approver.clone(),
            asker: self.scope.asker.clone(),
            progress: call::progress(&self.scope, &id),
            registry: self.registry.clone(),
            taint: self.conv.taint.clone(),
        };
        let args: ToolArgs = match args {
            Value::Object(args) => args,
            _ => ToolArgs::new(),
        };
        let work = async { tool.call(args, &context).await };
        let outcome = tokio::select! {
            done = tokio::time::timeout(PATIENCE, work) => match done {
                Ok(outcome) => outcome,
                Err(_) => return not("it took too long"),
            },
            () = self.scope.cancel.cancelled() => return not("stopped"),
        };
        let patterns = self.scope.deps.settings.tools.redact;
        match outside::without_secrets(outcome, patterns) {
            ToolOutcome::Error { text, .. } => not(&content_of(&text)),
            ToolOutcome::Done(content) => {
                let text = content_of(&content.text());
                self.shown(name, text, room).await
            }
        }
    }

    /// A text as the model sees results of the tool with this name.
    async fn shown(&mut self, name: &str, text: String, room: &mut super::result::Room) -> String {
        let patterns = self.scope.deps.settings.tools.redact;
        let outcome = ToolOutcome::Done(Content::Text(text));
        let ToolOutcome::Done(content) = outside::without_secrets(outcome, patterns) else {
            return String::new();
        };
        let call = ToolCall {
            id: "reference".to_owned(),
            name: name.to_owned(),
            ..ToolCall::default()
        };
        let tool = self.registry.get(name).cloned();
        let spec = tool.as_ref().map(|tool| tool.spec());
        let tamed = self.tame(&call, spec, content, room).await;
        tamed.text().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Referred> {
        read(text).into_iter().map(|it| it.to).collect()
    }

    #[test]
    fn references_are_read_out_of_prose() {
        let file = |path: &str, lines| Referred::File(path.to_owned(), lines);
        for (text, wanted) in [
            (
                "look at @file:src/a.rs, please",
                vec![file("src/a.rs", None)],
            ),
            (
                "@file:a.rs:3-9 and @file:a.rs:4.",
                vec![file("a.rs", Some((3, 9))), file("a.rs", Some((4, 4)))],
            ),
            (
                "(@file:\"a b.txt\") @folder:src/",
                vec![file("a b.txt", None), Referred::Folder("src/".into())],
            ),
            (
                "@diff @staged @git:3 @diff",
                vec![Referred::Diff, Referred::Staged, Referred::Commits(3)],
            ),
            (
                "see @url:https://x.example/a?b=1.",
                vec![Referred::Url("https://x.example/a?b=1".into())],
            ),
            ("me@file:x.org @someone @file: @git:0 @different", vec![]),
        ] {
            assert_eq!(kinds(text), wanted, "{text}");
        }
    }

    #[test]
    fn only_what_lies_in_the_directory_is_attached() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("project");
        std::fs::create_dir(&cwd).unwrap();
        std::os::unix::fs::symlink("/etc", cwd.join("link")).unwrap();
        for (path, inside) in [
            ("a.txt", true),
            ("./src/../a.txt", true),
            ("../other", false),
            ("src/../../other", false),
            ("/etc/passwd", false),
            ("~/.ssh/id_rsa", false),
            ("link/passwd", false),
        ] {
            assert_eq!(is_within(&cwd, path), inside, "{path}");
        }
    }
}
