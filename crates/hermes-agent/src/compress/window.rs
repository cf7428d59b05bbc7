//! When a conversation counts as too long.

use std::time::Duration;

/// The `compression` section of the config, and the timeout of its helper model.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressionSettings {
    /// `false`: only a person or a provider's refusal starts a compaction.
    pub enabled: bool,
    /// Share of the usable window at which compaction starts.
    pub threshold: f64,
    /// Share of the threshold kept as recent tail.
    pub target_ratio: f64,
    /// Rows kept at the start, in the first compaction only.
    pub protect_first: usize,
    /// Upper bound of the minimum of rows kept at the end.
    pub protect_last: usize,
    /// Change nothing rather than use the digest when no model could write a summary.
    pub abort_on_summary_failure: bool,
    /// How long one summary call may take.
    pub timeout: Duration,
}

impl Default for CompressionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: 0.50,
            target_ratio: 0.20,
            protect_first: 3,
            protect_last: 20,
            abort_on_summary_failure: false,
            timeout: Duration::from_mins(2),
        }
    }
}

/// The window of the model in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextWindow {
    /// Tokens of prompt and answer together.
    pub context: u32,
    /// What requests ask for as answer, where they do.
    pub max_tokens: Option<u32>,
}

/// Windows below this size compact late rather than often.
const LARGE_WINDOW: u32 = 512_000;
const SMALL_WINDOW_SHARE: f64 = 0.75;
const MAX_SHARE: f64 = 0.85;
/// A low `threshold` in the config does not start compaction below this many tokens.
const MIN_THRESHOLD_TOKENS: u64 = 64_000;

impl ContextWindow {
    /// Tokens a prompt may have: the window without the reserve for the answer. A reserve of more
    /// than half of the window is a provider's maximum, not a wish, and counts as half.
    pub fn usable(&self) -> u64 {
        let reserve = self.max_tokens.unwrap_or(0).min(self.context / 2);
        u64::from(self.context - reserve)
    }

    /// Prompt size at which compaction starts. Never above 85 % of what is usable, so that there
    /// is room for one more step.
    pub fn threshold(&self, settings: &CompressionSettings) -> u64 {
        let usable = self.usable();
        let share = |part: f64| (usable as f64 * part) as u64;
        let wanted = if self.context < LARGE_WINDOW {
            settings.threshold.max(SMALL_WINDOW_SHARE)
        } else {
            settings.threshold
        };
        share(wanted.clamp(0.05, MAX_SHARE))
            .max(MIN_THRESHOLD_TOKENS.min(share(SMALL_WINDOW_SHARE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(context: u32, max_tokens: Option<u32>) -> u64 {
        ContextWindow {
            context,
            max_tokens,
        }
        .threshold(&CompressionSettings::default())
    }

    #[test]
    fn thresholds_by_window() {
        assert_eq!(threshold(8_192, None), 6_144);
        assert_eq!(threshold(64_000, None), 48_000);
        assert_eq!(threshold(65_536, None), 49_152, "not 98 % of the window");
        assert_eq!(threshold(131_072, None), 98_304);
        assert_eq!(threshold(200_000, None), 150_000);
        assert_eq!(threshold(1_000_000, None), 500_000);
    }

    #[test]
    fn the_answer_has_its_room() {
        assert_eq!(threshold(131_072, Some(65_536)), 49_152);
        assert_eq!(
            threshold(131_072, Some(131_072)),
            49_152,
            "a reserve of the whole window counts as half"
        );
        for context in [4_096, 16_384, 65_536, 262_144, 2_000_000] {
            for max_tokens in [None, Some(1_024), Some(8_192), Some(65_536)] {
                let window = ContextWindow {
                    context,
                    max_tokens,
                };
                for share in [0.0, 0.1, 0.5, 0.9, 1.0] {
                    let settings = CompressionSettings {
                        threshold: share,
                        ..CompressionSettings::default()
                    };
                    let at = window.threshold(&settings);
                    assert!(at <= window.usable() * 85 / 100 + 1, "{window:?} {share}");
                    assert!(at > 0);
                }
            }
        }
    }

    #[test]
    fn a_higher_share_of_the_config_is_obeyed() {
        let settings = CompressionSettings {
            threshold: 0.8,
            ..CompressionSettings::default()
        };
        let window = ContextWindow {
            context: 100_000,
            max_tokens: None,
        };
        assert_eq!(window.threshold(&settings), 80_000);
    }
}
