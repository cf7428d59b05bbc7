//! Refusals of the form of a conversation: ids, roles, schemas, kinds of content. Writing it in
//! another form loses nothing.

use std::sync::LazyLock;

use hermes_core::message::Message;
use hermes_core::model::{ErrorClass, ModelRequest, WireFormat};

use regex::Regex;

use super::{
    FieldChange, FieldRule, IMAGES, RESULT_PARTS, SCHEMA_WORDS, SYSTEM_ROLE, TOOL_IDS, error_names,
};
use crate::classify::ErrorVerdict;

/// The rule that makes the conversation acceptable. `None`: the refusal is about something else.
pub(crate) fn refused_shape(
    verdict: &ErrorVerdict,
    request: &ModelRequest,
    format: WireFormat,
) -> Option<FieldRule> {
    if let Some(rule) = refused_size(verdict, request, format) {
        return Some(rule);
    }
    let field = match verdict.class {
        ErrorClass::SchemaRejected if !request.tools.is_empty() => SCHEMA_WORDS,
        ErrorClass::ImagesUnsupported if has_images(request) => IMAGES,
        ErrorClass::ToolContentRejected if has_images(request) => RESULT_PARTS,
        ErrorClass::Format | ErrorClass::Unknown | ErrorClass::Server => {
            let text = &verdict.report.text;
            if has_calls(request) && refuses_ids(text, &error_names::stated(&verdict.report.json)) {
                TOOL_IDS
            } else if format == WireFormat::ChatCompletions && refuses_system(text) {
                SYSTEM_ROLE
            } else {
                return None;
            }
        }
        _ => return None,
    };
    Some(FieldRule::new(field, FieldChange::Drop))
}

/// A list of tools that is too long, or the description of one.
fn refused_size(
    verdict: &ErrorVerdict,
    request: &ModelRequest,
    format: WireFormat,
) -> Option<FieldRule> {
    static LIMIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?:maximum (?:length|number)|at most|no more than|more than|up to|limit|maximum)(?: of| is|:)?[^\d\n]{0,20}?(\d[\d,_]*)").ok()
    });
    if verdict.class != ErrorClass::Format {
        return None;
    }
    let text = &verdict.report.text;
    let too_much = [
        "too long",
        "too many",
        "exceed",
        "maximum",
        "at most",
        "more than",
    ]
    .iter()
    .any(|word| text.contains(word));
    let limit: u64 = LIMIT
        .as_ref()?
        .captures(text)?
        .get(1)?
        .as_str()
        .replace([',', '_'], "")
        .parse()
        .ok()
        .filter(|limit| *limit > 0 && too_much)?;
    let stated = error_names::stated(&verdict.report.json);
    let at = |end: &str| {
        stated
            .iter()
            .any(|path| path.starts_with("tools") && path.ends_with(end))
    };
    let described = at(".description") || (text.contains("tools") && text.contains("description'"));
    let field = if described {
        match format {
            WireFormat::ChatCompletions => "tools.*.function.description",
            WireFormat::AnthropicMessages | WireFormat::Responses => "tools.*.description",
        }
    } else if stated.iter().any(|path| path == "tools")
        || [
            "'tools'",
            "tools:",
            "too many tools",
            "number of tools",
            "tools in",
        ]
        .iter()
        .any(|words| text.contains(words))
    {
        // A limit above the actual number is about something else.
        let count = u64::try_from(request.tools.len()).unwrap_or(u64::MAX);
        return (limit < count).then(|| FieldRule::new("tools", FieldChange::AtMost { limit }));
    } else {
        return None;
    };
    Some(FieldRule::new(field, FieldChange::AtMost { limit }))
}

pub(crate) fn has_images(request: &ModelRequest) -> bool {
    request.messages.iter().any(|message| match &**message {
        Message::User(user) => user.content.image_count() > 0,
        Message::Tool(tool) => tool.content.image_count() > 0,
        Message::Assistant(_) => false,
    })
}

fn has_calls(request: &ModelRequest) -> bool {
    let calls =
        |message: &Message| matches!(message, Message::Assistant(m) if !m.tool_calls.is_empty());
    request.messages.iter().any(|message| calls(message))
}

/// Whether the format of an id is not accepted. A missing or unanswered one is a different problem.
fn refuses_ids(text: &str, stated: &[String]) -> bool {
    const FORM: &[&str] = &[
        "must be a-z",
        "with a length of",
        "too long",
        "maximum length",
        "does not match",
        "match pattern",
        "match the pattern",
        "should match",
        "invalid characters",
        "alphanumeric",
        "expected an id",
        "invalid tool call id",
        "invalid tool_call_id",
    ];
    const IDS: &[&str] = &[
        "tool call id",
        "tool_call_id",
        "tool_use.id",
        "tool_use_id",
        "tool_result.tool_use_id",
        "toolcallid",
        ".call_id",
    ];
    let form = FORM.iter().any(|word| text.contains(word));
    let named = IDS.iter().any(|word| text.contains(word))
        || (text.contains("tool_calls[") && text.contains("].id"));
    let placed = stated.iter().any(|path| {
        [
            "tool_calls.*.id",
            "tool_call_id",
            "call_id",
            "tool_use.id",
            "tool_use_id",
        ]
        .iter()
        .any(|end| path.ends_with(end))
    });
    form && (named || placed)
}

/// Whether system prompts are not supported.
fn refuses_system(text: &str) -> bool {
    [
        "system role not supported",
        "system role is not supported",
        "system messages are not supported",
        "system message is not supported",
        "system prompt is not supported",
        "does not support system",
        "doesn't support system",
        "not support the system role",
        "only user and assistant roles are supported",
        "only user, assistant and tool roles are supported",
        "developer instruction is not enabled",
        "system instruction is not enabled",
        "unexpected role: system",
        "unexpected role 'system'",
        "'system' is not one of",
    ]
    .iter()
    .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_ids() {
        for text in [
            "tool call id was call_0fyps1hvx but must be a-z, a-z, 0-9, with a length of 9.",
            "invalid 'messages[2].tool_calls[0].id': string too long. expected a string with maximum length 40, but got a string with length 90 instead.",
            "invalid 'input[95].call_id': string too long. expected a string with maximum length 64, but got a string with length 116 instead.",
            "messages.1.content.1.tool_use.id: string should match pattern '^[a-za-z0-9_-]+$'",
            "messages.2.content.0.tool_result.tool_use_id: string should match pattern '^[a-za-z0-9_-]+$'",
        ] {
            assert!(refuses_ids(text, &[]), "{text}");
        }
        for text in [
            "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
            "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
            "missing required parameter: 'messages[3].tool_call_id'",
            "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_01.",
        ] {
            assert!(!refuses_ids(text, &[]), "{text}");
        }
    }
}
