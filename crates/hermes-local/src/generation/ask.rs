//! The parameters of a request to the model.

use serde_json::Value;

use crate::chat::{PromptMessage, PromptTool, Thinking};
use crate::grammar::{CallChoice, Callable};

/// A question, with how it is to be answered.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    pub messages: Vec<PromptMessage>,
    pub tools: Vec<PromptTool>,
    pub choice: CallChoice,
    /// The only tool that may be called.
    pub only: Option<String>,
    pub parallel: bool,
    pub shape: AnswerShape,
    pub thinking: Thinking,
    pub temperature: f32,
    pub top_p: f32,
    pub seed: u64,
    /// None: as much as there is room for, up to a bound.
    pub max_tokens: Option<usize>,
    pub stops: Vec<String>,
}

/// What an answer without calls looks like.
#[derive(Clone, Debug)]
pub enum AnswerShape {
    Text,
    /// JSON by a schema.
    Json(Value),
}

impl GenerationRequest {
    /// The most likely answer to `messages`.
    pub fn new(messages: Vec<PromptMessage>) -> Self {
        Self {
            messages,
            tools: Vec::new(),
            choice: CallChoice::Auto,
            only: None,
            parallel: false,
            shape: AnswerShape::Text,
            thinking: Thinking::Off,
            temperature: 0.0,
            top_p: 1.0,
            seed: 0,
            max_tokens: None,
            stops: Vec::new(),
        }
    }

    /// The tools that may be called.
    pub(super) fn callable(&self) -> Vec<Callable> {
        let allowed = |tool: &&PromptTool| self.only.as_ref().is_none_or(|only| *only == tool.name);
        let tools = self.tools.iter().filter(allowed);
        tools
            .map(|tool| Callable {
                name: tool.name.clone(),
                parameters: tool.parameters.clone(),
            })
            .collect()
    }
}
