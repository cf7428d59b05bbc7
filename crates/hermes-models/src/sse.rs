//! Server-sent events from bytes. Any split of the bytes gives the same events.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

/// Largest event that is accepted.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

const BOM: &[u8] = "\u{feff}".as_bytes();

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event:` field; empty where there is none.
    pub name: String,
    pub data: String,
}

/// An event grew beyond [`MAX_EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {} MB", MAX_EVENT_BYTES / (1024 * 1024))]
pub struct TooLarge;

/// Incremental parser. Lines end with LF, CR or CRLF; invalid UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// The start of the stream, where a byte order mark may stand, is behind us.
    begun: bool,
}

impl SseParser {
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.line.extend_from_slice(&rest[..end]);
            let carriage_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if carriage_return {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(out)?;
        }
        self.line.extend_from_slice(rest);
        self.check_size()
    }

    /// The stream ended. Many servers leave out the last blank line; what is complete counts.
    pub fn finish(&mut self, out: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        if !self.line.is_empty() {
            self.end_line(out)?;
        }
        self.dispatch(out);
        Ok(())
    }

    fn check_size(&self) -> Result<(), TooLarge> {
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held > MAX_EVENT_BYTES {
            return Err(TooLarge);
        }
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        self.check_size()?;
        let line = std::mem::take(&mut self.line);
        let mut bytes = line.as_slice();
        if !self.begun {
            self.begun = true;
            bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
        }
        if bytes.is_empty() {
            self.dispatch(out);
        } else {
            self.field(&String::from_utf8_lossy(bytes));
        }
        // Keep the allocation for the next line.
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.name),
            // A comment has an empty name; `id` and `retry` mean nothing to us.
            _ => {}
        }
    }

    fn dispatch(&mut self, out: &mut Vec<SseEvent>) {
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            out.push(SseEvent { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(chunks: &[&[u8]]) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        let mut out = Vec::new();
        for chunk in chunks {
            parser.push(chunk, &mut out).unwrap();
        }
        parser.finish(&mut out).unwrap();
        out
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent {
            name: name.into(),
            data: data.into(),
        }
    }

    #[test]
    fn fields_comments_and_line_ends() {
        let stream = "\u{feff}: hello\r\nevent: one\r\ndata: a\r\ndata:b\r\n\r\ndata: c\r\rid: 7\ndata\n\nretry: 5\n\ndata: last";
        assert_eq!(
            parse(&[stream.as_bytes()]),
            [
                event("one", "a\nb"),
                event("", "c"),
                event("", ""),
                event("", "last")
            ]
        );
    }

    #[test]
    fn a_name_without_data_is_forgotten() {
        assert_eq!(parse(&[b"event: x\n\ndata: y\n\n"]), [event("", "y")]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = SseParser::default();
        let mut out = Vec::new();
        parser.push(b"data: ", &mut out).unwrap();
        let chunk = vec![b'x'; MAX_EVENT_BYTES];
        assert_eq!(parser.push(&chunk, &mut out), Err(TooLarge));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn splits_do_not_matter(
            text in "(\u{feff})?((data|event|id|:)?:? ?[a-zé€𝄞]{0,6}(\r\n|\n|\r)){0,20}[a-z]{0,3}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(parse(&chunks), parse(&[bytes]));
        }
    }
}
