//! One page of a text file. The file is streamed: its size does not matter.

use std::io::{self, BufRead, Read as _};

use crate::files::limits::ReadLimits;
use crate::files::text::{self, TextEncoding};

/// Bytes inspected to distinguish text from binary.
pub(super) const SAMPLE_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct TextPage {
    /// `number|text` lines.
    pub(super) content: String,
    pub(super) shown: usize,
    pub(super) total_lines: usize,
    /// Lines that were too long to be shown completely.
    pub(super) cut_lines: usize,
    /// The page ended because of its length, not because of the line count.
    pub(super) out_of_room: bool,
    pub(super) lossy: bool,
    /// Characters of `content`.
    chars: usize,
}

#[derive(Debug)]
pub(super) enum TextPageError {
    Binary,
    Cancelled,
    Io(io::Error),
}

impl From<io::Error> for TextPageError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The requested lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRange {
    pub(super) offset: usize,
    pub(super) count: usize,
    pub(super) limits: ReadLimits,
}

pub(super) fn read(
    mut file: impl BufRead,
    wanted: LineRange,
    cancelled: &dyn Fn() -> bool,
) -> Result<TextPage, TextPageError> {
    let sample = file.fill_buf()?;
    if text::is_binary(sample) {
        return Err(TextPageError::Binary);
    }
    if sample.starts_with(b"\xff\xfe") || sample.starts_with(b"\xfe\xff") {
        let mut bytes = Vec::new();
        let max_bytes = crate::files::location::MAX_EDIT as u64;
        file.take(max_bytes).read_to_end(&mut bytes)?;
        let text = text::TextFile::decode(&bytes).ok_or(TextPageError::Binary)?;
        return lines(text.chars.as_bytes(), TextEncoding::Utf8, wanted, cancelled);
    }
    if sample.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
    }
    let start = file.fill_buf()?;
    let encoding = text::guess(start, start.len() < SAMPLE_BYTES);
    lines(file, encoding, wanted, cancelled)
}

fn lines(
    mut file: impl BufRead,
    encoding: TextEncoding,
    wanted: LineRange,
    cancelled: &dyn Fn() -> bool,
) -> Result<TextPage, TextPageError> {
    let mut page = TextPage::default();
    let mut line = Vec::new();
    // Four bytes hold any character, one more shows that something was cut.
    let max_bytes = wanted.limits.line_chars * 4 + 1;
    while let Some(whole) = next_line(&mut file, &mut line, max_bytes)? {
        page.total_lines += 1;
        let number = page.total_lines;
        let asked_for = number >= wanted.offset && number - wanted.offset < wanted.count;
        if asked_for && !page.out_of_room {
            page.push(number, &line, whole, encoding, wanted.limits);
        }
        if number.is_multiple_of(4_096) && cancelled() {
            return Err(TextPageError::Cancelled);
        }
    }
    Ok(page)
}

impl TextPage {
    fn push(
        &mut self,
        number: usize,
        line: &[u8],
        whole: bool,
        encoding: TextEncoding,
        limits: ReadLimits,
    ) {
        let text = match encoding {
            TextEncoding::Latin1 => line.iter().map(|byte| char::from(*byte)).collect(),
            _ => String::from_utf8_lossy(line),
        };
        // A cut inside a character is our own.
        self.lossy |=
            whole && encoding != TextEncoding::Latin1 && std::str::from_utf8(line).is_err();
        let mut shown: String = text.chars().take(limits.line_chars).collect();
        let cut = !whole || shown.len() < text.len();
        if cut {
            shown.push('…');
        }
        let entry = format!("{number}|{shown}");
        let chars = self.chars + usize::from(self.shown > 0) + entry.chars().count();
        if self.shown > 0 && chars > limits.chars {
            self.out_of_room = true;
            return;
        }
        if self.shown > 0 {
            self.content.push('\n');
        }
        self.content.push_str(&entry);
        self.chars = chars;
        self.shown += 1;
        self.cut_lines += usize::from(cut);
    }
}

/// Reads a line without its end into `line`, keeping at most `max_bytes` bytes. `None` at the end of the file, else
/// whether the line is complete.
fn next_line(
    file: &mut impl BufRead,
    line: &mut Vec<u8>,
    max_bytes: usize,
) -> io::Result<Option<bool>> {
    line.clear();
    let read = file
        .by_ref()
        .take(max_bytes as u64)
        .read_until(b'\n', line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        return Ok(Some(true));
    }
    if read < max_bytes {
        return Ok(Some(true));
    }
    file.skip_until(b'\n')?;
    Ok(Some(false))
}
