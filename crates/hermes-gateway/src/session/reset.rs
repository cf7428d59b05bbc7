//! When a chat starts a new conversation automatically.

use std::collections::HashMap;

use chrono::{NaiveDateTime, TimeDelta, Timelike as _};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetMode {
    /// Never: conversations continue and are compressed when they grow.
    #[default]
    None,
    Daily,
    Idle,
    Both,
}

impl ResetMode {
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "none" => Some(Self::None),
            "daily" => Some(Self::Daily),
            "idle" => Some(Self::Idle),
            "both" => Some(Self::Both),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetPolicy {
    pub mode: ResetMode,
    /// The local hour at which a day begins.
    pub at_hour: u32,
    pub idle_minutes: u32,
    /// Whether the person is notified.
    pub notify: bool,
    /// A background process younger than this prevents a reset.
    pub process_hours: u32,
}

impl Default for ResetPolicy {
    fn default() -> Self {
        Self {
            mode: ResetMode::None,
            at_hour: 4,
            idle_minutes: 1440,
            notify: true,
            process_hours: 24,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    Idle,
    Daily,
}

impl ResetReason {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Daily => "daily",
        }
    }
}

impl ResetPolicy {
    /// Whether a conversation last used at `used` is over at `now` (both local). `youngest` is
    /// the age of the youngest background process that it still has.
    pub fn over(
        &self,
        used: NaiveDateTime,
        now: NaiveDateTime,
        youngest: Option<TimeDelta>,
    ) -> Option<ResetReason> {
        let has_processes =
            youngest.is_some_and(|age| age < TimeDelta::hours(self.process_hours.into()));
        if has_processes {
            return None;
        }
        let (idle, daily) = match self.mode {
            ResetMode::None => (false, false),
            ResetMode::Idle => (true, false),
            ResetMode::Daily => (false, true),
            ResetMode::Both => (true, true),
        };
        if idle && now > used + TimeDelta::minutes(self.idle_minutes.into()) {
            return Some(ResetReason::Idle);
        }
        (daily && used < self.day_began(now)).then_some(ResetReason::Daily)
    }

    fn day_began(&self, now: NaiveDateTime) -> NaiveDateTime {
        let today = now
            .date()
            .and_hms_opt(self.at_hour.min(23), 0, 0)
            .unwrap_or(now);
        if now.hour() < self.at_hour.min(23) {
            today - TimeDelta::days(1)
        } else {
            today
        }
    }
}

/// Policies by platform and by kind of chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResetPolicies {
    pub default: ResetPolicy,
    pub by_type: HashMap<String, ResetPolicy>,
    pub by_platform: HashMap<String, ResetPolicy>,
}

impl ResetPolicies {
    /// Platform first, then chat type, then the default.
    pub fn policy_for(&self, platform: &str, chat_type: &str) -> ResetPolicy {
        *self
            .by_platform
            .get(platform)
            .or_else(|| self.by_type.get(chat_type))
            .unwrap_or(&self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> NaiveDateTime {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap()
    }

    #[test]
    fn conversations_end_by_policy() {
        use ResetMode::{Both, Daily, Idle, None as Never};
        let cases = [
            (Never, "2026-01-01 00:00", "2027-01-01 00:00", None),
            (Idle, "2026-01-01 00:00", "2026-01-02 00:00", None),
            (
                Idle,
                "2026-01-01 00:00",
                "2026-01-02 00:01",
                Some(ResetReason::Idle),
            ),
            (
                Daily,
                "2026-01-01 03:59",
                "2026-01-01 04:00",
                Some(ResetReason::Daily),
            ),
            (Daily, "2026-01-01 04:00", "2026-01-02 03:59", None),
            (
                Daily,
                "2026-01-01 04:00",
                "2026-01-02 04:00",
                Some(ResetReason::Daily),
            ),
            (
                Both,
                "2026-01-01 03:00",
                "2026-01-01 05:00",
                Some(ResetReason::Daily),
            ),
            (
                Both,
                "2026-01-01 03:00",
                "2026-01-03 05:00",
                Some(ResetReason::Idle),
            ),
        ];
        for (mode, used, now, reason) in cases {
            let policy = ResetPolicy {
                mode,
                ..ResetPolicy::default()
            };
            assert_eq!(
                policy.over(at(used), at(now), None),
                reason,
                "{mode:?} {used} {now}"
            );
            let young = Some(TimeDelta::hours(23));
            assert_eq!(policy.over(at(used), at(now), young), None);
            let old = Some(TimeDelta::hours(24));
            assert_eq!(policy.over(at(used), at(now), old), reason);
        }
    }

    #[test]
    fn the_nearest_policy_counts() {
        let hours = |at_hour| ResetPolicy {
            at_hour,
            ..ResetPolicy::default()
        };
        let policies = ResetPolicies {
            default: hours(1),
            by_type: HashMap::from([("group".to_owned(), hours(2))]),
            by_platform: HashMap::from([("slack".to_owned(), hours(3))]),
        };
        for (platform, kind, hour) in [("slack", "group", 3), ("irc", "group", 2), ("irc", "dm", 1)]
        {
            assert_eq!(policies.policy_for(platform, kind).at_hour, hour);
        }
    }
}
