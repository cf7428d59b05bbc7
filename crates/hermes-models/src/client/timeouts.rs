//! Timeouts for each phase of a call.

use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

/// Limits per phase of a call. Connecting is limited by the HTTP client
/// ([`hermes_http::HttpSettings::connect_timeout`]): connections outlive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTimeouts {
    /// From the start until the first byte of the answer.
    pub first_byte: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// For the whole call.
    pub total: Duration,
    /// Set by the user: not raised for large prompts or slow models.
    pub fixed: bool,
}

/// Models that reason for a long time before they answer, and how long silence is normal for them.
/// The name must match from its start, up to a separator.
const SLOW_MODELS: &[(&str, u64)] = &[
    ("nemotron-3-nano", 300),
    ("nemotron-3", 600),
    ("deepseek-r1", 600),
    ("deepseek-reasoner", 600),
    ("deepseek-v4", 600),
    ("qwq-32b", 300),
    ("qwen3", 180),
    ("o1", 600),
    ("o3-mini", 300),
    ("o3", 600),
    ("o4-mini", 300),
    ("claude-opus-4", 240),
    ("claude-sonnet-5", 180),
    ("claude-sonnet-4", 180),
    ("grok-4", 300),
];

impl PhaseTimeouts {
    /// Defaults for a model. Local servers load models and process prompts slowly, so they get more
    /// time.
    pub fn for_model(local: bool, model: &str) -> Self {
        if local {
            let total = 120 * MINUTE;
            return Self {
                first_byte: total,
                idle: 15 * MINUTE,
                total,
                fixed: false,
            };
        }
        let silence = slow_floor(model).unwrap_or_default().max(3 * MINUTE);
        Self {
            first_byte: silence,
            idle: silence,
            total: 30 * MINUTE,
            fixed: false,
        }
    }

    /// The limits for a prompt of this size.
    pub(super) fn for_prompt(self, tokens: u32) -> Self {
        let floor = match tokens {
            _ if self.fixed => return self,
            0..=50_000 => return self,
            50_001..=100_000 => 4 * MINUTE,
            _ => 5 * MINUTE,
        };
        Self {
            first_byte: self.first_byte.max(floor),
            idle: self.idle.max(floor),
            ..self
        }
    }
}

pub(super) fn is_slow_reasoner(model: &str) -> bool {
    slow_floor(model).is_some()
}

fn slow_floor(model: &str) -> Option<Duration> {
    let model = model.to_ascii_lowercase();
    let slug = model.rsplit('/').next().unwrap_or(&model);
    SLOW_MODELS
        .iter()
        .find(|(name, _)| {
            slug.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.', '_', ':']))
        })
        .map(|(_, seconds)| Duration::from_secs(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_normal_for_some() {
        let idle = |local, model: &str| PhaseTimeouts::for_model(local, model).idle.as_secs();
        assert_eq!(idle(false, "gpt-5"), 180);
        assert_eq!(idle(false, "openai/o3-mini"), 300);
        assert_eq!(idle(false, "openai/o3"), 600);
        assert_eq!(idle(false, "llama-o1-preview"), 180);
        assert_eq!(idle(false, "claude-opus-4.5"), 240);
        assert_eq!(idle(true, "anything"), 900);
    }

    #[test]
    fn large_prompts_get_time_unless_the_user_said_otherwise() {
        let mut timeouts = PhaseTimeouts::for_model(false, "m");
        assert_eq!(timeouts.for_prompt(50_000).idle.as_secs(), 180);
        assert_eq!(timeouts.for_prompt(60_000).idle.as_secs(), 240);
        assert_eq!(timeouts.for_prompt(200_000).first_byte.as_secs(), 300);
        timeouts.fixed = true;
        assert_eq!(timeouts.for_prompt(200_000), timeouts);
    }
}
