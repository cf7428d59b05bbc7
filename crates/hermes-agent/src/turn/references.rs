//! What a message refers to: `@file:`, `@folder:`, `@diff`, `@staged`, `@git:N`, `@url:`.
//!
//! Each is fetched by the tool that the model itself would use, with everything that guards it: a
//! file by `read_file`, a page by `web_extract`. So a reference reaches nothing that a call could not, in
//! every front end alike. A repository of this machine is read as `/diff` reads it: nothing that its
//! settings name is started. On another machine git runs there, by `terminal`.

use std::path::Path;
use std::time::Duration;

use hermes_core::event::UserInput;
use hermes_core::message::{Content, ToolCall};
use hermes_core::paths::lexically_normal;
use hermes_core::tool::{ToolArgs, ToolContext, ToolOutcome};
use serde_json::{Value, json};

use super::{Turn, call, outside};
use crate::session::RepositoryPart;

/// References in one message; more are named and left alone.
const MAX_REFERENCES: usize = 32;
/// Timeout for one reference.
const REFERENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// On another machine, by the tool of commands.
const GIT: &str = "git --no-pager";

/// One reference, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WrittenReference {
    written: String,
    to: ReferenceTarget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReferenceTarget {
    /// A file, and which of its lines.
    File(String, Option<(usize, usize)>),
    Folder(String),
    Url(String),
    Diff,
    Staged,
    /// The newest commits.
    Commits(usize),
    /// It cannot be fetched, and why.
    Unclear(&'static str),
}

/// The references of a text, in order, each once.
fn read(text: &str) -> Vec<WrittenReference> {
    let mut found: Vec<WrittenReference> = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(at) = rest.find('@') {
        let previous = rest[..at].chars().next_back().unwrap_or(before);
        let after = &rest[at + 1..];
        // As the original reads it: an address and a path have an @ of their own.
        let starts = !is_word(previous) && previous != '/';
        if let Some((to, used)) = starts.then(|| one(after)).flatten() {
            let reference = WrittenReference {
                written: format!("@{}", &after[..used]),
                to,
            };
            if !found.iter().any(|other| other.to == reference.to) {
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

/// What a name is made of.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The reference that a text begins with, and how many bytes of it that is.
fn one(text: &str) -> Option<(ReferenceTarget, usize)> {
    let name = text
        .find(|c: char| !c.is_ascii_lowercase())
        .unwrap_or(text.len());
    let (name, after) = text.split_at(name);
    if matches!(name, "diff" | "staged") && !after.starts_with(is_word) {
        let to = if name == "diff" {
            ReferenceTarget::Diff
        } else {
            ReferenceTarget::Staged
        };
        return Some((to, name.len()));
    }
    let after = after.strip_prefix(':')?;
    let value = ReferenceValue::read(after)?;
    let text = value.text.to_owned();
    let (to, used) = match name {
        "file" => {
            let (path, lines, used) = value.lines(after);
            (ReferenceTarget::File(path.to_owned(), lines), used)
        }
        "folder" => (ReferenceTarget::Folder(text), value.used),
        "url" => (ReferenceTarget::Url(text), value.used),
        "git" => (commits(value.text), value.used),
        _ => return None,
    };
    Some((to, name.len() + 1 + used))
}

/// At least one, at most ten.
fn commits(text: &str) -> ReferenceTarget {
    match text.parse::<i64>() {
        Ok(count) => ReferenceTarget::Commits(usize::try_from(count.clamp(1, 10)).unwrap_or(1)),
        Err(_) => ReferenceTarget::Unclear("@git: takes the number of commits, such as @git:3"),
    }
}

/// What stands behind the colon of a reference.
struct ReferenceValue<'a> {
    text: &'a str,
    /// Bytes, with the quotes.
    used: usize,
    quoted: bool,
}

impl<'a> ReferenceValue<'a> {
    /// A value up to white space, or between quotes. Punctuation behind it is the sentence's.
    fn read(text: &'a str) -> Option<Self> {
        if let Some(quote) = text.chars().next().filter(|c| "\"'`".contains(*c)) {
            let end = text[1..].find([quote, '\n'])?;
            return (end > 0 && text[1 + end..].starts_with(quote)).then(|| Self {
                text: &text[1..=end],
                used: end + 2,
                quoted: true,
            });
        }
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let text = without_sentence(&text[..end]);
        (!text.is_empty()).then_some(Self {
            text,
            used: text.len(),
            quoted: false,
        })
    }

    /// `path:3-9` and `path:3`; behind quotes too. `after` is all that stands behind the colon.
    fn lines(&self, after: &'a str) -> (&'a str, Option<(usize, usize)>, usize) {
        if self.quoted {
            let end = after[self.used..]
                .strip_prefix(':')
                .map(|lines| lines.find(|c: char| !c.is_ascii_digit() && c != '-'))
                .map(|end| end.map_or(after.len(), |end| self.used + 1 + end));
            let lines = end.and_then(|end| numbers(&after[self.used + 1..end]));
            let used = end.filter(|_| lines.is_some()).unwrap_or(self.used);
            return (self.text, lines, used);
        }
        let split = self.text.rsplit_once(':');
        match split.map(|(path, lines)| (path, numbers(lines))) {
            Some((path, Some(lines))) if !path.is_empty() => (path, Some(lines), self.used),
            _ => (self.text, None, self.used),
        }
    }
}

/// `3` and `3-9`.
fn numbers(text: &str) -> Option<(usize, usize)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse::<usize>(), to.parse::<usize>()) {
        (Ok(from), Ok(to)) if from > 0 && to >= from => Some((from, to)),
        _ => None,
    }
}

/// A value without the punctuation behind it; a bracket that it opens itself is its own.
fn without_sentence(mut value: &str) -> &str {
    while let Some(last) = value.chars().next_back() {
        let count = |wanted: char| value.chars().filter(|c| *c == wanted).count();
        let opener = match last {
            ')' => Some('('),
            ']' => Some('['),
            '}' => Some('{'),
            _ => None,
        };
        let is_own = match opener {
            Some(opener) => count(last) <= count(opener),
            // This directory and its parent.
            None if last == '.' => is_dots(value.rsplit('/').next().unwrap_or_default()),
            None => !",;!?\"'`".contains(last),
        };
        if is_own {
            break;
        }
        value = &value[..value.len() - last.len_utf8()];
    }
    value
}

fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// The tool that fetches it, and its arguments.
fn fetching(to: &ReferenceTarget) -> (&'static str, Value) {
    let terminal = |command: String| ("terminal", json!({"command": command, "timeout": 60}));
    let diff = "diff --no-ext-diff --no-textconv --no-color";
    match to {
        ReferenceTarget::File(path, None) => ("read_file", json!({ "path": path })),
        ReferenceTarget::File(path, Some((from, to))) => (
            "read_file",
            json!({"path": path, "offset": from, "limit": to - from + 1}),
        ),
        ReferenceTarget::Folder(path) => (
            "search_files",
            json!({"pattern": "*", "target": "files", "path": path, "limit": 200}),
        ),
        ReferenceTarget::Url(url) => ("web_extract", json!({ "urls": [url] })),
        // It is answered before it is fetched.
        ReferenceTarget::Unclear(_) => ("read_file", json!({})),
        ReferenceTarget::Diff => terminal(format!("{GIT} {diff}")),
        ReferenceTarget::Staged => terminal(format!("{GIT} {diff} --staged")),
        ReferenceTarget::Commits(count) => terminal(format!(
            "{GIT} log -n {count} -p --no-ext-diff --no-textconv --no-color"
        )),
    }
}

/// The part of a repository that it means.
fn part_of(to: &ReferenceTarget) -> Option<RepositoryPart> {
    match to {
        ReferenceTarget::Diff => Some(RepositoryPart::Unstaged),
        ReferenceTarget::Staged => Some(RepositoryPart::Staged),
        ReferenceTarget::Commits(count) => Some(RepositoryPart::Commits(*count)),
        _ => None,
    }
}

/// Files of a reference lie where the conversation works; elsewhere the person asks for them in
/// words, and the model decides.
fn is_within(cwd: &Path, path: &str, home: Option<&Path>) -> bool {
    let joined = match path.strip_prefix('~') {
        Some(below) if below.is_empty() || below.starts_with('/') => match home {
            Some(home) => home.join(below.trim_start_matches('/')),
            None => return false,
        },
        Some(_) => return false,
        None => cwd.join(path),
    };
    // A link may lead elsewhere, and `..` behind one as well; what is not here is the tool's to say.
    if let (Ok(real), Ok(root)) = (joined.canonicalize(), cwd.canonicalize()) {
        return real.starts_with(root);
    }
    lexically_normal(&joined).starts_with(cwd)
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
        let mut result_budget = self.result_budget();
        let mut blocks = Vec::new();
        for (at, reference) in references.iter().enumerate() {
            let block = if at < MAX_REFERENCES {
                self.fetch(reference, &mut result_budget).await
            } else {
                format!("[not attached: at most {MAX_REFERENCES} references in one message]")
            };
            blocks.push(format!("{}\n{block}", reference.written));
        }
        let attached = format!("--- Attached Context ---\n\n{}", blocks.join("\n\n"));
        let known = input.context.take().into_iter().chain([attached]);
        input.context = Some(known.collect::<Vec<_>>().join("\n\n"));
    }

    async fn fetch(
        &mut self,
        reference: &WrittenReference,
        result_budget: &mut super::result::ResultBudget,
    ) -> String {
        let not = |why: &str| format!("[not attached: {why}]");
        if let ReferenceTarget::File(path, _) | ReferenceTarget::Folder(path) = &reference.to
            && !is_within(&self.conv.cwd, path, std::env::home_dir().as_deref())
        {
            return not("it is outside the directory of this conversation");
        }
        if let ReferenceTarget::Unclear(why) = &reference.to {
            return not(why);
        }
        let (name, args) = fetching(&reference.to);
        let reader = self.scope.deps.repositories.clone();
        if let (Some(reader), Some(part)) = (reader, part_of(&reference.to)) {
            let work = reader.read(&self.conv.cwd, part);
            let read = tokio::select! {
                done = tokio::time::timeout(REFERENCE_TIMEOUT, work) => done,
                () = self.scope.cancel.cancelled() => return not("stopped"),
            };
            return match read {
                Ok(Ok(text)) => self.shown(name, text, result_budget).await,
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
            done = tokio::time::timeout(REFERENCE_TIMEOUT, work) => match done {
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
                self.shown(name, text, result_budget).await
            }
        }
    }

    /// A text as the model sees results of the tool with this name.
    async fn shown(
        &mut self,
        name: &str,
        text: String,
        result_budget: &mut super::result::ResultBudget,
    ) -> String {
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
        let tamed = self.tame(&call, spec, content, result_budget).await;
        tamed.text().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<ReferenceTarget> {
        read(text).into_iter().map(|it| it.to).collect()
    }

    #[test]
    fn references_are_read_out_of_prose() {
        let file = |path: &str, lines| ReferenceTarget::File(path.to_owned(), lines);
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
                vec![
                    file("a b.txt", None),
                    ReferenceTarget::Folder("src/".into()),
                ],
            ),
            (
                "@diff @staged @git:3 @diff",
                vec![
                    ReferenceTarget::Diff,
                    ReferenceTarget::Staged,
                    ReferenceTarget::Commits(3),
                ],
            ),
            (
                "see @url:https://x.example/a?b=1.",
                vec![ReferenceTarget::Url("https://x.example/a?b=1".into())],
            ),
            (
                "all of @folder:. and @folder:.., then @folder:src/.",
                vec![
                    ReferenceTarget::Folder(".".into()),
                    ReferenceTarget::Folder("..".into()),
                    ReferenceTarget::Folder("src/.".into()),
                ],
            ),
            ("me@file:x.org @someone @file: @different", vec![]),
            ("@diff_x @diff9 @staged2 a/@diff @diffé", vec![]),
            (
                "@git:0 @git:-3 @git:99",
                vec![ReferenceTarget::Commits(1), ReferenceTarget::Commits(10)],
            ),
            (
                "see:@file:a.txt *@file:b.txt* …@diff, @staged's",
                vec![
                    file("a.txt", None),
                    file("b.txt*", None),
                    ReferenceTarget::Diff,
                    ReferenceTarget::Staged,
                ],
            ),
            (
                "@file:\"a b.txt\":3-9, @file:`c:3` @file:'d e':x",
                vec![
                    file("a b.txt", Some((3, 9))),
                    file("c:3", None),
                    file("d e", None),
                ],
            ),
            (
                "(@url:https://x.example/a_(b)), @file:dir/(x)",
                vec![
                    ReferenceTarget::Url("https://x.example/a_(b)".into()),
                    file("dir/(x)", None),
                ],
            ),
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
            ("~/project/a.txt", true),
            ("~", false),
            ("~other/a.txt", false),
            ("link/passwd", false),
            ("link/../etc/passwd", false),
        ] {
            let home = Some(dir.path());
            assert_eq!(is_within(&cwd, path, home), inside, "{path}");
        }
        // The directory itself may be reached by a link.
        let other_way = dir.path().join("other_way");
        std::os::unix::fs::symlink(&cwd, &other_way).unwrap();
        std::fs::write(cwd.join("a.txt"), "").unwrap();
        let real = cwd.join("a.txt").display().to_string();
        assert!(is_within(&other_way, &real, None));
    }
}
