//! Events as lines, for snapshots.

use hermes_core::event::AgentEvent;

pub(crate) fn lines(events: &[AgentEvent]) -> String {
    let lines: Vec<String> = events.iter().map(line).collect();
    lines.join("\n")
}

fn line(event: &AgentEvent) -> String {
    match event {
        AgentEvent::TurnStarted { route, .. } => format!("turn started on {}", route.model),
        AgentEvent::TextDelta { text } => format!("text {text:?}"),
        AgentEvent::ReasoningDelta { text } => format!("reasoning {text:?}"),
        AgentEvent::StepDiscarded { why } => format!("discarded: {why}"),
        AgentEvent::ToolStarted {
            name, arguments, ..
        } => format!("tool {name} {arguments} started"),
        AgentEvent::ToolProgress { text, .. } => format!("progress {text:?}"),
        AgentEvent::ToolFinished {
            name,
            error,
            preview,
            millis,
            ..
        } => format!("tool {name} finished after {millis} ms, error {error:?}: {preview}"),
        AgentEvent::ApprovalNeeded { request } => format!("approval of {}", request.action),
        AgentEvent::QuestionAsked { question } => format!("question {}", question.text),
        AgentEvent::QuestionClosed { .. } => "question closed".to_owned(),
        AgentEvent::Retrying {
            class,
            attempt,
            delay_ms,
            ..
        } => format!("retrying {class:?}, attempt {attempt}, after {delay_ms} ms"),
        AgentEvent::RouteChanged { from, to, why } => format!(
            "route {} {} -> {} {}: {why}",
            from.model,
            from.credential.as_deref().unwrap_or("-"),
            to.model,
            to.credential.as_deref().unwrap_or("-"),
        ),
        AgentEvent::CompactionStarted { .. } => "compaction started".into(),
        AgentEvent::Compacted { summary, .. } => format!("compacted, summary {summary}"),
        AgentEvent::UsageUpdated {
            usage,
            context_used,
            context_length,
            ..
        } => format!(
            "usage {} in {} out, context {context_used}/{context_length}",
            usage.input, usage.output
        ),
        AgentEvent::Steered { text } => format!("steered {text:?}"),
        AgentEvent::TitleChanged { title } => format!("title {title:?}"),
        AgentEvent::QueueChanged { waiting } => format!("queue {waiting}"),
        AgentEvent::Notice { level, text } => format!("notice {level:?}: {text}"),
        AgentEvent::TurnFinished { summary } => format!(
            "turn finished: {:?}, {} calls, {} tool calls, {} ms, steer {:?}\n  {:?}",
            summary.exit,
            summary.calls,
            summary.tool_calls,
            summary.millis,
            summary.pending_steer,
            summary.text
        ),
        AgentEvent::Closed => "closed".into(),
    }
}
