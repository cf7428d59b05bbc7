//! `sampling/createMessage`: a server uses the user's model, where the user allows it.

mod convert;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::message::{AssistantMessage, Message};
use hermes_core::tool::ToolSpec;
use hermes_core::usage::Usage;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Audit;
use crate::config::Sampling;
use crate::transport::connect::Declined;

const MINUTE: Duration = Duration::from_mins(1);

/// Access to a model. The composition root implements it.
pub trait Sampler: Send + Sync {
    /// The model used where none is named, or the reason why there is none.
    fn default_model(&self) -> Result<String, String>;
    /// One completion. Dropping the future cancels it.
    fn sample(&self, request: SampleRequest) -> BoxFuture<'_, Result<Sampled, String>>;
}

/// A completion requested by a server.
#[derive(Clone, Debug)]
pub struct SampleRequest {
    pub server: String,
    /// `None`: the default model.
    pub model: Option<String>,
    pub system: String,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    pub may_call_tools: bool,
    pub max_tokens: u32,
    pub temperature: Option<f32>,
}

/// A completion from the model.
#[derive(Clone, Debug)]
pub struct Sampled {
    pub message: AssistantMessage,
    pub model: String,
    pub usage: Option<Usage>,
}

/// Enforces the configured limits on sampling.
pub(super) struct LimitedSampler {
    limits: Sampling,
    sampler: Arc<dyn Sampler>,
    /// Arrival times of the requests in the last minute.
    recent: Mutex<VecDeque<Instant>>,
}

impl LimitedSampler {
    pub(super) fn new(limits: Sampling, sampler: Arc<dyn Sampler>) -> Self {
        Self {
            limits,
            sampler,
            recent: Mutex::default(),
        }
    }

    pub(super) fn capability(&self) -> Value {
        if self.limits.max_tool_rounds > 0 {
            json!({"tools": {}})
        } else {
            json!({})
        }
    }

    pub(super) async fn answer(
        &self,
        server: &str,
        params: &Value,
        audit: &Audit,
    ) -> Result<Value, Declined> {
        let answered = self.run(server, params, audit).await;
        match &answered {
            Ok(answer) => self.log(server, &format!("answered by {}", answer["model"])),
            Err(declined) => self.log(server, &format!("declined: {declined}")),
        }
        answered
    }

    async fn run(&self, server: &str, params: &Value, audit: &Audit) -> Result<Value, Declined> {
        let counted = |label: &'static str| {
            move |declined: Declined| {
                audit.count(label);
                declined
            }
        };
        let request = self
            .request(server, params)
            .map_err(counted("sampling/refused"))?;
        self.admit().map_err(counted("sampling/rate_limited"))?;
        let working = self.sampler.sample(request);
        let sampled = match tokio::time::timeout(self.limits.timeout, working).await {
            Ok(Ok(sampled)) => sampled,
            Ok(Err(why)) => {
                audit.count("sampling/failed");
                let why = hermes_core::redact::secrets(&why).into_owned();
                return Err(internal(format!("the model did not answer: {why}")));
            }
            Err(_) => {
                audit.count("sampling/timed_out");
                return Err(internal(format!(
                    "the model did not answer within {} s",
                    self.limits.timeout.as_secs_f64()
                )));
            }
        };
        audit.count("sampling/ok");
        if let Some(usage) = sampled.usage {
            audit.add("sampling/tokens_in", usage.prompt_tokens());
            audit.add("sampling/tokens_out", usage.output);
        }
        Ok(convert::result(&sampled))
    }

    /// The request within the limits, or the reason for refusing it.
    fn request(&self, server: &str, params: &Value) -> Result<SampleRequest, Declined> {
        let messages = convert::messages(&params["messages"]).map_err(|why| invalid(&why))?;
        let tools = convert::tools(&params["tools"]).map_err(|why| invalid(&why))?;
        if !tools.is_empty() {
            let rounds = messages
                .iter()
                .filter(|message| calls_tools(message))
                .count();
            if rounds >= self.limits.max_tool_rounds as usize {
                return Err(refused(format!(
                    "at most {} rounds of tool calls are allowed here",
                    self.limits.max_tool_rounds
                )));
            }
        }
        let wanted = params["maxTokens"].as_u64().unwrap_or(u64::MAX);
        let cap = self.limits.max_tokens_cap.max(1);
        Ok(SampleRequest {
            server: server.to_owned(),
            model: self.model(&params["modelPreferences"])?,
            system: params["systemPrompt"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            messages,
            may_call_tools: !tools.is_empty() && params["toolChoice"]["mode"] != "none",
            tools,
            max_tokens: u32::try_from(wanted).map_or(cap, |wanted| wanted.clamp(1, cap)),
            temperature: params["temperature"].as_f64().map(|value| value as f32),
        })
    }

    /// The configured model; otherwise the server's hint, if the user allows that model by name;
    /// otherwise the default model, if allowed.
    fn model(&self, preferences: &Value) -> Result<Option<String>, Declined> {
        let allowed = &self.limits.allowed_models;
        let is_allowed =
            |model: &str| allowed.is_empty() || allowed.iter().any(|name| name == model);
        if let Some(model) = &self.limits.model {
            return if is_allowed(model) {
                Ok(Some(model.clone()))
            } else {
                Err(refused(format!(
                    "the model {model} is not among the allowed ones"
                )))
            };
        }
        let hints = preferences["hints"].as_array().into_iter().flatten();
        let hinted = hints
            .filter_map(|hint| hint["name"].as_str())
            .find_map(|hint| allowed.iter().find(|name| name.contains(hint)));
        if let Some(model) = hinted {
            return Ok(Some(model.clone()));
        }
        let default_model = self.sampler.default_model().map_err(internal)?;
        if is_allowed(&default_model) {
            return Ok(None);
        }
        // The first allowed model is better than none.
        Ok(allowed.first().cloned())
    }

    fn admit(&self) -> Result<(), Declined> {
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while recent.front().is_some_and(|at| now - *at >= MINUTE) {
            recent.pop_front();
        }
        if recent.len() >= self.limits.max_rpm as usize {
            return Err(refused(format!(
                "at most {} requests per minute are allowed here",
                self.limits.max_rpm
            )));
        }
        recent.push_back(now);
        Ok(())
    }

    /// Logs the server's use of the model at the level of `sampling.log_level`.
    fn log(&self, server: &str, what: &str) {
        match self.limits.log_level.to_ascii_lowercase().as_str() {
            "off" | "none" => {}
            "debug" => tracing::debug!(server, "sampling {what}"),
            "warning" | "warn" => tracing::warn!(server, "sampling {what}"),
            "error" => tracing::error!(server, "sampling {what}"),
            _ => tracing::info!(server, "sampling {what}"),
        }
    }
}

fn calls_tools(message: &Message) -> bool {
    matches!(message, Message::Assistant(message) if !message.tool_calls.is_empty())
}

fn invalid(message: &str) -> Declined {
    Declined {
        code: -32602,
        message: format!("sampling/createMessage: {message}"),
    }
}

/// The error code that the specification defines for a refusal by the user.
fn refused(message: String) -> Declined {
    Declined { code: -1, message }
}

fn internal(message: String) -> Declined {
    Declined {
        code: -32603,
        message,
    }
}

#[cfg(test)]
mod tests;
