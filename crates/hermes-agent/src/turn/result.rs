//! Converts the outcome of a tool to the message that the model reads, with its size limit.

use hermes_core::message::{Content, Part, ToolCall, ToolMessage};
use hermes_core::taint::FROM_OUTSIDE;
use hermes_core::tool::{Effects, ToolErrorKind, ToolOutcome, ToolSpec};
use serde_json::json;

use super::{Turn, outside};
use crate::session::steer;
use crate::spill::{ResultLimits, SizedResult, file_name};

/// Of a result that is shown to a person, and of one text in it.
const MAX_PREVIEW_CHARS: usize = 32_000;
const MAX_PREVIEW_TEXT: usize = 12_000;

/// What the steps's results may still add to the conversation.
pub(super) struct ResultBudget {
    limits: ResultLimits,
    left: usize,
}

/// The text of an outcome, and what went wrong. A result that is an object stays one: it says
/// itself that it is an error, and programs may read it.
pub(super) fn content_of(outcome: ToolOutcome) -> (Content, Option<ToolErrorKind>) {
    match outcome {
        ToolOutcome::Done(content) => (content, None),
        ToolOutcome::Error { kind, text } if complaint(&text).is_some() => {
            (Content::Text(text), Some(kind))
        }
        ToolOutcome::Error { kind, text } => (Content::Text(format!("Error: {text}")), Some(kind)),
    }
}

/// The words of a result that is an object with an `error`, or a list of which every part has
/// one. A note may follow it.
pub(crate) fn complaint(text: &str) -> Option<String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let object = values.next()?.ok()?;
    let error = |value: &serde_json::Value| Some(value.get("error")?.as_str()?.to_owned());
    error(&object).or_else(|| {
        let parts = object.get("results")?.as_array()?.iter().map(error);
        let errors: Vec<String> = parts.collect::<Option<_>>()?;
        (!errors.is_empty()).then(|| errors.join("; "))
    })
}

/// What is known of the side effect: the value of `effect_disposition`.
pub(super) fn disposition(spec: Option<&ToolSpec>, error: Option<ToolErrorKind>) -> Option<String> {
    let error = error?;
    let reads =
        spec.is_none_or(|spec| matches!(spec.effects, Effects::ReadOnly | Effects::ReadsPaths(_)));
    let known = match error {
        ToolErrorKind::BadArguments | ToolErrorKind::UnknownTool | ToolErrorKind::Denied => "none",
        ToolErrorKind::OutcomeUnknown => "unknown",
        ToolErrorKind::Cancelled | ToolErrorKind::TimedOut | ToolErrorKind::Panicked if !reads => {
            "unknown"
        }
        _ => return None,
    };
    Some(known.to_owned())
}

pub(super) fn message(
    call: &ToolCall,
    content: Content,
    disposition: Option<String>,
) -> ToolMessage {
    ToolMessage {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content,
        disposition,
    }
}

/// Adds text at the end of a result.
pub(super) fn append(content: &mut Content, more: &str) {
    match content {
        Content::Text(text) => text.push_str(more),
        Content::Parts(parts) => parts.push(Part::text(more.trim_start())),
    }
}

/// For display: of an error its words, of what is long the beginning and the end. An object stays
/// one, so that a front end finds the exit code behind ten thousand lines.
pub(super) fn preview(content: &Content, error: Option<ToolErrorKind>) -> String {
    let text = match error {
        Some(_) => error_text(content).into(),
        None => content.text(),
    };
    if text.len() <= MAX_PREVIEW_CHARS {
        return text.into_owned();
    }
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    let text = match values.next() {
        Some(Ok(mut value)) if value.is_object() || value.is_array() => {
            shorten(&mut value);
            value.to_string()
        }
        // With room for the mark.
        _ => middle_cut(&text, MAX_PREVIEW_CHARS - 100),
    };
    hermes_core::text::shorten(&text, MAX_PREVIEW_CHARS)
}

/// Cuts the long texts in a value.
fn shorten(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) if text.len() > MAX_PREVIEW_TEXT => {
            *text = middle_cut(text, MAX_PREVIEW_TEXT);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(shorten),
        serde_json::Value::Object(map) => map.values_mut().for_each(shorten),
        _ => {}
    }
}

/// A third from the beginning, the rest from the end, where programs say how it went.
fn middle_cut(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let byte = |chars: usize| {
        text.char_indices()
            .nth(chars)
            .map_or(text.len(), |(at, _)| at)
    };
    let (head, tail) = (max / 3, max - max / 3);
    format!(
        "{}\n[… {} characters are not shown …]\n{}",
        &text[..byte(head)],
        count - max,
        &text[byte(count - tail)..]
    )
}

/// What an error says, without what is around it.
pub(super) fn error_text(content: &Content) -> String {
    let text = content.text();
    complaint(&text).unwrap_or_else(|| text.trim_start_matches("Error: ").to_owned())
}

impl Turn<'_> {
    pub(super) fn result_budget(&self) -> ResultBudget {
        let settings = &self.scope.deps.settings.tools;
        let context = self.conv.compactor.window().context;
        let limits = ResultLimits::for_window(context, settings.result_chars, settings.step_chars);
        ResultBudget {
            left: limits.step,
            limits,
        }
    }

    /// Fences what comes from outside and spills what is too long.
    pub(super) async fn tame(
        &self,
        call: &ToolCall,
        spec: Option<&ToolSpec>,
        content: Content,
        result_budget: &mut ResultBudget,
    ) -> Content {
        match content {
            Content::Text(text) => {
                Content::Text(self.tame_text(call, spec, &text, result_budget).await)
            }
            Content::Parts(parts) => {
                let mut out = Vec::with_capacity(parts.len());
                for part in parts {
                    out.push(match part.as_text() {
                        Some(text) => {
                            Part::text(self.tame_text(call, spec, text, result_budget).await)
                        }
                        None => part,
                    });
                }
                Content::Parts(out)
            }
        }
    }

    async fn tame_text(
        &self,
        call: &ToolCall,
        spec: Option<&ToolSpec>,
        text: &str,
        result_budget: &mut ResultBudget,
    ) -> String {
        let text = steer::defang(text);
        let suspicious = outside::suspicious(spec, &text);
        let untrusted = spec.is_some_and(|spec| spec.untrusted);
        let is_outside = outside::is_from_outside(&text);
        if untrusted || !suspicious.is_empty() || is_outside {
            self.conv.taint.mark();
        }
        let result = SizedResult {
            tool: &call.name,
            call_id: &call.id,
            text: &text,
            untrusted,
            suspicious: &suspicious,
        };
        let mut shown = if result.exceeds(result_budget.limits.result, result_budget.left) {
            let settings = &self.scope.deps.settings.tools;
            let dir = settings
                .spill_dir
                .as_ref()
                .map(|dir| dir.join(file_name(self.conv.id.as_str())));
            result.spill(dir.as_deref()).await
        } else {
            result.whole()
        };
        // What was cut off may have said so.
        if is_outside && !outside::is_from_outside(&shown) {
            shown.push_str("\n\n");
            shown.push_str(&json!({ FROM_OUTSIDE: true }).to_string());
        }
        result_budget.left = result_budget.left.saturating_sub(shown.chars().count());
        shown
    }
}

#[cfg(test)]
mod tests {
    use hermes_core::message::Content;
    use serde_json::{Value, json};

    use super::{MAX_PREVIEW_CHARS, complaint, preview};

    #[test]
    fn a_preview_keeps_the_end_and_what_stands_behind_it() {
        let shown = |text: String| preview(&Content::Text(text), None);
        assert_eq!(shown("short".to_owned()), "short");
        let lines: Vec<String> = (0..20_000).map(|n| format!("line {n} é")).collect();
        let output = lines.join("\n") + "\n";
        let long = json!({ "output": output, "exit_code": 101 }).to_string();
        let value: Value = serde_json::from_str(&shown(long)).unwrap();
        let kept = value["output"].as_str().unwrap();
        assert!(kept.starts_with("line 0 é") && kept.ends_with("line 19999 é\n"));
        assert!(kept.contains("characters are not shown"));
        assert_eq!(value["exit_code"], 101);
        let plain = shown(output);
        assert!(plain.ends_with("line 19999 é\n"));
        assert!(plain.chars().count() <= MAX_PREVIEW_CHARS + 1);
        let wide = json!(vec!["x".repeat(100); 1_000]).to_string();
        assert!(shown(wide).chars().count() <= MAX_PREVIEW_CHARS + 1);
    }

    #[test]
    fn an_error_is_found_in_an_object() {
        let of = |text: &str| complaint(text).unwrap_or_default();
        assert_eq!(of(r#"{"output":"","error":"no"}"#), "no");
        assert_eq!(of("{\"error\":\"no\"}\n\n[Note: again]"), "no");
        assert_eq!(of(r#"{"results":[{"error":"a"},{"error":"b"}]}"#), "a; b");
        for fine in [
            r#"{"output":"x","error":null}"#,
            r#"{"results":[{"error":"a"},{"error":null}]}"#,
            r#"{"results":[]}"#,
            "error",
            "",
        ] {
            assert_eq!(complaint(fine), None, "{fine}");
        }
    }
}
