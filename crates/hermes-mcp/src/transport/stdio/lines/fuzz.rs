//! Fuzz test: any output of a server, in pieces of any size, gives the same lines in bounded
//! memory.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};

use super::{Lines, StdioLine};

/// Small, so that short inputs contain long lines.
const MAX: usize = 24;
const END_BYTES: usize = 8;

pub fn stdio(data: &[u8]) {
    let expected = lines(data);
    for size in [1, 2, 3, 7, 64, usize::MAX] {
        assert_eq!(read(data, size), expected, "in pieces of {size}");
    }
}

fn read(data: &[u8], size: usize) -> Vec<StdioLine> {
    let mut lines = Lines::with_limits(Pieces { rest: data, size }, MAX, END_BYTES);
    let mut context = Context::from_waker(Waker::noop());
    let mut found = Vec::new();
    loop {
        let next = std::pin::pin!(lines.next(|| ())).poll(&mut context);
        // The pipe never waits.
        let Poll::Ready(Some(line)) = next else {
            break;
        };
        let held = match &line {
            StdioLine::Whole(line) => line.len(),
            StdioLine::TooLong { head, tail, .. } => head.len().max(tail.len()) + MAX - END_BYTES,
        };
        assert!(held <= MAX, "{line:?}");
        found.push(line);
        let held = lines.buffer.len();
        assert!(held <= MAX + size.min(data.len()), "{held} bytes are held");
    }
    found
}

fn lines(data: &[u8]) -> Vec<StdioLine> {
    let mut lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    // The bytes after the last newline are a line only if there are any.
    lines.pop_if(|line| line.is_empty());
    let line = |line: &[u8]| {
        if line.len() <= MAX {
            return StdioLine::Whole(line.to_vec());
        }
        StdioLine::TooLong {
            head: line[..END_BYTES].to_vec(),
            tail: line[line.len() - END_BYTES..].to_vec(),
            length: line.len(),
        }
    };
    lines.into_iter().map(line).collect()
}

/// A pipe that returns its bytes in pieces of this size.
struct Pieces<'a> {
    rest: &'a [u8],
    size: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let length = self.size.min(self.rest.len()).min(into.remaining());
        let (piece, rest) = self.rest.split_at(length);
        into.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}
