//! Questions to the user in the line chat, one at a time, while the turn continues.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hermes_core::approval::ApprovalRequest;
use hermes_core::ask::{Answer, Choice, Field, FieldKind, Question, Want};
use hermes_core::event::{AgentCommand, AgentEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::approve;
use crate::output::{SafeStderr, harmless};

/// How often a waiting reader checks whether it is still needed.
const CHECK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A question or an approval.
enum TerminalQuestion {
    Question(Question),
    Approval(ApprovalRequest),
}

impl TerminalQuestion {
    fn id(&self) -> &str {
        match self {
            Self::Question(question) => &question.id,
            Self::Approval(request) => &request.id,
        }
    }
}

/// The question that is on the screen, and those that wait behind it.
pub(super) struct TerminalQuestions {
    waiting: VecDeque<TerminalQuestion>,
    open: Option<ShownQuestion>,
    /// After how long an approval is denied; `None`: it waits.
    limit: Option<Duration>,
}

struct ShownQuestion {
    id: String,
    is_approval: bool,
    /// Tells the reader that the answer is no longer needed.
    ended: Arc<AtomicBool>,
    answer: oneshot::Receiver<Option<AgentCommand>>,
}

impl TerminalQuestions {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self {
            waiting: VecDeque::new(),
            open: None,
            limit,
        }
    }

    /// Handles an event.
    pub(super) fn event(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::QuestionAsked { question } => {
                self.waiting
                    .push_back(TerminalQuestion::Question(question.clone()));
            }
            AgentEvent::ApprovalNeeded { request } => {
                self.waiting
                    .push_back(TerminalQuestion::Approval(request.clone()));
            }
            AgentEvent::QuestionClosed { question } => self.close(question),
            AgentEvent::TurnFinished { .. } => {
                self.waiting.clear();
                if let Some(open) = &self.open {
                    open.ended.store(true, Ordering::Release);
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, id: &str) {
        self.waiting.retain(|asked| asked.id() != id);
        if let Some(open) = self.open.as_ref().filter(|open| open.id == id)
            && !open.ended.swap(true, Ordering::AcqRel)
        {
            // Following output starts on a new line after the question.
            let why = match self.limit {
                Some(limit) if open.is_approval => {
                    format!("\n  not answered within {} s: denied\n", limit.as_secs())
                }
                _ => "\n  no longer asked\n".to_owned(),
            };
            let _ = SafeStderr.write_all(why.as_bytes());
        }
    }

    /// The person interrupts the turn instead of answering.
    pub(super) fn interrupted(&mut self) {
        self.waiting.clear();
        if let Some(open) = &self.open {
            open.ended.store(true, Ordering::Release);
        }
    }

    /// The next answer. Pending while there is no question.
    pub(super) async fn answered(&mut self) -> AgentCommand {
        loop {
            if self.open.is_none() {
                match self.waiting.pop_front() {
                    Some(asked) => self.open = Some(open(asked, self.limit)),
                    None => std::future::pending().await,
                }
            }
            if let Some(open) = &mut self.open {
                // A reader that has ended has no answer.
                let answer = (&mut open.answer).await.ok().flatten();
                self.open = None;
                if let Some(command) = answer {
                    return command;
                }
            }
        }
    }

    /// Waits until no reader uses the terminal.
    pub(super) async fn settled(&mut self) {
        self.waiting.clear();
        if let Some(open) = self.open.take() {
            open.ended.store(true, Ordering::Release);
            let _ = open.answer.await;
        }
    }
}

/// Shows the question; a separate thread reads the keys.
fn open(asked: TerminalQuestion, limit: Option<Duration>) -> ShownQuestion {
    let ended = Arc::new(AtomicBool::new(false));
    let (sender, answer) = oneshot::channel();
    let id = asked.id().to_owned();
    let is_approval = matches!(asked, TerminalQuestion::Approval(_));
    let mut terminal = TerminalLines(Arc::clone(&ended));
    std::thread::spawn(move || {
        let mut err = SafeStderr;
        let command = match asked {
            TerminalQuestion::Question(question) => ask(&question, &mut terminal, &mut err)
                .ok()
                .flatten()
                .map(|answer| AgentCommand::Reply {
                    question: question.id,
                    answer,
                }),
            TerminalQuestion::Approval(request) => {
                forget_keys(&mut err);
                if let Some(limit) = limit {
                    // Rings the bell, because an unanswered request is denied.
                    let limit = limit.as_secs();
                    let _ = SafeStderr::own("\x07", 1);
                    let _ = write!(err, "\n  (denied in {limit} s without an answer)");
                }
                approve::ask(&request, || terminal.line(), &mut err).map(|verdict| {
                    AgentCommand::Answer {
                        verdict,
                        request: request.id,
                    }
                })
            }
        };
        // The chat may have ended meanwhile.
        let _ = sender.send(command);
    });
    ShownQuestion {
        id,
        is_approval,
        ended,
        answer,
    }
}

/// The source of typed answers. `None`: no more input, or no longer needed.
trait LineSource {
    fn line(&mut self) -> Option<String>;
}

struct TerminalLines(Arc<AtomicBool>);

/// Keys pressed before the question do not answer it, which is reported.
fn forget_keys(err: &mut dyn Write) {
    let stdin = io::stdin();
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // Bounded: endless input is not type-ahead.
    for _ in 0..64 {
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        let mut line = String::new();
        let typed = matches!(poll(&mut ready, Some(&at_once)), Ok(1..))
            && matches!(stdin.lock().read_line(&mut line), Ok(1..));
        if !typed {
            break;
        }
        let _ = write!(
            err,
            "\n  (typed before this question and ignored: {})",
            harmless(line.trim_end())
        );
    }
    // Without a terminal there is no type-ahead.
    let _ = tcflush(stdin, QueueSelector::IFlush);
}

impl LineSource for TerminalLines {
    fn line(&mut self) -> Option<String> {
        let stdin = io::stdin();
        loop {
            if self.0.load(Ordering::Acquire) {
                return None;
            }
            let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut wanted, Some(&CHECK_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(_) => return None,
            }
        }
        let mut line = String::new();
        match stdin.lock().read_line(&mut line) {
            Ok(1..) => Some(line),
            _ => None,
        }
    }
}

/// Asks the question. `None`: withdrawn.
fn ask(
    question: &Question,
    lines: &mut dyn LineSource,
    out: &mut dyn Write,
) -> io::Result<Option<Answer>> {
    writeln!(
        out,
        "\n{} asks: {}",
        harmless(&question.from),
        indented(&question.text)
    )?;
    match &question.want {
        Want::Text => {
            write!(out, "  your answer (empty: none) > ")?;
            out.flush()?;
            Ok(lines.line().map(|line| match line.trim() {
                "" => Answer::Declined { why: None },
                text => Answer::Text {
                    text: text.to_owned(),
                },
            }))
        }
        Want::Choice { options, other } => choose(options, *other, lines, out),
        Want::Form { fields } => fill(fields, lines, out),
        Want::Visit { url } => {
            writeln!(out, "  {}", harmless(url))?;
            write!(out, "  Will you visit this page? y agree  n decline [n] ")?;
            out.flush()?;
            Ok(lines.line().map(|line| yes_or_no(&line, Answer::Agreed)))
        }
    }
}

fn yes_or_no(line: &str, yes: Answer) -> Answer {
    match line.trim() {
        "y" | "Y" | "yes" => yes,
        _ => Answer::Declined { why: None },
    }
}

fn choose(
    options: &[Choice],
    other: bool,
    lines: &mut dyn LineSource,
    out: &mut dyn Write,
) -> io::Result<Option<Answer>> {
    list(options, out)?;
    let one = Field {
        name: String::new(),
        title: String::new(),
        description: None,
        required: true,
        kind: FieldKind::One {
            options: options.to_vec(),
        },
        default: None,
    };
    let words = if other { " or your own words" } else { "" };
    loop {
        write!(out, "  a number{words} (empty: none) > ")?;
        out.flush()?;
        let Some(line) = lines.line() else {
            return Ok(None);
        };
        let typed = line.trim();
        if typed.is_empty() {
            return Ok(Some(Answer::Declined { why: None }));
        }
        match one.read(typed) {
            Ok(Some(Value::String(text))) => return Ok(Some(Answer::Text { text })),
            _ if other => {
                return Ok(Some(Answer::Text {
                    text: typed.to_owned(),
                }));
            }
            Ok(_) => {}
            Err(why) => writeln!(out, "  {why}")?,
        }
    }
}

fn list(options: &[Choice], out: &mut dyn Write) -> io::Result<()> {
    for (at, choice) in options.iter().enumerate() {
        writeln!(out, "  {}. {}", at + 1, harmless(&choice.title))?;
    }
    Ok(())
}

fn fill(
    fields: &[Field],
    lines: &mut dyn LineSource,
    out: &mut dyn Write,
) -> io::Result<Option<Answer>> {
    if fields.is_empty() {
        write!(out, "  y yes  n decline [n] ")?;
        out.flush()?;
        let yes = Answer::Form { values: Map::new() };
        return Ok(lines.line().map(|line| yes_or_no(&line, yes)));
    }
    writeln!(out, "  (!no declines; an empty line takes the default)")?;
    let mut values = Map::new();
    for field in fields {
        if let FieldKind::One { options } | FieldKind::Several { options, .. } = &field.kind {
            list(options, out)?;
        }
        loop {
            write!(out, "  {} > ", label(field))?;
            out.flush()?;
            let Some(line) = lines.line() else {
                return Ok(None);
            };
            if line.trim() == "!no" {
                return Ok(Some(Answer::Declined { why: None }));
            }
            match field.read(&line) {
                Ok(value) => {
                    values.extend(value.map(|value| (field.name.clone(), value)));
                    break;
                }
                Err(why) => writeln!(out, "  {why}")?,
            }
        }
    }
    Ok(Some(Answer::Form { values }))
}

fn label(field: &Field) -> String {
    let kind = match &field.kind {
        FieldKind::Text { format, .. } => format.as_deref().unwrap_or("text"),
        FieldKind::Number { integer: true, .. } => "whole number",
        FieldKind::Number { .. } => "number",
        FieldKind::Boolean => "y or n",
        FieldKind::One { .. } => "one of these",
        FieldKind::Several { .. } => "any of these, with commas",
    };
    let about = field
        .description
        .as_deref()
        .map_or_else(String::new, |text| format!(": {}", indented(text)));
    let fallback = match (&field.default, field.required) {
        (Some(value), _) => format!(" [{}]", harmless(&readable(value, &field.kind))),
        (None, true) => String::new(),
        (None, false) => " [none]".to_owned(),
    };
    format!("{}{about} ({kind}){fallback}", harmless(&field.title))
}

/// A value as the person would type it, or as the list above calls it.
fn readable(value: &Value, kind: &FieldKind) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| readable(value, kind)).collect();
            values.join(", ")
        }
        Value::String(text) => {
            let options = match kind {
                FieldKind::One { options } | FieldKind::Several { options, .. } => &options[..],
                _ => &[],
            };
            let chosen = options.iter().find(|choice| choice.value == *text);
            chosen.map_or(text, |choice| &choice.title).clone()
        }
        Value::Bool(yes) => if *yes { "y" } else { "n" }.to_owned(),
        other => other.to_string(),
    }
}

/// Untrusted text: it must not control the terminal or imitate our own lines.
fn indented(text: &str) -> String {
    harmless(text).replace('\n', "\n    ")
}

#[cfg(test)]
mod tests;
