//! Computing the next run of a job.

use chrono::{
    DateTime, Datelike as _, Days, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, TimeDelta,
    TimeZone,
};

use super::cron_fields::{self, FieldValues};
use super::schedule::{JobSchedule, in_zone, iso_time};

/// A time this recent still counts as now, because writing and reading take time.
pub(super) const GRACE: TimeDelta = TimeDelta::seconds(120);

/// How far the original's library looks ahead.
const HORIZON_DAYS: u64 = 366 * 50;

impl JobSchedule {
    /// The next run after `now`, as stored; `None` if it never runs again. Times of day are in
    /// `now`'s time zone, also across a change of its offset.
    pub fn next_after<Tz: TimeZone>(&self, now: &DateTime<Tz>) -> Option<String> {
        let at = match self {
            Self::Once { run_at } => {
                let at = moment(run_at, &now.timezone())?;
                (at >= now.fixed_offset() - GRACE).then_some(at)?
            }
            Self::Interval { minutes } => {
                let step = i64::try_from(*minutes)
                    .ok()
                    .and_then(TimeDelta::try_minutes)?;
                now.clone().checked_add_signed(step)?.fixed_offset()
            }
            Self::Cron { expr } => CronSchedule::parse(expr)?.next_after(now)?,
        };
        Some(iso_time(&at))
    }
}

/// A stored time; without an offset (old records) it is local.
pub(super) fn moment<Tz: TimeZone>(text: &str, zone: &Tz) -> Option<DateTime<FixedOffset>> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at);
    }
    let naive = text.parse::<NaiveDateTime>().ok()?;
    in_zone(naive, zone)
}

/// A cron expression.
struct CronSchedule {
    minutes: FieldValues,
    hours: FieldValues,
    days: FieldValues,
    months: FieldValues,
    weekdays: FieldValues,
    /// At most once a minute, whatever the file contains: the first second listed.
    second: u32,
    years: Option<FieldValues>,
}

impl CronSchedule {
    fn parse(expr: &str) -> Option<Self> {
        let mut fields = cron_fields::read(expr).ok()?.into_iter();
        Some(Self {
            minutes: fields.next()?,
            hours: fields.next()?,
            days: fields.next()?,
            months: fields.next()?,
            weekdays: fields.next()?,
            second: match fields.next() {
                Some(seconds) => seconds.first()?,
                None => 0,
            },
            years: fields.next(),
        })
    }

    fn next_after<Tz: TimeZone>(&self, now: &DateTime<Tz>) -> Option<DateTime<FixedOffset>> {
        let after = now.fixed_offset();
        // Starts a day earlier: the last hours of a day may be repeated when clocks go back.
        let first = now.naive_local().date().pred_opt()?;
        (0..HORIZON_DAYS)
            .map_while(|days| first.checked_add_days(Days::new(days)))
            .filter(|day| self.has_day(*day))
            .find_map(|day| self.next_on_day(day, &now.timezone(), &after))
    }

    fn has_day(&self, day: NaiveDate) -> bool {
        let year = u32::try_from(day.year()).unwrap_or_default();
        let in_year = self.years.as_ref().is_none_or(|years| years.has(year));
        let by_date = self.days.has(day.day());
        let by_weekday = self.weekdays.has(day.weekday().num_days_from_sunday());
        // If both are restricted, either one is enough.
        let is_day = if self.days.is_unrestricted() || self.weekdays.is_unrestricted() {
            by_date && by_weekday
        } else {
            by_date || by_weekday
        };
        in_year && self.months.has(day.month()) && is_day
    }

    /// The first time on that day after `after`.
    fn next_on_day<Tz: TimeZone>(
        &self,
        day: NaiveDate,
        zone: &Tz,
        after: &DateTime<FixedOffset>,
    ) -> Option<DateTime<FixedOffset>> {
        let times = self.hours.iter().flat_map(|hour| {
            let minutes = self.minutes.iter();
            minutes.filter_map(move |minute| day.and_hms_opt(hour, minute, self.second))
        });
        let mut best: Option<DateTime<FixedOffset>> = None;
        for naive in times {
            for at in self.moments(naive, zone) {
                if at > *after && best.is_none_or(|best| at < best) {
                    best = Some(at);
                }
            }
        }
        best
    }

    /// The instants of a local time. What runs every hour also runs in a repeated hour; what runs
    /// at a specific hour runs once.
    fn moments<Tz: TimeZone>(
        &self,
        naive: NaiveDateTime,
        zone: &Tz,
    ) -> impl Iterator<Item = DateTime<FixedOffset>> {
        let again = match zone.from_local_datetime(&naive) {
            LocalResult::Ambiguous(_, second) if self.hours.is_unrestricted() => {
                Some(second.fixed_offset())
            }
            _ => None,
        };
        in_zone(naive, zone).into_iter().chain(again)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use hermes_config::Zone;

    use super::*;

    fn next(expr: &str, now: &str) -> String {
        let now = DateTime::parse_from_rfc3339(now).unwrap();
        let schedule = JobSchedule::Cron { expr: expr.into() };
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        schedule.next_after(&now.with_timezone(&berlin)).unwrap()
    }

    #[test]
    fn cron_expressions() {
        for (expr, now, wanted) in [
            (
                "0 9 * * *",
                "2027-01-10T09:00:00+01:00",
                "2027-01-11T09:00:00+01:00",
            ),
            (
                "*/15 * * * *",
                "2027-01-10T09:01:30+01:00",
                "2027-01-10T09:15:00+01:00",
            ),
            // Weekdays, over a weekend: 2027-01-08 is a Friday.
            (
                "0 9 * * 1-5",
                "2027-01-08T10:00:00+01:00",
                "2027-01-11T09:00:00+01:00",
            ),
            (
                "0 9 * * 7",
                "2027-01-08T10:00:00+01:00",
                "2027-01-10T09:00:00+01:00",
            ),
            // The 13th, or any Friday.
            (
                "0 0 13 * 5",
                "2027-01-08T10:00:00+01:00",
                "2027-01-13T00:00:00+01:00",
            ),
            // A step names days, also where it begins with a star: 2027-01-09 is a Saturday.
            (
                "0 0 13 * */2",
                "2027-01-08T10:00:00+01:00",
                "2027-01-09T00:00:00+01:00",
            ),
            (
                "0 0 */2 * 1",
                "2027-01-03T10:00:00+01:00",
                "2027-01-04T00:00:00+01:00",
            ),
            (
                "0 0 13 * 0-6",
                "2027-01-08T10:00:00+01:00",
                "2027-01-09T00:00:00+01:00",
            ),
            // A star in a list leaves the field open.
            (
                "0 0 13,14 * *,1",
                "2027-01-08T10:00:00+01:00",
                "2027-01-13T00:00:00+01:00",
            ),
            // From Monday on, every second day of the week: no Sunday.
            (
                "0 0 * * 1/2",
                "2027-01-08T10:00:00+01:00",
                "2027-01-11T00:00:00+01:00",
            ),
            (
                "0 0 * * 5-1/2",
                "2027-01-08T10:00:00+01:00",
                "2027-01-10T00:00:00+01:00",
            ),
            (
                "0 0 * * 7-2",
                "2027-01-08T10:00:00+01:00",
                "2027-01-10T00:00:00+01:00",
            ),
            (
                "0 0 29 2 *",
                "2027-01-08T10:00:00+01:00",
                "2028-02-29T00:00:00+01:00",
            ),
            (
                "30 22-1 * * *",
                "2027-01-08T23:31:00+01:00",
                "2027-01-09T00:30:00+01:00",
            ),
            (
                "0 9 * * * 30",
                "2027-01-08T08:00:00+01:00",
                "2027-01-08T09:00:30+01:00",
            ),
        ] {
            assert_eq!(next(expr, now), wanted, "{expr} after {now}");
        }
    }

    #[test]
    fn the_clock_on_the_wall_counts_when_the_offset_changes() {
        // Clocks go forward on 2027-03-28 at 02:00 and back on 2027-10-31 at 03:00.
        for (expr, now, wanted) in [
            (
                "0 9 * * *",
                "2027-03-27T10:00:00+01:00",
                "2027-03-28T09:00:00+02:00",
            ),
            (
                "30 2 * * *",
                "2027-03-27T10:00:00+01:00",
                "2027-03-28T03:30:00+02:00",
            ),
            (
                "30 2 * * *",
                "2027-10-31T00:00:00+02:00",
                "2027-10-31T02:30:00+02:00",
            ),
            (
                "30 2 * * *",
                "2027-10-31T02:30:00+02:00",
                "2027-11-01T02:30:00+01:00",
            ),
            (
                "30 * * * *",
                "2027-10-31T02:30:00+02:00",
                "2027-10-31T02:30:00+01:00",
            ),
        ] {
            let found = next(expr, now);
            let same = |text: &str| DateTime::parse_from_rfc3339(text).unwrap();
            assert_eq!(same(&found), same(wanted), "{expr} after {now}");
        }
    }

    #[test]
    fn one_shots_intervals_and_what_never_comes() {
        let now = DateTime::parse_from_rfc3339("2027-01-10T09:00:00+00:00")
            .unwrap()
            .with_timezone(&Utc);
        let once = |run_at: &str| {
            JobSchedule::Once {
                run_at: run_at.into(),
            }
            .next_after(&now)
        };
        assert_eq!(
            once("2027-01-10T08:59:00+00:00").as_deref(),
            Some("2027-01-10T08:59:00+00:00")
        );
        assert_eq!(once("2027-01-10T08:50:00+00:00"), None);
        assert_eq!(
            once("2027-01-11T08:50:00").as_deref(),
            Some("2027-01-11T08:50:00+00:00")
        );
        let often = JobSchedule::Interval { minutes: 90 };
        assert_eq!(
            often.next_after(&now).as_deref(),
            Some("2027-01-10T10:30:00+00:00")
        );
        let often = |expr: &str| JobSchedule::Cron { expr: expr.into() }.next_after(&now);
        assert_eq!(
            often("* * * * * */5").as_deref(),
            Some("2027-01-10T09:01:00+00:00")
        );
        assert_eq!(
            often("* * * * * 30,40").as_deref(),
            Some("2027-01-10T09:00:30+00:00")
        );
        let never = JobSchedule::Cron {
            expr: "0 0 31 2 *".into(),
        };
        assert_eq!(never.next_after(&now), None);
    }
}
