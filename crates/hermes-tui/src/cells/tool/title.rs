//! A call in a few words: `Read src/x.rs (214 lines)`.

use std::path::Path;

use hermes_core::figures::count;
use serde_json::Value;

use super::body;
use super::facts::ToolFacts;
use crate::diff;
use crate::theme::Glyphs;

/// Maximum characters of an argument in the title of an unknown tool.
const MAX_ARGUMENT_CHARS: usize = 60;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolTitle {
    pub verb: String,
    pub object: String,
    /// In parentheses.
    pub note: String,
    /// Lines added and removed.
    pub counts: Option<(usize, usize)>,
    /// The object is a command: the title shows its first line unchanged.
    pub exact: bool,
}

impl ToolTitle {
    /// Nothing was done: what was requested follows `why`.
    pub(super) fn is_not_begun(&mut self, why: &str) {
        let mut verb = self.verb.chars();
        let wanted = match verb.next() {
            // A command is shown as it is.
            Some(_) if self.exact => String::new(),
            Some(first) => format!(" {}{}", first.to_lowercase(), verb.as_str()),
            None => String::new(),
        };
        self.verb = format!("{why}{wanted}");
        self.note.clear();
        self.counts = None;
    }
}

pub(super) fn tool_title(
    facts: &ToolFacts,
    done: bool,
    cwd: Option<&Path>,
    glyphs: &'static Glyphs,
) -> ToolTitle {
    let known = TitleBuilder {
        facts,
        done,
        cwd,
        glyphs,
    };
    known
        .files()
        .or_else(|| known.programs())
        .or_else(|| known.knowledge())
        .or_else(|| known.own())
        .or_else(|| known.people())
        .unwrap_or_else(|| known.other())
}

struct TitleBuilder<'a> {
    facts: &'a ToolFacts,
    done: bool,
    cwd: Option<&'a Path>,
    glyphs: &'static Glyphs,
}

impl TitleBuilder<'_> {
    fn title(&self, running: &str, done: &str, object: impl Into<String>) -> ToolTitle {
        ToolTitle {
            // A failed call has no effect, except for a program that exited by itself.
            verb: if self.done && (!self.facts.failed || self.facts.exit_code() > Some(0)) {
                done
            } else {
                running
            }
            .to_owned(),
            object: object.into(),
            ..ToolTitle::default()
        }
    }

    /// A note that comes from the result.
    fn noted(&self, mut title: ToolTitle, note: impl FnOnce() -> Option<String>) -> ToolTitle {
        if self.done && !self.facts.failed {
            title.note = note().unwrap_or_default();
        }
        title
    }

    /// Relative to the directory of the conversation.
    fn path(&self, path: &str) -> String {
        let shown = self
            .cwd
            .and_then(|cwd| Path::new(path).strip_prefix(cwd).ok())
            .map(|path| path.display().to_string());
        shown
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| path.to_owned())
    }

    fn path_arg(&self) -> String {
        self.path(self.facts.arg("path").unwrap_or("?"))
    }

    fn files(&self) -> Option<ToolTitle> {
        let facts = self.facts;
        Some(match facts.name.as_str() {
            "read_file" => {
                let title = self.title("Reading", "Read", self.path_arg());
                self.noted(title, || self.pages())
            }
            "write_file" => {
                let lines = facts.arg("content").unwrap_or_default().lines().count();
                let title = self.title("Writing", "Wrote", self.path_arg());
                self.noted(title, || Some(count(lines, "line")))
            }
            "patch" => self.patch(),
            "search_files" => {
                let pattern = facts.arg("pattern").unwrap_or("?");
                let within = match facts.arg("path") {
                    Some(".") | None => String::new(),
                    Some(path) => format!(" in {}", self.path(path)),
                };
                let by_name = facts.arg("target") == Some("files");
                let title = if by_name {
                    self.title(
                        "Looking for",
                        "Looked for",
                        format!("\"{pattern}\"{within}"),
                    )
                } else {
                    self.title(
                        "Searching for",
                        "Searched for",
                        format!("\"{pattern}\"{within}"),
                    )
                };
                self.noted(title, || {
                    let found = facts.get_number("total_count")?;
                    Some(match (found, by_name) {
                        (0, _) => "nothing found".to_owned(),
                        (found, true) => count(found, "file"),
                        (1, false) => "1 match".to_owned(),
                        (found, false) => format!("{found} matches"),
                    })
                })
            }
            _ => return None,
        })
    }

    /// How much of a file was read.
    fn pages(&self) -> Option<String> {
        let facts = self.facts;
        if facts.get_text("status") == Some("unchanged") {
            return Some("unchanged".to_owned());
        }
        let total = facts.get_number("total_lines")?;
        let number = |key: &str| {
            let value = facts.arg_value(key)?.as_u64()?;
            usize::try_from(value).ok()
        };
        let first = number("offset").unwrap_or(1).max(1);
        let next = facts.get_number("next_offset");
        if first == 1 && next.is_none() {
            return Some(count(total, "line"));
        }
        let last = next.map_or(total, |next| next.saturating_sub(1));
        Some(format!("lines {first}-{last} of {total}"))
    }

    fn patch(&self) -> ToolTitle {
        let files = body::patched(self.facts);
        let names: Vec<String> = files.iter().map(|file| self.path(&file.path)).collect();
        let object = match &names[..] {
            [] => self.path_arg(),
            [one] if one.is_empty() => self.path_arg(),
            // A diff names paths without the leading slash.
            [one] => match self.facts.arg("path") {
                Some(path) => self.path(path),
                None => one.clone(),
            },
            several => count(several.len(), "file"),
        };
        let mut title = self.title("Editing", "Edited", object);
        let counts = diff::counts(&files);
        if counts != (0, 0) && !self.facts.failed {
            title.counts = Some(counts);
        }
        title
    }

    fn programs(&self) -> Option<ToolTitle> {
        let facts = self.facts;
        Some(match facts.name.as_str() {
            "terminal" => {
                let command = facts.arg("command").unwrap_or("?").trim();
                let background = facts.arg_value("background") == Some(&Value::Bool(true));
                let title = if background {
                    self.title("Starting", "Started", command)
                } else {
                    self.title("Running", "Ran", command)
                };
                ToolTitle {
                    exact: true,
                    ..self.noted(title, || background.then(|| "in the background".to_owned()))
                }
            }
            "process" => {
                let id = facts.arg("session_id").unwrap_or_default();
                let process = format!("process {id}").trim_end().to_owned();
                let title = match facts.arg("action").unwrap_or_default() {
                    "list" => self.title("Listing", "Listed", "background processes"),
                    "wait" => self.title("Waiting for", "Waited for", process),
                    "kill" => self.title("Stopping", "Stopped", process),
                    "write" | "submit" => self.title("Typing into", "Typed into", process),
                    "close" => self.title("Closing the input of", "Closed the input of", process),
                    _ => self.title("Looking at", "Looked at", process),
                };
                self.noted(title, || match facts.get("processes") {
                    Some(Value::Array(all)) => Some(all.len().to_string()),
                    _ => facts.get_text("status").map(str::to_owned),
                })
            }
            "execute_code" => {
                let lines = facts.arg("code").unwrap_or_default().lines().count();
                let mut title = self.title("Running", "Ran", "a Python program");
                title.note = count(lines, "line");
                title
            }
            "delegate_task" => {
                let tasks = super::tree::goals(facts);
                match &tasks[..] {
                    [goal] => self.title("Delegating", "Delegated", *goal),
                    tasks => self.title("Delegating", "Delegated", count(tasks.len(), "task")),
                }
            }
            "cronjob" => self.job(),
            _ => return None,
        })
    }

    fn job(&self) -> ToolTitle {
        let facts = self.facts;
        let name = facts
            .arg("name")
            .or_else(|| facts.get_text("name"))
            .or_else(|| facts.arg("job_id"))
            .unwrap_or("a job");
        match facts.arg("action").unwrap_or_default() {
            "create" => {
                let mut title = self.title("Scheduling", "Scheduled", name);
                facts
                    .arg("schedule")
                    .unwrap_or_default()
                    .clone_into(&mut title.note);
                title
            }
            "list" => {
                let title = self.title("Listing", "Listed", "scheduled jobs");
                self.noted(title, || {
                    let jobs = facts.get("jobs")?.as_array()?;
                    Some(jobs.len().to_string())
                })
            }
            "pause" => self.title("Pausing", "Paused", name),
            "resume" => self.title("Resuming", "Resumed", name),
            "run" => self.title("Starting", "Started", name),
            "remove" | "delete" => self.title("Removing", "Removed", name),
            _ => self.title("Changing", "Changed", name),
        }
    }

    fn knowledge(&self) -> Option<ToolTitle> {
        let facts = self.facts;
        let found = |key: &'static str, one: &'static str| {
            move || Some(count(facts.get(key)?.as_array()?.len(), one))
        };
        Some(match facts.name.as_str() {
            "web_search" => {
                let query = facts.arg("query").unwrap_or("?");
                let query = format!("\"{query}\"");
                let title = self.title("Searching the web for", "Searched the web for", query);
                self.noted(title, || {
                    let results = body::web_results(facts).len();
                    Some(count(results, "result"))
                })
            }
            "web_extract" => {
                let urls = facts.arg_value("urls").and_then(Value::as_array);
                let object = match urls.map(Vec::as_slice) {
                    Some([Value::String(url)]) => short_url(url, self.glyphs.ellipsis),
                    Some(urls) => count(urls.len(), "page"),
                    None => facts.arg("urls").map_or_else(
                        || "a page".to_owned(),
                        |url| short_url(url, self.glyphs.ellipsis),
                    ),
                };
                self.title("Reading", "Read", object)
            }
            "vision_analyze" => {
                let image = facts.arg("image_url").unwrap_or("an image");
                self.title(
                    "Looking at",
                    "Looked at",
                    self.path(&short_url(image, self.glyphs.ellipsis)),
                )
            }
            "session_search" => {
                let title = match facts.arg("query") {
                    Some(query) => self.title(
                        "Searching past sessions for",
                        "Searched past sessions for",
                        format!("\"{query}\""),
                    ),
                    None => self.title("Looking through", "Looked through", "past sessions"),
                };
                self.noted(title, found("results", "result"))
            }
            _ => return None,
        })
    }

    fn own(&self) -> Option<ToolTitle> {
        let facts = self.facts;
        Some(match facts.name.as_str() {
            "skills_list" => {
                let title = self.title("Listing", "Listed", "skills");
                self.noted(title, || {
                    Some(facts.get("skills")?.as_array()?.len().to_string())
                })
            }
            "skill_view" => self.title(
                "Opening skill",
                "Opened skill",
                facts.arg("name").unwrap_or("?"),
            ),
            "skill_manage" => {
                let name = facts.arg("name").unwrap_or("?");
                let (running, done) = match facts.arg("action").unwrap_or_default() {
                    "create" => ("Writing skill", "Wrote skill"),
                    "delete" => ("Deleting skill", "Deleted skill"),
                    _ => ("Changing skill", "Changed skill"),
                };
                let title = self.title(running, done, name);
                self.noted(title, || self.staged())
            }
            "memory" => {
                let text = facts.arg("content").or_else(|| facts.arg("old_text"));
                let (running, done) = match facts.arg("action").unwrap_or_default() {
                    "add" => ("Remembering", "Remembered"),
                    "remove" => ("Forgetting", "Forgot"),
                    "replace" => ("Correcting a memory:", "Corrected a memory:"),
                    _ => ("Changing", "Changed"),
                };
                let text = text.map_or_else(
                    || "memories".to_owned(),
                    |text| shortened(text, self.glyphs.ellipsis),
                );
                let title = self.title(running, done, text);
                self.noted(title, || self.staged())
            }
            _ => return None,
        })
    }

    fn staged(&self) -> Option<String> {
        let staged = self.facts.get("staged") == Some(&Value::Bool(true));
        staged.then(|| "waits for your approval".to_owned())
    }

    fn people(&self) -> Option<ToolTitle> {
        let facts = self.facts;
        Some(match facts.name.as_str() {
            "todo" => {
                let writes = facts.arg_value("todos").is_some();
                let title = if writes {
                    self.title("Updating", "Updated", "the list")
                } else {
                    self.title("Reading", "Read", "the list")
                };
                self.noted(title, || {
                    let summary = facts.get("summary")?;
                    let number = |key: &str| summary.get(key).and_then(Value::as_u64);
                    Some(format!(
                        "{} of {} done",
                        number("completed")?,
                        number("total")?
                    ))
                })
            }
            "clarify" => self.title("Asking:", "Asked:", facts.arg("question").unwrap_or("?")),
            "mixture_of_agents" => self.title("Asking several models", "Asked several models", ""),
            "image_generate" => {
                let prompt = facts
                    .arg("prompt")
                    .map(|text| shortened(text, self.glyphs.ellipsis))
                    .unwrap_or_default();
                self.title("Drawing", "Drew", prompt)
            }
            "text_to_speech" => {
                let text = facts
                    .arg("text")
                    .map(|text| shortened(text, self.glyphs.ellipsis))
                    .unwrap_or_default();
                self.title("Speaking", "Spoke", text)
            }
            "send_message" => {
                let target = facts.arg("target").unwrap_or("someone");
                self.title("Sending a message to", "Sent a message to", target)
            }
            _ => return None,
        })
    }

    /// Tools of MCP servers, `server · tool`, and all others.
    fn other(&self) -> ToolTitle {
        let facts = self.facts;
        let name = match facts
            .name
            .strip_prefix("mcp__")
            .and_then(|rest| rest.split_once("__"))
        {
            Some((server, tool)) => format!("{server} {} {tool}", self.glyphs.dot),
            None => facts.name.clone(),
        };
        ToolTitle {
            verb: name,
            object: arguments(facts, self.glyphs.ellipsis),
            ..ToolTitle::default()
        }
    }
}

/// `key=value key=value`, shortened.
fn arguments(facts: &ToolFacts, mark: &str) -> String {
    let Value::Object(args) = facts.args() else {
        return shortened(&facts.arguments, mark);
    };
    let parts: Vec<String> = args
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}={}", shortened(text, mark)),
            other => format!("{key}={}", shortened(&other.to_string(), mark)),
        })
        .collect();
    parts.join(" ")
}

fn shortened(text: &str, mark: &str) -> String {
    let line = crate::cells::one_line(text);
    crate::width::truncate_with(&line, MAX_ARGUMENT_CHARS, mark).into_owned()
}

/// Without scheme and other redundant parts.
fn short_url(url: &str, mark: &str) -> String {
    if url.starts_with("data:") {
        return "an image".to_owned();
    }
    let bare = url
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .trim_end_matches('/');
    shortened(bare, mark)
}
