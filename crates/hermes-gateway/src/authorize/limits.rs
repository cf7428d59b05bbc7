//! Rate limits per person.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Number of people tracked; the least active are dropped first.
const MAX_TRACKED_PEOPLE: usize = 4096;

/// Counts messages per person and minute.
#[derive(Debug, Default)]
pub struct MessageRateLimits {
    people: HashMap<String, RateWindow>,
}

#[derive(Debug)]
struct RateWindow {
    began: Instant,
    count: u32,
}

/// The decision about one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
    Allowed,
    /// The first message over the limit: the person is notified.
    Warn,
    /// The person was notified already.
    Drop,
}

impl MessageRateLimits {
    pub fn count(&mut self, person: &str, per_minute: u32, now: Instant) -> RateDecision {
        let minute = Duration::from_mins(1);
        if self.people.len() >= MAX_TRACKED_PEOPLE && !self.people.contains_key(person) {
            self.people.retain(|_, window| now - window.began < minute);
            if self.people.len() >= MAX_TRACKED_PEOPLE {
                self.people.clear();
            }
        }
        let window = self.people.entry(person.to_owned()).or_insert(RateWindow {
            began: now,
            count: 0,
        });
        if now - window.began >= minute {
            *window = RateWindow {
                began: now,
                count: 0,
            };
        }
        window.count = window.count.saturating_add(1);
        match window.count {
            count if count <= per_minute => RateDecision::Allowed,
            count if count == per_minute.saturating_add(1) => RateDecision::Warn,
            _ => RateDecision::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_once_a_minute() {
        let mut limits = MessageRateLimits::default();
        let start = Instant::now();
        let paces: Vec<RateDecision> = (0..4).map(|_| limits.count("a", 2, start)).collect();
        assert_eq!(
            paces,
            [
                RateDecision::Allowed,
                RateDecision::Allowed,
                RateDecision::Warn,
                RateDecision::Drop
            ]
        );
        assert_eq!(limits.count("b", 2, start), RateDecision::Allowed);
        let later = start + Duration::from_mins(1);
        assert_eq!(limits.count("a", 2, later), RateDecision::Allowed);
        for person in 0..2 * MAX_TRACKED_PEOPLE {
            limits.count(&person.to_string(), 2, later);
        }
        assert!(limits.people.len() <= MAX_TRACKED_PEOPLE);
    }
}
