//! Formatting of amounts, shared by everything that shows one.

use std::time::Duration;

/// `512`, `18.4k`, `131k`, `2.1M`.
pub fn tokens(count: u64) -> String {
    let (unit, name) = match count {
        0..1_000 => return count.to_string(),
        1_000..999_500 => (1e3, "k"),
        _ => (1e6, "M"),
    };
    let value = count as f64 / unit;
    let decimals = usize::from(value < 99.95);
    let text = format!("{value:.decimals$}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    format!("{text}{name}")
}

/// The window of a model, as providers name it: `8k` for 8192, `131k`, `1M`, `1.5M`.
pub fn window(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{}k", count / 1_000),
        _ => {
            let tenths = count / 100_000;
            match tenths % 10 {
                0 => format!("{}M", tenths / 10),
                rest => format!("{}.{rest}M", tenths / 10),
            }
        }
    }
}

/// `0.1s`, `4.2s`, `21s`, `3m 05s`, `2h 10m`; nothing for what took no time.
pub fn took(time: Duration) -> Option<String> {
    let tenths = (time.as_millis() + 50) / 100;
    Some(match tenths {
        0 => return None,
        1..100 if tenths.is_multiple_of(10) => format!("{}s", tenths / 10),
        1..100 => format!("{}.{}s", tenths / 10, tenths % 10),
        _ => clock(time.max(Duration::from_secs(10))),
    })
}

/// `1 line`, `2 lines`, `2 entries`, `2 matches`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {}", plural(one))
    }
}

/// `entry` → `entries`, `match` → `matches`, `line` → `lines`.
pub fn plural(one: &str) -> String {
    let ends = |all: &[&str]| all.iter().any(|end| one.ends_with(end));
    let after_vowel = ends(&["ay", "ey", "oy", "uy"]);
    match one.strip_suffix('y') {
        Some(stem) if !after_vowel => format!("{stem}ies"),
        _ if ends(&["ch", "sh", "s", "x"]) => format!("{one}es"),
        _ => format!("{one}s"),
    }
}

/// Bytes in decimal units: `512 B`, `1.5 KB`, `98 MB`, `5.2 GB`.
pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..999_500 => (1e3, "KB"),
        999_500..999_500_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    let value = bytes as f64 / unit;
    let decimals = usize::from(value < 9.95);
    let text = format!("{value:.decimals$}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    format!("{text} {name}")
}

/// `21s`, `3m 05s`, `2h 10m`: whole seconds, for running operations.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// `$0.011`, `$1.24`; small amounts keep two significant digits.
pub fn dollars(usd: f64) -> String {
    let usd = usd.max(0.0);
    if usd == 0.0 {
        return "$0.00".to_owned();
    }
    if usd >= 1.0 {
        return format!("${usd:.2}");
    }
    if usd < 0.000_05 {
        return "<$0.0001".to_owned();
    }
    let text = if usd >= 0.01 {
        format!("{usd:.3}")
    } else {
        format!("{usd:.4}")
    };
    // Two decimals stay: an amount of money.
    let keep = "0.00".len();
    let trimmed = text.trim_end_matches('0').len().max(keep);
    format!("${}", &text[..trimmed])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_never_a_made_up_zero() {
        let short: Vec<String> = [
            0, 999, 1_000, 18_432, 99_949, 131_072, 999_499, 999_500, 2_100_000,
        ]
        .map(tokens)
        .to_vec();
        assert_eq!(
            short,
            [
                "0", "999", "1k", "18.4k", "99.9k", "131k", "999k", "1M", "2.1M"
            ]
        );
        let counts = [
            (1, "line"),
            (2, "line"),
            (0, "key"),
            (2, "entry"),
            (3, "match"),
        ]
        .map(|(number, one)| count(number, one));
        assert_eq!(
            counts,
            ["1 line", "2 lines", "0 keys", "2 entries", "3 matches"]
        );
        let sizes = [
            0,
            999,
            1_000,
            1_449,
            9_949,
            98_362,
            999_499,
            999_500,
            98_362_432,
            999_500_000,
            2_497_280_256,
            41_000_000_000,
        ]
        .map(size);
        assert_eq!(
            sizes,
            [
                "0 B", "999 B", "1 KB", "1.4 KB", "9.9 KB", "98 KB", "999 KB", "1 MB", "98 MB",
                "1 GB", "2.5 GB", "41 GB"
            ]
        );
        let times = [0, 21, 185, 7_800].map(|s| clock(Duration::from_secs(s)));
        assert_eq!(times, ["0s", "21s", "3m 05s", "2h 10m"]);
        let money = [0.0, 0.000_001, 0.000_12, 0.002, 0.011, 0.1, 0.999_9, 12.345].map(dollars);
        assert_eq!(
            money,
            [
                "$0.00", "<$0.0001", "$0.0001", "$0.002", "$0.011", "$0.10", "$1.00", "$12.35"
            ]
        );
    }
}
