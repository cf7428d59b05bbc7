//! Streamed answers with an `Idempotency-Key`: recorded, so that every client with the key reads
//! the stream from its beginning, during and after the turn. The work continues when a client
//! disconnects.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use tokio::sync::watch;

use super::ApiState;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyKey};
use super::outcome::OutcomeReport;
use super::reply::StoredReply;
use super::sse::{self, EventSource, SseFrames};

/// Maximum recorded size; the rest is in the session only.
const MAX_RECORDED_BYTES: usize = 4 * 1024 * 1024;
/// Maximum bytes per write.
const WRITE_BYTES: usize = 64 * 1024;

/// How a stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamEnding {
    Complete,
    Partial,
    /// There is no answer: a retry may succeed.
    #[default]
    Failed,
}

impl StreamEnding {
    pub(super) fn of(verdict: &OutcomeReport, has_output: bool) -> Self {
        match (verdict.is_complete(), has_output) {
            (true, _) => Self::Complete,
            (false, true) => Self::Partial,
            (false, false) => Self::Failed,
        }
    }
}

/// A source that knows how it ended.
pub(super) trait RecordedSource: EventSource {
    fn ending(&self) -> StreamEnding;
}

/// The headers of an answer.
pub(super) type HeaderList = Vec<(String, String)>;

/// Recordings in progress, by key.
#[derive(Default)]
pub(super) struct StreamRecordings(watch::Sender<HashMap<String, Arc<StreamRecording>>>);

struct StreamRecording {
    headers: HeaderList,
    bytes: Mutex<Vec<u8>>,
    /// The recorded length, and whether it is complete.
    progress: watch::Sender<(usize, bool)>,
}

/// Answers a request with the stream that `begin` starts or has started before.
pub(super) async fn answer<S: RecordedSource>(
    state: &Arc<ApiState>,
    asked: IdempotencyKey,
    session: &str,
    begin: impl Future<Output = Result<(S, HeaderList), ApiError>> + Send + 'static,
) -> Result<Response, ApiError> {
    let key = asked.key().to_owned();
    let mut tapes = state.recordings.0.subscribe();
    let own = Arc::new(OnceLock::new());
    let recording = RecordingWriter {
        state: Arc::clone(state),
        key: key.clone(),
        tape: Arc::clone(&own),
    };
    let work = record(Arc::clone(state), key.clone(), Arc::clone(&own), begin);
    let reply = idempotency::answer_holding(state, asked, session, work, recording);
    let tape = tokio::select! {
        biased;
        reply = reply => match (reply, own.get()) {
            (_, Some(tape)) => Arc::clone(tape),
            (reply, None) => Arc::new(StreamRecording::of_reply(&*reply?)),
        },
        tapes = tapes.wait_for(|tapes| tapes.contains_key(&key)) => match tapes {
            Ok(tapes) => Arc::clone(&tapes[&key]),
            Err(_) => return Err(stopped()),
        },
    };
    Ok(tape.response())
}

/// Records the whole stream, which other requests can read meanwhile and afterwards.
async fn record<S: RecordedSource>(
    state: Arc<ApiState>,
    key: String,
    own: Arc<OnceLock<Arc<StreamRecording>>>,
    begin: impl Future<Output = Result<(S, HeaderList), ApiError>> + Send + 'static,
) -> Result<StoredReply, ApiError> {
    let (mut source, headers) = begin.await?;
    let tape = own.get_or_init(|| Arc::new(StreamRecording::new(headers)));
    state.recordings.0.send_modify(|tapes| {
        tapes.insert(key, Arc::clone(tape));
    });
    loop {
        let mut frames = SseFrames::default();
        let more = source.fill(&mut frames).await;
        tape.push(frames.written());
        if !more {
            break;
        }
    }
    match source.ending() {
        StreamEnding::Complete => Ok(tape.to_reply(true)),
        StreamEnding::Partial => Ok(tape.to_reply(false)),
        // Readers of the stream were told why.
        StreamEnding::Failed => Err(stopped()),
    }
}

fn stopped() -> ApiError {
    let message = "the answer ended before there was one; try again";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// Writes a recording, if there is one. The recording ends when this is dropped.
struct RecordingWriter {
    state: Arc<ApiState>,
    key: String,
    tape: Arc<OnceLock<Arc<StreamRecording>>>,
}

impl Drop for RecordingWriter {
    fn drop(&mut self) {
        let Some(tape) = self.tape.get() else { return };
        tape.progress.send_modify(|progress| progress.1 = true);
        self.state.recordings.0.send_modify(|tapes| {
            tapes.remove(&self.key);
        });
    }
}

impl StreamRecording {
    fn new(headers: HeaderList) -> Self {
        Self {
            headers,
            bytes: Mutex::default(),
            progress: watch::Sender::new((0, false)),
        }
    }

    /// A finished recording.
    fn of_reply(reply: &StoredReply) -> Self {
        let tape = Self::new(reply.headers.clone());
        tape.push(reply.body.as_str().unwrap_or_default().as_bytes());
        tape.progress.send_modify(|progress| progress.1 = true);
        tape
    }

    fn push(&self, more: &[u8]) {
        let mut bytes = self.lock();
        if bytes.len() <= MAX_RECORDED_BYTES {
            bytes.extend_from_slice(more);
        }
        let length = bytes.len();
        drop(bytes);
        self.progress.send_modify(|progress| progress.0 = length);
    }

    fn to_reply(&self, complete: bool) -> StoredReply {
        let bytes = self.lock();
        let whole = bytes.len() <= MAX_RECORDED_BYTES;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        StoredReply {
            headers: self.headers.clone(),
            complete: complete && whole,
            ..StoredReply::new(StatusCode::OK, json!(text))
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // A panic while holding this lock leaves at worst a part of an event.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn response(self: Arc<Self>) -> Response {
        let headers = self.headers.clone();
        let reader = RecordingReader {
            progress: self.progress.subscribe(),
            tape: self,
            read: 0,
        };
        sse::with_headers((reader, headers))
    }
}

struct RecordingReader {
    tape: Arc<StreamRecording>,
    progress: watch::Receiver<(usize, bool)>,
    read: usize,
}

impl EventSource for RecordingReader {
    async fn fill(&mut self, frames: &mut SseFrames) -> bool {
        let read = self.read;
        let update = self
            .progress
            .wait_for(|(length, ended)| *length > read || *ended);
        let (length, ended) = update.await.map_or((read, true), |progress| *progress);
        let until = length.min(read + WRITE_BYTES);
        frames.bytes(&self.tape.lock()[read..until]);
        self.read = until;
        until < length || !ended
    }
}
