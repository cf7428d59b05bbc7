//! Acts on the judgement of an answer.

use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit};
use hermes_core::message::{AssistantMessage, FinishReason, INTERRUPTED, Message};
use hermes_core::model::{ErrorClass, ModelError, WireFormat};
use hermes_core::tool_traits::tool_traits;
use hermes_core::usage::Usage;

use super::judge::{AnswerFacts, AnswerVerdict, judge};
use super::recovery::class_name;
use super::sample::SampleResult;
use super::{Turn, TurnFlow, TurnState, messages};
use crate::log::{LogItem, Origin, Synthetic};
use crate::plan;
use crate::recover::{RetryPause, backoff};
use crate::settings::IntentNudges;

pub(super) enum AfterAnswer {
    State(TurnState),
    Done(TurnExit, String),
}

const BASE_MAX_TOKENS: u32 = 4_096;
const HIGHEST_MAX_TOKENS: u32 = 32_768;

impl Turn<'_> {
    pub(super) async fn judge(&mut self, sampled: SampleResult) -> TurnFlow<AfterAnswer> {
        if self.closing {
            return self.close_budget(sampled.message).await;
        }
        let verdict = judge(&AnswerFacts {
            message: &sampled.message,
            counts: &self.counts,
            after_tools: self.after_tools,
            earlier: self.earlier.as_deref(),
            intent_nudges: self.wants_intent_nudges(),
            small: self.conv.client.info().small,
        });
        self.act(verdict, sampled).await
    }

    async fn act(
        &mut self,
        verdict: AnswerVerdict,
        sampled: SampleResult,
    ) -> TurnFlow<AfterAnswer> {
        let SampleResult {
            message,
            usage,
            shown,
            ..
        } = sampled;
        let next = match verdict {
            AnswerVerdict::Tools => self.accept_calls(message).await?,
            AnswerVerdict::LongEnough => {
                let text = self.keep(message).await?;
                self.notice(NoticeLevel::Info, messages::LONG_ENOUGH).await;
                return Ok(AfterAnswer::Done(TurnExit::Answered, text));
            }
            AnswerVerdict::Answer => {
                let text = self.keep(message).await?;
                return Ok(AfterAnswer::Done(TurnExit::Answered, text));
            }
            AnswerVerdict::Earlier(text) => {
                let row = AssistantMessage { text, ..message };
                let text = self.keep(row).await?;
                return Ok(AfterAnswer::Done(TurnExit::Answered, text));
            }
            AnswerVerdict::End(exit) => return self.end(exit, message).await,
            AnswerVerdict::Continue { cut } => self.go_on(message, usage, cut).await?,
            AnswerVerdict::AskAgain => {
                self.counts.cut_calls += 1;
                self.discard(shown, "its tool call was cut off").await;
                self.raise_max_tokens(self.counts.cut_calls, usage);
                TurnState::Prepare
            }
            AnswerVerdict::SmallerSteps => {
                self.counts.cut_calls += 1;
                self.discard(shown, "its tool call was cut off").await;
                self.nudge(plain(messages::BROKEN_CALL), messages::SMALLER_STEPS)
            }
            AnswerVerdict::NudgeEmpty => {
                self.counts.empty_nudges += 1;
                self.nudge(plain(messages::EMPTY), messages::EMPTY_AFTER_TOOLS)
            }
            AnswerVerdict::NudgeIncomplete => {
                self.counts.incomplete += 1;
                self.nudge(thoughts_of(message), messages::INCOMPLETE)
            }
            AnswerVerdict::NudgeThoughts => {
                self.counts.thoughts += 1;
                self.nudge(thoughts_of(message), messages::SAY_IT)
            }
            AnswerVerdict::NudgeIntent => {
                self.counts.intents += 1;
                self.keep(message).await?;
                self.parts.clear();
                self.push_ephemeral(Message::user(messages::DO_IT), Synthetic::Nudge);
                TurnState::Prepare
            }
            AnswerVerdict::Repeat => self.repeat_empty().await?,
            AnswerVerdict::Fallback(exit) => {
                return self.try_another_model(exit, message, shown).await;
            }
        };
        Ok(AfterAnswer::State(next))
    }

    /// Stores an answer; gives the whole of it, with what earlier parts said.
    async fn keep(&mut self, message: AssistantMessage) -> TurnFlow<String> {
        let text = [self.parts.as_str(), message.text.as_str()].concat();
        let item = LogItem::new(Message::Assistant(message), Origin::Model, self.now());
        self.commit(item, None).await?;
        Ok(text)
    }

    async fn accept_calls(&mut self, mut message: AssistantMessage) -> TurnFlow<TurnState> {
        let calls = std::mem::take(&mut message.tool_calls);
        let log = &self.conv.log;
        let prepared = plan::prepare(calls, &self.registry, |id| log.knows_call(id));
        message.tool_calls = prepared.iter().map(|one| one.call.clone()).collect();
        let all_unknown = prepared.iter().all(plan::PreparedCall::is_unknown);
        self.counts.unknown_tools = if all_unknown {
            self.counts.unknown_tools + 1
        } else {
            0
        };
        let housekeeping = prepared
            .iter()
            .all(|one| tool_traits(&one.call.name).housekeeping);
        let text = message.text.trim();
        self.earlier = (housekeeping && !text.is_empty()).then(|| text.to_owned());
        self.parts.clear();
        self.keep(message).await?;
        Ok(TurnState::RunTools(prepared))
    }

    /// Keeps a part of an answer and asks for the rest.
    async fn go_on(
        &mut self,
        message: AssistantMessage,
        usage: Option<Usage>,
        cut: bool,
    ) -> TurnFlow<TurnState> {
        let incomplete = message.finish == Some(FinishReason::Incomplete);
        self.parts = self.keep(message).await?;
        let ask = if incomplete {
            self.counts.incomplete += 1;
            messages::INCOMPLETE
        } else {
            self.counts.continued += 1;
            if cut {
                messages::GO_ON_CUT
            } else {
                self.raise_max_tokens(self.counts.continued, usage);
                messages::GO_ON
            }
        };
        self.push_ephemeral(Message::user(ask), Synthetic::Nudge);
        Ok(TurnState::Prepare)
    }

    /// Leaves a mark of the useless answer and says what is wanted. Neither is stored.
    fn nudge(&mut self, stand_in: AssistantMessage, ask: &str) -> TurnState {
        self.push_ephemeral(Message::Assistant(stand_in), Synthetic::Placeholder);
        self.push_ephemeral(Message::user(ask), Synthetic::Nudge);
        TurnState::Prepare
    }

    async fn repeat_empty(&mut self) -> TurnFlow<TurnState> {
        self.counts.empty += 1;
        if !self.budget.take_recovery() {
            return Err(TurnExit::NoAnswer {
                why: "its answers were empty".into(),
            });
        }
        let delay = backoff(RetryPause::Body, self.counts.empty, &*self.scope.deps.rng);
        let attempt = self.counts.empty;
        self.pause(
            ErrorClass::EmptyStream,
            "the answer was empty",
            attempt,
            delay,
        )
        .await?;
        self.budget.extra_call();
        Ok(TurnState::Sample)
    }

    async fn try_another_model(
        &mut self,
        exit: TurnExit,
        message: AssistantMessage,
        shown: bool,
    ) -> TurnFlow<AfterAnswer> {
        self.counts.fell_back = true;
        let class = match exit {
            TurnExit::Refused { .. } => ErrorClass::ContentPolicy,
            _ => ErrorClass::EmptyStream,
        };
        let route = self.conv.client.route();
        let error = ModelError {
            class,
            provider: route.provider.clone(),
            model: route.model.clone(),
            status: None,
            message: class_name(class).into(),
            retry_after: None,
            limit: None,
        };
        let Some(next) = self.fall_back(&error).await else {
            return self.end(exit, message).await;
        };
        self.counts.empty = 0;
        self.counts.thoughts = 0;
        self.discard(shown, "another model is asked").await;
        Ok(AfterAnswer::State(next))
    }

    /// Ends with what there is.
    async fn end(&mut self, exit: TurnExit, message: AssistantMessage) -> TurnFlow<AfterAnswer> {
        let row = AssistantMessage {
            tool_calls: Vec::new(),
            ..message
        };
        if row.text.trim().is_empty() {
            return Ok(AfterAnswer::Done(exit, std::mem::take(&mut self.parts)));
        }
        let text = self.keep(row).await?;
        Ok(AfterAnswer::Done(exit, text))
    }

    async fn close_budget(&mut self, message: AssistantMessage) -> TurnFlow<AfterAnswer> {
        let exit = self.budget_gone();
        self.end(exit, message).await
    }

    /// The turn was interrupted while the model spoke: what it said is kept.
    pub(super) async fn keep_interrupted(&mut self, sampled: SampleResult) -> TurnFlow<TurnState> {
        let mut message = sampled.message;
        if !message.text.trim().is_empty() {
            message.tool_calls.clear();
            // Signed blocks of an answer that did not end are not valid.
            message.blobs.clear();
            message.finish = Some(FinishReason::Other(INTERRUPTED.into()));
            self.parts = self.keep(message).await?;
        }
        Err(TurnExit::Interrupted)
    }

    async fn discard(&self, shown: bool, why: &str) {
        if shown {
            self.emit(AgentEvent::StepDiscarded { why: why.into() })
                .await;
        }
    }

    /// More room for the nth attempt, within what model and provider allow.
    fn raise_max_tokens(&mut self, nth: u32, usage: Option<Usage>) {
        let base = self
            .scope
            .deps
            .settings
            .max_tokens
            .unwrap_or(BASE_MAX_TOKENS);
        let mut max_output = base
            .saturating_mul(1 << nth.min(8))
            .min(HIGHEST_MAX_TOKENS.max(base));
        let limits = [
            self.conv.client.info().max_output,
            self.conv.fixes.output_cap,
        ];
        for limit in limits.into_iter().flatten() {
            max_output = max_output.min(limit);
        }
        // Without a limit of ours the provider's own was hit: never ask for less than that.
        let written = usage.map_or(0, |usage| usage.output);
        let floor = u64::from(self.max_tokens.unwrap_or(0)).max(written);
        if u64::from(max_output) > floor {
            self.max_tokens = Some(max_output);
        }
    }

    fn wants_intent_nudges(&self) -> bool {
        let route = self.conv.client.route();
        match &self.scope.deps.settings.intent_nudges {
            IntentNudges::Auto => route.format == WireFormat::Responses,
            IntentNudges::Always => true,
            IntentNudges::Never => false,
            IntentNudges::Models(names) => names.iter().any(|name| {
                route
                    .model
                    .to_lowercase()
                    .contains(name.to_lowercase().as_str())
            }),
        }
    }
}

fn plain(text: &str) -> AssistantMessage {
    AssistantMessage {
        text: text.into(),
        ..AssistantMessage::default()
    }
}

fn thoughts_of(message: AssistantMessage) -> AssistantMessage {
    AssistantMessage {
        text: messages::ONLY_THOUGHTS.into(),
        tool_calls: Vec::new(),
        ..message
    }
}
