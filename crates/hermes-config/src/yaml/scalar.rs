//! The meaning of plain scalars by PyYAML's rules (YAML 1.1 with its own regexes).

use serde_json::{Number, Value};

/// The meaning of a plain (unquoted, untagged) scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlainScalar {
    Null,
    Bool(bool),
    Number(Number),
    /// Infinity, NaN or an integer beyond 64 bits, which JSON cannot represent.
    Unrepresentable,
    /// A date or time, in ISO form.
    Time(String),
    Text,
}

impl PlainScalar {
    pub(crate) fn into_value(self, source: &str) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(flag),
            Self::Number(number) => Value::Number(number),
            Self::Time(iso) => Value::String(iso),
            Self::Text | Self::Unrepresentable => Value::String(source.to_owned()),
        }
    }
}

pub(crate) fn resolve(text: &str) -> PlainScalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return PlainScalar::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return PlainScalar::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return PlainScalar::Bool(false);
        }
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return PlainScalar::Text;
    }
    integer(text)
        .or_else(|| float(text))
        .or_else(|| timestamp(text))
        .unwrap_or(PlainScalar::Text)
}

fn signed(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn all(text: &str, want: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(want)
}

pub(super) fn integer(text: &str) -> Option<PlainScalar> {
    let (negative, body) = signed(text);
    let digits = |text: &str| text.replace('_', "");
    let magnitude = if let Some(bits) = body.strip_prefix("0b") {
        all(bits, |c| matches!(c, b'0' | b'1' | b'_')).then(|| radix(&digits(bits), 2))
    } else if let Some(hex) = body.strip_prefix("0x") {
        all(hex, |c| c.is_ascii_hexdigit() || c == b'_').then(|| radix(&digits(hex), 16))
    } else if body == "0" {
        Some(Some(0))
    } else if let Some(octal) = body.strip_prefix('0') {
        // `0_` is zero in Python.
        all(octal, |c| matches!(c, b'0'..=b'7' | b'_')).then(|| match digits(octal).as_str() {
            "" => Some(0),
            octal => radix(octal, 8),
        })
    } else if body.starts_with(|c: char| c.is_ascii_digit()) {
        if all(body, |c| c.is_ascii_digit() || c == b'_') {
            Some(radix(&digits(body), 10))
        } else {
            is_sexagesimal(body).then(|| sexagesimal_integer(body))
        }
    } else {
        None
    }?;
    let value = magnitude.and_then(|value| {
        if negative {
            0_i128.checked_sub(value)
        } else {
            Some(value)
        }
    });
    Some(match value {
        Some(value) => match (i64::try_from(value), u64::try_from(value)) {
            (Ok(value), _) => PlainScalar::Number(value.into()),
            (_, Ok(value)) => PlainScalar::Number(value.into()),
            _ => PlainScalar::Unrepresentable,
        },
        None => PlainScalar::Unrepresentable,
    })
}

/// `None` inside: too large, or (for `0b_`) no digit at all.
fn radix(digits: &str, radix: u32) -> Option<i128> {
    i128::from_str_radix(digits, radix).ok()
}

/// `1:30` is ninety.
fn is_sexagesimal(body: &str) -> bool {
    body.split_once(':').is_some_and(|(first, rest)| {
        all(first, |c| c.is_ascii_digit() || c == b'_') && rest.split(':').all(is_sixtieth)
    })
}

/// `None`: too large.
fn sexagesimal_integer(body: &str) -> Option<i128> {
    body.replace('_', "")
        .split(':')
        .try_fold(0_i128, |value, part_value| {
            value.checked_mul(60)?.checked_add(part_value.parse().ok()?)
        })
}

fn is_sixtieth(part: &str) -> bool {
    match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [tens, ones] => (b'0'..=b'5').contains(tens) && ones.is_ascii_digit(),
        _ => false,
    }
}

pub(super) fn float(text: &str) -> Option<PlainScalar> {
    let (negative, body) = signed(text);
    if matches!(body, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(PlainScalar::Unrepresentable);
    }
    let magnitude = if body.contains(':') {
        sexagesimal_float(body)?
    } else {
        decimal(body, body.len() == text.len())?
    };
    let value = if negative { -magnitude } else { magnitude };
    Some(Number::from_f64(value).map_or(PlainScalar::Unrepresentable, PlainScalar::Number))
}

/// A float needs a dot, and a sign in its exponent: `1e3` and `1.0e3` are text.
fn decimal(body: &str, unsigned: bool) -> Option<f64> {
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    if let Some(exponent) = exponent
        && !(exponent.starts_with(['+', '-']) && all(&exponent[1..], |c| c.is_ascii_digit()))
    {
        return None;
    }
    let digit = |c: u8| c.is_ascii_digit() || c == b'_';
    let (whole, part) = mantissa.split_once('.')?;
    let shaped = if whole.is_empty() {
        unsigned && part.starts_with(|c: char| c.is_ascii_digit()) && all(part, digit)
    } else {
        whole.starts_with(|c: char| c.is_ascii_digit())
            && all(whole, digit)
            && part.bytes().all(digit)
    };
    shaped.then(|| body.replace('_', "").parse().ok()).flatten()
}

fn sexagesimal_float(body: &str) -> Option<f64> {
    let (whole, part) = body.split_once('.')?;
    let mut places = whole.split(':');
    let first = places.next()?;
    let digit = |c: u8| c.is_ascii_digit() || c == b'_';
    if !first.starts_with(|c: char| c.is_ascii_digit())
        || !all(first, digit)
        || !places.clone().all(is_sixtieth)
        || !part.bytes().all(digit)
    {
        return None;
    }
    let mut value: f64 = first.replace('_', "").parse().ok()?;
    let last = places.clone().count();
    for (index, part_value) in places.enumerate() {
        let part_value = if index + 1 == last {
            format!("{part_value}.{}", part.replace('_', ""))
        } else {
            part_value.to_owned()
        };
        value = value * 60.0 + part_value.parse::<f64>().ok()?;
    }
    Some(value)
}

/// `2026-01-02` and date-times. One that does not exist (February 30) stays text.
pub(super) fn timestamp(text: &str) -> Option<PlainScalar> {
    let (year, rest) = digits(text, 4, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 1, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 1, 2)?;
    let date = chrono::NaiveDate::from_ymd_opt(year as i32, month, day);
    if rest.is_empty() {
        // A bare date needs its zeros.
        return (text.len() == 10).then(|| date.map(|date| PlainScalar::Time(date.to_string())))?;
    }
    let rest = match rest.strip_prefix(['T', 't']) {
        Some(rest) => rest,
        None => rest
            .strip_prefix([' ', '\t'])?
            .trim_start_matches([' ', '\t']),
    };
    let (hour, rest) = digits(rest, 1, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(':')?, 2, 2)?;
    let (second, rest) = digits(rest.strip_prefix(':')?, 2, 2)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            (&rest[..end], &rest[end..])
        }
        None => ("", rest),
    };
    let offset = zone(rest)?;
    let micros: u32 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let time = date?.and_hms_micro_opt(hour, minute, second, micros)?;
    let base = time.format(if micros == 0 {
        "%Y-%m-%dT%H:%M:%S"
    } else {
        "%Y-%m-%dT%H:%M:%S%.6f"
    });
    Some(PlainScalar::Time(format!("{base}{offset}")))
}

fn digits(text: &str, min: usize, max: usize) -> Option<(u32, &str)> {
    let end = text
        .bytes()
        .take(max)
        .take_while(u8::is_ascii_digit)
        .count();
    (end >= min).then_some(())?;
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `Z`, `+2`, `-05:30` or nothing, as the tail of an ISO time.
fn zone(text: &str) -> Option<String> {
    let text = text.trim_start_matches([' ', '\t']);
    if text.is_empty() {
        return Some(String::new());
    }
    if text == "Z" {
        return Some("+00:00".to_owned());
    }
    let sign = text
        .chars()
        .next()
        .filter(|sign| matches!(sign, '+' | '-'))?;
    let (hours, rest) = digits(&text[1..], 1, 2)?;
    let minutes = match rest.strip_prefix(':') {
        Some(rest) => digits(rest, 2, 2).filter(|(_, rest)| rest.is_empty())?.0,
        None if rest.is_empty() => 0,
        None => return None,
    };
    Some(format!("{sign}{hours:02}:{minutes:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        resolve(text).into_value(text)
    }

    #[test]
    fn booleans_and_null_are_the_words_of_yaml_1_1() {
        for (text, want) in [
            ("off", false),
            ("No", false),
            ("FALSE", false),
            ("on", true),
            ("yes", true),
        ] {
            assert_eq!(value(text), json!(want), "{text}");
        }
        for text in ["y", "n", "oN", "nO", "tRUE", "none", "nil"] {
            assert_eq!(value(text), json!(text));
        }
        for text in ["", "~", "null", "NULL"] {
            assert_eq!(value(text), Value::Null);
        }
    }

    #[test]
    fn integers_in_all_their_shapes() {
        for (text, want) in [
            ("0", 0),
            ("-0", 0),
            ("42", 42),
            ("+42", 42),
            ("-1_000", -1000),
            ("012", 10),
            ("0o12", 0),
            ("0x1F", 31),
            ("0b1_01", 5),
            ("1:30", 90),
            ("1:30:00", 5400),
            ("-1:30", -90),
            ("0_7", 7),
        ] {
            let want = if text == "0o12" {
                json!(text)
            } else {
                json!(want)
            };
            assert_eq!(value(text), want, "{text}");
        }
        for text in [
            "08", "1:60", "0:30", "1__", "_1", "0x", "1:2:3:", "12a", "+", "-",
        ] {
            let want = if text == "1__" { json!(1) } else { json!(text) };
            assert_eq!(value(text), want, "{text}");
        }
        assert_eq!(value("18446744073709551615"), json!(u64::MAX));
        assert_eq!(value("99999999999999999999"), json!("99999999999999999999"));
    }

    #[test]
    fn a_float_needs_a_dot() {
        for (text, want) in [
            ("0.5", 0.5),
            ("1.", 1.0),
            (".5", 0.5),
            ("-1_0.5", -10.5),
            ("1.5e+3", 1500.0),
            ("1:30.5", 90.5),
        ] {
            assert_eq!(value(text), json!(want), "{text}");
        }
        for text in [
            "1e3", "1.0e3", "1e+3", "-.5", ".", "1.2.3", "._5", ".inf", "-.inf", ".nan", "-.nan",
        ] {
            assert_eq!(value(text), json!(text), "{text}");
        }
    }

    #[test]
    fn dates_become_iso_text() {
        for (text, want) in [
            ("2026-01-02", "2026-01-02"),
            ("2026-1-2", "2026-1-2"),
            ("2026-02-30", "2026-02-30"),
            ("2026-01-02 03:04:05", "2026-01-02T03:04:05"),
            ("2026-1-2T3:04:05Z", "2026-01-02T03:04:05+00:00"),
            (
                "2026-01-02t03:04:05.5 +2",
                "2026-01-02T03:04:05.500000+02:00",
            ),
            ("2026-01-02 03:04", "2026-01-02 03:04"),
        ] {
            assert_eq!(value(text), json!(want), "{text}");
        }
    }
}
