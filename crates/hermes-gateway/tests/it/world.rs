//! A platform in memory that remembers what people see, a fuse that ends a life at a given step,
//! and a ledger that burns with it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use hermes_gateway::spine::Ledger;
use hermes_platforms::{
    Capabilities, Found, Limits, Markup, MediaRef, Outbound, Outgoing, Recourse, SendError, Unit,
};
use hermes_store::db::delivery::{
    Accepted, Delivery, Due, Final, Foreign, Inbound, NewChunk, Processes, Progress, Settled,
    Spoken, StoredQuestion, Target, Waiting,
};
use tokio_util::sync::CancellationToken;

/// Burns down by one at every step. At zero the life ends: nothing after it happens.
#[derive(Clone)]
pub(crate) struct Fuse {
    left: Arc<AtomicI64>,
    /// How often calls of the ledger fail, by name.
    faults: Arc<Mutex<HashMap<&'static str, u32>>>,
    pub died: CancellationToken,
}

impl Fuse {
    pub(crate) fn new(steps: i64) -> Self {
        Self {
            left: Arc::new(AtomicI64::new(steps)),
            faults: Arc::default(),
            died: CancellationToken::new(),
        }
    }

    pub(crate) async fn tick(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 1 {
            self.died.cancel();
            std::future::pending::<()>().await;
        }
    }

    /// The life ends here.
    pub(crate) fn blow(&self) {
        self.left.store(0, Ordering::SeqCst);
    }

    /// The next calls of this name fail, so many.
    pub(crate) fn fail(&self, call: &'static str, times: u32) {
        self.faults.lock().unwrap().insert(call, times);
    }

    fn fault(&self, call: &str) -> Result<(), StoreError> {
        let mut faults = self.faults.lock().unwrap();
        match faults.get_mut(call) {
            Some(left) if *left > 0 => {
                *left -= 1;
                let waited = Duration::from_secs(1);
                Err(StoreError::Busy { waited })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn left(&self) -> i64 {
        self.left.load(Ordering::SeqCst)
    }
}

/// What a platform does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Fine,
    /// It lands, and the answer is lost.
    AnswerLost,
    /// It does not land, and nobody knows.
    RequestLost,
    /// It certainly does not land.
    Offline,
}

/// What a person sees, and what the platform remembers. It outlives every life.
#[derive(Default)]
pub(crate) struct World {
    pub seen: Mutex<Vec<Seen>>,
    pub weather: Mutex<VecDeque<Weather>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub chat: String,
    pub key: String,
    pub text: String,
}

pub(crate) struct FakePlatform {
    pub world: Arc<World>,
    pub fuse: Fuse,
    pub capabilities: Capabilities,
}

impl FakePlatform {
    pub(crate) fn new(world: Arc<World>, fuse: Fuse, recourse: Recourse) -> Self {
        let capabilities = Capabilities {
            edit: false,
            typing: false,
            threads: false,
            buttons: false,
            reactions: false,
            drafts: false,
            markup: Markup::Plain,
            limits: Limits {
                text: 4096,
                unit: Unit::Chars,
                file_bytes: 0,
            },
            recourse,
        };
        Self {
            world,
            fuse,
            capabilities,
        }
    }

    fn land(&self, message: &Outgoing) {
        let mut seen = self.world.seen.lock().unwrap();
        let idempotent = matches!(self.capabilities.recourse, Recourse::Idempotent { .. });
        if idempotent && seen.iter().any(|one| one.key == message.key) {
            return;
        }
        seen.push(Seen {
            chat: message.target.chat_id.clone(),
            key: message.key.clone(),
            text: message.text.clone(),
        });
    }
}

impl Outbound for FakePlatform {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(
        &'a self,
        message: &'a Outgoing,
    ) -> BoxFuture<'a, Result<Option<String>, SendError>> {
        Box::pin(async move {
            self.fuse.tick().await;
            let weather = self.world.weather.lock().unwrap().pop_front();
            let result = match weather.unwrap_or(Weather::Fine) {
                Weather::Fine => {
                    self.land(message);
                    Ok(Some(format!("id-{}", message.key)))
                }
                Weather::AnswerLost => {
                    self.land(message);
                    Err(SendError::Unclear("reset".to_owned()))
                }
                Weather::RequestLost => Err(SendError::Unclear("timeout".to_owned())),
                Weather::Offline => Err(SendError::NotSent {
                    error: "no route".to_owned(),
                    retry_after: None,
                }),
            };
            self.fuse.tick().await;
            result
        })
    }

    fn edit<'a>(&'a self, _: &'a str, _: &'a Outgoing) -> BoxFuture<'a, Result<(), SendError>> {
        Box::pin(std::future::ready(Err(SendError::Refused(
            "no edits".to_owned(),
        ))))
    }

    fn typing<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn fetch_media<'a>(
        &'a self,
        _: &'a MediaRef,
        _: &'a std::path::Path,
        _: u64,
    ) -> BoxFuture<'a, Result<std::path::PathBuf, SendError>> {
        Box::pin(std::future::ready(Err(SendError::Refused(
            "no files".to_owned(),
        ))))
    }

    fn look_up<'a>(&'a self, message: &'a Outgoing) -> BoxFuture<'a, Result<Found, SendError>> {
        Box::pin(async move {
            self.fuse.tick().await;
            let seen = self.world.seen.lock().unwrap();
            let found = seen.iter().any(|one| one.key == message.key);
            Ok(if found {
                Found::Yes(Some(format!("id-{}", message.key)))
            } else {
                Found::No
            })
        })
    }
}

/// The real ledger, in a life that can end before and after every transaction.
#[derive(Clone)]
pub(crate) struct Mortal {
    pub inner: Delivery,
    pub fuse: Fuse,
}

impl Mortal {
    async fn live<T>(&self, work: impl Future<Output = T>) -> T {
        self.fuse.tick().await;
        let done = work.await;
        self.fuse.tick().await;
        done
    }
}

impl Ledger for Mortal {
    async fn accept(&self, message: Inbound) -> Result<Accepted, StoreError> {
        self.live(self.inner.accept(message)).await
    }

    async fn waiting(&self, limit: usize) -> Result<Vec<Waiting>, StoreError> {
        self.inner.waiting(limit).await
    }

    async fn claim(&self, messages: &[i64], turn: &str) -> Result<(), StoreError> {
        self.live(self.inner.claim(messages, turn)).await
    }

    async fn finish(&self, end: Final) -> Result<usize, StoreError> {
        self.live(self.inner.finish(end)).await
    }

    async fn due(&self, reachable: Vec<(String, String)>, limit: usize) -> Result<Due, StoreError> {
        self.inner.due(reachable, limit).await
    }

    async fn begin_send(&self, seq: i64) -> Result<(), StoreError> {
        self.live(self.inner.begin_send(seq)).await
    }

    async fn settle(&self, seq: i64, settled: Settled) -> Result<(), StoreError> {
        self.live(self.inner.settle(seq, settled)).await
    }

    async fn open_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>, StoreError> {
        self.inner.open_after(after, limit).await
    }

    async fn waiting_of(
        &self,
        key: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Waiting>, StoreError> {
        self.fuse.fault("waiting_of")?;
        self.inner.waiting_of(key, after, limit).await
    }

    async fn open_messages(&self) -> Result<usize, StoreError> {
        self.inner.open_messages().await
    }

    async fn note(&self, message: i64, name: &str, value: Option<&str>) -> Result<(), StoreError> {
        self.live(self.inner.note(message, name, value)).await
    }

    async fn notes(&self, message: i64) -> Result<HashMap<String, String>, StoreError> {
        self.inner.notes(message).await
    }

    async fn progress(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> Result<Progress, StoreError> {
        self.fuse.fault("progress")?;
        self.inner.progress(session, message_id).await
    }

    async fn progress_of(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> Result<Progress, StoreError> {
        self.inner.progress_of(session, words, since).await
    }

    async fn spoken_after(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> Result<Vec<Spoken>, StoreError> {
        self.inner.spoken_after(session, message_id).await
    }

    async fn spoken_after_words(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> Result<Vec<Spoken>, StoreError> {
        self.inner.spoken_after_words(session, words, since).await
    }

    async fn is_owed(&self, target: &Target) -> Result<bool, StoreError> {
        self.inner.is_owed(target).await
    }

    async fn sent(&self, turn: &str) -> Result<Vec<String>, StoreError> {
        self.inner.sent(turn).await
    }

    async fn question(&self, id: &str) -> Result<Option<StoredQuestion>, StoreError> {
        self.inner.question(id).await
    }

    async fn questions_of(&self, key: &str) -> Result<Vec<StoredQuestion>, StoreError> {
        self.inner.questions_of(key).await
    }

    async fn answer_question(
        &self,
        id: &str,
        answer: &serde_json::Value,
    ) -> Result<bool, StoreError> {
        self.live(self.inner.answer_question(id, answer)).await
    }

    async fn reopen_question(&self, id: &str) -> Result<(), StoreError> {
        self.live(self.inner.reopen_question(id)).await
    }

    async fn foreign(&self, alive: Arc<dyn Processes>) -> Result<Vec<Foreign>, StoreError> {
        self.inner.foreign(alive).await
    }

    async fn adopt(&self, foreign: Foreign, chunks: Vec<NewChunk>) -> Result<usize, StoreError> {
        self.live(self.inner.adopt(foreign, chunks)).await
    }

    async fn heartbeat(&self) -> Result<(), StoreError> {
        self.inner.heartbeat().await
    }

    async fn prune(&self) -> Result<usize, StoreError> {
        self.live(self.inner.prune()).await
    }
}

/// Time for a lookup that is beyond every pause of the test.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
