//! One page of a text file. The file is streamed: its size does not matter.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use super::ReadLimits;

/// A NUL in here makes a file binary.
const SAMPLE: usize = 8_192;
/// Names shown of a directory.
const MAX_NAMES: usize = 50;

#[derive(Debug)]
pub(super) struct Page {
    /// `number|text` lines.
    pub(super) content: String,
    pub(super) shown: usize,
    pub(super) total_lines: usize,
    pub(super) bytes: u64,
    /// Lines that were too long to be shown whole.
    pub(super) cut_lines: usize,
    /// The page ended because of its length, not because of the line count.
    pub(super) out_of_room: bool,
    pub(super) lossy: bool,
    /// Characters of `content`.
    chars: usize,
}

#[derive(Debug)]
pub(super) enum PageError {
    Missing,
    Directory(Vec<String>),
    Binary { bytes: u64 },
    Refused(String),
    Cancelled,
    Io(io::Error),
}

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            _ => Self::Io(error),
        }
    }
}

pub(super) fn read(
    path: &Path,
    offset: usize,
    count: usize,
    limits: ReadLimits,
    cancelled: &dyn Fn() -> bool,
) -> Result<Page, PageError> {
    let meta = std::fs::metadata(path)?;
    if meta.is_dir() {
        return Err(PageError::Directory(list(path)?));
    }
    if !meta.is_file() {
        // Opening a pipe would wait for a writer, reading a device might never end.
        return Err(PageError::Refused("it is no ordinary file".to_owned()));
    }
    let mut file = BufReader::with_capacity(64 * 1024, File::open(path)?);
    let sample = file.fill_buf()?;
    if sample[..sample.len().min(SAMPLE)].contains(&0) {
        return Err(PageError::Binary { bytes: meta.len() });
    }
    if sample.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
    }
    let mut page = Page {
        content: String::new(),
        shown: 0,
        total_lines: 0,
        bytes: meta.len(),
        cut_lines: 0,
        out_of_room: false,
        lossy: false,
        chars: 0,
    };
    let mut line = Vec::new();
    // Four bytes hold any character, one more shows that something was cut.
    let most = limits.line_chars * 4 + 1;
    while let Some(whole) = next_line(&mut file, &mut line, most)? {
        page.total_lines += 1;
        let number = page.total_lines;
        if number >= offset && number < offset + count && !page.out_of_room {
            page.push(number, &line, whole, limits);
        }
        if number.is_multiple_of(4_096) && cancelled() {
            return Err(PageError::Cancelled);
        }
    }
    Ok(page)
}

impl Page {
    fn push(&mut self, number: usize, line: &[u8], whole: bool, limits: ReadLimits) {
        let text = String::from_utf8_lossy(line);
        // A cut in the middle of a character is our own doing.
        self.lossy |= whole && text.contains('\u{fffd}') && std::str::from_utf8(line).is_err();
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

/// Reads a line without its end into `line`, keeping at most `most` bytes. `None` at the end of
/// the file, else whether the line was kept whole.
fn next_line(
    file: &mut BufReader<File>,
    line: &mut Vec<u8>,
    most: usize,
) -> io::Result<Option<bool>> {
    line.clear();
    let read = file.by_ref().take(most as u64).read_until(b'\n', line)?;
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
    if read < most {
        return Ok(Some(true));
    }
    file.skip_until(b'\n')?;
    Ok(Some(false))
}

fn list(dir: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(dir)?
        .flatten()
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() {
                name + "/"
            } else {
                name
            }
        })
        .collect();
    names.sort();
    names.truncate(MAX_NAMES);
    Ok(names)
}
