//! The key-value cache of one head, and attention over it.
//!
//! Keys and values are stored as 16-bit floats in segments that are allocated on demand. Keys are stored in
//! blocks of sixteen, dimension by dimension, so that a vector holds one number of sixteen keys. The softmax is
//! computed segment by segment: a segment stays in the CPU cache for both of its uses.

use half::f16;

use super::level::{LevelKind, SimdLevel};
use super::portable;
use super::product::{PANEL, tile_size};
use super::rows::{largest, powers};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// Positions in a segment.
pub(in crate::engine) const SEGMENT: usize = 256;

/// Keys and values of one head of one layer.
pub(in crate::engine) struct AttentionHead {
    /// Length of a key, padded to whole vectors.
    dim: usize,
    segments: Vec<Box<[u16]>>,
}

/// Queries to one head and their results; reused to save allocations.
#[derive(Default)]
pub(in crate::engine) struct Queries {
    dim: usize,
    /// How many positions each query sees.
    seen: Vec<usize>,
    numbers: Vec<f32>,
    scores: Vec<f32>,
    out: Vec<f32>,
    /// The largest score so far, and the sum of the exponentials.
    tops: Vec<f32>,
    sums: Vec<f32>,
}

/// Input and output of the scores of sixteen keys.
#[derive(Clone, Copy)]
pub(super) struct ScoreTile {
    pub(super) keys: *const u16,
    pub(super) dim: usize,
    pub(super) queries: *const f32,
    pub(super) out: *mut f32,
}

/// Input and output of the weighted sum of values.
#[derive(Clone, Copy)]
pub(super) struct SumTile {
    pub(super) values: *const u16,
    pub(super) dim: usize,
    pub(super) count: usize,
    pub(super) weights: *const f32,
    pub(super) out: *mut f32,
}

impl Queries {
    pub(in crate::engine) fn clear(&mut self, dim: usize) {
        self.dim = dim.next_multiple_of(PANEL);
        self.seen.clear();
        self.numbers.clear();
    }

    /// Adds a query that sees the first `seen` positions; the caller fills in its numbers.
    pub(in crate::engine) fn push(&mut self, seen: usize) -> &mut [f32] {
        self.seen.push(seen);
        let at = self.numbers.len();
        self.numbers.resize(at + self.dim, 0.0);
        &mut self.numbers[at..]
    }

    /// The result of query `number`, after [`AttentionHead::attend`].
    pub(in crate::engine) fn answer(&self, number: usize) -> &[f32] {
        &self.out[number * self.dim..][..self.dim]
    }
}

impl AttentionHead {
    pub(in crate::engine) fn new(dim: usize) -> Self {
        Self {
            dim: dim.next_multiple_of(PANEL),
            segments: Vec::new(),
        }
    }

    fn values_at(&self) -> usize {
        SEGMENT * self.dim
    }

    /// Stores the key and the value of a position.
    pub(in crate::engine) fn write(&mut self, position: usize, key: &[f32], value: &[f32]) {
        let (segment, slot) = (position / SEGMENT, position % SEGMENT);
        while self.segments.len() <= segment {
            self.segments
                .push(vec![0; 2 * SEGMENT * self.dim].into_boxed_slice());
        }
        let (dim, values_at) = (self.dim, self.values_at());
        let segment = &mut self.segments[segment];
        let block = slot / PANEL * PANEL * dim + slot % PANEL;
        for (at, number) in key.iter().enumerate() {
            segment[block + at * PANEL] = f16::from_f32(*number).to_bits();
        }
        let value_at = values_at + slot * dim;
        for (slot, number) in segment[value_at..value_at + dim].iter_mut().zip(value) {
            *slot = f16::from_f32(*number).to_bits();
        }
    }

    /// Computes all queries.
    pub(in crate::engine) fn attend(&self, level: SimdLevel, queries: &mut Queries) {
        let count = queries.seen.len();
        assert_eq!(queries.dim, self.dim);
        queries.scores.resize(count * SEGMENT, 0.0);
        queries.out.clear();
        queries.out.resize(count * self.dim, 0.0);
        queries.tops.clear();
        queries.tops.resize(count, f32::NEG_INFINITY);
        queries.sums.clear();
        queries.sums.resize(count, 0.0);
        let seen = queries.seen.iter().copied().max().unwrap_or_default();
        assert!(seen <= self.segments.len() * SEGMENT);
        for (number, segment) in self.segments.iter().enumerate() {
            let start = number * SEGMENT;
            let Some(left) = seen.checked_sub(start).filter(|left| *left > 0) else {
                break;
            };
            self.attend_segment(level, segment, start, left.min(SEGMENT), queries);
        }
        for (out, sum) in queries.out.chunks_mut(self.dim).zip(&queries.sums) {
            let scale = if *sum > 0.0 { 1.0 / sum } else { 0.0 };
            for value in out {
                *value *= scale;
            }
        }
    }

    fn attend_segment(
        &self,
        level: SimdLevel,
        segment: &[u16],
        start: usize,
        count: usize,
        queries: &mut Queries,
    ) {
        let dim = self.dim;
        tiles(queries.seen.len(), level.tile(), |from, size| {
            for block in 0..count.div_ceil(PANEL) {
                // SAFETY: the block is in the segment; queries and scores have `size` rows there.
                unsafe {
                    let scored = ScoreTile {
                        keys: segment[block * PANEL * dim..(block + 1) * PANEL * dim].as_ptr(),
                        dim,
                        queries: queries.numbers[from * dim..(from + size) * dim].as_ptr(),
                        out: queries.scores[from * SEGMENT..(from + size) * SEGMENT]
                            [block * PANEL..]
                            .as_mut_ptr(),
                    };
                    score(level, size, scored);
                }
            }
        });
        for (query, seen) in queries.seen.iter().enumerate() {
            let seen = seen.saturating_sub(start).min(count);
            let row = &mut queries.scores[query * SEGMENT..][..count];
            row[seen..].fill(0.0);
            if seen == 0 {
                continue;
            }
            let row = &mut row[..seen];
            let top = largest(level, row).max(queries.tops[query]);
            let old = (queries.tops[query] - top).exp();
            queries.tops[query] = top;
            queries.sums[query] = queries.sums[query] * old + powers(level, row, top);
            if old < 1.0 {
                for value in &mut queries.out[query * dim..][..dim] {
                    *value *= old;
                }
            }
        }
        let values = &segment[self.values_at()..][..count * dim];
        tiles(queries.seen.len(), level.tile(), |from, size| {
            // SAFETY: `count` values are in the segment; weights and sums have `size` rows there.
            unsafe {
                let summed = SumTile {
                    values: values.as_ptr(),
                    dim,
                    count,
                    weights: queries.scores[from * SEGMENT..(from + size) * SEGMENT].as_ptr(),
                    out: queries.out[from * dim..(from + size) * dim].as_mut_ptr(),
                };
                sum(level, size, summed);
            }
        });
    }
}

fn tiles(count: usize, max_size: usize, mut each: impl FnMut(usize, usize)) {
    let mut from = 0;
    while from < count {
        let size = tile_size(count - from, max_size);
        each(from, size);
        from += size;
    }
}

/// # Safety
/// What `scored` points to is there, for `size` queries.
unsafe fn score(level: SimdLevel, size: usize, scored: ScoreTile) {
    // SAFETY: by the caller, and a level is only made when the processor has its instructions.
    unsafe {
        match (level.0, size) {
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 8) => x86::scores_avx512::<8>(scored),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 4) => x86::scores_avx512::<4>(scored),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 2) => x86::scores_avx512::<2>(scored),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, _) => x86::scores_avx512::<1>(scored),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, 4) => x86::scores_avx2::<4>(scored),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, 2) => x86::scores_avx2::<2>(scored),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, _) => x86::scores_avx2::<1>(scored),
            (LevelKind::Portable, 4) => portable::scores::<4>(scored),
            (LevelKind::Portable, 2) => portable::scores::<2>(scored),
            (LevelKind::Portable, _) => portable::scores::<1>(scored),
        }
    }
}

/// # Safety
/// What `summed` points to is there, for `size` queries.
unsafe fn sum(level: SimdLevel, size: usize, summed: SumTile) {
    // SAFETY: by the caller, and a level is only made when the processor has its instructions.
    unsafe {
        match (level.0, size) {
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 8) => x86::values_avx512::<8>(summed),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 4) => x86::values_avx512::<4>(summed),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, 2) => x86::values_avx512::<2>(summed),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx512, _) => x86::values_avx512::<1>(summed),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, 4) => x86::values_avx2::<4>(summed),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, 2) => x86::values_avx2::<2>(summed),
            #[cfg(target_arch = "x86_64")]
            (LevelKind::Avx2, _) => x86::values_avx2::<1>(summed),
            (LevelKind::Portable, 4) => portable::values::<4>(summed),
            (LevelKind::Portable, 2) => portable::values::<2>(summed),
            (LevelKind::Portable, _) => portable::values::<1>(summed),
        }
    }
}
