//! Reads lines from a pipe, with a limited length.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Maximum length of a line that is read completely.
pub(super) const MAX_LINE_BYTES: usize = 16 << 20;

/// Number of bytes kept at each end of a longer line, to find the id that it answers.
const END_BYTES: usize = 4096;

#[derive(Debug, PartialEq)]
pub(super) enum StdioLine {
    Whole(Vec<u8>),
    TooLong {
        head: Vec<u8>,
        tail: Vec<u8>,
        length: usize,
    },
}

pub(super) struct Lines<R> {
    pipe: R,
    max: usize,
    end_bytes: usize,
    /// Bytes read and not yet returned; begins at the start of a line or inside a long one.
    buffer: Vec<u8>,
    /// `buffer` contains no newline before this index.
    scanned: usize,
    /// The current overlong line: its head, and the number of bytes dropped.
    long: Option<(Vec<u8>, usize)>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(pipe: R) -> Self {
        Self::with_limits(pipe, MAX_LINE_BYTES, END_BYTES)
    }

    /// `max` is at least twice `end_bytes`, otherwise the two ends of a long line overlap.
    fn with_limits(pipe: R, max: usize, end_bytes: usize) -> Self {
        Self {
            pipe,
            max,
            end_bytes,
            buffer: Vec::new(),
            scanned: 0,
            long: None,
            ended: false,
        }
    }

    /// The next line without its newline; `None` at the end. Calls `on_read` for every read.
    pub(super) async fn next(&mut self, on_read: impl Fn()) -> Option<StdioLine> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|&b| b == b'\n') {
                let rest = self.buffer.split_off(self.scanned + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Some(self.finish_line(line));
            }
            self.scanned = self.buffer.len();
            if self.ended {
                let line = std::mem::take(&mut self.buffer);
                self.scanned = 0;
                let empty = line.is_empty() && self.long.is_none();
                return (!empty).then(|| self.finish_line(line));
            }
            if self.buffer.len() > self.max {
                self.drop_middle();
            }
            self.buffer.reserve(8192);
            match self.pipe.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => self.ended = true,
                Ok(_) => on_read(),
            }
        }
    }

    fn finish_line(&mut self, line: Vec<u8>) -> StdioLine {
        self.scanned = 0;
        if let Some((head, dropped)) = self.long.take() {
            let length = dropped + line.len();
            let tail = line[line.len().saturating_sub(self.end_bytes)..].to_vec();
            return StdioLine::TooLong { head, tail, length };
        }
        if line.len() > self.max {
            return StdioLine::TooLong {
                head: line[..self.end_bytes.min(line.len())].to_vec(),
                tail: line[line.len().saturating_sub(self.end_bytes)..].to_vec(),
                length: line.len(),
            };
        }
        StdioLine::Whole(line)
    }

    /// Drops the middle of an overlong line.
    fn drop_middle(&mut self) {
        let cut = self.buffer.len() - self.end_bytes.min(self.buffer.len());
        let tail = self.buffer.split_off(cut);
        let dropped = std::mem::replace(&mut self.buffer, tail);
        self.scanned = self.buffer.len();
        if let Some((_, count)) = &mut self.long {
            *count += dropped.len();
        } else {
            let head = dropped[..self.end_bytes.min(dropped.len())].to_vec();
            self.long = Some((head, dropped.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use proptest::prelude::*;
    use tokio::io::ReadBuf;

    use super::*;

    async fn all(input: &[u8], max: usize) -> Vec<StdioLine> {
        let mut lines = Lines::with_limits(input, max, END_BYTES);
        let mut found = Vec::new();
        while let Some(line) = lines.next(|| ()).await {
            found.push(line);
        }
        found
    }

    #[tokio::test]
    async fn lines_are_cut_at_newlines_and_the_last_needs_none() {
        let found = all(b"one\n\ntwo\nlast", 100).await;
        let texts = [&b"one"[..], b"", b"two", b"last"];
        assert_eq!(found, texts.map(|text| StdioLine::Whole(text.to_vec())));
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_keeps_its_ends_and_the_next_is_whole() {
        let mut input = vec![b'a'; 5000];
        input.extend(vec![b'b'; 200_000]);
        input.extend(vec![b'c'; 5000]);
        input.extend(b"\nnext\n");
        let found = all(&input, 50_000).await;
        let expected = StdioLine::TooLong {
            head: vec![b'a'; END_BYTES],
            tail: vec![b'c'; END_BYTES],
            length: 210_000,
        };
        assert_eq!(found, [expected, StdioLine::Whole(b"next".to_vec())]);
    }

    /// A pipe that returns its bytes in the pieces in which they were written.
    struct Pieces(VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let rest = piece.split_off(piece.len().min(into.remaining()));
                into.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn however_the_bytes_come_the_lines_are_the_same(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..400),
            cut in 1_usize..40,
            max in 1_usize..60,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let pieces = bytes.chunks(cut).map(<[u8]>::to_vec).collect();
            let found = runtime.block_on(async {
                let mut lines = Lines::with_limits(Pieces(pieces), max, END_BYTES);
                let mut found = Vec::new();
                while let Some(line) = lines.next(|| ()).await {
                    found.push(match line {
                        StdioLine::Whole(line) => line.len(),
                        StdioLine::TooLong { length, .. } => length,
                    });
                }
                found
            });
            let mut expected: Vec<usize> = bytes.split(|&b| b == b'\n').map(<[u8]>::len).collect();
            // The bytes after the last newline are a line only if there are any.
            if expected.last() == Some(&0) {
                expected.pop();
            }
            prop_assert_eq!(found, expected);
        }
    }
}
