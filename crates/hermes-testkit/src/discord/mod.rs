//! Discord on loopback: REST v10 and the gateway's socket, with faults.
//!
//! A client is told everything that Discord would tell it (rate limits, sequence numbers, the
//! close codes of a wrong token) and is refused what Discord refuses (2001 characters, an
//! interaction answered after three seconds). What people see stays: [`FakeDiscord::messages`].
//! That it behaves as clients expect is checked by discord.py (`sdk/discord`).
//!
//! It runs on a thread of its own, so that a test may pause its time.

mod commands;
mod control;
mod faults;
mod gateway;
mod messages;
mod multipart;
mod rest;
mod state;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use faults::{DiscordFault, DiscordFaultKind};
pub use state::{BOT, DiscordRequest, GUILD, SocketRecord, TOKEN};

use crate::server_thread::{ServerThread, accept, listen};
use messages::MessageDraft;
use multipart::MultipartPart;
use state::{FakeDiscordState, SocketCommand};

/// A running Discord; it ends when it is dropped.
pub struct FakeDiscord {
    shared: Arc<FakeDiscordShared>,
    _thread: ServerThread,
}

/// What tests say and ask. Everything here is what a person or Discord does.
pub struct FakeDiscordShared {
    world: Mutex<FakeDiscordState>,
    changes: watch::Sender<u64>,
    rest: SocketAddr,
    gateway: SocketAddr,
}

impl FakeDiscord {
    pub fn start() -> Self {
        Self::start_on(0)
    }

    /// REST on this port of loopback (0: any), the socket on another one.
    pub fn start_on(port: u16) -> Self {
        let (thread, shared) = ServerThread::start("fake-discord", move |ready, stop| async move {
            let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
            let (rest, rest_address) = listen(local(port)).await;
            let (gateway, gateway_address) = listen(local(0)).await;
            let shared = Arc::new(FakeDiscordShared {
                world: Mutex::new(FakeDiscordState::new()),
                changes: watch::Sender::new(0),
                rest: rest_address,
                gateway: gateway_address,
            });
            ready.send(Arc::clone(&shared)).expect("the starter waits");
            tokio::join!(
                // A client that vanishes is no fault of ours.
                accept("fake-discord-rest", rest, stop.clone(), |stream| {
                    rest::serve(stream, Arc::clone(&shared)).map(drop)
                }),
                accept("fake-discord-socket", gateway, stop, |stream| {
                    gateway::serve(stream, Arc::clone(&shared))
                }),
            );
        });
        Self {
            shared,
            _thread: thread,
        }
    }
}

impl Deref for FakeDiscord {
    type Target = FakeDiscordShared;

    fn deref(&self) -> &FakeDiscordShared {
        &self.shared
    }
}

impl FakeDiscordShared {
    fn world(&self) -> MutexGuard<'_, FakeDiscordState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// `http://127.0.0.1:<port>`: where uploads are fetched.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.rest)
    }

    /// What stands for `https://discord.com/api/v10`.
    pub fn api_url(&self) -> String {
        format!("http://{}/api/v10", self.rest)
    }

    /// What stands for `wss://gateway.discord.gg`.
    pub fn gateway_url(&self) -> String {
        let host = self.world().host.clone();
        format!("ws://{host}:{}", self.gateway.port())
    }

    /// From now on the socket is said to be at this host: for clients that go through a proxy.
    pub fn call_host(&self, host: &str) {
        host.clone_into(&mut self.world().host);
    }

    /// The port of REST.
    pub fn port(&self) -> u16 {
        self.rest.port()
    }

    /// A person, made when nobody has that name.
    pub fn user(&self, name: &str, bot: bool) -> u64 {
        self.world().user(name, bot)
    }

    /// Gives a person a role in the server.
    pub fn grant(&self, user: u64, role: u64) {
        if let Some(user) = self.world().users.get_mut(&user) {
            user.roles.push(role);
        }
    }

    /// A new text channel of the server.
    pub fn channel(&self, name: &str) -> u64 {
        self.world().channel(0, name, None)
    }

    /// A new thread.
    pub fn thread(&self, parent: u64, name: &str) -> u64 {
        self.world().channel(11, name, Some(parent))
    }

    /// The direct channel of a person with the bot.
    pub fn direct(&self, user: u64) -> u64 {
        self.world().direct(user)
    }

    /// The bot may not read or write here.
    pub fn lock(&self, channel: u64) {
        if let Some(channel) = self.world().channels.get_mut(&channel) {
            channel.locked = true;
        }
    }

    /// Somebody says something.
    pub fn say(&self, channel: u64, user: u64, text: &str) -> u64 {
        self.says(channel, user, &json!({"content": text}), Vec::new())
    }

    /// Somebody answers a message.
    pub fn reply(&self, channel: u64, user: u64, text: &str, to: u64) -> u64 {
        let body = json!({"content": text, "message_reference": {"message_id": to.to_string()}});
        self.says(channel, user, &body, Vec::new())
    }

    /// Somebody sends a file.
    pub fn upload(&self, channel: u64, user: u64, text: &str, name: &str, bytes: &[u8]) -> u64 {
        let file = MultipartPart {
            name: "files[0]".to_owned(),
            file: Some(name.to_owned()),
            kind: Some("application/octet-stream".to_owned()),
            bytes: bytes.to_vec(),
        };
        self.says(channel, user, &json!({"content": text}), vec![file])
    }

    fn says(&self, channel: u64, user: u64, body: &Value, files: Vec<MultipartPart>) -> u64 {
        let draft = MessageDraft {
            author: user,
            channel,
            body: body.clone(),
            files,
            base: self.root_url(),
            interaction: None,
        };
        let posted = messages::post(&mut self.world(), &draft);
        self.changed();
        posted.unwrap_or_else(|_| panic!("not a message: {body}"))
    }

    /// The same message is announced once more, under a new sequence number.
    pub fn announce_again(&self, message: u64) {
        messages::announce(&mut self.world(), message);
    }

    /// Somebody types a registered command.
    pub fn slash(&self, channel: u64, user: u64, name: &str, options: &Value) -> u64 {
        commands::slash(&mut self.world(), channel, user, name, options)
    }

    /// Somebody presses a button.
    pub fn press(&self, message: u64, user: u64, custom_id: &str) -> u64 {
        commands::press(&mut self.world(), message, user, custom_id)
    }

    /// What everybody in a channel sees, oldest first.
    pub fn messages(&self, channel: u64) -> Vec<Value> {
        let world = self.world();
        let here = world.messages.values();
        here.filter(|one| one.channel == channel && !one.ephemeral)
            .map(|one| one.value.clone())
            .collect()
    }

    /// What the bot said in a channel, oldest first.
    pub fn said(&self, channel: u64) -> Vec<String> {
        let world = self.world();
        let here = world.messages.values();
        here.filter(|one| one.channel == channel && one.author == BOT && !one.ephemeral)
            .map(|one| one.value["content"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The kind of the answer to an interaction, and the text of what it made.
    pub fn answer(&self, interaction: u64) -> Option<(u64, Option<String>)> {
        let world = self.world();
        let kind = world.interactions.get(&interaction)?.answered?;
        let made = world
            .messages
            .values()
            .find(|one| one.interaction == Some(interaction))
            .and_then(|one| one.value["content"].as_str().map(str::to_owned));
        Some((kind, made))
    }

    pub fn commands(&self) -> Vec<Value> {
        self.world().commands.clone()
    }

    pub fn requests(&self) -> Vec<DiscordRequest> {
        self.world().requests.clone()
    }

    /// What came over sockets, all of them together.
    pub fn spoken(&self) -> Vec<SocketRecord> {
        self.world().spoken.clone()
    }

    pub fn fail(&self, fault: DiscordFault) {
        self.world().faults.push(fault);
    }

    /// What was to fail from now on does not.
    pub fn clear_faults(&self) {
        self.world().faults.clear();
    }

    /// From now on a bucket takes so many requests within a window.
    pub fn limit(&self, count: u32, window: Duration) {
        let mut world = self.world();
        world.limits.count = count;
        world.limits.window = window;
    }

    /// For sockets that connect from now on.
    pub fn heartbeat(&self, every: Duration) {
        self.world().heartbeat_ms = every.as_millis() as u64;
    }

    /// The token is another one now.
    pub fn revoke_token(&self) {
        "revoked".clone_into(&mut self.world().token);
    }

    /// These intents are switched off in the developer portal.
    pub fn disallow(&self, intents: u64) {
        self.world().disallowed = intents;
    }

    /// Nothing can be reached; sockets that are open break.
    pub fn offline(&self, on: bool) {
        self.world().offline = on;
        if on {
            self.cut_sockets();
        }
    }

    /// Sockets end without a word; their sessions can be resumed.
    pub fn cut_sockets(&self) {
        self.tell(|| SocketCommand::Cut);
    }

    /// Sockets stay open, and nothing comes or goes any more.
    pub fn zombie(&self) {
        self.tell(|| SocketCommand::Die);
    }

    pub fn close_sockets(&self, code: u16) {
        self.tell(|| SocketCommand::Close(code));
    }

    /// Opcode 7.
    pub fn ask_to_reconnect(&self) {
        self.tell(|| SocketCommand::Frame(json!({"op": 7, "d": null, "s": null, "t": null})));
    }

    /// Opcode 9. Sessions that cannot be resumed are forgotten.
    pub fn invalidate(&self, resumable: bool) {
        self.tell(|| SocketCommand::Frame(json!({"op": 9, "d": resumable, "s": null, "t": null})));
        if !resumable {
            self.forget_sessions();
        }
    }

    /// No session can be resumed any more.
    pub fn forget_sessions(&self) {
        self.world().sessions.clear();
    }

    fn tell(&self, order: impl Fn() -> SocketCommand) {
        let world = self.world();
        for socket in world
            .sessions
            .values()
            .filter_map(|one| one.socket.as_ref())
        {
            // One that has ended needs no order.
            let _ = socket.send(order());
        }
    }

    /// Waits until it is so.
    pub async fn until(&self, so: impl Fn(&Self) -> bool) {
        let mut changes = self.changes.subscribe();
        while !so(self) {
            changes.changed().await.expect("the fake runs");
        }
    }
}
