//! Tries what the recovery table proposes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::event::{AgentEvent, TurnExit};
use hermes_core::message::FinishReason;
use hermes_core::model::{ErrorClass, ModelError};
use hermes_core::tool::ToolSpec;
use serde_json::Value;

use super::conversation::RouteFixes;
use super::sample::SampleResult;
use super::{Turn, TurnFlow, TurnState, exit};
use crate::compress::CompactionCause;
use crate::project::{ImageRule, project};
use crate::recover::{FailedRequest, RecoveryStep, RequestFix, proposals, rule_for};

/// Failures of this turn.
#[derive(Debug, Default)]
pub(super) struct TurnFailures {
    /// In a row, on the route in use.
    by_class: HashMap<ErrorClass, u32>,
    fixes: HashMap<RequestFix, u32>,
    /// The state before [`RequestFix::PlainConversation`], until a call succeeds.
    before_plain: Option<RouteFixes>,
}

impl TurnFailures {
    /// A call succeeded, or another route is in use.
    pub(super) fn clear(&mut self) {
        self.by_class.clear();
        self.before_plain = None;
    }
}

/// Inline images up to this length of URL pass everywhere (about 3 MB of picture).
const MAX_SMALL_IMAGE_URL: usize = 4_000_000;
/// The window that providers sell without the long-context tier.
const NORMAL_TIER_WINDOW: u32 = 200_000;
/// No refusal makes us believe in a smaller window than this.
const MIN_WINDOW: u32 = 8_192;
/// Kept free below a stated output limit.
const OUTPUT_MARGIN: u32 = 64;
const MAX_CONTINUED: u32 = 4;

impl Turn<'_> {
    pub(super) async fn recover(&mut self, mut failed: SampleResult) -> TurnFlow<TurnState> {
        let Some(error) = failed.error.take() else {
            return Ok(TurnState::Judge(Box::new(failed)));
        };
        tracing::warn!(class = ?error.class, "{error}");
        if self.text_is_worth_keeping(&failed, &error) {
            failed.message.finish = Some(FinishReason::Cut);
            failed.message.blobs.clear();
            return Ok(TurnState::Judge(Box::new(failed)));
        }
        self.budget.lose(failed.elapsed);
        if failed.shown {
            let why = class_name(error.class).into();
            self.emit(AgentEvent::StepDiscarded { why }).await;
        }
        // The plain form did not help, so it is not the reason.
        if error.class == ErrorClass::Format
            && let Some(before) = self.failures.before_plain.take()
        {
            self.conv.fixes = before;
            self.take_specs();
        }
        let nth = self.failures.by_class.entry(error.class).or_default();
        *nth += 1;
        let nth = *nth;
        let fixes = rule_for(error.class)
            .and_then(|rule| rule.fix)
            .and_then(|(fix, _)| self.failures.fixes.get(&fix).copied())
            .unwrap_or(0);
        let steps = proposals(
            &FailedRequest {
                error: &error,
                nth,
                fixes,
                max_retries: self.retries_of(&error),
            },
            &*self.scope.deps.rng,
        );
        if !steps.is_empty() && self.budget.take_recovery() {
            for step in steps {
                if let Some(next) = self.try_step(step, &error, nth).await? {
                    return Ok(next);
                }
            }
        }
        if self.closing {
            return Err(self.budget_gone());
        }
        Err(exit::of_failure(&error))
    }

    /// How often the same request goes out again.
    fn retries_of(&self, error: &ModelError) -> u32 {
        let settings = &self.scope.deps.settings;
        let retry_limit = settings.api_max_retries;
        let Some(local) = settings.local_retries else {
            return retry_limit;
        };
        let url = &self.conv.client.route().base_url;
        let retryable = ["://127.", "://localhost", "://[::1]"]
            .iter()
            .any(|host| url.contains(host));
        if retryable && error.class == ErrorClass::Unreachable {
            retry_limit.min(local)
        } else {
            retry_limit
        }
    }

    /// A connection that broke in the middle of a text: the text stays and the model continues it.
    fn text_is_worth_keeping(&self, failed: &SampleResult, error: &ModelError) -> bool {
        let broken = matches!(
            error.class,
            ErrorClass::Timeout
                | ErrorClass::Server
                | ErrorClass::Overloaded
                | ErrorClass::Unreachable
                | ErrorClass::BadResponse
                | ErrorClass::Unknown
        );
        broken
            && !failed.message.text.trim().is_empty()
            && failed.message.tool_calls.is_empty()
            && self.counts.continued < MAX_CONTINUED
    }

    /// `None`: this way is closed, try the next.
    async fn try_step(
        &mut self,
        step: RecoveryStep,
        error: &ModelError,
        nth: u32,
    ) -> TurnFlow<Option<TurnState>> {
        match step {
            RecoveryStep::Retry(delay) => {
                if delay > self.budget.recovery_time_left() {
                    return Ok(None);
                }
                self.pause(error.class, &error.to_string(), nth, delay)
                    .await?;
                self.budget.extra_call();
                Ok(Some(TurnState::Sample))
            }
            RecoveryStep::Rotate => Ok(self.rotate(error).await),
            RecoveryStep::Fallback => Ok(self.fall_back(error).await),
            RecoveryStep::Fix(fix) => Ok(self.apply(fix, error)),
        }
    }

    async fn rotate(&mut self, error: &ModelError) -> Option<TurnState> {
        let from = self.conv.client.route().clone();
        let client = self.scope.deps.router.rotate(&from, error)?;
        self.conv.use_client(client, self.max_tokens);
        self.failures.clear();
        self.budget.extra_call();
        self.emit(AgentEvent::RouteChanged {
            from,
            to: self.conv.client.route().clone(),
            why: class_name(error.class).into(),
        })
        .await;
        Some(TurnState::Sample)
    }

    /// Goes on with the next model of the chain, for this turn.
    pub(super) async fn fall_back(&mut self, error: &ModelError) -> Option<TurnState> {
        let from = self.conv.client.route().clone();
        let client = self.scope.deps.router.fallback(&from, error)?;
        self.conv
            .use_client(client, self.scope.deps.settings.max_tokens);
        self.max_tokens = self.scope.deps.settings.max_tokens;
        self.failures.clear();
        self.take_specs();
        self.emit(AgentEvent::RouteChanged {
            from,
            to: self.conv.client.route().clone(),
            why: class_name(error.class).into(),
        })
        .await;
        if self.closing {
            self.budget.extra_call();
            return Some(TurnState::Sample);
        }
        // The other model's window may be smaller: look again before the call.
        self.budget.refund();
        Some(TurnState::Prepare)
    }

    /// The conversation without anything that a server may refuse. `false`: it has nothing of
    /// the kind, or the error is not a refusal of the request.
    fn make_plain(&mut self, error: &ModelError) -> bool {
        if !matches!(error.status, Some(400 | 422)) {
            return false;
        }
        let plain = RouteFixes {
            images: ImageRule::None,
            tool_parts: false,
            reasoning: false,
            simple_schemas: true,
            output_cap: self.conv.fixes.output_cap,
        };
        let rows = self.conv.log.items();
        let before = project(rows, &self.conv.caps());
        let schemas = |specs: &[ToolSpec]| -> Vec<Arc<Value>> {
            specs.iter().map(|spec| spec.parameters.clone()).collect()
        };
        let schemas_before = schemas(&self.specs);
        let fixes = std::mem::replace(&mut self.conv.fixes, plain);
        self.take_specs();
        let changed = project(self.conv.log.items(), &self.conv.caps()) != before
            || schemas(&self.specs) != schemas_before;
        if changed {
            self.failures.before_plain = Some(fixes);
        } else {
            self.conv.fixes = fixes;
            self.take_specs();
        }
        changed
    }

    fn apply(&mut self, fix: RequestFix, error: &ModelError) -> Option<TurnState> {
        *self.failures.fixes.entry(fix).or_default() += 1;
        let size = self.conv.compactor.meter().real(self.raw_tokens());
        let fixes = &mut self.conv.fixes;
        let changed = match fix {
            RequestFix::Compress => {
                self.too_large = Some(error.to_string());
                match error.limit {
                    Some(limit) => self.conv.compactor.learn_limit(limit),
                    // What was refused does not fit, whatever the window is said to be.
                    None if error.class == ErrorClass::ContextOverflow => {
                        let refused = u32::try_from(size).unwrap_or(u32::MAX);
                        self.conv.compactor.learn_limit(refused.max(MIN_WINDOW));
                    }
                    None => {}
                }
                return Some(TurnState::Compact(CompactionCause::Overflow));
            }
            RequestFix::SmallerWindow => {
                let limit = error.limit.unwrap_or(NORMAL_TIER_WINDOW);
                self.conv.compactor.learn_limit(limit);
                return Some(TurnState::Compact(CompactionCause::Overflow));
            }
            RequestFix::LowerOutput => {
                let stated = error.limit.map(|limit| limit.saturating_sub(OUTPUT_MARGIN));
                let lower = stated.unwrap_or_else(|| self.max_tokens.unwrap_or(8_192) / 2);
                let lower = lower.max(1);
                fixes.output_cap = Some(lower);
                self.max_tokens.replace(lower) != Some(lower)
            }
            RequestFix::SmallerImages => {
                let smaller = if fixes.images == ImageRule::All {
                    ImageRule::UpTo(MAX_SMALL_IMAGE_URL)
                } else {
                    ImageRule::None
                };
                std::mem::replace(&mut fixes.images, smaller) != smaller
            }
            RequestFix::NoImages => {
                std::mem::replace(&mut fixes.images, ImageRule::None) != ImageRule::None
            }
            RequestFix::PlainToolResults => std::mem::replace(&mut fixes.tool_parts, false),
            RequestFix::NoReasoning => std::mem::replace(&mut fixes.reasoning, false),
            RequestFix::SimpleSchemas => {
                let changed = !std::mem::replace(&mut fixes.simple_schemas, true);
                self.take_specs();
                changed
            }
            RequestFix::PlainConversation => self.make_plain(error),
        };
        self.budget.extra_call();
        changed.then_some(TurnState::Sample)
    }

    /// Waits before another attempt, unless the person stops it.
    pub(super) async fn pause(
        &mut self,
        class: ErrorClass,
        message: &str,
        attempt: u32,
        delay: Duration,
    ) -> TurnFlow<()> {
        self.emit(AgentEvent::Retrying {
            class,
            message: message.into(),
            attempt,
            delay_ms: super::millis(delay),
        })
        .await;
        self.budget.lose(delay);
        tokio::select! {
            biased;
            () = self.scope.cancel.cancelled() => Err(TurnExit::Interrupted),
            () = tokio::time::sleep(delay) => Ok(()),
        }
    }
}

/// Tool schemas without `pattern` and `format`, which some grammar compilers cannot digest.
pub(super) fn simple_schemas(specs: &[ToolSpec]) -> Arc<[ToolSpec]> {
    specs
        .iter()
        .map(|spec| ToolSpec {
            parameters: Arc::new(simplified(&spec.parameters, false)),
            ..spec.clone()
        })
        .collect()
}

/// `named`: the keys of this object are names of properties, not keywords.
fn simplified(schema: &Value, named: bool) -> Value {
    match schema {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| {
                named || !(matches!(key.as_str(), "pattern" | "format") && value.is_string())
            })
            .map(|(key, value)| {
                let names = !named && key == "properties";
                (key.clone(), simplified(value, names))
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(|item| simplified(item, false)).collect(),
        other => other.clone(),
    }
}

/// A class of failure in a few words.
pub(super) fn class_name(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Auth => "the key was not accepted",
        ErrorClass::Billing => "the account has no credit left",
        ErrorClass::RateLimit | ErrorClass::UpstreamRateLimit => "the rate limit is reached",
        ErrorClass::Overloaded => "the provider is overloaded",
        ErrorClass::Server => "the provider failed",
        ErrorClass::Timeout => "no answer came in time, or the connection broke",
        ErrorClass::Unreachable => "the provider cannot be reached",
        ErrorClass::TlsCertificate => "the provider's certificate is not trusted",
        ErrorClass::ContextOverflow | ErrorClass::PayloadTooLarge => "the request is too long",
        ErrorClass::OutputCap => "the answer's limit was set too high",
        ErrorClass::ImageTooLarge => "an image is too large",
        ErrorClass::ImagesUnsupported => "the model takes no images",
        ErrorClass::ToolContentRejected => "tool results must be plain text",
        ErrorClass::ReasoningRejected => "earlier reasoning was not accepted",
        ErrorClass::SchemaRejected => "a tool's schema was not accepted",
        ErrorClass::LongContextTier => "long contexts are not included in the plan",
        ErrorClass::ModelNotFound => "the model is not offered",
        ErrorClass::AccountPolicy => "the account's settings forbid it",
        ErrorClass::ContentPolicy => "the provider refused the content",
        ErrorClass::Format => "the request was not accepted",
        ErrorClass::BadResponse => "the answer could not be read",
        ErrorClass::EmptyStream => "the answer was empty",
        ErrorClass::Cancelled => "it was stopped",
        ErrorClass::Unknown => "the call failed",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_lose_keywords_but_not_properties_of_the_same_name() {
        let schema = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "pattern": "^a$"},
                "format": {"type": "string", "format": "uri", "enum": ["x"]},
                "list": {"type": "array", "items": {"type": "string", "format": "date"}},
            },
            "required": ["pattern"],
        });
        assert_eq!(
            simplified(&schema, false),
            json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string"},
                    "format": {"type": "string", "enum": ["x"]},
                    "list": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["pattern"],
            })
        );
    }
}
