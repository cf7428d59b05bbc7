//! Rotary position embedding: pairs of numbers of a query or key are rotated by an angle that grows with the
//! position.

use super::shape::{ModelShape, Pairs};

pub(super) struct Rope {
    pairs: Pairs,
    /// Angle per position, for each pair.
    speeds: Vec<f32>,
    /// Cosines and sines of the positions in use.
    turns: Vec<(f32, f32)>,
}

impl Rope {
    pub(super) fn new(shape: &ModelShape, factors: Option<&[f32]>) -> Self {
        let speeds = (0..shape.rotated / 2)
            .map(|pair| {
                let exponent = (2 * pair) as f32 / shape.rotated as f32;
                let factor = factors.map_or(1.0, |factors| factors[pair]);
                shape.rope_base.powf(-exponent) / factor / shape.rope_scale
            })
            .collect();
        Self {
            pairs: shape.pairs,
            speeds,
            turns: Vec::new(),
        }
    }

    /// Prepares `count` positions from `position` on.
    pub(super) fn turn_to(&mut self, position: usize, count: usize) {
        self.turns.clear();
        for position in position..position + count {
            self.turns.extend(self.speeds.iter().map(|speed| {
                // In double precision: large positions lose too many digits otherwise.
                let (sin, cos) = (position as f64 * f64::from(*speed)).sin_cos();
                (cos as f32, sin as f32)
            }));
        }
    }

    /// Rotates the numbers of a head for the prepared position number `slot`.
    pub(super) fn rotate(&self, slot: usize, numbers: &mut [f32]) {
        let count = self.speeds.len();
        let turns = &self.turns[slot * count..][..count];
        match self.pairs {
            Pairs::Neighbours => {
                for (pair, (cos, sin)) in numbers.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                    let [x, y] = *pair;
                    *pair = [x * cos - y * sin, x * sin + y * cos];
                }
            }
            Pairs::Halves => {
                let (low, high) = numbers[..2 * count].split_at_mut(count);
                for ((low, high), (cos, sin)) in low.iter_mut().zip(high).zip(turns) {
                    let (x, y) = (*low, *high);
                    *low = x * cos - y * sin;
                    *high = x * sin + y * cos;
                }
            }
        }
    }
}
