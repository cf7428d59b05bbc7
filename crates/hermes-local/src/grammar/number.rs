//! Numbers within bounds, digit by digit: a digit is allowed if it can be continued to a number within the
//! bounds. No exponents; at most 15 digits before the point and 9 after it.

use super::node::UNREACHABLE;

const MAX_WHOLE_DIGITS: u8 = 15;
const MAX_DECIMALS: u8 = 9;
const ONE: i128 = 1_000_000_000;
const MAX_NUMBER: i128 = 999_999_999_999_999 * ONE;

/// Inclusive bounds in units of 10⁻⁹.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    min: i128,
    max: i128,
    fraction: bool,
}

/// The part of a number written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Digits {
    negative: bool,
    /// Digits before the point.
    whole: u8,
    /// Digits after the point, if any.
    places: Option<u8>,
    /// All digits.
    value: u128,
}

impl Range {
    pub(super) fn new(fraction: bool) -> Self {
        Self {
            min: -MAX_NUMBER,
            max: MAX_NUMBER,
            fraction,
        }
    }

    pub(super) fn at_least(mut self, bound: f64, excluded: bool) -> Self {
        let unit = if self.fraction { 1 } else { ONE };
        let steps = if self.fraction {
            bound * ONE as f64
        } else {
            bound
        };
        let first = if excluded {
            scaled(steps.floor()).saturating_add(1)
        } else {
            scaled(steps.ceil())
        };
        // Beyond the largest number nothing is possible, and arithmetic cannot overflow.
        let first = first.saturating_mul(unit).min(MAX_NUMBER + ONE);
        self.min = self.min.max(first);
        self
    }

    pub(super) fn at_most(self, bound: f64, excluded: bool) -> Self {
        let mirrored = Self {
            min: -self.max,
            max: -self.min,
            fraction: self.fraction,
        }
        .at_least(-bound, excluded);
        Self {
            min: -mirrored.max,
            max: -mirrored.min,
            fraction: self.fraction,
        }
    }

    pub(super) fn shortest(&self) -> u32 {
        let positive = self.left(Digits::default());
        let negative = self.left(Digits {
            negative: true,
            ..Digits::default()
        });
        positive.min(negative.saturating_add(1)).min(UNREACHABLE)
    }

    /// Minimum number of bytes that complete the number.
    pub(super) fn left(&self, so_far: Digits) -> u32 {
        match so_far.places {
            Some(places) => self.left_after_point(so_far, places),
            None => self.left_before_point(so_far),
        }
    }

    fn left_after_point(&self, so_far: Digits, places: u8) -> u32 {
        let width = power(MAX_DECIMALS - places);
        let low = so_far.value as i128 * width;
        (u8::from(places == 0)..=MAX_DECIMALS - places)
            .find(|more| {
                let step = power(MAX_DECIMALS - places - more);
                self.meets(so_far.negative, low, low + width - step, step)
            })
            .map_or(UNREACHABLE, u32::from)
    }

    fn left_before_point(&self, so_far: Digits) -> u32 {
        let mut best = UNREACHABLE;
        for more in u8::from(so_far.whole == 0)..=MAX_WHOLE_DIGITS.saturating_sub(so_far.whole) {
            let leading_zero = so_far.whole == 1 && so_far.value == 0;
            if u32::from(more) >= best || (leading_zero && more > 0) {
                break;
            }
            let (low, high) = self.with_digits(so_far, more);
            if self.meets(so_far.negative, low * ONE, high * ONE, ONE) {
                best = best.min(u32::from(more));
            }
            let point = (1..=MAX_DECIMALS).filter(|_| self.fraction).find(|places| {
                let step = power(MAX_DECIMALS - places);
                self.meets(so_far.negative, low * ONE, (high + 1) * ONE - step, step)
            });
            if let Some(places) = point {
                best = best.min(u32::from(more + 1 + places));
            }
        }
        best
    }

    /// The smallest and the largest integer with `more` more digits.
    fn with_digits(&self, so_far: Digits, more: u8) -> (i128, i128) {
        let width = power(more);
        if so_far.whole > 0 {
            let low = so_far.value as i128 * width;
            return (low, low + width - 1);
        }
        // There is no -0 among integers.
        let zero = more == 1 && (self.fraction || !so_far.negative);
        let low = if zero { 0 } else { power(more - 1) };
        (low, width - 1)
    }

    /// Whether a number of `low..=high` in steps of `step`, negative or not, is within the bounds.
    fn meets(&self, negative: bool, low: i128, high: i128, step: i128) -> bool {
        let (min, max) = if negative {
            (-self.max, -self.min)
        } else {
            (self.min, self.max)
        };
        let low = low.max(min);
        let high = high.min(max);
        // `low` may not be a multiple of the step.
        let first = low + (step - low.rem_euclid(step)) % step;
        first <= high
    }

    /// The number after one more byte; `None`: it cannot be completed.
    pub(super) fn step(&self, mut so_far: Digits, byte: u8) -> Option<Digits> {
        match byte {
            b'-' if so_far == Digits::default() => so_far.negative = true,
            b'.' if self.fraction && so_far.whole > 0 && so_far.places.is_none() => {
                so_far.places = Some(0);
            }
            b'0'..=b'9' => {
                let first_zero = so_far.whole == 1 && so_far.value == 0;
                match &mut so_far.places {
                    Some(places) if *places < MAX_DECIMALS => *places += 1,
                    None if so_far.whole < MAX_WHOLE_DIGITS && !first_zero => so_far.whole += 1,
                    _ => return None,
                }
                so_far.value = so_far.value * 10 + u128::from(byte - b'0');
                let minus_zero = so_far.negative && so_far.whole == 1 && so_far.value == 0;
                if minus_zero && !self.fraction {
                    return None;
                }
            }
            _ => return None,
        }
        (self.left(so_far) < UNREACHABLE).then_some(so_far)
    }
}

impl Digits {
    /// Whether nothing has been written yet.
    pub(super) fn is_new(self) -> bool {
        self == Self::default()
    }
}

fn power(digits: u8) -> i128 {
    10_i128.pow(u32::from(digits))
}

fn scaled(value: f64) -> i128 {
    // Saturates, which exceeds any number here.
    value as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(range: Range, text: &str) -> Option<u32> {
        let mut so_far = Digits::default();
        for byte in text.bytes() {
            so_far = range.step(so_far, byte)?;
        }
        Some(range.left(so_far))
    }

    #[test]
    fn whole_numbers_stay_inside_their_bounds() {
        let range = Range::new(false)
            .at_least(100.0, false)
            .at_most(250.0, false);
        assert_eq!(reads(range, "1"), Some(2));
        assert_eq!(reads(range, "250"), Some(0));
        assert_eq!(reads(range, "251"), None);
        assert_eq!(reads(range, "3"), None);
        assert_eq!(reads(range, "-"), None);
        assert_eq!(reads(range, "0"), None);
        assert_eq!(reads(range, "1."), None);
        assert_eq!(range.shortest(), 3);
    }

    #[test]
    fn fractions_between_whole_numbers_are_found() {
        let range = Range::new(true).at_least(-0.75, false).at_most(-0.25, true);
        assert_eq!(range.shortest(), 4);
        assert_eq!(reads(range, "-0"), Some(2));
        assert_eq!(reads(range, "-0.7"), Some(0));
        assert_eq!(reads(range, "-0.25"), Some(1));
        assert_eq!(reads(range, "-0.8"), None);
        assert_eq!(reads(range, "0"), None);
    }

    #[test]
    fn impossible_bounds_are_seen() {
        let range = Range::new(false).at_least(0.2, false).at_most(0.8, false);
        assert_eq!(range.shortest(), UNREACHABLE);
    }

    #[test]
    fn bounds_beyond_all_numbers_hold() {
        for bound in [1e15, 1e40, f64::MAX] {
            for fraction in [false, true] {
                for excluded in [false, true] {
                    let above = Range::new(fraction).at_least(bound, excluded);
                    let below = Range::new(fraction).at_most(-bound, excluded);
                    assert_eq!(
                        (above.shortest(), below.shortest()),
                        (UNREACHABLE, UNREACHABLE)
                    );
                    let all = Range::new(fraction)
                        .at_least(-bound, excluded)
                        .at_most(bound, excluded);
                    assert_eq!(reads(all, "-999999999999999"), Some(0));
                }
            }
        }
    }

    #[test]
    fn there_is_no_minus_zero_and_no_leading_zero() {
        let range = Range::new(false);
        assert_eq!(reads(range, "-0"), None);
        assert_eq!(reads(range, "00"), None);
        assert_eq!(reads(range, "0"), Some(0));
        assert_eq!(reads(range, "-1"), Some(0));
        assert_eq!(reads(range, "-"), Some(1));
        assert_eq!(reads(range, "999999999999999"), Some(0));
        assert_eq!(reads(range, "9999999999999990"), None);
    }
}
