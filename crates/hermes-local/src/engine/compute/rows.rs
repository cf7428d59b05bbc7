//! Loops over one row of numbers, written so that the compiler makes vectors of them; compiled once
//! for each [`SimdLevel`].

use super::level::{LevelKind, SimdLevel};
use super::memory::small_mut;
use super::product::BLOCK;

const LANES: usize = 16;

/// Compiles a function for each level and picks one when called.
macro_rules! at_each_level {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $body:ident) => {
        $(#[$doc])*
        $vis fn $name(level: SimdLevel, $($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $type),*) $(-> $result)? {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
            fn avx512($($arg: $type),*) $(-> $result)? {
                $body($($arg),*)
            }
            match level.0 {
                LevelKind::Portable => $body($($arg),*),
                // SAFETY: a level is only made when the processor has its instructions.
                #[cfg(target_arch = "x86_64")]
                LevelKind::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                LevelKind::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}

at_each_level! {
    /// `row` divided by its root mean square, times `weight`.
    pub(in crate::engine) fn norm(row: &mut [f32], weight: &[f32], epsilon: f32) = norm_body
}
at_each_level! {
    /// `gate` times its sigmoid times `up`, into `gate`.
    pub(in crate::engine) fn silu_times(gate: &mut [f32], up: &[f32]) = silu_body
}
at_each_level! {
    /// `row` plus `more`.
    pub(in crate::engine) fn add(row: &mut [f32], more: &[f32]) = add_body
}
at_each_level! {
    /// The largest number.
    pub(in crate::engine) fn largest(row: &[f32]) -> f32 = largest_body
}
at_each_level! {
    /// The powers of e of `row` less `top`, and their sum.
    pub(in crate::engine) fn powers(row: &mut [f32], top: f32) -> f32 = powers_body
}
at_each_level! {
    /// Quantises `row` into a row of [`super::Activations`].
    pub(in crate::engine) fn quantise(row: &[f32], into: &mut [u32]) = quantise_body
}

/// e to the power of `x`, to a few units in the last place; no branch, so that it makes vectors.
#[inline(always)]
fn power(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = x - whole * LN2_HIGH - whole * LN2_LOW;
    let mut sum = 1.987_569_1e-4;
    sum = sum * rest + 1.398_2e-3;
    sum = sum * rest + 8.333_452e-3;
    sum = sum * rest + 4.166_579_6e-2;
    sum = sum * rest + 1.666_666_5e-1;
    sum = sum * rest + 0.5;
    let value = sum * rest * rest + rest + 1.0;
    f32::from_bits(value.to_bits().wrapping_add(shifted.to_bits() << 23))
}

#[inline(always)]
fn norm_body(row: &mut [f32], weight: &[f32], epsilon: f32) {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    let squares: f32 =
        lanes.iter().sum::<f32>() + rest.iter().map(|value| value * value).sum::<f32>();
    let scale = 1.0 / (squares / row.len() as f32 + epsilon).sqrt();
    for (value, weight) in row.iter_mut().zip(weight) {
        *value *= scale * weight;
    }
}

#[inline(always)]
fn silu_body(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + power(-*gate)) * up;
    }
}

#[inline(always)]
fn add_body(row: &mut [f32], more: &[f32]) {
    for (value, more) in row.iter_mut().zip(more) {
        *value += more;
    }
}

#[inline(always)]
fn largest_body(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    let top = lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    rest.iter().copied().fold(top, f32::max)
}

#[inline(always)]
fn powers_body(row: &mut [f32], top: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *value = power(*value - top);
            *lane += *value;
        }
    }
    let mut sum: f32 = lanes.iter().sum();
    for value in rest {
        *value = power(*value - top);
        sum += *value;
    }
    sum
}

#[inline(always)]
fn quantise_body(row: &[f32], into: &mut [u32]) {
    let blocks = into.len() / (BLOCK / 4 + 2);
    let (words, factors) = into.split_at_mut(blocks * BLOCK / 4);
    let (scales, offsets) = factors.split_at_mut(blocks);
    let (whole, rest) = row.as_chunks::<BLOCK>();
    let mut last = [0.0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    let values = whole.iter().chain((!rest.is_empty()).then_some(&last));
    let small = small_mut(words).as_chunks_mut::<BLOCK>().0;
    for (((block, small), scale), offset) in values.zip(small).zip(scales).zip(offsets) {
        let mut top = 0.0f32;
        for value in block {
            let size = value.abs();
            top = if size > top { size } else { top };
        }
        let factor = if top > 0.0 { 127.0 / top } else { 0.0 };
        let mut sum = 0i32;
        for (value, small) in block.iter().zip(small) {
            // Rounds to even, without a branch or a call: the low bits hold the number.
            let shifted = value * factor + 12_582_912.0;
            let number = shifted.to_bits() as i32 - 0x4b40_0000;
            *small = number as i8;
            sum += number;
        }
        *scale = (top / 127.0).to_bits();
        // The weights are stored with 128 added; this takes it off again.
        *offset = (-128 * sum) as u32;
    }
}
