//! Choosing the next token.

use super::SamplingOptions;

/// Deterministic pseudo-random numbers, equal for the same seed on every machine.
pub(super) struct SeededRng(u64);

impl SeededRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 up to but not including 1 (splitmix64).
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Tokens with a logit this far below the best are never chosen.
const MAX_LOGIT_DISTANCE: f32 = 16.0;

/// The next token; `None` if all are forbidden.
pub(super) fn choose(logits: &[f32], how: &SamplingOptions, dice: &mut SeededRng) -> Option<u32> {
    let (best, top) = logits
        .iter()
        .enumerate()
        .filter(|(_, logit)| !logit.is_nan())
        .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)))?;
    if *top == f32::NEG_INFINITY {
        return None;
    }
    if how.temperature <= 0.0 {
        return Some(best as u32);
    }
    let mut candidates: Vec<(u32, f64)> = logits
        .iter()
        .enumerate()
        .map(|(token, logit)| (token as u32, (logit - top) / how.temperature))
        .filter(|(_, distance)| *distance > -MAX_LOGIT_DISTANCE)
        .map(|(token, distance)| (token, f64::from(distance).exp()))
        .collect();
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let all: f64 = candidates.iter().map(|(_, share)| share).sum();
    let wanted = all * f64::from(how.top_p.clamp(0.0, 1.0));
    let mut total = 0.0;
    let count = candidates
        .iter()
        .position(|(_, share)| {
            total += share;
            total >= wanted
        })
        .map_or(candidates.len(), |last| last + 1);
    candidates.truncate(count);
    let mut left = dice.roll() * candidates.iter().map(|(_, share)| share).sum::<f64>();
    let chosen = candidates.iter().find(|(_, share)| {
        left -= share;
        left < 0.0
    });
    chosen
        .or(candidates.last())
        .map_or(Some(best as u32), |(token, _)| Some(*token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(temperature: f32, top_p: f32) -> SamplingOptions {
        SamplingOptions {
            temperature,
            top_p,
            seed: 0,
            max_tokens: 1,
        }
    }

    #[test]
    fn without_temperature_the_best_is_taken() {
        let logits = [0.0, 3.0, 1.0, 3.0, f32::NAN];
        let mut dice = SeededRng::new(1);
        assert_eq!(choose(&logits, &how(0.0, 1.0), &mut dice), Some(1));
    }

    #[test]
    fn forbidden_tokens_are_never_chosen() {
        let never = f32::NEG_INFINITY;
        let mut dice = SeededRng::new(1);
        assert_eq!(choose(&[never, never], &how(1.0, 1.0), &mut dice), None);
        for _ in 0..100 {
            let chosen = choose(&[never, 0.1, never, 0.2], &how(5.0, 1.0), &mut dice);
            assert!(matches!(chosen, Some(1 | 3)));
        }
    }

    #[test]
    fn shares_follow_the_logits_and_the_nucleus_cuts_the_rest() {
        let logits: Vec<f32> = [0.6f32, 0.3, 0.1].iter().map(|share| share.ln()).collect();
        let mut dice = SeededRng::new(7);
        let mut counts = [0; 3];
        for _ in 0..3000 {
            counts[choose(&logits, &how(1.0, 1.0), &mut dice).unwrap() as usize] += 1;
        }
        assert!((1650..1950).contains(&counts[0]), "{counts:?}");
        assert!((800..1000).contains(&counts[1]), "{counts:?}");
        let cut: Vec<u32> = (0..500)
            .filter_map(|_| choose(&logits, &how(1.0, 0.7), &mut dice))
            .collect();
        assert!(cut.contains(&1) && !cut.contains(&2));
    }

    #[test]
    fn one_seed_one_sequence() {
        let rolls = |seed| {
            let mut dice = SeededRng::new(seed);
            [dice.roll(), dice.roll(), dice.roll()].map(f64::to_bits)
        };
        assert_eq!(rolls(42), rolls(42));
        assert_ne!(rolls(42), rolls(43));
    }
}
