//! The byte streams as lines, bounded both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_client_protocol::Lines;
use futures_util::{Sink, Stream, sink, stream};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Maximum message size. Images are encoded as text in messages.
const MAX_MESSAGE_BYTES: u64 = 64 * 1024 * 1024;
/// Messages that may wait to be written before conversations wait too.
const WRITE_QUEUE_CAPACITY: usize = 1024;

/// The amount of unwritten output. The protocol's own queue is unbounded, so senders wait here
/// first.
#[derive(Default)]
pub(crate) struct OutputBacklog {
    waiting: AtomicUsize,
    drained: Notify,
}

impl OutputBacklog {
    /// Waits for capacity and reserves some.
    pub(crate) async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            // Registered before the check, so that a wake-up in between is not lost.
            drained.as_mut().enable();
            if self.waiting.load(Ordering::Acquire) < WRITE_QUEUE_CAPACITY {
                self.waiting.fetch_add(1, Ordering::AcqRel);
                return;
            }
            drained.await;
        }
    }

    fn written(&self) {
        // Responses are written, too, without a reservation.
        let _ = self
            .waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |waiting| {
                waiting.checked_sub(1)
            });
        self.drained.notify_waiters();
    }
}

/// The transport. `ended` is cancelled when the editor has closed its end.
pub(crate) fn lines<R, W>(
    input: R,
    output: W,
    gauge: Arc<OutputBacklog>,
    ended: CancellationToken,
) -> Lines<
    impl Sink<String, Error = std::io::Error> + Send + 'static,
    impl Stream<Item = std::io::Result<String>> + Send + 'static,
>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let incoming = stream::unfold(BufReader::new(input), move |mut reader| {
        let ended = ended.clone();
        async move {
            match line(&mut reader).await {
                Ok(Some(line)) => Some((Ok(line), reader)),
                Ok(None) => {
                    ended.cancel();
                    None
                }
                Err(error) => {
                    ended.cancel();
                    Some((Err(error), reader))
                }
            }
        }
    });
    let outgoing = sink::unfold(
        (output, gauge),
        async |(mut output, gauge): (W, Arc<OutputBacklog>), line: String| {
            output.write_all(line.as_bytes()).await?;
            output.write_all(b"\n").await?;
            output.flush().await?;
            gauge.written();
            Ok((output, gauge))
        },
    );
    Lines::new(Box::pin(outgoing), Box::pin(incoming))
}

/// The next non-empty line. Invalid UTF-8 and overlong lines are passed on as invalid JSON, so that
/// they are answered like any other invalid input.
async fn line<R: AsyncRead + Unpin>(reader: &mut BufReader<R>) -> std::io::Result<Option<String>> {
    loop {
        let mut bytes = Vec::new();
        let read = (&mut *reader)
            .take(MAX_MESSAGE_BYTES)
            .read_until(b'\n', &mut bytes)
            .await?;
        if read == 0 {
            return Ok(None);
        }
        if bytes.last() != Some(&b'\n') && bytes.len() as u64 == MAX_MESSAGE_BYTES {
            skip(reader).await?;
            return Ok(Some("a message that is too long".to_owned()));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if !text.is_empty() {
            return Ok(Some(text.to_owned()));
        }
    }
}

/// Reads on to the end of the line.
async fn skip<R: AsyncRead + Unpin>(reader: &mut BufReader<R>) -> std::io::Result<()> {
    loop {
        let buffer = reader.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_garbage_does_not_end_them() {
        let bytes: &[u8] = b"{\"a\":1}\r\n\n\xff\xfe\n{\"b\":2}";
        let mut reader = BufReader::new(bytes);
        let mut seen = Vec::new();
        while let Some(line) = line(&mut reader).await.unwrap() {
            seen.push(line);
        }
        assert_eq!(seen, ["{\"a\":1}", "\u{fffd}\u{fffd}", "{\"b\":2}"]);
    }

    #[tokio::test]
    async fn whoever_fills_the_queue_waits_for_the_reader() {
        let gauge = Arc::new(OutputBacklog::default());
        for _ in 0..WRITE_QUEUE_CAPACITY {
            gauge.room().await;
        }
        let full = Arc::clone(&gauge);
        let waiting = hermes_core::task::spawn("room", async move { full.room().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        gauge.written();
        waiting.await.unwrap().unwrap();
    }
}
