//! Telegram's Bot API on loopback: polling and webhooks, messages with their markup checked, files,
//! buttons, and the faults of the real one on demand.
//!
//! It is certified by python-telegram-bot and aiogram (`sdk/telegram`), which take it for the real
//! one. It runs on a thread of its own with its own clock, so that a test may pause tokio's time.
//!
//! ```
//! use hermes_testkit::telegram::{FakeTelegram, PersonMessage};
//!
//! let telegram = FakeTelegram::start();
//! telegram.person(7, "Ada");
//! telegram.say(PersonMessage::text(7, "hello"));
//! assert_eq!(telegram.pending(), 1);
//! assert!(telegram.shown(7).is_empty());
//! ```

mod answer;
mod chats;
mod control;
mod hook;
mod markup;
mod media;
mod messages;
mod params;
mod people;
mod serve;
mod state;

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use crate::server_thread::{ServerThread, listen};
pub use params::{BotParams, TelegramUpload};
pub use people::PersonMessage;
pub use state::{BotRequest, ShownMessage, StoredFile, TelegramFault};
use state::{FakeTelegramState, PlannedFault};

/// The token of the bot.
pub const TOKEN: &str = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";

/// What people see of a text with this `parse_mode`, or the refusal.
pub fn shown_text(parse_mode: &str, text: &str) -> Result<String, String> {
    let parsed = markup::parse(Some(parse_mode), text);
    parsed
        .map(|(text, _)| text)
        .map_err(|error| error.description)
}

/// The server. It stops when dropped.
pub struct FakeTelegram {
    address: SocketAddr,
    shared: Arc<FakeTelegramShared>,
    _thread: ServerThread,
}

struct FakeTelegramShared {
    world: Mutex<FakeTelegramState>,
    /// Moves with every change of the world.
    version: watch::Sender<u64>,
    refusing: watch::Sender<bool>,
    /// Whether there is a listener.
    listening: (Mutex<bool>, Condvar),
}

impl FakeTelegramShared {
    fn set_listening(&self, listening: bool) {
        let (place, changed) = &self.listening;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = listening;
        changed.notify_all();
    }

    fn world(&self) -> MutexGuard<'_, FakeTelegramState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut FakeTelegramState) -> T) -> T {
        let result = change(&mut self.world());
        self.version.send_modify(|version| *version += 1);
        result
    }
}

impl FakeTelegram {
    /// Starts on a free port of loopback. Works inside and outside a tokio runtime.
    pub fn start() -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn start_on(address: SocketAddr) -> Self {
        let shared = Arc::new(FakeTelegramShared {
            world: Mutex::new(FakeTelegramState::new(TOKEN)),
            version: watch::Sender::new(0),
            refusing: watch::Sender::new(false),
            listening: (Mutex::new(true), Condvar::new()),
        });
        let served = Arc::clone(&shared);
        let (thread, address) = ServerThread::start("telegram", move |ready, stop| async move {
            let (listener, bound) = listen(address).await;
            ready.send(bound).expect("the starter waits");
            let hook = hook::deliver(Arc::clone(&served), stop.clone());
            tokio::join!(hook, serve::accept(listener, served, stop));
        });
        Self {
            address,
            shared,
            _thread: thread,
        }
    }

    pub fn root_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What comes before the token in the address of a method: `extra.base_url`.
    pub fn base_url(&self) -> String {
        format!("http://{}/bot", self.address)
    }

    /// What comes before the token in the address of a file: `extra.base_file_url`.
    pub fn base_file_url(&self) -> String {
        format!("http://{}/file/bot", self.address)
    }

    pub fn bot_id(&self) -> i64 {
        self.shared.world().bot_id()
    }

    /// The bot's name without `@`.
    pub fn username(&self) -> String {
        self.shared.world().username().to_owned()
    }

    /// Another token is valid from now on: the old one was revoked.
    pub fn revoke(&self) {
        self.shared
            .change(|world| world.token = format!("{}:another", world.bot_id()));
    }

    /// A person who has started the bot; the private chat has the same id.
    pub fn person(&self, id: i64, name: &str) {
        self.shared.change(|world| world.add_person(id, name));
    }

    /// `kind`: `group`, `supergroup`, `channel`.
    pub fn group(&self, id: i64, title: &str, kind: &str) {
        self.shared
            .change(|world| world.add_group(id, title, kind, false));
    }

    /// A supergroup with topics; 1 is the general one, which has no number in calls.
    pub fn forum(&self, id: i64, title: &str, topics: &[(i64, &str)]) {
        self.shared.change(|world| {
            world.add_group(id, title, "supergroup", true);
            let chat = world.chats.get_mut(&id).expect("it was added");
            for (thread, name) in topics {
                chat.topics.insert(*thread, (*name).to_owned());
            }
        });
    }

    /// A person writes. Gives the id of the message.
    pub fn say(&self, says: PersonMessage) -> i64 {
        self.shared.change(|world| world.say(says))
    }

    /// A person presses a button. Gives the id of the query.
    pub fn press(&self, person: i64, chat: i64, message: i64, data: &str) -> String {
        self.shared
            .change(|world| world.press(person, chat, message, data))
    }

    /// Any update, as Telegram words it.
    pub fn update(&self, kind: &str, content: Value) -> Option<i64> {
        self.shared.change(|world| world.update(kind, content))
    }

    /// A group becomes a supergroup with another id.
    pub fn migrate(&self, from: i64, to: i64) {
        self.shared.change(|world| world.migrate(from, to));
    }

    /// The person blocks the bot, or no longer does.
    pub fn block(&self, chat: i64, blocked: bool) {
        self.shared.change(|world| {
            if let Some(chat) = world.chats.get_mut(&chat) {
                chat.blocked = blocked;
            }
        });
    }

    /// A person deletes a message.
    pub fn forget(&self, chat: i64, message: i64) {
        self.shared.change(|world| {
            world.messages.remove(&(chat, message));
        });
    }

    /// The next `times` calls of the method (`*`: of every one) go wrong. Downloads are called
    /// `download`.
    pub fn fault(&self, method: &str, fault: TelegramFault, times: usize) {
        self.plan(method, fault, Some(times));
    }

    /// Every call of the method goes wrong until [`FakeTelegram::clear_faults`].
    pub fn fault_always(&self, method: &str, fault: TelegramFault) {
        self.plan(method, fault, None);
    }

    fn plan(&self, method: &str, fault: TelegramFault, times: Option<usize>) {
        let method = (method != "*").then(|| method.to_owned());
        let planned = PlannedFault {
            method,
            fault,
            times,
        };
        self.shared.change(|world| world.faults.push(planned));
    }

    pub fn clear_faults(&self) {
        self.shared.change(|world| world.faults.clear());
    }

    /// Whether connections are refused; those that are open are cut. Returns when it is so.
    pub fn refuse(&self, refusing: bool) {
        self.shared.refusing.send_replace(refusing);
        let (listening, changed) = &self.shared.listening;
        let listening = listening.lock().unwrap_or_else(PoisonError::into_inner);
        let done = changed.wait_while(listening, |listening| *listening == refusing);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    /// A new size for a file that people sent: what the service says about it.
    pub fn claim_size(&self, file_id: &str, size: u64) {
        self.shared.change(|world| {
            if let Some(file) = world.files.get_mut(file_id) {
                file.size = size;
            }
        });
    }

    /// The bot's messages in a chat that are there now, oldest first.
    pub fn shown(&self, chat: i64) -> Vec<ShownMessage> {
        self.shared.world().shown(chat)
    }

    /// The texts of them.
    pub fn texts(&self, chat: i64) -> Vec<String> {
        let shown = self.shown(chat);
        shown.into_iter().map(|message| message.text).collect()
    }

    /// Updates that no offset confirmed yet.
    pub fn pending(&self) -> usize {
        self.shared.world().updates.len()
    }

    pub fn requests(&self) -> Vec<BotRequest> {
        self.shared.world().requests.clone()
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> usize {
        let world = self.shared.world();
        let calls = world.requests.iter();
        calls.filter(|request| request.method == method).count()
    }

    /// The bot's signs on a message.
    pub fn reactions(&self, chat: i64, message: i64) -> Vec<String> {
        let world = self.shared.world();
        world
            .reactions
            .get(&(chat, message))
            .cloned()
            .unwrap_or_default()
    }

    /// Drafts so far: chat, draft, text.
    pub fn drafts(&self) -> Vec<(i64, i64, String)> {
        self.shared.world().drafts.clone()
    }

    /// Chat actions so far: chat, thread, action.
    pub fn actions(&self) -> Vec<(i64, Option<i64>, String)> {
        self.shared.world().actions.clone()
    }

    /// What the person who pressed was told. `None`: nothing yet, the button still spins.
    pub fn callback_answer(&self, query: &str) -> Option<Value> {
        self.shared.world().callbacks.get(query).cloned().flatten()
    }

    /// The menu for a scope: `default`, `all_private_chats`, `all_group_chats`.
    pub fn commands(&self, scope: &str) -> Option<Value> {
        self.shared.world().commands.get(scope).cloned()
    }

    /// Polls bring nothing and return at once, whatever waits.
    pub fn deaf(&self, deaf: bool) {
        self.shared.change(|world| world.deaf = deaf);
    }

    /// A webhook is set, by some other program.
    pub fn set_webhook(&self, url: &str) {
        self.shared
            .change(|world| url.clone_into(&mut world.webhook.url));
    }

    /// The address of the webhook; empty: none.
    pub fn webhook(&self) -> String {
        self.shared.world().webhook.url.clone()
    }

    /// Waits until the world is as it should be.
    pub async fn wait_for(&self, ready: impl Fn(&Self) -> bool) {
        let mut changed = self.shared.version.subscribe();
        while !ready(self) {
            changed
                .changed()
                .await
                .expect("the server outlives its handle");
        }
    }
}
