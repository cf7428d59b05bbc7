//! Shorter prompts and tool descriptions for small context windows.
//!
//! Below 64K tokens the prompt is shorter and tool schemas lose their prose; below 16K only the
//! tools that most work needs stay. Nothing is refused, unless what must be sent does not fit.
//!
//! Small models get the same treatment whatever their window: long instructions confuse them. One
//! that cannot call tools only chats.

use std::sync::Arc;

use hermes_core::model::ModelInfo;
use hermes_core::tool::ToolSpec;
use hermes_core::tool_traits::tool_traits;
use serde_json::{Map, Value};

/// How much goes around the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptSize {
    #[default]
    Full,
    /// Short prompt, trimmed schemas.
    Lean,
    /// As lean, with few tools.
    Minimal,
    /// A few sentences and no tools: for small models that cannot use them.
    Chat,
}

const LEAN_BELOW: u32 = 64_000;
const MINIMAL_BELOW: u32 = 16_000;

/// Longest tool description in the lean modes, in characters.
const MAX_LEAN_DESCRIPTION: usize = 160;
const MAX_MINIMAL_DESCRIPTION: usize = 90;

impl PromptSize {
    pub fn of(context_length: u32) -> Self {
        if context_length < MINIMAL_BELOW {
            Self::Minimal
        } else if context_length < LEAN_BELOW {
            Self::Lean
        } else {
            Self::Full
        }
    }

    /// What a model can take.
    pub fn for_model(model: &ModelInfo) -> Self {
        match (model.small, model.tools) {
            (true, false) => Self::Chat,
            (true, true) => Self::Minimal,
            (false, _) => Self::of(model.context_length),
        }
    }

    /// What to tell the person, once per session.
    pub fn warning(self, context_length: u32) -> Option<String> {
        let what = match self {
            Self::Full => return None,
            Self::Chat => {
                return Some(
                    "This is a small model: it can chat and answer simple questions, and it is \
                     often wrong. It has no tools, so it cannot act. /model chooses another."
                        .to_owned(),
                );
            }
            Self::Lean => "a shorter prompt and trimmed tool descriptions are used",
            Self::Minimal => "a short prompt and only the most needed tools are used",
        };
        Some(format!(
            "The model's context is small ({context_length} tokens): {what}, and long \
             conversations are condensed often. Where the model can take more, set \
             model.context_length."
        ))
    }

    /// Whether a tool is offered. In a minimal window, tools the person chose by name pass too.
    pub fn offers(self, tool: &str, chosen: bool) -> bool {
        match self {
            Self::Full | Self::Lean => true,
            Self::Minimal => chosen || tool_traits(tool).minimal,
            Self::Chat => false,
        }
    }

    /// The tools array for this mode. `chosen` are toolsets or tools that the person named.
    pub fn tools(self, specs: &[ToolSpec], chosen: &[String]) -> Arc<[ToolSpec]> {
        let is_chosen = |spec: &ToolSpec| {
            chosen
                .iter()
                .any(|name| *name == spec.name || name == spec.toolset)
        };
        specs
            .iter()
            .filter(|spec| self.offers(&spec.name, is_chosen(spec)))
            .map(|spec| self.spec(spec))
            .collect()
    }

    /// One tool as this mode describes it.
    pub fn spec(self, spec: &ToolSpec) -> ToolSpec {
        let limit = match self {
            Self::Full => return spec.clone(),
            Self::Lean => MAX_LEAN_DESCRIPTION,
            Self::Minimal | Self::Chat => MAX_MINIMAL_DESCRIPTION,
        };
        ToolSpec {
            description: first_sentences(&spec.description, limit),
            parameters: Arc::new(trimmed_schema(&spec.parameters)),
            ..spec.clone()
        }
    }
}

/// The sentences that fit, at least one (cut at a word if need be).
fn first_sentences(text: &str, limit: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= limit {
        return text;
    }
    let mut sentences = String::new();
    for sentence in text.split_inclusive(". ") {
        if sentences.chars().count() + sentence.trim_end().chars().count() > limit {
            break;
        }
        sentences.push_str(sentence);
    }
    if !sentences.is_empty() {
        return sentences.trim_end().to_owned();
    }
    let head: String = text.chars().take(limit).collect();
    let cut = head.rfind(' ').map_or(head.as_str(), |at| &head[..at]);
    format!("{cut}…")
}

/// A schema without prose: names, types, enums, required, structure and limits stay.
pub fn trimmed_schema(schema: &Value) -> Value {
    const PROSE: &[&str] = &[
        "description",
        "title",
        "examples",
        "example",
        "$comment",
        "default",
    ];
    const NAMED: &[&str] = &["properties", "$defs", "definitions", "patternProperties"];
    match schema {
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                if NAMED.contains(&key.as_str())
                    && let Value::Object(members) = value
                {
                    // Here keys are names of parameters: one may well be called "description".
                    let members = members
                        .iter()
                        .map(|(name, member)| (name.clone(), trimmed_schema(member)))
                        .collect();
                    out.insert(key.clone(), Value::Object(members));
                } else if matches!(key.as_str(), "enum" | "const" | "required") {
                    out.insert(key.clone(), value.clone());
                } else if !PROSE.contains(&key.as_str()) {
                    out.insert(key.clone(), trimmed_schema(value));
                }
            }
            Value::Object(out)
        }
        Value::Array(items) => items.iter().map(trimmed_schema).collect(),
        other => other.clone(),
    }
}

/// Room that an answer needs at the very least.
const MIN_ANSWER_TOKENS: u64 = 256;

/// What must be sent does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model's context of {context} tokens is too small for this message: system prompt {system}, \
     tools {tools}, message {message} tokens"
)]
pub struct WindowTooSmall {
    pub context: u32,
    pub system: u64,
    pub tools: u64,
    pub message: u64,
}

/// Refuses only what cannot work: the prompt, the tools and the newest message alone exceed the
/// window. Figures are real tokens (see [`crate::tokens::TokenMeter::real`]).
pub fn fits(context: u32, system: u64, tools: u64, message: u64) -> Result<(), WindowTooSmall> {
    if system + tools + message + MIN_ANSWER_TOKENS <= u64::from(context) {
        return Ok(());
    }
    Err(WindowTooSmall {
        context,
        system,
        tools,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermes_core::tool::Effects;
    use serde_json::json;

    fn spec(name: &str, description: &str, parameters: Value) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: Arc::new(parameters),
            toolset: "file",
            effects: Effects::ReadOnly,
            untrusted: false,
        }
    }

    #[test]
    fn modes_by_window() {
        assert_eq!(PromptSize::of(8_192), PromptSize::Minimal);
        assert_eq!(PromptSize::of(32_768), PromptSize::Lean);
        assert_eq!(PromptSize::of(64_000), PromptSize::Full);
        assert!(PromptSize::of(64_000).warning(64_000).is_none());
        assert!(
            PromptSize::of(8_192)
                .warning(8_192)
                .unwrap()
                .contains("8192")
        );
    }

    #[test]
    fn a_small_model_gets_little_whatever_its_window() {
        let mut model = ModelInfo {
            context_length: 131_072,
            context_source: "test",
            max_output: None,
            images: false,
            tools: true,
            prices: None,
            local: true,
            small: false,
        };
        assert_eq!(PromptSize::for_model(&model), PromptSize::Full);
        model.small = true;
        assert_eq!(PromptSize::for_model(&model), PromptSize::Minimal);
        model.tools = false;
        assert_eq!(PromptSize::for_model(&model), PromptSize::Chat);
        assert!(
            PromptSize::Chat
                .warning(8_192)
                .unwrap()
                .contains("no tools")
        );
        let specs = [spec("read_file", "", json!({}))];
        assert!(
            PromptSize::Chat
                .tools(&specs, &["read_file".into()])
                .is_empty()
        );
    }

    #[test]
    fn schemas_keep_what_a_call_needs() {
        let full = json!({
            "type": "object",
            "title": "Args",
            "properties": {
                "description": {"type": "string", "description": "what it is", "minLength": 1},
                "mode": {"type": "string", "enum": ["description", "title"], "default": "title"},
                "items": {"type": "array", "items": {"type": "object", "properties": {
                    "title": {"type": "string", "title": "T"}}}}
            },
            "required": ["description", "mode"]
        });
        assert_eq!(
            trimmed_schema(&full),
            json!({
                "type": "object",
                "properties": {
                    "description": {"type": "string", "minLength": 1},
                    "mode": {"type": "string", "enum": ["description", "title"]},
                    "items": {"type": "array", "items": {"type": "object", "properties": {
                        "title": {"type": "string"}}}}
                },
                "required": ["description", "mode"]
            })
        );
    }

    #[test]
    fn descriptions_are_cut_at_sentences() {
        let long = format!("Reads a file. {}", "More about it. ".repeat(40));
        let lean = PromptSize::Lean.spec(&spec("read_file", &long, json!({})));
        assert!(lean.description.starts_with("Reads a file. More"));
        assert!(lean.description.ends_with('.'));
        assert!(lean.description.chars().count() <= MAX_LEAN_DESCRIPTION);
        let endless = PromptSize::Lean.spec(&spec("x", &"wörter ".repeat(100), json!({})));
        assert!(endless.description.ends_with('…'));
        assert_eq!(
            PromptSize::Full
                .spec(&spec("x", &long, json!({})))
                .description,
            long
        );
    }

    #[test]
    fn a_minimal_window_offers_few_tools_and_those_chosen() {
        let specs = [
            spec("read_file", "", json!({})),
            spec("todo", "", json!({})),
        ];
        let names = |mode: PromptSize, chosen: &[String]| -> Vec<String> {
            mode.tools(&specs, chosen)
                .iter()
                .map(|spec| spec.name.clone())
                .collect()
        };
        assert_eq!(names(PromptSize::Minimal, &[]), ["read_file"]);
        assert_eq!(names(PromptSize::Minimal, &["todo".to_owned()]).len(), 2);
        assert_eq!(names(PromptSize::Lean, &[]).len(), 2);
    }

    #[test]
    fn only_what_cannot_fit_is_refused() {
        assert!(fits(4_096, 1_500, 1_000, 1_000).is_ok());
        let error = fits(4_096, 1_500, 1_000, 2_000).unwrap_err();
        assert!(error.to_string().contains("4096"), "{error}");
    }
}
