//! The memory between compactions, and one compaction from plan to view.

use std::sync::Arc;

use hermes_core::clock::Clock;
use hermes_core::model::{ErrorClass, ModelError};
use hermes_core::store::SessionUpdate;
use tokio_util::sync::CancellationToken;

use super::plan::{CompactionInput, CompactionPlan, ContextPressure, SummaryPlan, plan};
use super::{
    CompactionCause, CompactionDecision, CompactionJob, CompactionOutcome, CompactionResult,
    CompressionSettings, ContextWindow, SkippedCompaction, Summary, call, digest,
};
use crate::tokens::{self, TokenMeter};

/// Compactions in a turn until one is seen to help, a person's own not counted. A long turn in a
/// small window may need many; each must have been worth it.
const MAX_ATTEMPTS: u32 = 3;
/// Compactions in a row that may fail to get below the threshold.
const MAX_INEFFECTIVE: u32 = 2;
/// Digests in a row instead of summaries.
const MAX_DIGESTS: u32 = 2;
/// Growth of the raw estimate below which compaction is not checked again.
const MIN_GROWTH: u64 = 4_096;
/// Longest task list that is carried over, in characters.
const MAX_TODO_CHARS: usize = 4_000;

/// Keeps one session's conversation inside the window.
pub struct Compactor {
    settings: CompressionSettings,
    window: ContextWindow,
    clock: Arc<dyn Clock>,
    meter: TokenMeter,
    state: CompactorState,
}

#[derive(Clone, Debug, Default)]
struct CompactorState {
    compacted_before: bool,
    /// Compactions with a summary or digest since the start of the process.
    count: u32,
    attempts: u32,
    /// Raw estimate after a compaction whose effect the provider has not confirmed yet.
    unconfirmed: Option<u64>,
    /// Raw estimate at which there was nothing to gain.
    no_gain_at: Option<u64>,
    ineffective: u32,
    digests: u32,
    timeouts: u32,
    /// Why automatic compaction is off.
    off: Option<String>,
    cooldown_until: Option<f64>,
    reported: Option<String>,
}

impl Compactor {
    pub fn new(
        settings: CompressionSettings,
        window: ContextWindow,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            settings,
            window,
            clock,
            meter: TokenMeter::default(),
            state: CompactorState::default(),
        }
    }

    /// Takes over what a stored session remembers.
    pub fn restore(&mut self, compacted_before: bool, cooldown_until: Option<f64>) {
        self.state.compacted_before = compacted_before;
        self.state.cooldown_until = cooldown_until;
    }

    /// The model changed: what was learnt with the old one no longer holds.
    pub fn set_window(&mut self, window: ContextWindow) {
        self.window = window;
        self.meter = TokenMeter::default();
        self.state = CompactorState {
            compacted_before: self.state.compacted_before,
            count: self.state.count,
            attempts: self.state.attempts,
            ..CompactorState::default()
        };
    }

    /// The provider stated a smaller window than we believed.
    pub fn learn_limit(&mut self, context: u32) {
        self.window.context = self.window.context.min(context);
    }

    pub fn window(&self) -> ContextWindow {
        self.window
    }

    /// Prompt size, in real tokens, at which compaction starts.
    pub fn threshold(&self) -> u64 {
        self.window.threshold(&self.settings)
    }

    pub fn meter(&self) -> &TokenMeter {
        &self.meter
    }

    /// A new turn: its attempts are counted from zero.
    pub fn begin_turn(&mut self) {
        self.state.attempts = 0;
        self.state.no_gain_at = None;
    }

    /// Whether a request whose raw estimate is `raw` may go out. Ask before every model call.
    pub fn check(&mut self, raw: u64) -> CompactionDecision {
        let prompt_tokens = self.meter.real(raw);
        if prompt_tokens < self.threshold() || !self.settings.enabled {
            return CompactionDecision::Fits;
        }
        let seen = self.state.unconfirmed.or(self.state.no_gain_at);
        if seen.is_some_and(|seen| raw <= tolerated(seen)) {
            return CompactionDecision::Fits;
        }
        match self.blocked(CompactionCause::Automatic) {
            Some(why) => CompactionDecision::Blocked {
                why: self.tell(why),
            },
            None => CompactionDecision::Compact { prompt_tokens },
        }
    }

    fn tell(&mut self, why: String) -> Option<String> {
        if self.state.reported.as_ref() == Some(&why) {
            return None;
        }
        self.state.reported = Some(why.clone());
        Some(why)
    }

    /// Why a compaction may not start now.
    fn blocked(&self, cause: CompactionCause) -> Option<String> {
        if cause == CompactionCause::Manual {
            return None;
        }
        if self.state.attempts >= MAX_ATTEMPTS {
            return Some(format!(
                "Condensing was tried {MAX_ATTEMPTS} times in this turn without lasting effect; it \
                 rests until the next."
            ));
        }
        if cause == CompactionCause::Overflow {
            return None;
        }
        if !self.settings.enabled {
            return Some("Automatic compaction is off (compression.enabled).".to_owned());
        }
        if let Some(why) = &self.state.off {
            return Some(why.clone());
        }
        self.state
            .cooldown_until
            .filter(|until| *until > self.clock.epoch_seconds())
            .map(|_| {
                "The conversation is long, but the last attempt to summarise it failed; the next \
                 comes after a pause. /compress tries at once."
                    .to_owned()
            })
    }

    /// Tells the real prompt size of the request whose raw estimate was `raw`: every call of the
    /// conversation itself, none of the helpers. A text is a notice for the person.
    pub fn observe(&mut self, raw: u64, real: u64) -> Option<String> {
        self.meter.observe(raw, real);
        let after = self.state.unconfirmed.filter(|_| real > 0)?;
        self.state.unconfirmed = None;
        if real < self.threshold() {
            self.state.attempts = 0;
            self.state.ineffective = 0;
            self.state.off = None;
            return None;
        }
        // What came in meanwhile may be the reason: that says nothing about the compaction.
        if raw > tolerated(after) {
            return None;
        }
        self.state.ineffective += 1;
        if self.state.ineffective < MAX_INEFFECTIVE {
            return None;
        }
        let why = format!(
            "Condensing no longer helps: {MAX_INEFFECTIVE} times in a row the prompt stayed above \
             {} tokens. It is not tried again by itself; start a new session, use a model with a \
             larger context, or load fewer tools.",
            self.threshold()
        );
        self.state.off = Some(why.clone());
        self.tell(why)
    }

    /// Condenses the conversation, if it may and if it gains anything.
    pub async fn compact(
        &mut self,
        job: CompactionJob<'_>,
        cancel: &CancellationToken,
    ) -> CompactionOutcome {
        let mut outcome = CompactionOutcome {
            result: Err(SkippedCompaction::Cancelled),
            updates: Vec::new(),
            usage: Vec::new(),
            notices: Vec::new(),
        };
        if let Some(why) = self.blocked(job.cause) {
            outcome.result = Err(SkippedCompaction::Blocked(why));
            return outcome;
        }
        if job.cause != CompactionCause::Manual {
            self.state.attempts += 1;
        }
        let todo = job
            .todo
            .map(|todo| todo.chars().take(MAX_TODO_CHARS).collect::<String>());
        let before = job.overhead + tokens::messages(job.view);
        let (view, summary) = match self.plan(&job, todo.as_deref()) {
            CompactionPlan::NoGain(why) => {
                self.state.no_gain_at = Some(before);
                outcome.result = Err(SkippedCompaction::NoGain(why));
                return outcome;
            }
            CompactionPlan::Prune { view, .. } => (view, Summary::None),
            CompactionPlan::Condense(plan) => {
                match self.summarise(&job, &plan, cancel, &mut outcome).await {
                    Ok((text, summary)) => (plan.assemble(&text, todo.as_deref()), summary),
                    Err(why) => {
                        outcome.result = Err(why);
                        return outcome;
                    }
                }
            }
        };
        let after = job.overhead + tokens::messages(&view);
        self.finished(after, summary, &mut outcome);
        outcome.result = Ok(CompactionResult {
            view,
            before_tokens: self.meter.real(before),
            after_tokens: self.meter.real(after),
            summary,
        });
        outcome
    }

    fn plan(&self, job: &CompactionJob<'_>, todo: Option<&str>) -> CompactionPlan {
        plan(&CompactionInput {
            settings: &self.settings,
            view: job.view,
            scaffolding: &job.scaffolding,
            overhead: job.overhead,
            extra: todo.map_or(0, |todo| tokens::text(todo) + 8),
            threshold: self.meter.raw(self.threshold()),
            context: u64::from(self.window.context),
            first: !self.state.compacted_before && self.state.count == 0,
            keep: job.keep,
            pressure: match job.cause {
                CompactionCause::Manual => ContextPressure::Wish,
                CompactionCause::Automatic => ContextPressure::Threshold,
                CompactionCause::Overflow => ContextPressure::Refused,
            },
        })
    }

    fn finished(&mut self, after: u64, summary: Summary, outcome: &mut CompactionOutcome) {
        self.state.unconfirmed = Some(after);
        self.state.no_gain_at = None;
        self.state.reported = None;
        if summary == Summary::None {
            return;
        }
        self.state.count += 1;
        if self.state.count >= 2 {
            outcome.notices.push(format!(
                "The conversation was condensed for the {} time; details from its beginning may \
                 be missing. A new session starts fresh.",
                ordinal(self.state.count)
            ));
        }
    }

    /// The text that stands for the condensed rows.
    async fn summarise(
        &mut self,
        job: &CompactionJob<'_>,
        plan: &SummaryPlan,
        cancel: &CancellationToken,
        outcome: &mut CompactionOutcome,
    ) -> Result<(String, Summary), SkippedCompaction> {
        if !plan.needs_summary() {
            return Ok((String::new(), Summary::None));
        }
        let request = call::SummaryRequest {
            session: &job.session,
            plan,
            focus: job.focus,
            date: self.clock.now().format("%Y-%m-%d").to_string(),
            timeout: self.settings.timeout,
        };
        let Some(written) = call::write(&request, &job.clients, cancel).await else {
            let why = "no model is configured for it".to_owned();
            self.cool_down(600.0, &why, outcome);
            return Err(SkippedCompaction::SummaryFailed(why));
        };
        outcome.usage = written.usage;
        outcome.notices.extend(written.notices);
        match written.result {
            Ok(summary) => {
                self.state.digests = 0;
                self.state.timeouts = 0;
                if self.state.cooldown_until.take().is_some() {
                    outcome.updates.push(SessionUpdate::CompactionCooldown {
                        until: None,
                        error: None,
                    });
                }
                Ok((summary, Summary::Model))
            }
            Err(error) if error.class == ErrorClass::Cancelled => {
                self.state.attempts = self.state.attempts.saturating_sub(1);
                outcome.notices.clear();
                Err(SkippedCompaction::Cancelled)
            }
            Err(error) => self.without_summary(job, plan, &error, outcome),
        }
    }

    /// No model wrote a summary: wait for better times, or make do with a digest.
    fn without_summary(
        &mut self,
        job: &CompactionJob<'_>,
        plan: &SummaryPlan,
        error: &ModelError,
        outcome: &mut CompactionOutcome,
    ) -> Result<(String, Summary), SkippedCompaction> {
        if error.class == ErrorClass::Timeout {
            self.state.timeouts += 1;
        }
        let pause = cooldown(error.class, self.state.timeouts);
        let asked = error.retry_after.map_or(0.0, |wait| wait.as_secs_f64());
        self.cool_down(pause.max(asked), &error.to_string(), outcome);
        let wait = match failure_kind(error.class) {
            CompactionFailure::Lasting => true,
            // Without room the turn would be over: better a digest.
            CompactionFailure::Passing => job.cause != CompactionCause::Overflow,
            CompactionFailure::OfThisCall => false,
        };
        if wait || self.settings.abort_on_summary_failure {
            return Err(SkippedCompaction::SummaryFailed(error.to_string()));
        }
        self.state.digests += 1;
        outcome.notices.push(
            "A plain list of what happened stands in for the summary; nothing is lost from the \
             stored session."
                .to_owned(),
        );
        if self.state.digests >= MAX_DIGESTS {
            let why = "No summary could be written twice in a row; automatic compaction is off. \
                       Check auxiliary.compression, or start a new session."
                .to_owned();
            self.state.off = Some(why.clone());
            outcome.notices.push(why);
        }
        Ok((digest::digest(plan), Summary::Digest))
    }

    fn cool_down(&mut self, seconds: f64, error: &str, outcome: &mut CompactionOutcome) {
        let until = self.clock.epoch_seconds() + seconds;
        self.state.cooldown_until = Some(until);
        outcome.updates.push(SessionUpdate::CompactionCooldown {
            until: Some(until),
            error: Some(error.to_owned()),
        });
    }
}

/// A raw estimate up to this counts as unchanged.
fn tolerated(raw: u64) -> u64 {
    raw + MIN_GROWTH.max(raw / 20)
}

enum CompactionFailure {
    /// Needs a person: key, money, settings.
    Lasting,
    /// Will pass: network, load.
    Passing,
    /// This request, this answer.
    OfThisCall,
}

fn failure_kind(class: ErrorClass) -> CompactionFailure {
    use ErrorClass as E;
    match class {
        E::Auth | E::Billing | E::AccountPolicy | E::ModelNotFound | E::TlsCertificate => {
            CompactionFailure::Lasting
        }
        E::RateLimit
        | E::UpstreamRateLimit
        | E::Overloaded
        | E::Server
        | E::Timeout
        | E::Unreachable => CompactionFailure::Passing,
        _ => CompactionFailure::OfThisCall,
    }
}

/// Seconds until the next automatic attempt.
fn cooldown(class: ErrorClass, timeouts: u32) -> f64 {
    match class {
        ErrorClass::Timeout => match timeouts {
            0 | 1 => 60.0,
            2 => 300.0,
            _ => 900.0,
        },
        ErrorClass::BadResponse | ErrorClass::EmptyStream => 30.0,
        ErrorClass::Auth
        | ErrorClass::Billing
        | ErrorClass::AccountPolicy
        | ErrorClass::ModelNotFound => 600.0,
        _ => 60.0,
    }
}

fn ordinal(number: u32) -> String {
    let suffix = match (number % 10, number % 100) {
        (1, n) if n != 11 => "st",
        (2, n) if n != 12 => "nd",
        (3, n) if n != 13 => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}
