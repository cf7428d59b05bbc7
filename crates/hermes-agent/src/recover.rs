//! What to do when a model call fails: one table, one row per class of failure.
//!
//! A row only proposes; the turn tries the proposals in order, since only the router knows
//! whether another key or another model is there. All recoveries of a turn share one
//! [`crate::budget::Budget`].

use std::time::Duration;

use hermes_core::clock::Rng;
use hermes_core::model::{ErrorClass, ModelError};

/// A change to the next request that may make it acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestFix {
    /// Summarise older rows.
    Compress,
    /// Believe in a smaller window, then summarise.
    SmallerWindow,
    /// Ask for a shorter answer.
    LowerOutput,
    /// Leave out images above the usual size limit.
    SmallerImages,
    NoImages,
    PlainToolResults,
    /// Send no reasoning back.
    NoReasoning,
    /// Tool schemas without patterns and formats.
    SimpleSchemas,
    /// All of these at once, for a refusal that does not say what it is about.
    PlainConversation,
}

/// How often the same request goes out again on the same route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryRule {
    Never,
    /// `agent.api_max_retries`.
    Configured,
}

/// Base and cap of the pause between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryPause {
    /// 2 s, up to 60 s.
    Error,
    /// 5 s, up to 120 s: the server answers, but nonsense.
    Body,
}

/// A row of the table. Counts are failures of this class in a row on one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecoveryRule {
    pub class: ErrorClass,
    /// What to change first, and how often in a turn.
    pub fix: Option<(RequestFix, u32)>,
    pub retries: RetryRule,
    pub pause: RetryPause,
    /// From which failure on another credential is tried.
    pub rotate_from: Option<u32>,
    /// From which failure on the fallback chain is tried. Retried classes fall back anyway once
    /// their retries are used up.
    pub fallback_from: Option<u32>,
}

const fn rule(class: ErrorClass) -> RecoveryRule {
    RecoveryRule {
        class,
        fix: None,
        retries: RetryRule::Never,
        pause: RetryPause::Error,
        rotate_from: None,
        fallback_from: None,
    }
}

const fn retried(class: ErrorClass) -> RecoveryRule {
    RecoveryRule {
        retries: RetryRule::Configured,
        ..rule(class)
    }
}

const fn fixed(class: ErrorClass, fix: RequestFix, times: u32) -> RecoveryRule {
    RecoveryRule {
        fix: Some((fix, times)),
        ..rule(class)
    }
}

const NOW: Option<u32> = Some(1);
const SECOND: Option<u32> = Some(2);
const THIRD: Option<u32> = Some(3);

/// One row per class. [`ErrorClass::Cancelled`] has none: it is not a failure.
#[rustfmt::skip]
pub(crate) const TABLE: [RecoveryRule; 25] = [
    RecoveryRule { rotate_from: NOW, fallback_from: NOW, ..rule(ErrorClass::Auth) },
    RecoveryRule { rotate_from: NOW, fallback_from: NOW, ..rule(ErrorClass::Billing) },
    RecoveryRule { rotate_from: SECOND, fallback_from: SECOND, ..retried(ErrorClass::RateLimit) },
    RecoveryRule { fallback_from: SECOND, ..retried(ErrorClass::UpstreamRateLimit) },
    RecoveryRule { fallback_from: THIRD, ..retried(ErrorClass::Overloaded) },
    retried(ErrorClass::Server),
    RecoveryRule { fallback_from: THIRD, ..retried(ErrorClass::Timeout) },
    RecoveryRule { fallback_from: SECOND, ..retried(ErrorClass::Unreachable) },
    rule(ErrorClass::TlsCertificate),
    fixed(ErrorClass::ContextOverflow, RequestFix::Compress, 3),
    fixed(ErrorClass::OutputCap, RequestFix::LowerOutput, 3),
    fixed(ErrorClass::PayloadTooLarge, RequestFix::Compress, 3),
    RecoveryRule { fallback_from: NOW, ..fixed(ErrorClass::ImageTooLarge, RequestFix::SmallerImages, 2) },
    RecoveryRule { fallback_from: NOW, ..fixed(ErrorClass::ImagesUnsupported, RequestFix::NoImages, 1) },
    RecoveryRule { fallback_from: NOW, ..fixed(ErrorClass::ToolContentRejected, RequestFix::PlainToolResults, 1) },
    RecoveryRule { fallback_from: NOW, ..fixed(ErrorClass::ReasoningRejected, RequestFix::NoReasoning, 1) },
    RecoveryRule { fallback_from: NOW, ..fixed(ErrorClass::SchemaRejected, RequestFix::SimpleSchemas, 1) },
    RecoveryRule { fallback_from: NOW, ..fixed(ErrorClass::LongContextTier, RequestFix::SmallerWindow, 1) },
    RecoveryRule { fallback_from: NOW, ..rule(ErrorClass::ModelNotFound) },
    rule(ErrorClass::AccountPolicy),
    RecoveryRule { fallback_from: NOW, ..rule(ErrorClass::ContentPolicy) },
    RecoveryRule { fallback_from: NOW, ..fixed(ErrorClass::Format, RequestFix::PlainConversation, 1) },
    RecoveryRule { pause: RetryPause::Body, ..retried(ErrorClass::BadResponse) },
    RecoveryRule { pause: RetryPause::Body, ..retried(ErrorClass::EmptyStream) },
    retried(ErrorClass::Unknown),
];

/// Longer waits are not made.
pub(crate) const MAX_RETRY_WAIT: Duration = Duration::from_mins(10);

/// A proposal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RecoveryStep {
    Fix(RequestFix),
    /// Another credential, same model.
    Rotate,
    /// The next model of the chain.
    Fallback,
    /// The same again after a pause.
    Retry(Duration),
}

/// What is known when a call fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedRequest<'a> {
    pub error: &'a ModelError,
    /// How often this class failed in a row on this route, with this time.
    pub nth: u32,
    /// How often the row's fix was applied in this turn.
    pub fixes: u32,
    /// `agent.api_max_retries`.
    pub max_retries: u32,
}

pub(crate) fn rule_for(class: ErrorClass) -> Option<&'static RecoveryRule> {
    TABLE.iter().find(|rule| rule.class == class)
}

/// What may be tried, in order. Empty: the failure is final.
pub(crate) fn proposals(failure: &FailedRequest<'_>, rng: &dyn Rng) -> Vec<RecoveryStep> {
    let Some(rule) = rule_for(failure.error.class) else {
        return Vec::new();
    };
    let mut steps = Vec::new();
    if let Some((fix, limit)) = rule.fix
        && failure.fixes < limit
    {
        steps.push(RecoveryStep::Fix(fix));
    }
    let too_long = failure
        .error
        .retry_after
        .is_some_and(|wait| wait > MAX_RETRY_WAIT);
    let due = |from: Option<u32>| from.is_some_and(|from| failure.nth >= from || too_long);
    if due(rule.rotate_from) {
        steps.push(RecoveryStep::Rotate);
    }
    if due(rule.fallback_from) {
        steps.push(RecoveryStep::Fallback);
    }
    if rule.retries == RetryRule::Configured {
        if failure.nth <= failure.max_retries && !too_long {
            let wait = failure.error.retry_after;
            let pause = wait.unwrap_or_else(|| backoff(rule.pause, failure.nth, rng));
            steps.push(RecoveryStep::Retry(pause));
        }
        if !steps.contains(&RecoveryStep::Fallback) {
            steps.push(RecoveryStep::Fallback);
        }
    }
    steps
}

/// min(base·2^(n−1), cap), plus up to half of it.
pub(crate) fn backoff(pause: RetryPause, nth: u32, rng: &dyn Rng) -> Duration {
    let (base, cap) = match pause {
        RetryPause::Error => (2.0, 60.0),
        RetryPause::Body => (5.0, 120.0),
    };
    let exponent = nth.saturating_sub(1).min(16) as i32;
    let delay: f64 = (base * 2_f64.powi(exponent)).min(cap);
    Duration::from_secs_f64(delay + rng.unit() * 0.5 * delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct AppliedFixes(u64);

    impl Rng for AppliedFixes {
        fn next_u64(&self) -> u64 {
            self.0
        }
    }

    fn error(class: ErrorClass) -> ModelError {
        ModelError {
            class,
            provider: "p".into(),
            model: "m".into(),
            status: None,
            message: "no".into(),
            retry_after: None,
            limit: None,
        }
    }

    fn steps(error: &ModelError, nth: u32, fixes: u32) -> Vec<RecoveryStep> {
        let failure = FailedRequest {
            error,
            nth,
            fixes,
            max_retries: 3,
        };
        proposals(&failure, &AppliedFixes(0))
    }

    fn secs(seconds: u64) -> RecoveryStep {
        RecoveryStep::Retry(Duration::from_secs(seconds))
    }

    #[test]
    fn every_class_has_one_row() {
        for (at, rule) in TABLE.iter().enumerate() {
            assert!(
                !TABLE[at + 1..]
                    .iter()
                    .any(|other| other.class == rule.class),
                "{:?} twice",
                rule.class
            );
        }
        assert!(rule_for(ErrorClass::Cancelled).is_none());
    }

    #[test]
    fn the_first_429_waits_the_second_takes_another_key_then_another_model() {
        let error = error(ErrorClass::RateLimit);
        assert_eq!(steps(&error, 1, 0), [secs(2), RecoveryStep::Fallback]);
        assert_eq!(
            steps(&error, 2, 0),
            [RecoveryStep::Rotate, RecoveryStep::Fallback, secs(4)]
        );
        assert_eq!(
            steps(&error, 4, 0),
            [RecoveryStep::Rotate, RecoveryStep::Fallback]
        );
    }

    #[test]
    fn a_stated_wait_is_kept_and_one_that_is_too_long_is_not_begun() {
        let mut error = error(ErrorClass::RateLimit);
        error.retry_after = Some(Duration::from_secs(17));
        assert_eq!(steps(&error, 1, 0)[0], secs(17));
        error.retry_after = Some(Duration::from_secs(601));
        assert_eq!(
            steps(&error, 1, 0),
            [RecoveryStep::Rotate, RecoveryStep::Fallback]
        );
    }

    #[test]
    fn fixes_come_first_and_end() {
        let overflow = error(ErrorClass::ContextOverflow);
        assert_eq!(
            steps(&overflow, 1, 0),
            [RecoveryStep::Fix(RequestFix::Compress)]
        );
        assert_eq!(steps(&overflow, 9, 3), []);
        let images = error(ErrorClass::ImagesUnsupported);
        assert_eq!(steps(&images, 1, 1), [RecoveryStep::Fallback]);
    }

    #[test]
    fn money_keys_and_certificates_are_not_retried() {
        for class in [ErrorClass::Auth, ErrorClass::Billing] {
            assert_eq!(
                steps(&error(class), 1, 0),
                [RecoveryStep::Rotate, RecoveryStep::Fallback]
            );
        }
        assert_eq!(steps(&error(ErrorClass::TlsCertificate), 1, 0), []);
        assert_eq!(steps(&error(ErrorClass::AccountPolicy), 1, 0), []);
        assert_eq!(
            steps(&error(ErrorClass::Format), 1, 1),
            [RecoveryStep::Fallback]
        );
    }

    #[test]
    fn overload_falls_back_after_two_retries() {
        let error = error(ErrorClass::Overloaded);
        assert_eq!(steps(&error, 2, 0), [secs(4), RecoveryStep::Fallback]);
        assert_eq!(steps(&error, 3, 0), [RecoveryStep::Fallback, secs(8)]);
    }

    #[test]
    fn pauses_double_up_to_a_cap_and_jitter_adds_at_most_half() {
        let none = AppliedFixes(0);
        let most = AppliedFixes(u64::MAX);
        let seconds = |pause, nth| backoff(pause, nth, &none).as_secs();
        assert_eq!(
            [1, 2, 3, 6].map(|n| seconds(RetryPause::Error, n)),
            [2, 4, 8, 60]
        );
        assert_eq!(
            [1, 2, 6].map(|n| seconds(RetryPause::Body, n)),
            [5, 10, 120]
        );
        let longest = backoff(RetryPause::Error, 9, &most);
        assert!(longest > Duration::from_secs(89) && longest <= Duration::from_secs(90));
    }
}
