//! The header of a GGUF file (versions 1 to 3, little-endian): metadata, and where each tensor is. Every length
//! is checked against what is left of the file before anything is allocated.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};

use super::dequantise::WeightFormat;

pub(super) const MAGIC: [u8; 4] = *b"GGUF";

/// Data of tensors starts at a multiple of this, unless the metadata names another number.
const ALIGNMENT: u64 = 32;
const MAX_DIMENSIONS: u32 = 8;
/// Arrays in arrays.
const MAX_DEPTH: u32 = 4;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum MetadataValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Vec<MetadataValue>),
}

impl MetadataValue {
    /// An integer of any width; an array only if all its numbers are equal.
    pub(super) fn to_usize(&self) -> Option<usize> {
        match self {
            Self::Unsigned(value) => usize::try_from(*value).ok(),
            Self::Signed(value) => usize::try_from(*value).ok(),
            Self::Bool(value) => Some(usize::from(*value)),
            Self::Array(values) => {
                let first = values.first()?.to_usize()?;
                values
                    .iter()
                    .all(|value| value.to_usize() == Some(first))
                    .then_some(first)
            }
            Self::Float(_) | Self::Text(_) => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn to_f32(&self) -> Option<f32> {
        match self {
            Self::Float(value) => Some(*value as f32),
            _ => None,
        }
    }

    pub(super) fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorInfo {
    pub(super) format: WeightFormat,
    /// Rows first.
    pub(super) dims: Vec<usize>,
    /// From the start of the data.
    pub(super) offset: u64,
    /// The product of the dimensions.
    pub(super) count: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct GgufContents {
    pub(super) metadata: HashMap<String, MetadataValue>,
    pub(super) tensors: HashMap<String, TensorInfo>,
    /// Where the data of the tensors starts.
    pub(super) data_offset: u64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum GgufError {
    #[error("it ends too early")]
    Truncated,
    #[error("{0}")]
    Read(io::Error),
    #[error("it is of version {0} of the format, not 1, 2 or 3")]
    Version(u32),
    #[error("{0}")]
    Invalid(String),
    #[error("the tensor {tensor} is stored in format {format}")]
    UnknownFormat { tensor: String, format: u32 },
}

impl From<io::Error> for GgufError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Read(error),
        }
    }
}

impl GgufContents {
    /// Reads the header of a file of `size` bytes from its beginning.
    pub(super) fn read(reader: impl Read, size: u64) -> Result<Self, GgufError> {
        let mut reader = HeaderReader {
            inner: reader,
            left: size,
            has_short_lengths: false,
        };
        if reader.array::<4>()? != MAGIC {
            return Err(GgufError::Invalid("it does not start with GGUF".to_owned()));
        }
        let version = reader.u32()?;
        if !(1..=3).contains(&version) {
            return Err(GgufError::Version(version));
        }
        reader.has_short_lengths = version == 1;
        let tensor_count = reader.length()?;
        let metadata_count = reader.length()?;
        let mut metadata = HashMap::new();
        for _ in 0..metadata_count {
            let key = reader.text()?;
            let kind = reader.u32()?;
            let value = reader.value(kind, 0)?;
            metadata.insert(key, value);
        }
        let mut tensors = HashMap::new();
        for _ in 0..tensor_count {
            let (name, info) = reader.tensor()?;
            tensors.insert(name, info);
        }
        let alignment = match metadata.get("general.alignment") {
            Some(value) => value.to_usize().map_or(0, |value| value as u64),
            None => ALIGNMENT,
        };
        let position = size - reader.left;
        let data_offset = position
            .checked_next_multiple_of(alignment)
            .ok_or_else(|| GgufError::Invalid(format!("its alignment is {alignment}")))?;
        Ok(Self {
            metadata,
            tensors,
            data_offset,
        })
    }
}

struct HeaderReader<R> {
    inner: R,
    /// Bytes from here to the end of the file.
    left: u64,
    /// Version 1: lengths have 32 bits.
    has_short_lengths: bool,
}

impl<R: Read> HeaderReader<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), GgufError> {
        let count = bytes.len() as u64;
        self.left = self.left.checked_sub(count).ok_or(GgufError::Truncated)?;
        Ok(self.inner.read_exact(bytes)?)
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of things of which each takes at least one byte.
    fn length(&mut self) -> Result<usize, GgufError> {
        let length = if self.has_short_lengths {
            u64::from(self.u32()?)
        } else {
            self.u64()?
        };
        if length > self.left {
            return Err(GgufError::Truncated);
        }
        usize::try_from(length).map_err(|_| GgufError::Truncated)
    }

    fn text(&mut self) -> Result<String, GgufError> {
        let mut bytes = vec![0; self.length()?];
        self.fill(&mut bytes)?;
        // Some files end their texts with zeros.
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        String::from_utf8(bytes)
            .map_err(|_| GgufError::Invalid("a text in it is not UTF-8".to_owned()))
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<MetadataValue, GgufError> {
        use MetadataValue::{Array, Bool, Float, Signed, Text, Unsigned};
        Ok(match kind {
            0 => Unsigned(u8::from_le_bytes(self.array()?).into()),
            1 => Signed(i8::from_le_bytes(self.array()?).into()),
            2 => Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => Signed(i16::from_le_bytes(self.array()?).into()),
            4 => Unsigned(self.u32()?.into()),
            5 => Signed(i32::from_le_bytes(self.array()?).into()),
            6 => Float(f32::from_le_bytes(self.array()?).into()),
            7 => match self.array()? {
                [0] => Bool(false),
                [1] => Bool(true),
                [other] => return Err(GgufError::Invalid(format!("a flag in it is {other}"))),
            },
            8 => Text(self.text()?),
            9 if depth < MAX_DEPTH => {
                let kind = self.u32()?;
                let count = self.length()?;
                // Grows as elements arrive: one of them may take less memory in the file than here.
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.value(kind, depth + 1)?);
                }
                Array(values)
            }
            10 => Unsigned(self.u64()?),
            11 => Signed(i64::from_le_bytes(self.array()?)),
            12 => Float(f64::from_le_bytes(self.array()?)),
            _ => {
                return Err(GgufError::Invalid(format!(
                    "a value in it is of type {kind}"
                )));
            }
        })
    }

    fn tensor(&mut self) -> Result<(String, TensorInfo), GgufError> {
        let name = self.text()?;
        let dimensions = self.u32()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(GgufError::Invalid(format!(
                "the tensor {name} has {dimensions} dimensions"
            )));
        }
        let mut dims = Vec::new();
        let mut count = Some(1_usize);
        for _ in 0..dimensions {
            let dim = if self.has_short_lengths {
                u64::from(self.u32()?)
            } else {
                self.u64()?
            };
            let dim = usize::try_from(dim).ok();
            count = count
                .zip(dim)
                .and_then(|(count, dim)| count.checked_mul(dim));
            dims.push(dim.unwrap_or(usize::MAX));
        }
        let Some(count) = count else {
            return Err(GgufError::Invalid(format!(
                "the tensor {name} is too large"
            )));
        };
        // The file has columns first.
        dims.reverse();
        let number = self.u32()?;
        let offset = self.u64()?;
        let Some(format) = WeightFormat::from_number(number) else {
            return Err(GgufError::UnknownFormat {
                tensor: name,
                format: number,
            });
        };
        let info = TensorInfo {
            format,
            dims,
            offset,
            count,
        };
        Ok((name, info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with every kind of value and one tensor.
    fn file() -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        let scalars: [(u32, &[u8]); 11] = [
            (0, &[200]),
            (1, &[200]),
            (2, &[1, 2]),
            (3, &[255, 255]),
            (4, &[1, 0, 0, 0]),
            (5, &[255; 4]),
            (6, &[0, 0, 128, 63]),
            (7, &[1]),
            (10, &[7, 0, 0, 0, 0, 0, 0, 0]),
            (11, &[255; 8]),
            (12, &[0, 0, 0, 0, 0, 0, 240, 63]),
        ];
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend((scalars.len() as u64 + 2).to_le_bytes());
        for (kind, value) in scalars {
            text(&mut bytes, &format!("k{kind}"));
            bytes.extend(kind.to_le_bytes());
            bytes.extend(value);
        }
        text(&mut bytes, "k8");
        bytes.extend(8_u32.to_le_bytes());
        text(&mut bytes, "text");
        text(&mut bytes, "k9");
        bytes.extend(9_u32.to_le_bytes());
        bytes.extend(8_u32.to_le_bytes());
        bytes.extend(2_u64.to_le_bytes());
        text(&mut bytes, "a");
        text(&mut bytes, "b");
        text(&mut bytes, "weight");
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(64_u64.to_le_bytes());
        bytes.extend(3_u64.to_le_bytes());
        bytes.extend(8_u32.to_le_bytes());
        bytes.extend(96_u64.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<GgufContents, GgufError> {
        GgufContents::read(bytes, bytes.len() as u64)
    }

    #[test]
    fn every_kind_of_value_is_read() {
        use MetadataValue::{Array, Bool, Float, Signed, Text, Unsigned};
        let bytes = file();
        let header = read(&bytes).unwrap();
        let expected = [
            ("k0", Unsigned(200)),
            ("k1", Signed(-56)),
            ("k2", Unsigned(513)),
            ("k3", Signed(-1)),
            ("k4", Unsigned(1)),
            ("k5", Signed(-1)),
            ("k6", Float(1.0)),
            ("k7", Bool(true)),
            ("k8", Text("text".to_owned())),
            (
                "k9",
                Array(vec![Text("a".to_owned()), Text("b".to_owned())]),
            ),
            ("k10", Unsigned(7)),
            ("k11", Signed(-1)),
            ("k12", Float(1.0)),
        ];
        assert_eq!(header.metadata.len(), expected.len());
        for (key, value) in expected {
            assert_eq!(header.metadata[key], value, "{key}");
        }
        let tensor = &header.tensors["weight"];
        assert_eq!((&tensor.dims[..], tensor.count), (&[3, 64][..], 192));
        assert_eq!((tensor.offset, tensor.format), (96, WeightFormat::Q8_0));
        assert_eq!(
            header.data_offset,
            (bytes.len() as u64).next_multiple_of(32)
        );
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = file();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        /// Whatever changed in it, reading ends without a panic, with no more entries than fit in the file.
        #[test]
        fn damaged_files_are_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
        ) {
            let mut bytes = file();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(header) = read(&bytes) {
                prop_assert!(header.metadata.len() <= bytes.len());
            }
        }
    }
}
