//! Reading a GGUF file: its metadata, its tensors, the shape of the model.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};

use super::error::OpenError;

/// An open GGUF file.
pub(super) struct GgufSource {
    path: PathBuf,
    file: File,
    size: u64,
    content: Content,
}

/// Tracks its position without a system call: it is queried for every string, and there are a hundred thousand.
struct PositionedReader {
    inner: BufReader<File>,
    position: u64,
    size: u64,
}

impl Read for PositionedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for PositionedReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => position,
            SeekFrom::End(by) => self.size.saturating_add_signed(by),
            SeekFrom::Current(by) => self.position.saturating_add_signed(by),
        };
        let by = position.cast_signed() - self.position.cast_signed();
        if by != 0 {
            self.inner.seek_relative(by)?;
        }
        self.position = position;
        Ok(position)
    }
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
        if start != *b"GGUF" {
            return Err(OpenError::NotGguf {
                file: path.to_owned(),
                start: start[..got].escape_ascii().to_string(),
            });
        }
        let mut reader = PositionedReader {
            inner: BufReader::with_capacity(1 << 18, file.try_clone().map_err(read)?),
            position: 0,
            size,
        };
        let content = Content::read(&mut reader).map_err(|error| refused(path, &error))?;
        let source = Self {
            path: path.to_owned(),
            file,
            size,
            content,
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

    pub(super) fn content(&self) -> &Content {
        &self.content
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
        let start = self.content.tensor_data_offset;
        let mut end = start;
        for info in self.content.tensor_infos.values() {
            let bytes = info.shape.elem_count() / info.ggml_dtype.block_size()
                * info.ggml_dtype.type_size();
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
        self.content
            .metadata
            .get(key)?
            .to_string()
            .ok()
            .map(String::as_str)
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    pub(super) fn number(&self, key: &str) -> Option<usize> {
        whole(self.content.metadata.get(key)?)
    }

    pub(super) fn float(&self, key: &str) -> Option<f32> {
        match self.content.metadata.get(key)? {
            Value::F32(value) => Some(*value),
            Value::F64(value) => Some(*value as f32),
            _ => None,
        }
    }

    pub(super) fn has(&self, tensor: &str) -> bool {
        self.content.tensor_infos.contains_key(tensor)
    }

    /// The dimensions of a tensor, rows first.
    pub(super) fn dims(&self, tensor: &str) -> Result<&[usize], OpenError> {
        self.content
            .tensor_infos
            .get(tensor)
            .map(|info| info.shape.dims())
            .ok_or_else(|| self.damaged(format!("the tensor {tensor} is missing")))
    }

    /// `rows` rows of a tensor from `first` on, dequantised.
    pub(super) fn rows(
        &self,
        tensor: &str,
        first: usize,
        rows: usize,
    ) -> Result<Vec<f32>, OpenError> {
        let cols = self.dims(tensor)?.last().copied().unwrap_or(1);
        let Some(info) = self.content.tensor_infos.get(tensor) else {
            return Err(self.damaged(format!("the tensor {tensor} is missing")));
        };
        let kind = info.ggml_dtype;
        if !cols.is_multiple_of(kind.block_size()) {
            return Err(self.damaged(format!(
                "rows of {tensor} have {cols} numbers, not a multiple of {}",
                kind.block_size()
            )));
        }
        let row = cols / kind.block_size() * kind.type_size();
        let at = self.content.tensor_data_offset + info.offset + (first * row) as u64;
        let mut bytes = vec![0; rows * row];
        self.file
            .read_exact_at(&mut bytes, at)
            .map_err(|error| OpenError::Read {
                file: self.path.clone(),
                error,
            })?;
        plain(kind, bytes, rows * cols).map_err(|error| self.damaged(format!("{tensor}: {error}")))
    }

    /// The storage format of most weights.
    pub(super) fn quantisation(&self) -> String {
        let mut kinds: Vec<(GgmlDType, usize)> = Vec::new();
        for info in self.content.tensor_infos.values() {
            let count = info.shape.elem_count();
            match kinds.iter_mut().find(|(kind, _)| *kind == info.ggml_dtype) {
                Some((_, sum)) => *sum += count,
                None => kinds.push((info.ggml_dtype, count)),
            }
        }
        let most = kinds.iter().max_by_key(|(_, count)| *count);
        most.map_or_else(String::new, |(kind, _)| kind_name(*kind))
    }

    pub(super) fn parameters(&self) -> u64 {
        self.content
            .tensor_infos
            .values()
            .map(|info| info.shape.elem_count() as u64)
            .sum()
    }
}

fn kind_name(kind: GgmlDType) -> String {
    let name = format!("{kind:?}");
    // Q4K is written Q4_K everywhere else.
    match name.strip_suffix('K') {
        Some(start) if name.starts_with('Q') => format!("{start}_K"),
        _ => name,
    }
}

fn plain(kind: GgmlDType, bytes: Vec<u8>, count: usize) -> candle_core::Result<Vec<f32>> {
    let storage = QStorage::from_data(bytes.into(), &Device::Cpu, kind)?;
    QTensor::new(storage, count)?
        .dequantize(&Device::Cpu)?
        .to_vec1()
}

/// An integer of any width; an array only if all its numbers are equal.
fn whole(value: &Value) -> Option<usize> {
    match value {
        Value::I8(value) => usize::try_from(*value).ok(),
        Value::I16(value) => usize::try_from(*value).ok(),
        Value::I32(value) => usize::try_from(*value).ok(),
        Value::I64(value) => usize::try_from(*value).ok(),
        Value::Array(values) => {
            let first = whole(values.first()?)?;
            values
                .iter()
                .all(|value| whole(value) == Some(first))
                .then_some(first)
        }
        other => usize::try_from(other.to_u64().ok()?).ok(),
    }
}

/// Why the file could not be parsed.
fn refused(path: &Path, error: &candle_core::Error) -> OpenError {
    let text = error.to_string();
    let what = text.lines().next().unwrap_or_default().to_owned();
    if text.contains("unknown dtype") {
        return OpenError::Unsupported {
            file: path.to_owned(),
            what: format!(
                "it has weights in a format that is not known here ({what}); choose one like Q4_K_M or Q8_0"
            ),
        };
    }
    OpenError::Damaged {
        file: path.to_owned(),
        what,
    }
}
