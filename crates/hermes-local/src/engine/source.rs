//! Reading a GGUF file: its metadata, its tensors, the shape of the model.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::dequantise::WeightFormat;
use super::error::OpenError;
use super::gguf::{GgufContents, GgufError, MAGIC, MetadataValue, TensorInfo};

/// An open GGUF file.
pub(super) struct GgufSource {
    path: PathBuf,
    file: File,
    size: u64,
    header: GgufContents,
}

impl GgufSource {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let read = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => OpenError::Missing(path.to_owned()),
            _ => OpenError::Read {
                file: path.to_owned(),
                error,
            },
        };
        let file = File::open(path).map_err(read)?;
        let size = file.metadata().map_err(read)?.len();
        let mut start = [0; 4];
        let got = file.read_at(&mut start, 0).map_err(read)?;
        if start != MAGIC {
            return Err(OpenError::NotGguf {
                file: path.to_owned(),
                start: start[..got].escape_ascii().to_string(),
            });
        }
        let reader = BufReader::with_capacity(1 << 18, file.try_clone().map_err(read)?);
        let header = GgufContents::read(reader, size).map_err(|error| refused(path, error))?;
        let source = Self {
            path: path.to_owned(),
            file,
            size,
            header,
        };
        source.check_size()?;
        Ok(source)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Where the data of the tensors starts.
    pub(super) fn data_offset(&self) -> u64 {
        self.header.data_offset
    }

    pub(super) fn metadata(&self, key: &str) -> Option<&MetadataValue> {
        self.header.metadata.get(key)
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> OpenError {
        OpenError::Damaged {
            file: self.path.clone(),
            what: what.into(),
        }
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> OpenError {
        OpenError::Unsupported {
            file: self.path.clone(),
            what: what.into(),
        }
    }

    /// Checks that every tensor is complete.
    fn check_size(&self) -> Result<(), OpenError> {
        let start = self.header.data_offset;
        let mut end = start;
        for info in self.header.tensors.values() {
            let bytes = info.count / info.format.block_len() * info.format.block_bytes();
            end = end.max(
                start
                    .saturating_add(info.offset)
                    .saturating_add(bytes as u64),
            );
        }
        if end > self.size {
            return Err(self.damaged(format!("it should have {end} bytes and has {}", self.size)));
        }
        Ok(())
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.metadata(key)?.as_text()
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.metadata(key)? {
            MetadataValue::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn number(&self, key: &str) -> Option<usize> {
        self.metadata(key)?.to_usize()
    }

    pub(super) fn float(&self, key: &str) -> Option<f32> {
        self.metadata(key)?.to_f32()
    }

    pub(super) fn has(&self, tensor: &str) -> bool {
        self.header.tensors.contains_key(tensor)
    }

    fn tensor(&self, tensor: &str) -> Result<&TensorInfo, OpenError> {
        let found = self.header.tensors.get(tensor);
        found.ok_or_else(|| self.damaged(format!("the tensor {tensor} is missing")))
    }

    /// The dimensions of a tensor, rows first.
    pub(super) fn dims(&self, tensor: &str) -> Result<&[usize], OpenError> {
        Ok(&self.tensor(tensor)?.dims)
    }

    /// `rows` rows of a tensor from `first` on, dequantised.
    pub(super) fn rows(
        &self,
        tensor: &str,
        first: usize,
        rows: usize,
    ) -> Result<Vec<f32>, OpenError> {
        let info = self.tensor(tensor)?;
        let cols = info.dims.last().copied().unwrap_or(1);
        let format = info.format;
        if !cols.is_multiple_of(format.block_len()) {
            return Err(self.damaged(format!(
                "rows of {tensor} have {cols} numbers, not a multiple of {}",
                format.block_len()
            )));
        }
        let row = cols / format.block_len() * format.block_bytes();
        let at = self.header.data_offset + info.offset + (first * row) as u64;
        let mut bytes = vec![0; rows * row];
        self.file
            .read_exact_at(&mut bytes, at)
            .map_err(|error| OpenError::Read {
                file: self.path.clone(),
                error,
            })?;
        Ok(format.dequantise(&bytes))
    }

    /// The storage format of most weights.
    pub(super) fn quantisation(&self) -> String {
        let mut formats: Vec<(WeightFormat, usize)> = Vec::new();
        for info in self.header.tensors.values() {
            match formats
                .iter_mut()
                .find(|(format, _)| *format == info.format)
            {
                Some((_, sum)) => *sum += info.count,
                None => formats.push((info.format, info.count)),
            }
        }
        let most_common = formats.iter().max_by_key(|(_, count)| *count);
        most_common.map_or_else(String::new, |(format, _)| format.name().to_owned())
    }

    pub(super) fn parameters(&self) -> u64 {
        let counts = self.header.tensors.values().map(|info| info.count as u64);
        counts.sum()
    }
}

/// Why the file could not be parsed.
fn refused(path: &Path, error: GgufError) -> OpenError {
    let file = path.to_owned();
    match error {
        GgufError::Read(error) => OpenError::Read { file, error },
        GgufError::UnknownFormat { .. } => OpenError::Unsupported {
            file,
            what: format!("{error}, which is not known here; choose one like Q4_K_M or Q8_0"),
        },
        GgufError::Version(_) => OpenError::Unsupported {
            file,
            what: error.to_string(),
        },
        GgufError::Truncated | GgufError::Invalid(_) => OpenError::Damaged {
            file,
            what: error.to_string(),
        },
    }
}
