//! The products without special instructions: for other processors, and to compare with.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::attention::{SEGMENT, ScoreTile, SumTile};
use super::product::{BLOCK, PANEL, PANEL_BLOCK, Tile};

/// # Safety
/// As for [`super::product`]: what the tile points to is there, for `T` tokens.
pub(super) unsafe fn tile<const T: usize>(tile: Tile) {
    let mut sums = [[0.0f32; PANEL]; T];
    for block in 0..tile.blocks {
        // SAFETY: the block is in the panel.
        let (quants, scales) = unsafe {
            (
                &*tile
                    .quants
                    .add(block * PANEL_BLOCK)
                    .cast::<[u8; PANEL_BLOCK]>(),
                &*tile.scales.add(block * PANEL).cast::<[u16; PANEL]>(),
            )
        };
        for (token, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the row has a block of numbers, then a scale and an offset for each block.
            let (numbers, scale, offset) = unsafe {
                let row = tile.row.add(token * tile.row_stride);
                let factors = row.add(tile.blocks * BLOCK / 4 + block);
                (
                    &*row.add(block * BLOCK / 4).cast::<[i8; BLOCK]>(),
                    f32::from_bits(*factors),
                    (*factors.add(tile.blocks)).cast_signed(),
                )
            };
            let mut dots = [offset; PANEL];
            for (group, four) in quants
                .as_chunks::<{ PANEL * 4 }>()
                .0
                .iter()
                .zip(numbers.as_chunks::<4>().0)
            {
                for (dot, weights) in dots.iter_mut().zip(group.as_chunks::<4>().0) {
                    for (weight, number) in weights.iter().zip(four) {
                        *dot += i32::from(*weight) * i32::from(*number);
                    }
                }
            }
            for ((sum, dot), weight) in sums.iter_mut().zip(dots).zip(scales) {
                *sum += dot as f32 * (f16::from_bits(*weight).to_f32() * scale);
            }
        }
    }
    for (token, sums) in sums.iter().enumerate() {
        // SAFETY: there is room for each token's part.
        unsafe {
            let out = tile.out.add(token * tile.out_stride).cast::<[f32; PANEL]>();
            *out = *sums;
        }
    }
}

fn widen(halves: &[u16], into: &mut [f32]) {
    use half::slice::HalfBitsSliceExt;
    halves.reinterpret_cast::<f16>().convert_to_f32_slice(into);
}

/// # Safety
/// What `scored` points to is there, for `Q` queries.
pub(super) unsafe fn scores<const Q: usize>(scored: ScoreTile) {
    let mut sums = [[0.0f32; PANEL]; Q];
    for at in 0..scored.dim {
        let mut keys = [0.0f32; PANEL];
        // SAFETY: the block has sixteen keys for each dimension.
        widen(
            unsafe { &*scored.keys.add(at * PANEL).cast::<[u16; PANEL]>() },
            &mut keys,
        );
        for (query, sums) in sums.iter_mut().enumerate() {
            // SAFETY: queries lie `dim` apart.
            let number = unsafe { *scored.queries.add(query * scored.dim + at) };
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum += number * key;
            }
        }
    }
    for (query, sums) in sums.iter().enumerate() {
        // SAFETY: the scores of a query lie `SEGMENT` apart from the next one's.
        unsafe { *scored.out.add(query * SEGMENT).cast::<[f32; PANEL]>() = *sums };
    }
}

/// # Safety
/// What `summed` points to is there, for `Q` queries.
pub(super) unsafe fn values<const Q: usize>(summed: SumTile) {
    for part in (0..summed.dim).step_by(PANEL) {
        for query in 0..Q {
            // SAFETY: the sums of queries lie `dim` apart.
            let sums = unsafe {
                &mut *summed
                    .out
                    .add(query * summed.dim + part)
                    .cast::<[f32; PANEL]>()
            };
            for key in 0..summed.count {
                let mut values = [0.0f32; PANEL];
                // SAFETY: values lie `dim` apart, weights of queries `SEGMENT`.
                let weight = unsafe {
                    widen(
                        &*summed
                            .values
                            .add(key * summed.dim + part)
                            .cast::<[u16; PANEL]>(),
                        &mut values,
                    );
                    *summed.weights.add(query * SEGMENT + key)
                };
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += weight * value;
                }
            }
        }
    }
}
