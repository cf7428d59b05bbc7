//! Requests repeated with the same `Idempotency-Key` are answered once, also across restarts.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use hermes_core::{BoxFuture, task};
use hermes_store::{NewRequest, RequestStatus};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

use super::ApiState;
use super::error::ApiError;
use super::reply::{self, StoredReply};

const MAX_ANSWERS: usize = 1000;
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
const ANSWER_RETENTION: Duration = Duration::from_mins(5);
const HEADER: &str = "idempotency-key";

/// Answers by key, including those in progress.
pub(super) struct IdempotentAnswers<T>(Arc<Mutex<IdempotencyTable<T>>>);

type AnswerSlot<T> = watch::Receiver<Option<Result<T, ApiError>>>;

struct IdempotencyTable<T> {
    slots: HashMap<String, IdempotencyEntry<T>>,
    /// Oldest first, with the time of their answer.
    order: VecDeque<(Instant, String)>,
    bytes: usize,
}

struct IdempotencyEntry<T> {
    fingerprint: [u8; 32],
    slot: AnswerSlot<T>,
    /// `None`: under way.
    done: Option<(Instant, usize)>,
}

impl<T> Default for IdempotentAnswers<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(IdempotencyTable {
            slots: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
        })))
    }
}

/// The key of a request, and a digest of its content.
pub(super) struct IdempotencyKey {
    key: String,
    fingerprint: [u8; 32],
}

impl IdempotencyKey {
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// `scope`: keys are independent per scope.
    pub(super) fn read(
        headers: &HeaderMap,
        scope: &str,
        body: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Option<Self>, ApiError> {
        let Some(key) = headers.get(HEADER) else {
            return Ok(None);
        };
        let key = key.to_str().unwrap_or_default().trim();
        if key.is_empty() || key.len() > 256 {
            let message = "Idempotency-Key must be 1 to 256 plain letters";
            return Err(ApiError::bad(message).code("invalid_idempotency_key"));
        }
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        // The same text in another conversation is another request.
        for name in [reply::SESSION_ID, reply::SESSION_KEY] {
            part(headers.get(name).map_or(b"", |value| value.as_bytes()));
        }
        for (name, value) in body {
            part(name.as_bytes());
            part(value.to_string().as_bytes());
        }
        Ok(Some(Self {
            key: format!("{scope}\n{key}"),
            fingerprint: hash.finalize().into(),
        }))
    }
}

/// Answers a request with a key. The key is recorded first: a repetition after a restart gets the
/// stored answer, or an error that it was interrupted.
pub(super) fn answer<'a>(
    state: &'a Arc<ApiState>,
    asked: IdempotencyKey,
    session: &str,
    work: impl Future<Output = Result<StoredReply, ApiError>> + Send + 'static,
) -> BoxFuture<'a, Result<Arc<StoredReply>, ApiError>> {
    answer_holding(state, asked, session, work, ())
}

/// The same; the guard is released once a repeated request would find the answer, or a free key.
pub(super) fn answer_holding<'a>(
    state: &'a Arc<ApiState>,
    asked: IdempotencyKey,
    session: &str,
    work: impl Future<Output = Result<StoredReply, ApiError>> + Send + 'static,
    held: impl Send + 'static,
) -> BoxFuture<'a, Result<Arc<StoredReply>, ApiError>> {
    let request = NewRequest {
        key: asked.key.clone(),
        fingerprint: hermes_core::bytes::hex(&asked.fingerprint),
        run_id: state.run_id.clone(),
        session: session.to_owned(),
    };
    let work = Box::pin(noted(Arc::clone(state), request, Box::pin(work)));
    let bytes = |stored_reply: &Arc<StoredReply>| stored_reply.body.to_string().len() + 256;
    Box::pin(state.idempotent.answer(asked, bytes, work, held))
}

/// Does the work unless it was done or started before.
async fn noted(
    state: Arc<ApiState>,
    request: NewRequest,
    work: BoxFuture<'static, Result<StoredReply, ApiError>>,
) -> Result<Arc<StoredReply>, ApiError> {
    let store = state.stored.get(&state).await?;
    let key = request.key.clone();
    match store.begin_request(request).await? {
        RequestStatus::New => {}
        RequestStatus::Other => return Err(reused()),
        RequestStatus::Answered(stored_reply) => {
            let stored_reply = serde_json::from_value(stored_reply).map(Arc::new);
            return stored_reply.map_err(|error| lost(&error));
        }
        RequestStatus::Cut { session } => return Err(cut(&session)),
    }
    let stored_reply = work.await;
    // Work interrupted by our shutdown is reported as such by the next process.
    let ours = state.cancel.is_cancelled()
        && !stored_reply
            .as_ref()
            .is_ok_and(|stored_reply| stored_reply.complete);
    if !ours {
        let answer = stored_reply
            .as_ref()
            .ok()
            .map(|stored_reply| json!(stored_reply));
        // It is done: repeated requests to this process must get this answer, stored or not.
        if let Err(error) = store.end_request(&key, answer.as_ref()).await {
            tracing::warn!("an answer is not kept for the next start: {error}");
        }
    }
    stored_reply.map(Arc::new)
}

fn reused() -> ApiError {
    let message = "this Idempotency-Key was used for another request; send a new one";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message).code("idempotency_key_reused")
}

fn lost(error: &serde_json::Error) -> ApiError {
    let message = format!("the answer that was stored cannot be read: {error}");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

fn cut(session: &str) -> ApiError {
    let message = format!(
        "the gateway stopped while it worked on this request, and has started again. What was \
         done so far is in session {session}; go on there, or ask again under a new \
         Idempotency-Key"
    );
    ApiError::new(StatusCode::CONFLICT, message)
        .code("request_interrupted")
        .more(json!({"session_id": session}))
        .header(reply::SESSION_ID, session)
}

impl<T: Clone + Send + Sync + 'static> IdempotentAnswers<T> {
    /// The answer to `asked`: known, shared with the first request, or computed now. The work
    /// continues when the client disconnects, because it may come back. `bytes` returns the size of
    /// an answer.
    pub(super) async fn answer(
        &self,
        asked: IdempotencyKey,
        bytes: fn(&T) -> usize,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
        held: impl Send + 'static,
    ) -> Result<T, ApiError> {
        let mut slot = match self.claim(&asked)? {
            Ok(slot) => slot,
            Err(sender) => {
                let slot = sender.subscribe();
                let (inner, key) = (Arc::clone(&self.0), asked.key);
                task::spawn("a request with an idempotency key", async move {
                    let answer = work.await;
                    let mut inner = lock(&inner);
                    match &answer {
                        Ok(value) => inner.keep(&key, bytes(value)),
                        // The next attempt may do better.
                        Err(_) => inner.drop_slot(&key),
                    }
                    drop(inner);
                    let _ = sender.send(Some(answer));
                    drop(held);
                });
                slot
            }
        };
        let answer = slot.wait_for(Option::is_some).await;
        answer
            .ok()
            .and_then(|answer| answer.clone())
            .unwrap_or_else(|| {
                let message = "the request broke off; try again";
                Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message))
            })
    }

    /// The first request gets the sender.
    #[expect(clippy::type_complexity, reason = "one of two ends of a channel")]
    fn claim(
        &self,
        asked: &IdempotencyKey,
    ) -> Result<Result<AnswerSlot<T>, watch::Sender<Option<Result<T, ApiError>>>>, ApiError> {
        let mut inner = lock(&self.0);
        inner.purge();
        if let Some(entry) = inner.slots.get(&asked.key) {
            // Work that panicked has no answer: it is started again.
            let lost = entry.done.is_none() && entry.slot.has_changed().is_err();
            if !lost {
                if entry.fingerprint != asked.fingerprint {
                    return Err(reused());
                }
                return Ok(Ok(entry.slot.clone()));
            }
            inner.drop_slot(&asked.key);
        }
        let (sender, slot) = watch::channel(None);
        let entry = IdempotencyEntry {
            fingerprint: asked.fingerprint,
            slot,
            done: None,
        };
        inner.slots.insert(asked.key.clone(), entry);
        Ok(Err(sender))
    }
}

fn lock<T>(inner: &Mutex<IdempotencyTable<T>>) -> MutexGuard<'_, IdempotencyTable<T>> {
    // A panic while holding this lock leaves at worst an unreachable answer.
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> IdempotencyTable<T> {
    fn keep(&mut self, key: &str, bytes: usize) {
        let now = Instant::now();
        if let Some(entry) = self.slots.get_mut(key) {
            entry.done = Some((now, bytes));
            self.bytes += bytes;
            self.order.push_back((now, key.to_owned()));
        }
        self.purge();
    }

    fn drop_slot(&mut self, key: &str) {
        if let Some(entry) = self.slots.remove(key)
            && let Some((_, bytes)) = entry.done
        {
            self.bytes -= bytes;
        }
    }

    fn purge(&mut self) {
        let now = Instant::now();
        while let Some((at, key)) = self.order.front() {
            let full = self.order.len() > MAX_ANSWERS || self.bytes > MAX_ANSWER_BYTES;
            if !full && now - *at < ANSWER_RETENTION {
                return;
            }
            let (at, key) = (*at, key.clone());
            self.order.pop_front();
            let same = |entry: &IdempotencyEntry<T>| entry.done.is_some_and(|(done, _)| done == at);
            if self.slots.get(&key).is_some_and(same) {
                self.drop_slot(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use tokio::sync::Notify;

    fn asked(key: &str, body: &serde_json::Value) -> IdempotencyKey {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, key.parse().unwrap());
        let asked = IdempotencyKey::read(&headers, "test", body.as_object().unwrap());
        asked.unwrap().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_answer_for_all_who_ask_and_a_new_one_after_a_failure() {
        let once: IdempotentAnswers<String> = IdempotentAnswers::default();
        let (count, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let work = |fails: bool| {
            let (count, go) = (Arc::clone(&count), Arc::clone(&go));
            async move {
                go.notified().await;
                let number = count.fetch_add(1, Ordering::SeqCst);
                if fails {
                    return Err(ApiError::bad("no"));
                }
                Ok(number.to_string())
            }
        };
        let body = json!({"a": 1});
        let first = once.answer(asked("k", &body), String::len, work(true), ());
        let second = once.answer(asked("k", &body), String::len, work(true), ());
        let (first, second, ()) = tokio::join!(first, second, async { go.notify_one() });
        assert!(first.is_err() && second.is_err());
        assert_eq!(count.load(Ordering::SeqCst), 1);
        go.notify_one();
        let third = once
            .answer(asked("k", &body), String::len, work(false), ())
            .await;
        assert_eq!(third.unwrap(), "1");
        let again = once
            .answer(asked("k", &body), String::len, work(false), ())
            .await;
        assert_eq!(again.unwrap(), "1");
        let other = once
            .answer(asked("k", &json!({"a": 2})), String::len, work(false), ())
            .await;
        assert_eq!(
            other.unwrap_err().status(),
            StatusCode::UNPROCESSABLE_ENTITY
        );
        tokio::time::advance(ANSWER_RETENTION).await;
        go.notify_one();
        let later = once
            .answer(asked("k", &body), String::len, work(false), ())
            .await;
        assert_eq!(later.unwrap(), "2");
    }

    #[tokio::test]
    async fn answers_are_bounded() {
        let once: IdempotentAnswers<String> = IdempotentAnswers::default();
        for number in 0..MAX_ANSWERS + 50 {
            let work = async { Ok("x".to_owned()) };
            let asked = asked(&number.to_string(), &json!({}));
            once.answer(asked, String::len, work, ()).await.unwrap();
        }
        let inner = lock(&once.0);
        assert_eq!((inner.slots.len(), inner.bytes), (MAX_ANSWERS, MAX_ANSWERS));
    }
}
