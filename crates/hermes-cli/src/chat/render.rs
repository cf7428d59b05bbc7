//! Events of a session as text for a person, or as JSON for a program.

use std::collections::HashMap;
use std::io;

use hermes_agent::turn::explain;
use hermes_app::text::{harmless, shorten};
use hermes_core::approval::denial_for_people;
use hermes_core::event::{AgentEvent, NoticeLevel, SequencedEvent, TurnExit, TurnSummary};
use hermes_core::figures;
use hermes_core::ids::SessionId;
use hermes_core::model::Route;
use hermes_core::usage::{Cost, Usage};
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::output::Output;

/// The version of the JSON that `--output-format json|stream-json` prints.
const SCHEMA_VERSION: u32 = 1;

/// Shows the events of one turn after another.
pub(super) struct Renderer {
    out: Output,
    style: RenderStyle,
    session: SessionId,
    route: Option<Route>,
    /// Text of the current step that is on the screen and not yet ended by a newline.
    open_line: bool,
    streamed: bool,
    /// The open line contains reasoning, not the answer.
    thinking: bool,
    /// Collected reasoning, shown as a whole if nothing is streamed.
    thoughts: String,
    verbose: bool,
    /// The progress of every running call that is on the screen.
    reported: HashMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenderStyle {
    /// Text appears as it is written; for a person at a terminal.
    Live,
    /// The same for a program: the text as it is.
    Piped,
    /// Only the answer, once it is final.
    Final,
    Json,
    StreamJson,
}

impl Renderer {
    /// `streams`: text is streamed even without a terminal.
    pub(super) fn new(
        out: Output,
        format: OutputFormat,
        (verbose, streams): (bool, bool),
        session: SessionId,
    ) -> Self {
        let style = match format {
            OutputFormat::Text if out.stdout_tty => RenderStyle::Live,
            OutputFormat::Text if streams && !out.quiet => RenderStyle::Piped,
            OutputFormat::Text => RenderStyle::Final,
            OutputFormat::Json => RenderStyle::Json,
            OutputFormat::StreamJson => RenderStyle::StreamJson,
        };
        Self {
            out,
            style,
            session,
            route: None,
            open_line: false,
            streamed: false,
            thinking: false,
            thoughts: String::new(),
            verbose,
            reported: HashMap::new(),
        }
    }

    /// For the line REPL, which streams text even without a terminal.
    pub(super) fn live(out: Output, verbose: bool, session: SessionId) -> Self {
        Self {
            style: RenderStyle::Live,
            ..Self::new(out, OutputFormat::Text, (verbose, true), session)
        }
    }

    fn streams(&self) -> bool {
        matches!(self.style, RenderStyle::Live | RenderStyle::Piped)
    }

    /// The route of the turn, once it has started.
    pub(super) fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    pub(super) fn event(&mut self, event: &SequencedEvent) -> io::Result<()> {
        match &event.event {
            AgentEvent::TurnStarted { route, .. } | AgentEvent::RouteChanged { to: route, .. } => {
                self.route = Some(route.clone());
            }
            _ => {}
        }
        if self.verbose
            && matches!(
                self.style,
                RenderStyle::Final | RenderStyle::Piped | RenderStyle::Json
            )
        {
            self.gather_thoughts(&event.event);
        }
        match self.style {
            RenderStyle::StreamJson => self.stream_json(event),
            RenderStyle::Json => {
                self.remark(&event.event);
                Ok(())
            }
            RenderStyle::Live | RenderStyle::Piped | RenderStyle::Final => self.text(&event.event),
        }
    }

    /// Reasoning goes to stderr before its result.
    fn gather_thoughts(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::ReasoningDelta { text } => self.thoughts.push_str(text),
            AgentEvent::TextDelta { .. }
            | AgentEvent::ToolStarted { .. }
            | AgentEvent::StepDiscarded { .. }
            | AgentEvent::TurnFinished { .. }
                if !self.thoughts.is_empty() =>
            {
                let thoughts = std::mem::take(&mut self.thoughts);
                self.progress(&harmless(thoughts.trim_end()));
            }
            _ => {}
        }
    }

    fn text(&mut self, event: &AgentEvent) -> io::Result<()> {
        match event {
            AgentEvent::TextDelta { text } if self.streams() => {
                if self.thinking {
                    self.end_line()?;
                }
                if self.style == RenderStyle::Live {
                    self.out.piece(&harmless(text))?;
                } else {
                    self.out.piece(text)?;
                }
                self.streamed = true;
                self.open_line = !text.ends_with('\n');
            }
            AgentEvent::ReasoningDelta { text }
                if self.style == RenderStyle::Live && self.verbose =>
            {
                if !self.thinking {
                    self.end_line()?;
                }
                self.out.piece(&self.out.dim(&harmless(text)))?;
                self.thinking = true;
                self.open_line = !text.ends_with('\n');
            }
            AgentEvent::StepDiscarded { why } => {
                self.end_line()?;
                self.streamed = false;
                self.progress(&format!("({why}; asking again)"));
            }
            AgentEvent::ToolStarted { .. } => self.end_line()?,
            AgentEvent::TurnFinished { summary } => self.finish_text(summary)?,
            _ => {}
        }
        self.remark(event);
        Ok(())
    }

    /// Programs send the end of their output repeatedly: only the new part is shown.
    fn progress_of(&mut self, call: &str, text: &str) {
        let before = self.reported.insert(call.to_owned(), text.to_owned());
        let new = unseen_text(before.as_deref().unwrap_or_default(), text);
        for line in new.lines().filter(|line| !line.is_empty()) {
            self.progress(&format!("  | {}", harmless(line)));
        }
    }

    fn finish_text(&mut self, summary: &TurnSummary) -> io::Result<()> {
        let shown = self.streamed;
        self.end_line()?;
        let worth_printing = !matches!(
            summary.exit,
            TurnExit::Failed { .. } | TurnExit::Interrupted | TurnExit::StoreFailed { .. }
        );
        if !shown && worth_printing && !summary.text.is_empty() {
            let text = summary.text.trim_end_matches('\n');
            // Programs get the text as it is.
            if self.style == RenderStyle::Live {
                self.out.line(harmless(text))?;
            } else {
                self.out.answer_line(text)?;
            }
        }
        self.streamed = false;
        if let Some(why) = explain(&summary.exit, self.route.as_ref()) {
            self.out.error(format!("hermes: {}", harmless(&why)));
        }
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.thinking = false;
        if std::mem::take(&mut self.open_line) {
            self.out.line("")?;
        }
        Ok(())
    }

    /// Information for a person besides the text, on stderr.
    fn remark(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::ToolStarted {
                name, arguments, ..
            } => {
                self.progress(&format!("• {name} {}", shorten(arguments, 100)));
            }
            AgentEvent::ToolProgress { call_id, text } => self.progress_of(call_id, text),
            AgentEvent::ToolFinished {
                call_id,
                name,
                error,
                preview,
                millis,
                ..
            } => {
                self.reported.remove(call_id);
                let seconds = *millis as f64 / 1000.0;
                match error {
                    Some(kind) => {
                        let label = kind.label().unwrap_or("failed");
                        let why = shorten(&denial_for_people(preview), 200);
                        self.progress(&format!("  ✗ {name} {label} ({seconds:.1}s): {why}"));
                    }
                    None if self.verbose => self.progress(&format!("  {}", shorten(preview, 500))),
                    None => {}
                }
            }
            AgentEvent::Retrying {
                message,
                attempt,
                delay_ms,
                ..
            } => self.out.remark(format!(
                "hermes: {}; attempt {} in {:.1}s",
                shorten(message, 200),
                attempt + 1,
                *delay_ms as f64 / 1000.0
            )),
            AgentEvent::RouteChanged { from, to, why } => self.out.remark(format!(
                "hermes: {} ({}) → {} ({}): {why}",
                from.model, from.provider, to.model, to.provider
            )),
            AgentEvent::CompactionStarted { prompt_tokens } => {
                self.progress(&format!(
                    "• compressing the conversation ({} tokens)",
                    figures::tokens(*prompt_tokens)
                ));
            }
            AgentEvent::Compacted {
                before_tokens,
                after_tokens,
                ..
            } => {
                self.progress(&format!(
                    "  {} → {} tokens",
                    figures::tokens(*before_tokens),
                    figures::tokens(*after_tokens)
                ));
            }
            AgentEvent::Notice { level, text } => match level {
                NoticeLevel::Info => self.progress(text),
                NoticeLevel::Warning | NoticeLevel::Error => {
                    self.out.remark(format!("hermes: {text}"));
                }
            },
            _ => {}
        }
    }

    /// Shown only to a person: scripts that capture stderr want problems, not progress.
    fn progress(&self, text: &str) {
        if self.out.stderr_tty || self.verbose {
            let plain = Output {
                color: self.out.color && self.out.stderr_tty,
                ..self.out
            };
            self.out.remark(plain.dim(text));
        }
    }

    fn stream_json(&self, event: &SequencedEvent) -> io::Result<()> {
        let Some(mut line) = stream_line(&event.event, &self.session) else {
            return Ok(());
        };
        if matches!(event.event, AgentEvent::TurnFinished { .. }) {
            self.name_model(&mut line);
        }
        line["seq"] = json!(event.seq);
        self.out.json_line(&line)?;
        if let AgentEvent::TurnFinished { summary } = &event.event
            && let Some(why) = explain(&summary.exit, self.route.as_ref())
        {
            self.out.error(format!("hermes: {}", harmless(&why)));
        }
        Ok(())
    }

    /// The one object of `--output-format json`.
    pub(super) fn result(&self, summary: &TurnSummary) -> io::Result<()> {
        if self.style != RenderStyle::Json {
            return Ok(());
        }
        if let Some(why) = explain(&summary.exit, self.route.as_ref()) {
            self.out.error(format!("hermes: {}", harmless(&why)));
        }
        let mut line = result_line(summary, &self.session);
        self.name_model(&mut line);
        self.out.json(&line)
    }

    /// The output of a command of the home, which took no turn.
    pub(super) fn command_output(&self, text: &str) -> io::Result<()> {
        match self.style {
            RenderStyle::Live | RenderStyle::Piped | RenderStyle::Final => {
                self.out.foreign_line(text)
            }
            RenderStyle::Json | RenderStyle::StreamJson => {
                let summary = TurnSummary {
                    exit: TurnExit::Answered,
                    text: text.to_owned(),
                    usage: Usage::default(),
                    cost: Cost::Actual { usd: 0.0 },
                    calls: 0,
                    tool_calls: 0,
                    millis: 0,
                    pending_steer: None,
                };
                let line = result_line(&summary, &self.session);
                match self.style {
                    RenderStyle::StreamJson => self.out.json_line(&line),
                    _ => self.out.json(&line),
                }
            }
        }
    }

    /// A result names the model, which may be a fallback.
    fn name_model(&self, line: &mut Value) {
        if let Some(route) = &self.route {
            line["model"] = json!(route.model);
            line["provider"] = json!(route.provider);
        }
    }
}

/// One event as a line of stream-json. `None`: not part of the contract.
fn stream_line(event: &AgentEvent, session: &SessionId) -> Option<Value> {
    let line = match event {
        AgentEvent::TurnStarted { route, .. } => json!({
            "type": "init", "schema": SCHEMA_VERSION, "session_id": session,
            "model": route.model, "provider": route.provider,
        }),
        AgentEvent::TextDelta { text } => json!({"type": "text", "text": text}),
        AgentEvent::ReasoningDelta { text } => json!({"type": "reasoning", "text": text}),
        AgentEvent::StepDiscarded { why } => json!({"type": "discard", "why": why}),
        AgentEvent::ToolStarted {
            call_id,
            name,
            arguments,
        } => json!({
            "type": "tool_start", "id": call_id, "name": name, "arguments": arguments,
        }),
        AgentEvent::ToolProgress { call_id, text } => json!({
            "type": "tool_progress", "id": call_id, "text": text,
        }),
        AgentEvent::ToolFinished {
            call_id,
            name,
            error,
            preview,
            millis,
        } => json!({
            "type": "tool_end", "id": call_id, "name": name, "error": error,
            "preview": preview, "millis": millis,
        }),
        AgentEvent::ApprovalNeeded { request } => json!({"type": "approval", "request": request}),
        AgentEvent::QuestionAsked { question } => json!({"type": "question", "question": question}),
        AgentEvent::UsageUpdated {
            usage,
            cost,
            context_used,
            context_length,
        } => json!({
            "type": "usage", "usage": usage, "cost": cost,
            "context_used": context_used, "context_length": context_length,
        }),
        AgentEvent::TurnFinished { summary } => result_line(summary, session),
        AgentEvent::Closed => return None,
        // The rest keeps its own shape: retrying, route_changed, compacted, notice, …
        other => serde_json::to_value(other).ok()?,
    };
    Some(line)
}

fn result_line(summary: &TurnSummary, session: &SessionId) -> Value {
    let answered = summary.exit == TurnExit::Answered;
    json!({
        "type": "result", "schema": SCHEMA_VERSION, "session_id": session,
        "ok": answered, "exit": summary.exit, "text": summary.text,
        "usage": summary.usage, "cost": summary.cost,
        "calls": summary.calls, "tool_calls": summary.tool_calls, "millis": summary.millis,
    })
}

/// The part of `text` that is not in `before`: both are the end of the same growing output.
fn unseen_text<'a>(before: &str, text: &'a str) -> &'a str {
    let known = before
        .char_indices()
        .map(|(at, _)| &before[at..])
        .find(|known| text.starts_with(known));
    &text[known.map_or(0, str::len)..]
}

#[cfg(test)]
mod tests {
    use super::unseen_text;

    #[test]
    fn progress_shows_what_is_new() {
        assert_eq!(unseen_text("", "step 1"), "step 1");
        assert_eq!(unseen_text("step 1", "step 1\nstep 2"), "\nstep 2");
        assert_eq!(unseen_text("step 1\nstep 2", "ep 2\nstep 3"), "\nstep 3");
        assert_eq!(unseen_text("50 %", "done"), "done");
        assert_eq!(unseen_text("é 1", "é 1"), "");
    }
}
