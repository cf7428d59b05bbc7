//! What one turn may consume: model calls, recoveries, time spent on failures, money.

use std::time::Duration;

use hermes_core::usage::{Cost, Usage};

use crate::settings::AgentSettings;

/// One turn's account.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    max_calls: u32,
    /// Calls that count against the limit.
    counted: u32,
    /// Calls made, refunded ones and failed ones included.
    calls: u32,
    recoveries_left: u32,
    recovery_time_left: Duration,
    cap_usd: Option<f64>,
    usage: Usage,
    cost: Option<Cost>,
    /// The part of the cost that is known.
    known_usd: f64,
}

impl Budget {
    pub(crate) fn new(settings: &AgentSettings) -> Self {
        Self {
            max_calls: settings.max_turns,
            counted: 0,
            calls: 0,
            recoveries_left: settings.max_recoveries,
            recovery_time_left: settings.recovery_time,
            cap_usd: settings.max_cost_usd,
            usage: Usage::default(),
            cost: None,
            known_usd: 0.0,
        }
    }

    /// Takes one call out of the budget. `false`: there is none left.
    pub(crate) fn take_call(&mut self) -> bool {
        if self.counted >= self.max_calls {
            return false;
        }
        self.counted += 1;
        self.calls += 1;
        true
    }

    /// A call outside the limit: the closing one, or a repetition.
    pub(crate) fn extra_call(&mut self) {
        self.calls += 1;
    }

    /// Gives a call back: it did no thinking of its own.
    pub(crate) fn refund(&mut self) {
        self.counted = self.counted.saturating_sub(1);
    }

    /// Takes one recovery. `false`: there is none left.
    pub(crate) fn take_recovery(&mut self) -> bool {
        if self.recoveries_left == 0 || self.recovery_time_left.is_zero() {
            return false;
        }
        self.recoveries_left -= 1;
        true
    }

    /// Time that went into a failed call or a pause.
    pub(crate) fn lose(&mut self, time: Duration) {
        self.recovery_time_left = self.recovery_time_left.saturating_sub(time);
    }

    pub(crate) fn recovery_time_left(&self) -> Duration {
        self.recovery_time_left
    }

    pub(crate) fn spend(&mut self, usage: &Usage, cost: Cost) {
        self.usage.add(usage);
        self.known_usd += cost.usd().unwrap_or(0.0);
        self.cost = Some(match self.cost {
            Some(before) => add_costs(before, cost),
            None => cost,
        });
    }

    /// `Some`: the money cap is reached, with what was spent.
    pub(crate) fn over_cap(&self) -> Option<f64> {
        self.cap_usd
            .is_some_and(|cap| self.known_usd >= cap)
            .then_some(self.known_usd)
    }

    /// A cap is set, but what the calls cost is not known.
    pub(crate) fn cap_is_blind(&self) -> bool {
        self.cap_usd.is_some() && self.cost == Some(Cost::Unknown)
    }

    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    pub(crate) fn cost(&self) -> Cost {
        self.cost.unwrap_or(Cost::Unknown)
    }
}

/// The cost of two things together; the weaker kind of knowledge wins.
pub(crate) fn add_costs(a: Cost, b: Cost) -> Cost {
    let usd = a.usd().unwrap_or(0.0) + b.usd().unwrap_or(0.0);
    match (a, b) {
        (Cost::Unknown, _) | (_, Cost::Unknown) => Cost::Unknown,
        (Cost::Estimated { source, .. }, _) | (_, Cost::Estimated { source, .. }) => {
            Cost::Estimated { usd, source }
        }
        (Cost::Actual { .. }, _) | (_, Cost::Actual { .. }) => Cost::Actual { usd },
        (Cost::Included, Cost::Included) => Cost::Included,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_recoveries_and_time_run_out() {
        let mut budget = Budget::new(&AgentSettings {
            max_turns: 1,
            max_recoveries: 2,
            recovery_time: Duration::from_secs(10),
            ..AgentSettings::default()
        });
        assert!(budget.take_call());
        assert!(!budget.take_call());
        budget.refund();
        assert!(budget.take_call());
        assert_eq!(budget.calls(), 2);
        assert!(budget.take_recovery());
        budget.lose(Duration::from_secs(11));
        assert!(!budget.take_recovery(), "no time left");
    }

    #[test]
    fn the_cap_counts_known_money_and_says_when_it_is_blind() {
        let mut budget = Budget::new(&AgentSettings {
            max_cost_usd: Some(1.0),
            ..AgentSettings::default()
        });
        budget.spend(&Usage::default(), Cost::Unknown);
        assert!(budget.cap_is_blind());
        assert_eq!(budget.over_cap(), None);
        budget.spend(&Usage::default(), Cost::Actual { usd: 1.25 });
        assert_eq!(budget.over_cap(), Some(1.25));
        assert_eq!(budget.cost(), Cost::Unknown, "a sum with an unknown part");
    }
}
