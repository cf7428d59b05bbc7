//! Streamed answers under an `Idempotency-Key`: written to a tape, which every client with the key reads
//! from its beginning, while it is written and after. The work goes on when a client leaves.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use tokio::sync::watch;

use super::State;
use super::error::ApiError;
use super::once::{self, Asked};
use super::outcome::Verdict;
use super::reply::Told;
use super::sse::{self, Frames, Source};

/// What comes after this is in the session only.
const LONGEST: usize = 4 * 1024 * 1024;
/// Bytes that go out together.
const WRITE: usize = 64 * 1024;

/// How a stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    Complete,
    Partial,
    /// There is no answer: the next attempt may do better.
    #[default]
    Failed,
}

impl Ending {
    pub(super) fn of(verdict: &Verdict, told: bool) -> Self {
        match (verdict.complete(), told) {
            (true, _) => Self::Complete,
            (false, true) => Self::Partial,
            (false, false) => Self::Failed,
        }
    }
}

/// A source that knows how it ended.
pub(super) trait Recorded: Source {
    fn ending(&self) -> Ending;
}

/// The headers of an answer.
pub(super) type Headers = Vec<(String, String)>;

/// Answers that are written now, by key.
#[derive(Default)]
pub(super) struct Tapes(watch::Sender<HashMap<String, Arc<Tape>>>);

struct Tape {
    headers: Headers,
    bytes: Mutex<Vec<u8>>,
    /// How much there is, and whether that is all.
    told: watch::Sender<(usize, bool)>,
}

/// Answers a request under its key with the stream that `begin` leads to or led to before.
pub(super) async fn answer<S: Recorded>(
    state: &Arc<State>,
    asked: Asked,
    session: &str,
    begin: impl Future<Output = Result<(S, Headers), ApiError>> + Send + 'static,
) -> Result<Response, ApiError> {
    let key = asked.key().to_owned();
    let mut tapes = state.tapes.0.subscribe();
    let own = Arc::new(OnceLock::new());
    let recording = Recording {
        state: Arc::clone(state),
        key: key.clone(),
        tape: Arc::clone(&own),
    };
    let work = record(Arc::clone(state), key.clone(), Arc::clone(&own), begin);
    let told = once::answer_holding(state, asked, session, work, recording);
    let tape = tokio::select! {
        biased;
        told = told => match (told, own.get()) {
            (_, Some(tape)) => Arc::clone(tape),
            (told, None) => Arc::new(Tape::over(&*told?)),
        },
        tapes = tapes.wait_for(|tapes| tapes.contains_key(&key)) => match tapes {
            Ok(tapes) => Arc::clone(&tapes[&key]),
            Err(_) => return Err(stopped()),
        },
    };
    Ok(tape.response())
}

/// Writes all of it to a tape that others find meanwhile, and whoever asked for it after that.
async fn record<S: Recorded>(
    state: Arc<State>,
    key: String,
    own: Arc<OnceLock<Arc<Tape>>>,
    begin: impl Future<Output = Result<(S, Headers), ApiError>> + Send + 'static,
) -> Result<Told, ApiError> {
    let (mut source, headers) = begin.await?;
    let tape = own.get_or_init(|| Arc::new(Tape::new(headers)));
    state.tapes.0.send_modify(|tapes| {
        tapes.insert(key, Arc::clone(tape));
    });
    loop {
        let mut frames = Frames::default();
        let more = source.fill(&mut frames).await;
        tape.push(frames.written());
        if !more {
            break;
        }
    }
    match source.ending() {
        Ending::Complete => Ok(tape.told(true)),
        Ending::Partial => Ok(tape.told(false)),
        // Whoever reads along was told why.
        Ending::Failed => Err(stopped()),
    }
}

fn stopped() -> ApiError {
    let message = "the answer ended before there was one; try again";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// A tape that is written, if one is. It ends with this, whatever happens.
struct Recording {
    state: Arc<State>,
    key: String,
    tape: Arc<OnceLock<Arc<Tape>>>,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(tape) = self.tape.get() else { return };
        tape.told.send_modify(|told| told.1 = true);
        self.state.tapes.0.send_modify(|tapes| {
            tapes.remove(&self.key);
        });
    }
}

impl Tape {
    fn new(headers: Headers) -> Self {
        Self {
            headers,
            bytes: Mutex::default(),
            told: watch::Sender::new((0, false)),
        }
    }

    /// One that was written before.
    fn over(told: &Told) -> Self {
        let tape = Self::new(told.headers.clone());
        tape.push(told.body.as_str().unwrap_or_default().as_bytes());
        tape.told.send_modify(|told| told.1 = true);
        tape
    }

    fn push(&self, more: &[u8]) {
        let mut bytes = self.lock();
        if bytes.len() <= LONGEST {
            bytes.extend_from_slice(more);
        }
        let length = bytes.len();
        drop(bytes);
        self.told.send_modify(|told| told.0 = length);
    }

    fn told(&self, complete: bool) -> Told {
        let bytes = self.lock();
        let whole = bytes.len() <= LONGEST;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Told {
            headers: self.headers.clone(),
            complete: complete && whole,
            ..Told::new(StatusCode::OK, json!(text))
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // A panic while holding this lock leaves at worst a part of an event.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn response(self: Arc<Self>) -> Response {
        let headers = self.headers.clone();
        let reader = Reader {
            told: self.told.subscribe(),
            tape: self,
            read: 0,
        };
        sse::with_headers((reader, headers))
    }
}

struct Reader {
    tape: Arc<Tape>,
    told: watch::Receiver<(usize, bool)>,
    read: usize,
}

impl Source for Reader {
    async fn fill(&mut self, frames: &mut Frames) -> bool {
        let read = self.read;
        let news = self.told.wait_for(|(length, over)| *length > read || *over);
        let (length, over) = news.await.map_or((read, true), |told| *told);
        let until = length.min(read + WRITE);
        frames.bytes(&self.tape.lock()[read..until]);
        self.read = until;
        until < length || !over
    }
}
