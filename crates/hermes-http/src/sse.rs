//! Server-sent events from bytes. Any split of the bytes gives the same events.
//!
//! What is not understood is ignored, as the standard wants it. Why this is no library:
//! `docs/decisions/sse-reader.md`.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

/// Largest event that is accepted, counted over all of its lines.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

const BOM: &[u8] = "\u{feff}".as_bytes();

/// What stands between two blank lines; at least one of its fields is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event:` field.
    pub name: Option<String>,
    pub data: Option<String>,
    pub id: Option<String>,
    /// In milliseconds.
    pub retry: Option<u64>,
}

/// An event grew beyond [`MAX_EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {} MB", MAX_EVENT_BYTES / (1024 * 1024))]
pub struct TooLarge;

/// Incremental parser. Lines end with LF, CR or CRLF; invalid UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    event: Option<SseEvent>,
    /// Bytes of the event so far; once over the limit nothing more is read.
    size: usize,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// The start of the stream, where a byte order mark may stand, is behind us.
    started: bool,
}

impl SseParser {
    /// Takes bytes. Events that were complete before one that is too large are in `out`.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        out: &mut impl Extend<SseEvent>,
    ) -> Result<(), TooLarge> {
        if !bytes.is_empty() && std::mem::take(&mut self.after_cr) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.grow(&bytes[..end])?;
            self.end_line(out);
            let rest = &bytes[end + 1..];
            let is_cr = bytes[end] == b'\r';
            self.after_cr = is_cr && rest.is_empty();
            bytes = rest;
            if is_cr {
                bytes = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.grow(bytes)
    }

    /// The stream ended, and what it ended with counts although no blank line follows: many servers
    /// leave it out. Whoever must not take a part for the whole does not call this.
    pub fn finish(&mut self, out: &mut impl Extend<SseEvent>) {
        if !self.line.is_empty() {
            self.end_line(out);
        }
        out.extend(self.event.take());
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        self.size = self.size.saturating_add(bytes.len());
        if self.size > MAX_EVENT_BYTES {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, out: &mut impl Extend<SseEvent>) {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if !std::mem::replace(&mut self.started, true) {
            text = text.strip_prefix(BOM).unwrap_or(text);
        }
        if text.is_empty() {
            out.extend(self.event.take());
            self.size = 0;
        } else {
            self.field(text);
        }
        // Keep the allocation for the next line.
        self.line = line;
        self.line.clear();
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = String::from_utf8_lossy(value);
        match name {
            b"data" => {
                let event = self.event.get_or_insert_default();
                match &mut event.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&text);
                    }
                    None => event.data = Some(text.into_owned()),
                }
            }
            b"event" => self.event.get_or_insert_default().name = Some(text.into_owned()),
            b"id" if !value.contains(&0) => {
                self.event.get_or_insert_default().id = Some(text.into_owned());
            }
            b"retry" => {
                if let Ok(millis) = text.trim().parse() {
                    self.event.get_or_insert_default().retry = Some(millis);
                }
            }
            // A comment has an empty name.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
