//! The products on x86-64: AVX2, and AVX-512 with VNNI.

use std::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _mm_loadu_si128, _mm256_abs_epi8, _mm256_add_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8,
    _mm256_storeu_ps, _mm256_xor_si256, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
};

use super::attention::{SEGMENT, ScoreTile, SumTile};
use super::product::{BLOCK, PANEL, PANEL_BLOCK, Tile};

/// Loads of 64 bytes in a block of a panel.
const GROUPS: usize = BLOCK / 4;

impl Tile {
    /// The scale and the offset of a token's block.
    #[inline(always)]
    unsafe fn factors(&self, token: usize, block: usize) -> (f32, i32) {
        // SAFETY: they are behind the numbers of the row.
        unsafe {
            let factors = self
                .row
                .add(token * self.row_stride + self.blocks * GROUPS + block);
            (
                f32::from_bits(*factors),
                (*factors.add(self.blocks)).cast_signed(),
            )
        }
    }

    /// Four numbers of a token's row.
    #[inline(always)]
    unsafe fn four(&self, token: usize, block: usize, group: usize) -> i32 {
        // SAFETY: they are in the row.
        unsafe {
            (*self
                .row
                .add(token * self.row_stride + block * GROUPS + group))
            .cast_signed()
        }
    }
}

/// # Safety
/// What the tile points to is there, for `T` tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn tile_avx512<const T: usize>(tile: Tile) {
    let mut sums: [__m512; T] = [_mm512_setzero_ps(); T];
    for block in 0..tile.blocks {
        // SAFETY: the block is in the panel, and each token has a row.
        unsafe {
            let scale = _mm512_cvtph_ps(_mm256_loadu_si256(tile.scales.add(block * PANEL).cast()));
            let quants = tile.quants.add(block * PANEL_BLOCK);
            let mut dots: [__m512i; T] = [_mm512_setzero_si512(); T];
            for (token, dot) in dots.iter_mut().enumerate() {
                *dot = _mm512_set1_epi32(tile.factors(token, block).1);
            }
            for group in 0..GROUPS {
                let weights = _mm512_loadu_si512(quants.add(group * PANEL * 4).cast());
                for (token, dot) in dots.iter_mut().enumerate() {
                    let numbers = _mm512_set1_epi32(tile.four(token, block, group));
                    *dot = _mm512_dpbusd_epi32(*dot, weights, numbers);
                }
            }
            for (token, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                let both = _mm512_mul_ps(scale, _mm512_set1_ps(tile.factors(token, block).0));
                *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), both, *sum);
            }
        }
    }
    for (token, sum) in sums.into_iter().enumerate() {
        // SAFETY: there is room for each token's part.
        unsafe { _mm512_storeu_ps(tile.out.add(token * tile.out_stride), sum) };
    }
}

/// # Safety
/// What the tile points to is there, for `T` tokens.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn tile_avx2<const T: usize>(tile: Tile) {
    let mut sums: [[__m256; 2]; T] = [[_mm256_setzero_ps(); 2]; T];
    let (flip, ones) = (_mm256_set1_epi8(-128), _mm256_set1_epi16(1));
    for block in 0..tile.blocks {
        // SAFETY: the block is in the panel, and each token has a row.
        unsafe {
            let quants = tile.quants.add(block * PANEL_BLOCK);
            let mut dots: [[__m256i; 2]; T] = [[_mm256_setzero_si256(); 2]; T];
            for group in 0..GROUPS {
                for half in 0..2 {
                    let at = quants.add(group * PANEL * 4 + half * 32);
                    // Without the 128, and as sizes: the signs go to the other side, because sums
                    // of two products of a whole byte would not fit 16 bits.
                    let weights = _mm256_xor_si256(_mm256_loadu_si256(at.cast()), flip);
                    let sizes = _mm256_abs_epi8(weights);
                    for (token, dot) in dots.iter_mut().enumerate() {
                        let numbers = _mm256_set1_epi32(tile.four(token, block, group));
                        let signed = _mm256_sign_epi8(numbers, weights);
                        let pairs = _mm256_maddubs_epi16(sizes, signed);
                        dot[half] = _mm256_add_epi32(dot[half], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            for half in 0..2 {
                let at = tile.scales.add(block * PANEL + half * 8);
                let scale = _mm256_cvtph_ps(_mm_loadu_si128(at.cast()));
                for (token, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                    let both = _mm256_mul_ps(scale, _mm256_set1_ps(tile.factors(token, block).0));
                    sum[half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[half]), both, sum[half]);
                }
            }
        }
    }
    for (token, sum) in sums.into_iter().enumerate() {
        // SAFETY: there is room for each token's part.
        unsafe {
            let out = tile.out.add(token * tile.out_stride);
            _mm256_storeu_ps(out, sum[0]);
            _mm256_storeu_ps(out.add(8), sum[1]);
        }
    }
}

/// # Safety
/// What `scored` points to is there, for `Q` queries.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn scores_avx512<const Q: usize>(scored: ScoreTile) {
    let mut sums: [[__m512; 2]; Q] = [[_mm512_setzero_ps(); 2]; Q];
    // Two sums for each query, so that they do not wait for each other; the dimension is even.
    for at in (0..scored.dim).step_by(2) {
        for half in 0..2 {
            // SAFETY: the block has sixteen keys for each dimension, queries lie `dim` apart.
            unsafe {
                let halves = _mm256_loadu_si256(scored.keys.add((at + half) * PANEL).cast());
                let keys = _mm512_cvtph_ps(halves);
                for (query, sum) in sums.iter_mut().enumerate() {
                    let number = *scored.queries.add(query * scored.dim + at + half);
                    sum[half] = _mm512_fmadd_ps(keys, _mm512_set1_ps(number), sum[half]);
                }
            }
        }
    }
    for (query, sum) in sums.into_iter().enumerate() {
        let one = _mm512_set1_ps(1.0);
        // SAFETY: the scores of a query lie `SEGMENT` apart from the next one's.
        unsafe {
            _mm512_storeu_ps(
                scored.out.add(query * SEGMENT),
                _mm512_fmadd_ps(sum[0], one, sum[1]),
            );
        }
    }
}

/// # Safety
/// What `summed` points to is there, for `Q` queries.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn values_avx512<const Q: usize>(summed: SumTile) {
    for part in (0..summed.dim).step_by(PANEL) {
        // SAFETY: sums and values lie `dim` apart, weights `SEGMENT`.
        unsafe {
            let mut sums: [__m512; Q] = [_mm512_setzero_ps(); Q];
            for (query, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_loadu_ps(summed.out.add(query * summed.dim + part));
            }
            for key in 0..summed.count {
                let at = summed.values.add(key * summed.dim + part);
                let values = _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()));
                for (query, sum) in sums.iter_mut().enumerate() {
                    let weight = _mm512_set1_ps(*summed.weights.add(query * SEGMENT + key));
                    *sum = _mm512_fmadd_ps(values, weight, *sum);
                }
            }
            for (query, sum) in sums.into_iter().enumerate() {
                _mm512_storeu_ps(summed.out.add(query * summed.dim + part), sum);
            }
        }
    }
}

/// # Safety
/// What `scored` points to is there, for `Q` queries.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scores_avx2<const Q: usize>(scored: ScoreTile) {
    for half in 0..2 {
        let mut sums: [__m256; Q] = [_mm256_setzero_ps(); Q];
        for at in 0..scored.dim {
            // SAFETY: the block has sixteen keys for each dimension, queries lie `dim` apart.
            unsafe {
                let halves = _mm_loadu_si128(scored.keys.add(at * PANEL + half * 8).cast());
                let keys = _mm256_cvtph_ps(halves);
                for (query, sum) in sums.iter_mut().enumerate() {
                    let number = *scored.queries.add(query * scored.dim + at);
                    *sum = _mm256_fmadd_ps(keys, _mm256_set1_ps(number), *sum);
                }
            }
        }
        for (query, sum) in sums.into_iter().enumerate() {
            // SAFETY: the scores of a query lie `SEGMENT` apart from the next one's.
            unsafe { _mm256_storeu_ps(scored.out.add(query * SEGMENT + half * 8), sum) };
        }
    }
}

/// # Safety
/// What `summed` points to is there, for `Q` queries.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn values_avx2<const Q: usize>(summed: SumTile) {
    for part in (0..summed.dim).step_by(8) {
        // SAFETY: sums and values lie `dim` apart, weights `SEGMENT`.
        unsafe {
            let mut sums: [__m256; Q] = [_mm256_setzero_ps(); Q];
            for (query, sum) in sums.iter_mut().enumerate() {
                *sum = _mm256_loadu_ps(summed.out.add(query * summed.dim + part));
            }
            for key in 0..summed.count {
                let at = summed.values.add(key * summed.dim + part);
                let values = _mm256_cvtph_ps(_mm_loadu_si128(at.cast()));
                for (query, sum) in sums.iter_mut().enumerate() {
                    let weight = _mm256_set1_ps(*summed.weights.add(query * SEGMENT + key));
                    *sum = _mm256_fmadd_ps(values, weight, *sum);
                }
            }
            for (query, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_ps(summed.out.add(query * summed.dim + part), sum);
            }
        }
    }
}
