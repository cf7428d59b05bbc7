//! State shared by all chats.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::clock::{Clock, Rng};
use hermes_core::store::StoreError;
use hermes_platforms::{
    Capabilities, Markup, Offer, OutboundAdapter, PlatformCondition, PlatformLimits,
    PlatformSettings, Recourse, ReplyMode, TextUnit,
};
use hermes_store::Store;
use hermes_store::delivery::{Delivery, Final, NewChunk, Processes, Target};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::admission::CurrentVariables;
use super::side_work::SideWork;
use super::{media_in, media_out};
use crate::authorize::pairing::Pairing;
use crate::conversation_pool::ConversationPool;
use crate::delivery::{ChunkExtras, Outbox, OutboxPolicy};
use crate::gateway::{GatewayCallbacks, GatewayDeps, GatewayStatus, PlatformStatus};
use crate::render::pieces;
use crate::session::SessionIndex;
use crate::settings::GatewaySettings;
use crate::voice::{HomeSynthesizer, Transcriber};

/// Default limit of concurrent turns.
const DEFAULT_MAX_TURNS: usize = 64;
/// Capabilities of a missing platform: conservative, so that texts fit anywhere.
const FALLBACK_CAPABILITIES: Capabilities = Capabilities {
    edit: false,
    typing: false,
    threads: false,
    buttons: false,
    reactions: false,
    drafts: false,
    markup: Markup::Plain,
    limits: PlatformLimits {
        text: 2000,
        unit: TextUnit::Utf16,
        file_bytes: 8 << 20,
    },
    recourse: Recourse::Mark,
};
/// Maximum number of conversations kept open by idle chats.
const MAX_IDLE_CONVERSATIONS: usize = 32;
const STORE_RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct GatewayShared {
    pub(crate) settings: Arc<GatewaySettings>,
    pub(crate) store: Store,
    pub(crate) delivery: Delivery,
    pub(crate) index: SessionIndex,
    pub(crate) pool: ConversationPool,
    pub(crate) pairing: Pairing,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) transcriber: Option<Arc<dyn Transcriber>>,
    pub(crate) speaker: Option<Arc<HomeSynthesizer>>,
    pub(crate) callbacks: GatewayCallbacks,
    pub(crate) outbox: Outbox,
    /// Wakes the outbox.
    pub(crate) wake: Notify,
    /// Wakes the runner: a message was stored.
    pub(crate) arrived: Notify,
    /// Chats with running tasks.
    pub(crate) chats: Mutex<HashMap<String, Arc<ChatHandle>>>,
    /// One permit per concurrent turn.
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) active: AtomicUsize,
    /// The chats of those turns, by turn.
    working: Mutex<HashMap<String, Target>>,
    /// Notified when a turn ends.
    pub(crate) ended: Notify,
    /// Work for messages outside of their chats' tasks.
    pub(super) side_work: SideWork,
    draining: AtomicBool,
    /// Makes the runner check all chats again.
    pub(super) again: AtomicBool,
    /// Permits for conversations that stay open after their last turn.
    pub(crate) lingering: Arc<Semaphore>,
    pub(super) variables: CurrentVariables,
    /// Open questions, and what to notify when one is answered.
    questions: Mutex<HashMap<String, Arc<Notify>>>,
    /// Home channels set at run time.
    pub(super) homes: Mutex<HashMap<String, (String, Option<String>)>>,
    platforms: Mutex<BTreeMap<(String, String), RegisteredPlatform>>,
}

struct RegisteredPlatform {
    condition: watch::Receiver<PlatformCondition>,
    paused: watch::Sender<bool>,
}

/// A handle to the task of a chat.
#[derive(Default)]
pub(crate) struct ChatHandle {
    pub(crate) notify: Notify,
    /// A message arrived since the last check. Changed only under the lock of the map.
    pub(crate) dirty: AtomicBool,
    pub(crate) queued: AtomicUsize,
}

impl GatewayShared {
    pub(crate) fn new(deps: GatewayDeps, index: SessionIndex) -> Self {
        let turns = deps
            .settings
            .max_sessions
            .unwrap_or(DEFAULT_MAX_TURNS)
            .max(1);
        let variables = CurrentVariables::new(&deps.settings);
        let outbox = Outbox::new(
            deps.delivery.clone(),
            Arc::clone(&deps.clock),
            Arc::clone(&deps.rng),
            OutboxPolicy::default(),
        );
        Self {
            settings: deps.settings,
            store: deps.store,
            delivery: deps.delivery,
            index,
            pool: deps.pool,
            pairing: deps.pairing,
            clock: deps.clock,
            rng: deps.rng,
            transcriber: deps.transcriber,
            speaker: deps.speaker,
            callbacks: deps.callbacks,
            outbox,
            wake: Notify::new(),
            arrived: Notify::new(),
            chats: Mutex::default(),
            turns: Arc::new(Semaphore::new(turns)),
            active: AtomicUsize::new(0),
            working: Mutex::default(),
            ended: Notify::new(),
            side_work: SideWork::default(),
            draining: AtomicBool::new(false),
            again: AtomicBool::new(false),
            lingering: Arc::new(Semaphore::new(MAX_IDLE_CONVERSATIONS)),
            variables,
            questions: Mutex::default(),
            homes: Mutex::default(),
            platforms: Mutex::default(),
        }
    }

    /// Imports undelivered replies of the original, for configured platforms.
    pub(crate) async fn adopt(&self, processes: Arc<dyn Processes>) {
        let found = match self.delivery.foreign(processes).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("replies that the other program left: {error}");
                return;
            }
        };
        for foreign in found {
            let target = &foreign.target;
            if self
                .outbox
                .platform(&target.platform, &target.account)
                .is_none()
            {
                continue;
            }
            let chunks = self.chunks(target, &foreign.text);
            if let Err(error) = self.delivery.adopt(foreign, chunks).await {
                tracing::warn!("a reply that the other program left: {error}");
            }
        }
        self.wake.notify_one();
    }

    /// Splits a text into the chunks to send.
    pub(crate) fn chunks(&self, target: &Target, text: &str) -> Vec<NewChunk> {
        let capabilities = self.capabilities(target);
        let pieces = pieces(text, &capabilities).into_iter();
        pieces.map(|text| NewChunk { text, extra: None }).collect()
    }

    /// The same for a text that may name files.
    pub(crate) fn chunks_with_files(&self, target: &Target, text: &str) -> Vec<NewChunk> {
        let parted = media_out::split_files(text, &self.media_guard(target));
        let mut chunks = self.chunks(target, &parted.text);
        chunks.extend(parted.media.into_iter().map(|media| {
            let extra = ChunkExtras {
                media: Some(media),
                ..ChunkExtras::default()
            };
            NewChunk {
                text: String::new(),
                extra: serde_json::to_value(extra).ok(),
            }
        }));
        chunks
    }

    /// Stores the end of a turn. Retries until it succeeds, another process has taken over, or the
    /// gateway stops.
    pub(crate) async fn settle(&self, end: Final, cancel: &CancellationToken) -> bool {
        loop {
            match self.delivery.finish(end.clone()).await {
                Ok(_) => {
                    self.wake.notify_one();
                    return true;
                }
                Err(
                    error @ (StoreError::NotOwner { .. }
                    | StoreError::Ended(_)
                    | StoreError::Invalid(_)),
                ) => {
                    tracing::error!(turn = end.turn, "the end of a turn: {error}");
                    return false;
                }
                Err(error) => tracing::error!(turn = end.turn, "the end of a turn: {error}"),
            }
            tokio::select! {
                () = cancel.cancelled() => return false,
                () = tokio::time::sleep(STORE_RETRY_PAUSE) => {}
            }
        }
    }

    /// Claims messages for a turn. `false`: not possible.
    pub(super) async fn claim(
        &self,
        messages: &[i64],
        turn: &str,
        cancel: &CancellationToken,
    ) -> bool {
        loop {
            match self.delivery.claim(messages, turn).await {
                Ok(()) => return true,
                Err(
                    error @ (StoreError::NotOwner { .. }
                    | StoreError::Ended(_)
                    | StoreError::Invalid(_)),
                ) => {
                    tracing::error!(turn, "taking messages: {error}");
                    return false;
                }
                Err(error) => tracing::error!(turn, "taking messages: {error}"),
            }
            tokio::select! {
                () = cancel.cancelled() => return false,
                () = tokio::time::sleep(STORE_RETRY_PAUSE) => {}
            }
        }
    }

    /// Which files may be sent to a target.
    pub(super) fn media_guard(&self, target: &Target) -> media_out::MediaGuard {
        let gateway = &self.settings.config.gateway;
        let recent = Duration::from_secs(gateway.trust_recent_files_seconds);
        let dirs = gateway.media_delivery_allow_dirs.iter();
        media_out::MediaGuard {
            home: self.settings.home.root().to_owned(),
            profiles: self.settings.home.profiles_root().to_owned(),
            user_home: self.settings.var("HOME").map(Into::into),
            max_bytes: self.capabilities(target).limits.file_bytes,
            strict: gateway.strict.then(|| media_out::StrictMediaRules {
                dirs: dirs
                    .map(|dir| self.settings.home.expand_user(dir))
                    .collect(),
                recent: gateway.trust_recent_files.then_some(recent),
            }),
        }
    }

    pub(crate) fn status(&self) -> GatewayStatus {
        let platforms = self.platforms();
        let platforms = platforms
            .iter()
            .map(|((name, account), one)| PlatformStatus {
                name: name.clone(),
                account: account.clone(),
                condition: one.condition.borrow().clone(),
            });
        let chats = self.chats();
        GatewayStatus {
            platforms: platforms.collect(),
            active_turns: self.active.load(Ordering::Relaxed),
            queued: chats
                .values()
                .map(|chat| chat.queued.load(Ordering::Relaxed))
                .sum(),
            chats: chats.len(),
            conversations: self.pool.open(),
            draining: self.is_draining(),
        }
    }
}

impl GatewayShared {
    pub(crate) fn chats(&self) -> MutexGuard<'_, HashMap<String, Arc<ChatHandle>>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.chats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn platforms(&self) -> MutexGuard<'_, BTreeMap<(String, String), RegisteredPlatform>> {
        self.platforms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a platform. The returned switch pauses it.
    pub(crate) fn register(
        &self,
        name: &str,
        account: &str,
        condition: watch::Receiver<PlatformCondition>,
    ) -> watch::Receiver<bool> {
        let (paused, switch) = watch::channel(false);
        let row = RegisteredPlatform { condition, paused };
        let account_key = (name.to_owned(), account.to_owned());
        self.platforms().insert(account_key, row);
        switch
    }

    /// Marks a chat as having a running turn; `None`: it has ended.
    pub(super) fn set_working(&self, turn: &str, target: Option<&Target>) {
        let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        match target {
            Some(target) => working.insert(turn.to_owned(), target.clone()),
            None => working.remove(turn),
        };
    }

    /// The chats in which turns run.
    pub(super) fn working(&self) -> Vec<Target> {
        let working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        working.values().cloned().collect()
    }

    pub(super) fn first_account(&self, platform: &str) -> Option<String> {
        let platforms = self.platforms();
        let mut names = platforms.keys().filter(|(name, _)| name == platform);
        names.next().map(|(_, account)| account.clone())
    }

    /// Pauses or resumes all accounts of a platform. `false`: unknown platform.
    pub(crate) fn pause(&self, name: &str, paused: bool) -> bool {
        let platforms = self.platforms();
        let mut found = false;
        for (_, one) in platforms.iter().filter(|((other, _), _)| other == name) {
            one.paused.send_replace(paused);
            found = true;
        }
        found
    }

    /// Pauses one account.
    pub(crate) fn pause_account(&self, name: &str, account: &str) {
        let account_key = (name.to_owned(), account.to_owned());
        if let Some(one) = self.platforms().get(&account_key) {
            one.paused.send_replace(true);
        }
    }

    pub(crate) fn drain(&self) {
        self.hold(true);
    }

    pub(crate) fn hold(&self, held: bool) {
        self.draining.store(held, Ordering::SeqCst);
        if !held {
            self.again.store(true, Ordering::SeqCst);
            self.arrived.notify_one();
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Returns when no turn runs.
    pub(crate) async fn quiet(&self) {
        loop {
            let ended = self.ended.notified();
            if self.active.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }

    pub(crate) fn platform(&self, name: &str) -> Option<&PlatformSettings> {
        self.settings.platform(name)
    }

    /// Commands for menus and `/help`.
    pub(crate) fn commands(&self) -> Vec<Offer> {
        let mut offers = super::chat::offers(self.pool.host().commands());
        let quick = super::chat::quick_offers(&self.settings).into_iter();
        let new = quick.filter(|one| offers.iter().all(|known| known.name != one.name));
        let new = new.collect::<Vec<_>>();
        offers.extend(new);
        offers
    }

    /// Deletes old files that were fetched for messages.
    pub(crate) fn sweep_files(&self) {
        media_in::sweep(&self.settings.home.cache_dir());
    }

    /// Registers an open question, with what to notify when its answer is stored; `None` removes
    /// it.
    pub(super) fn register_question(&self, id: &str, bell: Option<&Arc<Notify>>) {
        let mut questions = self.questions();
        match bell {
            Some(bell) => questions.insert(id.to_owned(), Arc::clone(bell)),
            None => questions.remove(id),
        };
    }

    /// Questions that turns wait for.
    pub(super) fn open_question_ids(&self) -> Vec<String> {
        self.questions().keys().cloned().collect()
    }

    pub(super) fn is_question_open(&self, id: &str) -> bool {
        self.questions().contains_key(id)
    }

    /// Notifies the chat that asked. `false`: no turn waits for it now.
    pub(super) fn notify_question(&self, id: &str) -> bool {
        let bell = self.questions().get(id).cloned();
        if let Some(bell) = &bell {
            bell.notify_one();
        }
        bell.is_some()
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether only admins may approve what the agent asks.
    pub(super) fn admins_decide(&self) -> bool {
        let set = self.settings.tree.pointer("/approvals/admin_only");
        set.and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Whether a part of an answer refers to the message that it answers.
    pub(super) fn reply_to(&self, target: &Target, part: usize) -> bool {
        let set = self
            .platform(&target.platform)
            .map(|platform| platform.reply_to);
        match set.unwrap_or_default() {
            ReplyMode::Off => false,
            ReplyMode::First => part == 0,
            ReplyMode::All => true,
        }
    }
}

impl GatewayShared {
    pub(crate) fn outbound(&self, target: &Target) -> Option<Arc<dyn OutboundAdapter>> {
        self.outbox.platform(&target.platform, &target.account)
    }

    pub(crate) fn capabilities(&self, target: &Target) -> Capabilities {
        self.outbound(target)
            .map_or(FALLBACK_CAPABILITIES, |outbound| {
                outbound.capabilities().clone()
            })
    }
}

/// A reaction that is being set.
pub(super) type ReactionTask = JoinHandle<Result<(), hermes_core::task::Panicked>>;

/// Sets a reaction in the background, after the one `before` it is done.
pub(super) fn react(
    outbound: Arc<dyn OutboundAdapter>,
    target: Target,
    message: String,
    emoji: Option<&'static str>,
    before: Option<ReactionTask>,
) -> ReactionTask {
    let work = async move {
        if let Some(before) = before {
            let _ = before.await;
        }
        let react = outbound.react(&target, &message, emoji);
        let _ = tokio::time::timeout(Duration::from_secs(10), react).await;
    };
    hermes_core::task::spawn("reaction", work)
}
