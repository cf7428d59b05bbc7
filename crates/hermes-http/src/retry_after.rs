//! The `Retry-After` header.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// The wait that a `Retry-After` value asks for: seconds or an HTTP date. A date in the past is no
/// wait. Callers choose the limit.
pub fn retry_after(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim();
    // The standard allows whole seconds only, but some servers send fractions.
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?;
    Some((date.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = DateTime::from_timestamp(784_111_777, 0).unwrap();
        for (value, expected) in [
            ("7", Some(7.0)),
            (" 7 ", Some(7.0)),
            ("1.5", Some(1.5)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10.0)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0.0)),
            ("-3", None),
            ("inf", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
        ] {
            let wait = retry_after(value, now).map(|wait| wait.as_secs_f64());
            assert_eq!(wait, expected, "{value:?}");
        }
    }
}
