//! The formats in which GGUF files store weights, and their numbers as floats. A block is a scale (or several) and
//! the small integers that it applies to.

use half::{bf16, f16};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightFormat {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
}

/// Numbers in a block of the formats whose names end in K.
const K_BLOCK: usize = 256;
/// Numbers in a block of the other quantised formats.
const SIMPLE_BLOCK: usize = 32;

impl WeightFormat {
    /// The format with this number in a file.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            9 => Self::Q8_1,
            10 => Self::Q2K,
            11 => Self::Q3K,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            15 => Self::Q8K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q8_1 => "Q8_1",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Q8K => "Q8_K",
        }
    }

    /// Numbers in a block.
    pub(super) fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::Q8_1 => {
                SIMPLE_BLOCK
            }
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Q8K => K_BLOCK,
        }
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q8_1 => 36,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
            Self::Q8K => 292,
        }
    }

    /// The numbers of whole blocks; bytes after the last whole block are ignored.
    pub(super) fn dequantise(self, bytes: &[u8]) -> Vec<f32> {
        let blocks = bytes.chunks_exact(self.block_bytes());
        let mut numbers = Vec::with_capacity(blocks.len() * self.block_len());
        for block in blocks {
            self.append_block(block, &mut numbers);
        }
        numbers
    }

    fn append_block(self, block: &[u8], out: &mut Vec<f32>) {
        match self {
            Self::F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
            Self::F16 => out.push(half_at(block, 0)),
            Self::Bf16 => out.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            Self::Q4_0 => four_bits(&block[2..], half_at(block, 0), -8.0, 0.0, out),
            Self::Q4_1 => four_bits(&block[4..], half_at(block, 0), 0.0, half_at(block, 2), out),
            Self::Q5_0 => five_bits(&block[2..], half_at(block, 0), -16.0, 0.0, out),
            Self::Q5_1 => five_bits(&block[4..], half_at(block, 0), 0.0, half_at(block, 2), out),
            Self::Q8_0 => eight_bits(&block[2..], half_at(block, 0), out),
            Self::Q8_1 => eight_bits(&block[4..], half_at(block, 0), out),
            Self::Q2K => q2k(block, out),
            Self::Q3K => q3k(block, out),
            Self::Q4K => q4k(block, out),
            Self::Q5K => q5k(block, out),
            Self::Q6K => q6k(block, out),
            Self::Q8K => {
                let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
                eight_bits(&block[4..4 + K_BLOCK], scale, out);
            }
        }
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn signed(byte: u8) -> f32 {
    f32::from(byte.cast_signed())
}

/// The low halves of all bytes, then the high ones.
fn four_bits(bytes: &[u8], scale: f32, shift: f32, add: f32, out: &mut Vec<f32>) {
    let low = bytes.iter().map(|byte| byte & 15);
    let high = bytes.iter().map(|byte| byte >> 4);
    out.extend(
        low.chain(high)
            .map(|q| (f32::from(q) + shift) * scale + add),
    );
}

/// The same with a fifth bit each, of the four bytes before.
fn five_bits(bytes: &[u8], scale: f32, shift: f32, add: f32, out: &mut Vec<f32>) {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let bytes = &bytes[4..];
    let low = bytes.iter().map(|byte| byte & 15);
    let high = bytes.iter().map(|byte| byte >> 4);
    out.extend(low.chain(high).enumerate().map(|(at, q)| {
        let bit = if fifth >> at & 1 == 1 { 16.0 } else { 0.0 };
        (f32::from(q) + bit + shift) * scale + add
    }));
}

fn eight_bits(bytes: &[u8], scale: f32, out: &mut Vec<f32>) {
    out.extend(bytes.iter().map(|byte| signed(*byte) * scale));
}

/// 16 bytes of scale and minimum, 64 of two bits each, the scales of both.
fn q2k(block: &[u8], out: &mut Vec<f32>) {
    let (scales, quants) = (&block[..16], &block[16..80]);
    let (scale, minimum) = (half_at(block, 80), half_at(block, 82));
    for group in 0..16 {
        // Each half of the numbers uses 32 bytes four times.
        let bytes = &quants[group / 8 * 32 + group % 2 * 16..][..16];
        let shift = group % 8 / 2 * 2;
        let d = scale * f32::from(scales[group] & 15);
        let m = minimum * f32::from(scales[group] >> 4);
        out.extend(
            bytes
                .iter()
                .map(|byte| d * f32::from(byte >> shift & 3) - m),
        );
    }
}

/// 32 bytes with the third bits, 64 of two bits each, 12 of scales of six bits, their scale.
fn q3k(block: &[u8], out: &mut Vec<f32>) {
    let (high, quants, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = half_at(block, 108);
    for group in 0..16 {
        let low_bits = if group < 8 {
            packed[group] & 15
        } else {
            packed[group - 8] >> 4
        };
        let high_bits = packed[8 + group % 4] >> (group / 4 * 2) & 3;
        let d = scale * (f32::from(low_bits | high_bits << 4) - 32.0);
        let half = group % 2 * 16;
        let bytes = &quants[group / 8 * 32 + half..][..16];
        let shift = group % 8 / 2 * 2;
        let bit = group / 2;
        out.extend(bytes.iter().zip(&high[half..]).map(|(byte, high)| {
            let third = if high >> bit & 1 == 1 { 0.0 } else { 4.0 };
            d * (f32::from(byte >> shift & 3) - third)
        }));
    }
}

/// Scale and minimum of one of eight groups: six bits each in twelve bytes.
fn scale_and_minimum(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, minimum) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let both = packed[group + 4];
        (
            both & 15 | packed[group - 4] >> 6 << 4,
            both >> 4 | packed[group] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(minimum))
}

/// The scales, 12 bytes of scales and minima, 128 of four bits each.
fn q4k(block: &[u8], out: &mut Vec<f32>) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    let (packed, quants) = (&block[4..16], &block[16..144]);
    for group in 0..8 {
        let (s, m) = scale_and_minimum(packed, group);
        let (d, m) = (scale * s, minimum * m);
        let shift = group % 2 * 4;
        let bytes = &quants[group / 2 * 32..][..32];
        out.extend(
            bytes
                .iter()
                .map(|byte| d * f32::from(byte >> shift & 15) - m),
        );
    }
}

/// The same with 32 bytes of fifth bits before the others.
fn q5k(block: &[u8], out: &mut Vec<f32>) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    let (packed, high, quants) = (&block[4..16], &block[16..48], &block[48..176]);
    for group in 0..8 {
        let (s, m) = scale_and_minimum(packed, group);
        let (d, m) = (scale * s, minimum * m);
        let shift = group % 2 * 4;
        let bytes = &quants[group / 2 * 32..][..32];
        out.extend(bytes.iter().zip(high).map(|(byte, high)| {
            let fifth = (high >> group & 1) << 4;
            d * f32::from(byte >> shift & 15 | fifth) - m
        }));
    }
}

/// 128 bytes of four bits each, 64 of two more, 16 scales, their scale.
fn q6k(block: &[u8], out: &mut Vec<f32>) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for quarter in 0..8 {
        let half = quarter / 4;
        let within = quarter % 4;
        let low = &low[half * 64 + within % 2 * 32..][..32];
        let high = &high[half * 32..][..32];
        let (low_shift, high_shift) = (within / 2 * 4, within * 2);
        for (at, (low, high)) in low.iter().zip(high).enumerate() {
            let q = low >> low_shift & 15 | (high >> high_shift & 3) << 4;
            let d = scale * signed(scales[half * 8 + within * 2 + at / 16]);
            out.push(d * (f32::from(q) - 32.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use candle_core::quantized::{GgmlDType, QStorage, QTensor};
    use proptest::prelude::*;

    /// Every format, with its number and the type of an independent implementation.
    const FORMATS: [(u32, GgmlDType); 15] = [
        (0, GgmlDType::F32),
        (1, GgmlDType::F16),
        (2, GgmlDType::Q4_0),
        (3, GgmlDType::Q4_1),
        (6, GgmlDType::Q5_0),
        (7, GgmlDType::Q5_1),
        (8, GgmlDType::Q8_0),
        (9, GgmlDType::Q8_1),
        (10, GgmlDType::Q2K),
        (11, GgmlDType::Q3K),
        (12, GgmlDType::Q4K),
        (13, GgmlDType::Q5K),
        (14, GgmlDType::Q6K),
        (15, GgmlDType::Q8K),
        (30, GgmlDType::BF16),
    ];

    #[test]
    fn blocks_have_the_sizes_of_the_format() {
        for (number, other) in FORMATS {
            let format = WeightFormat::from_number(number).unwrap();
            let sizes = (format.block_len(), format.block_bytes());
            assert_eq!(sizes, (other.block_size(), other.type_size()), "{format:?}");
        }
        assert_eq!(WeightFormat::from_number(4), None);
    }

    proptest! {
        /// Any bytes are the numbers that candle reads.
        #[test]
        fn numbers_are_those_of_an_independent_implementation(
            bytes in prop::collection::vec(any::<u8>(), 3 * 292)
        ) {
            for (number, other) in FORMATS {
                let format = WeightFormat::from_number(number).unwrap();
                let bytes = &bytes[..3 * format.block_bytes()];
                let ours = format.dequantise(bytes);
                if other == GgmlDType::Q8_1 {
                    // Not for reading there; the same as Q8_0 with a sum after the scale.
                    continue;
                }
                let storage = QStorage::from_data(bytes.into(), &Device::Cpu, other).unwrap();
                let tensor = QTensor::new(storage, ours.len()).unwrap();
                let theirs = tensor.dequantize(&Device::Cpu).unwrap().to_vec1::<f32>().unwrap();
                let equal = |(ours, theirs): (&f32, &f32)| {
                    ours.total_cmp(theirs).is_eq()
                        || ours.abs() + theirs.abs() == 0.0
                        || ours.is_nan() && theirs.is_nan()
                };
                let differs = ours.iter().zip(&theirs).position(|pair| !equal(pair));
                prop_assert_eq!(differs, None, "{:?}", format);
            }
        }
    }
}
