//! Tokens and cost.

use serde::{Deserialize, Serialize};

/// Consumption of one or more model calls. The counters do not overlap: `input` excludes cached
/// tokens; `reasoning` is the part of `output` that was thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// The part of `cache_write` that is cached for an hour, which costs more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_hour: u64,
    pub reasoning: u64,
    /// The price the provider itself reported for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_cost_usd: Option<f64>,
}

impl Usage {
    /// The whole prompt: what counts against the context window.
    pub fn prompt_tokens(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }

    pub fn add(&mut self, other: &Self) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.cache_write_hour += other.cache_write_hour;
        self.reasoning += other.reasoning;
        self.reported_cost_usd = match (self.reported_cost_usd, other.reported_cost_usd) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_zero(figure: &u64) -> bool {
    *figure == 0
}

/// Price of writing an hour's cache, as a multiple of the input price, at providers that bill cache
/// writes.
const HOUR_RATE: f64 = 2.0;

/// Dollars for what was written to the cache.
fn cache_writes(usage: &Usage, prices: &Prices) -> f64 {
    let hour = usage.cache_write_hour.min(usage.cache_write);
    let rest = usage.cache_write - hour;
    let price = prices.cache_write.unwrap_or(prices.input);
    let hour_price = prices
        .cache_write
        .map_or(prices.input, |_| prices.input * HOUR_RATE);
    (rest as f64 * price + hour as f64 * hour_price) / 1e6
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    pub input: f64,
    pub output: f64,
    /// `None`: as far as known, the provider bills cached tokens like others.
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
    pub source: PriceSource,
}

/// Where a price comes from (`cost_source` of state.db).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceSource {
    OfficialDocsSnapshot,
    UserOverride,
    ProviderModelsApi,
}

/// The cost of a call and its certainty. Unknown is never shown as zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Cost {
    /// Reported by the provider.
    Actual {
        usd: f64,
    },
    /// Computed from a price list.
    Estimated {
        usd: f64,
        source: PriceSource,
    },
    /// Free of charge: a model on this machine.
    Included,
    Unknown,
}

impl Cost {
    pub fn of(usage: &Usage, prices: Option<&Prices>, local: bool) -> Self {
        if let Some(usd) = usage.reported_cost_usd {
            return Self::Actual { usd };
        }
        if let Some(prices) = prices {
            let per_million = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
            let usd = per_million(usage.input, prices.input)
                + per_million(usage.output, prices.output)
                + per_million(usage.cache_read, prices.cache_read.unwrap_or(prices.input))
                + cache_writes(usage, prices);
            return Self::Estimated {
                usd,
                source: prices.source,
            };
        }
        if local { Self::Included } else { Self::Unknown }
    }

    /// The amount, if known.
    pub fn usd(&self) -> Option<f64> {
        match self {
            Self::Actual { usd } | Self::Estimated { usd, .. } => Some(*usd),
            Self::Included => Some(0.0),
            Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_own_figure_beats_the_price_list() {
        let prices = Prices {
            input: 1.0,
            output: 2.0,
            cache_read: None,
            cache_write: None,
            source: PriceSource::OfficialDocsSnapshot,
        };
        let mut usage = Usage {
            input: 1_000_000,
            output: 500_000,
            ..Usage::default()
        };
        assert_eq!(Cost::of(&usage, Some(&prices), false).usd(), Some(2.0));
        usage.reported_cost_usd = Some(0.5);
        assert_eq!(
            Cost::of(&usage, Some(&prices), false),
            Cost::Actual { usd: 0.5 }
        );
    }

    #[test]
    fn an_hour_in_the_cache_costs_more_than_five_minutes() {
        let prices = Prices {
            input: 4.0,
            output: 20.0,
            cache_read: Some(0.4),
            cache_write: Some(5.0),
            source: PriceSource::OfficialDocsSnapshot,
        };
        let usage = Usage {
            cache_write: 1_000_000,
            cache_write_hour: 500_000,
            ..Usage::default()
        };
        assert_eq!(Cost::of(&usage, Some(&prices), false).usd(), Some(6.5));
    }

    #[test]
    fn unknown_is_not_zero() {
        assert_eq!(Cost::of(&Usage::default(), None, false).usd(), None);
        assert_eq!(Cost::of(&Usage::default(), None, true), Cost::Included);
    }
}
