//! A gateway, its home, and somebody who writes to it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_config::env::ProcessEnv;
use hermes_config::{Config, Env, Home};
use hermes_core::BoxFuture;
use hermes_core::task;
use hermes_gateway::GatewaySettings;
use hermes_gateway::Pairing;
use hermes_gateway::Transcriber;
use hermes_gateway::{ConversationPool, PoolLimits};
use hermes_gateway::{Gateway, GatewayCallbacks, GatewayDeps, RestartRequest};
use hermes_platforms::{
    AdapterLink, ButtonPress, Capabilities, DeliveryLookup, FatalPlatformError, InboundAdapter,
    IncomingMessage, Markup, MediaKind, MediaRef, MessageSource, OutboundAdapter, OutgoingMessage,
    Platform, PlatformLimits, Recourse, SendError, SendFuture, TextUnit,
};
use hermes_store::Store;
use hermes_store::delivery::{Delivery, Owner, Processes, Target};
use hermes_testkit::clock::{ManualClock, SeqRng};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::script::ScriptedHost;
use crate::harness::Fuse;

pub(crate) struct NoProcesses;

impl Processes for NoProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

/// What people see. It outlives every process.
#[derive(Default)]
pub(crate) struct FakeScreen {
    pub bubbles: Mutex<Vec<ShownBubble>>,
    pub notes: Mutex<Vec<String>>,
    pub drafts: Mutex<Vec<String>>,
    /// Edits that are answered with a rate limit.
    pub floods: Mutex<u32>,
    pub refuses_drafts: AtomicBool,
    pub hangs_on_delete: AtomicBool,
    /// What was sent is there, and the answer of the platform waits for this.
    pub slow_answers: Mutex<Option<Arc<tokio::sync::Notify>>>,
    /// What was put on messages; the first sign waits for this.
    pub signs: Mutex<Vec<(String, Option<String>)>>,
    pub first_sign: Mutex<Option<Arc<tokio::sync::Notify>>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShownBubble {
    pub id: String,
    pub key: String,
    pub chat: String,
    pub text: String,
    pub buttons: Vec<(String, String)>,
    pub reply_to: Option<String>,
    pub media: Option<std::path::PathBuf>,
    /// Everything that stood here before.
    pub before: Vec<String>,
    pub gone: bool,
}

impl ShownBubble {
    fn new(number: usize, message: &OutgoingMessage) -> Self {
        let buttons = message.buttons.iter().flatten();
        let buttons = buttons.map(|one| (one.label.clone(), one.data.clone()));
        Self {
            id: format!("b{number}"),
            key: message.key.clone(),
            chat: message.target.chat_id.clone(),
            text: message.text.clone(),
            buttons: buttons.collect(),
            reply_to: message.reply_to.clone(),
            media: message.media.as_ref().map(|media| media.path.clone()),
            before: Vec::new(),
            gone: false,
        }
    }
}

impl FakeScreen {
    pub(crate) fn texts(&self, chat: &str) -> Vec<String> {
        let bubbles = self.bubbles.lock().unwrap();
        let here = bubbles.iter().filter(|one| one.chat == chat && !one.gone);
        here.map(|one| one.text.clone()).collect()
    }

    pub(crate) fn find(&self, part: &str) -> Option<ShownBubble> {
        let bubbles = self.bubbles.lock().unwrap();
        bubbles
            .iter()
            .rev()
            .find(|one| one.text.contains(part))
            .cloned()
    }
}

pub(crate) struct FakePhone {
    pub screen: Arc<FakeScreen>,
    pub fuse: Fuse,
    pub capabilities: Capabilities,
}

pub(crate) fn capabilities(recourse: Recourse) -> Capabilities {
    Capabilities {
        edit: true,
        typing: true,
        threads: false,
        buttons: true,
        reactions: false,
        drafts: false,
        markup: Markup::Plain,
        limits: PlatformLimits {
            text: 1000,
            unit: TextUnit::Chars,
            file_bytes: 1_000_000,
        },
        recourse,
    }
}

impl OutboundAdapter for FakePhone {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(async move {
            self.fuse.tick().await;
            let id = {
                let mut bubbles = self.screen.bubbles.lock().unwrap();
                let idempotent = matches!(self.capabilities.recourse, Recourse::Idempotent { .. });
                let known = bubbles.iter().find(|one| one.key == message.key);
                if let Some(known) = known.filter(|_| idempotent) {
                    known.id.clone()
                } else {
                    let bubble = ShownBubble::new(bubbles.len(), message);
                    let id = bubble.id.clone();
                    bubbles.push(bubble);
                    id
                }
            };
            let slow = self.screen.slow_answers.lock().unwrap().clone();
            if let Some(slow) = slow {
                slow.notified().await;
            }
            self.fuse.tick().await;
            Ok(Some(id))
        })
    }

    fn edit<'a>(&'a self, id: &'a str, message: &'a OutgoingMessage) -> SendFuture<'a, ()> {
        Box::pin(async move {
            self.fuse.tick().await;
            {
                let mut floods = self.screen.floods.lock().unwrap();
                if *floods > 0 {
                    *floods -= 1;
                    return Err(SendError::NotSent {
                        error: "flood".to_owned(),
                        retry_after: Some(Duration::from_secs(1)),
                    });
                }
            }
            {
                let mut bubbles = self.screen.bubbles.lock().unwrap();
                let Some(bubble) = bubbles.iter_mut().find(|one| one.id == id) else {
                    return Err(SendError::Refused("no such message".to_owned()));
                };
                let old = std::mem::replace(&mut bubble.text, message.text.clone());
                bubble.before.push(old);
                let buttons = message.buttons.iter().flatten();
                let buttons = buttons.map(|one| (one.label.clone(), one.data.clone()));
                bubble.buttons = buttons.collect();
            }
            self.fuse.tick().await;
            Ok(())
        })
    }

    fn react<'a>(
        &'a self,
        _: &'a Target,
        id: &'a str,
        emoji: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let first = self.screen.first_sign.lock().unwrap().take();
            if let Some(first) = first {
                first.notified().await;
            }
            let sign = (id.to_owned(), emoji.map(str::to_owned));
            self.screen.signs.lock().unwrap().push(sign);
        })
    }

    fn delete<'a>(&'a self, _: &'a Target, id: &'a str) -> SendFuture<'a, ()> {
        if self.screen.hangs_on_delete.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        let mut bubbles = self.screen.bubbles.lock().unwrap();
        for bubble in bubbles.iter_mut().filter(|one| one.id == id) {
            bubble.gone = true;
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn draft<'a>(&'a self, _: &'a Target, _: u64, text: &'a str) -> SendFuture<'a, ()> {
        if self.screen.refuses_drafts.load(Ordering::SeqCst) {
            let refused = SendError::Refused("not in this chat".to_owned());
            return Box::pin(std::future::ready(Err(refused)));
        }
        self.screen.drafts.lock().unwrap().push(text.to_owned());
        Box::pin(std::future::ready(Ok(())))
    }

    fn pressed<'a>(&'a self, _: &'a IncomingMessage, note: Option<&'a str>) -> BoxFuture<'a, ()> {
        let note = note.unwrap_or("seen").to_owned();
        self.screen.notes.lock().unwrap().push(note);
        Box::pin(std::future::ready(()))
    }

    fn fetch_media<'a>(
        &'a self,
        media: &'a MediaRef,
        into: &'a std::path::Path,
        _: u64,
    ) -> SendFuture<'a, std::path::PathBuf> {
        Box::pin(async move {
            if media.id == "gone" {
                return Err(SendError::Refused("no such file".to_owned()));
            }
            let path = into.join(media.name.clone().unwrap_or_else(|| media.id.clone()));
            std::fs::write(&path, format!("content of {}", media.id)).unwrap();
            Ok(path)
        })
    }

    fn look_up<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, DeliveryLookup> {
        Box::pin(async move {
            self.fuse.tick().await;
            let bubbles = self.screen.bubbles.lock().unwrap();
            let found = bubbles.iter().find(|one| one.key == message.key);
            Ok(found.map_or(DeliveryLookup::No, |one| {
                DeliveryLookup::Yes(Some(one.id.clone()))
            }))
        })
    }
}

/// Hands over what people write, one after the other.
struct PhoneConnection {
    incoming: mpsc::Receiver<IncomingMessage>,
    stored: Arc<AtomicUsize>,
}

impl InboundAdapter for PhoneConnection {
    fn run(
        mut self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(async move {
            link.health.received(1.0);
            while let Some(message) = self.incoming.recv().await {
                if link.deliver(message).await {
                    self.stored.fetch_add(1, Ordering::SeqCst);
                }
            }
            link.cancel.cancelled().await;
            Ok(())
        })
    }
}

/// An account whose token no longer counts.
struct RevokedToken;

impl InboundAdapter for RevokedToken {
    fn run(self: Box<Self>, _: AdapterLink) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(std::future::ready(Err(FatalPlatformError(
            "revoked".to_owned(),
        ))))
    }
}

/// A home with its database. Gateways start and stop.
pub(crate) struct TurnHarness {
    pub dir: TempDir,
    pub clock: Arc<ManualClock>,
    pub screen: Arc<FakeScreen>,
    pub recourse: Recourse,
    pub capabilities: Capabilities,
    pub env: Vec<(&'static str, &'static str)>,
    /// What the platform is called.
    pub platform: &'static str,
    /// It has another account, whose token was revoked.
    pub revoked_sibling: bool,
    pub transcriber: Option<Arc<dyn Transcriber>>,
    lives: u32,
    /// The database as the latest process has it open.
    store: Option<Store>,
}

pub(crate) type HookEvents = Arc<Mutex<Vec<(&'static str, serde_json::Value)>>>;

/// One gateway process.
pub(crate) struct GatewayRun {
    pub gateway: Gateway,
    pub program: Arc<ScriptedHost>,
    pub screen: Arc<FakeScreen>,
    pub delivery: Delivery,
    pub store: Store,
    pub restarts: Arc<Mutex<Vec<RestartRequest>>>,
    pub happened: HookEvents,
    platform: &'static str,
    line: mpsc::Sender<IncomingMessage>,
    said: AtomicUsize,
    stored: Arc<AtomicUsize>,
    pub cancel: CancellationToken,
    ended: tokio::task::JoinHandle<Result<(), task::Panicked>>,
}

impl TurnHarness {
    pub(crate) fn new(config: &str) -> Self {
        let recourse = Recourse::Idempotent {
            window: Duration::from_hours(1),
        };
        Self::with(config, recourse)
    }

    pub(crate) fn with(config: &str, recourse: Recourse) -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("config.yaml"), config).unwrap();
        Self {
            dir,
            clock: Arc::new(ManualClock::default()),
            screen: Arc::default(),
            capabilities: capabilities(recourse),
            recourse,
            env: vec![("FAKE_ALLOW_ALL_USERS", "true")],
            transcriber: None,
            platform: "fake",
            revoked_sibling: false,
            lives: 0,
            store: None,
        }
    }

    /// Ends a process with everything in it. A process that dies takes its writer along; here the writer is a
    /// thread that outlives the runtime, so what it still has to write is waited for.
    pub(crate) fn end(&mut self, runtime: tokio::runtime::Runtime) {
        runtime.shutdown_background();
        let Some(store) = self.store.take() else {
            return;
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(store.close()).unwrap();
    }

    pub(crate) async fn life(&mut self) -> GatewayRun {
        self.life_with(Fuse::new(1_000_000)).await
    }

    pub(crate) async fn life_with(&mut self, fuse: Fuse) -> GatewayRun {
        self.lives += 1;
        self.clock.advance(Duration::from_secs(1));
        let home = Home::at(self.dir.path());
        let env = Env::from_process(&ProcessEnv::from_vars(self.env.clone()));
        let loaded = Config::load(&home, &env).unwrap();
        let settings = Arc::new(GatewaySettings::load(&home, loaded, &env).unwrap());
        let store = Store::open(self.dir.path().join("state.db"), self.clock.clone()).unwrap();
        let owner = Owner {
            pid: self.lives,
            started_at: Some(1),
            instance: format!("life {}", self.lives),
        };
        self.store = Some(store.clone());
        let lease = Duration::from_hours(100_000);
        let owned = store.own_delivery(owner, lease, Arc::new(NoProcesses));
        let (delivery, _) = owned.await.unwrap();
        let delivery = delivery.with_hook(Arc::new(fuse.clone()));
        let program = ScriptedHost::new(store.clone(), fuse.clone());
        let cancel = CancellationToken::new();
        let restarts = Arc::<Mutex<Vec<RestartRequest>>>::default();
        let asked = Arc::clone(&restarts);
        let happened = HookEvents::default();
        let heard = Arc::clone(&happened);
        let deps = GatewayDeps {
            settings,
            store: store.clone(),
            delivery: delivery.clone(),
            lease,
            pool: ConversationPool::new(program.clone(), PoolLimits::default(), cancel.clone()),
            pairing: Pairing::new(&home, self.clock.clone()),
            clock: self.clock.clone(),
            rng: Arc::new(SeqRng::new(u64::from(self.lives) << 32)),
            transcriber: self.transcriber.clone(),
            speaker: None,
            callbacks: GatewayCallbacks {
                restart: Arc::new(move |request| asked.lock().unwrap().push(request)),
                on_event: Arc::new(move |event, about| heard.lock().unwrap().push((event, about))),
                ..GatewayCallbacks::default()
            },
        };
        let gateway = Gateway::new(deps).await.unwrap();
        let (line, incoming) = mpsc::channel(64);
        let stored = Arc::<AtomicUsize>::default();
        let inbound = PhoneConnection {
            incoming,
            stored: Arc::clone(&stored),
        };
        let platforms = self.platforms(inbound, fuse);
        let (running, token) = (gateway.clone(), cancel.clone());
        let ended = task::spawn("gateway", async move {
            running.run(platforms, Vec::new(), token).await.unwrap();
        });
        GatewayRun {
            gateway,
            program,
            screen: Arc::clone(&self.screen),
            delivery,
            store,
            restarts,
            happened,
            platform: self.platform,
            line,
            said: AtomicUsize::new(0),
            stored,
            cancel,
            ended,
        }
    }
}

impl TurnHarness {
    fn platforms(&self, inbound: PhoneConnection, fuse: Fuse) -> Vec<Platform> {
        let phone = FakePhone {
            screen: Arc::clone(&self.screen),
            fuse,
            capabilities: self.capabilities.clone(),
        };
        let outbound: Arc<dyn OutboundAdapter> = Arc::new(phone);
        let one = |account: &str, inbound: Box<dyn InboundAdapter>| Platform {
            name: self.platform,
            account: account.to_owned(),
            exclusive: None,
            inbound,
            outbound: Arc::clone(&outbound),
        };
        let mut platforms = vec![one("", Box::new(inbound))];
        if self.revoked_sibling {
            platforms.push(one("other", Box::new(RevokedToken)));
        }
        platforms
    }
}

impl GatewayRun {
    /// Somebody writes.
    pub(crate) async fn say(&self, chat: &str, id: &str, text: &str) {
        self.send(incoming(chat, id, text)).await;
    }

    pub(crate) async fn send(&self, mut message: IncomingMessage) {
        if message.source.platform == "fake" {
            self.platform.clone_into(&mut message.source.platform);
        }
        self.said.fetch_add(1, Ordering::SeqCst);
        self.line.send(message).await.unwrap();
    }

    /// Somebody presses the button with this label on the latest message that has it.
    pub(crate) async fn press(&self, chat: &str, id: &str, label: &str) {
        let (bubble, data) = {
            let bubbles = self.screen.bubbles.lock().unwrap();
            let mut found = bubbles.iter().rev().filter_map(|one| {
                let button = one.buttons.iter().find(|(other, _)| other == label)?;
                Some((one.id.clone(), button.1.clone()))
            });
            found.next().expect("such a button")
        };
        self.press_data(chat, id, &data, &bubble).await;
    }

    pub(crate) async fn press_data(&self, chat: &str, id: &str, data: &str, bubble: &str) {
        let mut message = incoming(chat, id, "pressed");
        message.pressed = Some(ButtonPress {
            data: data.to_owned(),
            message_id: Some(bubble.to_owned()),
        });
        self.send(message).await;
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut(&FakeScreen) -> bool) {
        for _ in 0..60_000 {
            if is_so(&self.screen) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!(
            "{what}: {:#?} {:?}",
            self.screen.bubbles.lock().unwrap(),
            self.gateway.status()
        );
    }

    /// Waits for a text in a chat.
    pub(crate) async fn sees(&self, chat: &str, part: &str) {
        let there = |screen: &FakeScreen| screen.texts(chat).iter().any(|text| text.contains(part));
        self.until(part, there).await;
    }

    /// Whether everything that was said is stored.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored.load(Ordering::SeqCst) == self.said.load(Ordering::SeqCst)
    }

    /// Waits until everything that was said is stored, and nothing is open or owed.
    pub(crate) async fn rest(&self) {
        for _ in 0..60_000 {
            if self.stored.load(Ordering::SeqCst) < self.said.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let open = self.delivery.open_messages().await.unwrap();
            if open == 0 && self.delivery.owed(self.platform).await.unwrap() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("no rest: {:?}", self.gateway.status());
    }

    /// Ends as a process that was told to.
    pub(crate) async fn end(self) {
        self.cancel.cancel();
        self.ended.await.unwrap().unwrap();
        self.store.close().await.unwrap();
    }
}

pub(crate) fn incoming(chat: &str, id: &str, text: &str) -> IncomingMessage {
    IncomingMessage {
        account: String::new(),
        message_id: id.to_owned(),
        source: MessageSource {
            platform: "fake".to_owned(),
            chat_id: chat.to_owned(),
            chat_type: "dm".to_owned(),
            user_id: Some(format!("user of {chat}")),
            user_name: Some("Ann".to_owned()),
            ..MessageSource::default()
        },
        text: text.to_owned(),
        media: Vec::new(),
        reply_to: None,
        pressed: None,
        context: None,
        sent_at: 0.0,
        native: serde_json::Value::Null,
    }
}

pub(crate) fn file(id: &str, name: &str, kind: MediaKind) -> MediaRef {
    MediaRef {
        kind,
        id: id.to_owned(),
        name: Some(name.to_owned()),
        mime: None,
        bytes: None,
    }
}
