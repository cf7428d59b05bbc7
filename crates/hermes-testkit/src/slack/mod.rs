//! A Slack on loopback: the Web API and Socket Mode for one app in several workspaces, with the
//! faults of the real one on demand, and a record of what people see.
//!
//! It runs on a thread of its own. A test drives it by the methods here; another program drives
//! it by `POST /control` with a JSON object (see `control.rs`). Slack's own Python SDK is run
//! against it (`sdk/slack/certify.py`), so that it is what Slack is as far as that can tell.
//!
//! ```
//! use hermes_testkit::slack::FakeSlack;
//!
//! let slack = FakeSlack::start();
//! slack.add_user("T1", "U1", "alice");
//! slack.add_channel("T1", "D1", "im");
//! let ts = slack.say("T1", "D1", "U1", "hello");
//! assert_eq!(slack.messages("T1", "D1")[0]["ts"], ts);
//! ```

mod control;
mod conversation;
mod events;
mod files;
mod methods;
mod socket;
mod state;
mod web;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use events::PostedMessage;
pub use state::{EnvelopeAck, SlackCall, SlackFault, SlackUpload, SocketCut};

use crate::server_thread::{ServerThread, listen};
use state::{FakeSlackState, SocketFrame};

/// The app-level token that the server takes.
pub const APP_TOKEN: &str = "xapp-1-A1-fake";

/// The server. It stops when dropped.
pub struct FakeSlack {
    web: SocketAddr,
    shared: Arc<FakeSlackShared>,
    handle: Handle,
    _thread: ServerThread,
}

struct FakeSlackShared {
    world: Mutex<FakeSlackState>,
    /// Counts changes, for whoever waits for one.
    changes: watch::Sender<u64>,
}

impl FakeSlackShared {
    fn world(&self) -> MutexGuard<'_, FakeSlackState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the world and tells those who wait.
    fn change<T>(&self, change: impl FnOnce(&mut FakeSlackState) -> T) -> T {
        let result = change(&mut self.world());
        self.changes.send_modify(|count| *count += 1);
        result
    }
}

impl FakeSlack {
    /// Starts on free ports of loopback with the workspace `T1`, whose bot has the token
    /// `xoxb-T1` and the user id `UBOTT1`.
    pub fn start() -> Self {
        let (thread, (web, shared, handle)) =
            ServerThread::start("fake-slack", move |ready, stop| async move {
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                let (web, web_address) = listen(any).await;
                let (links, link_address) = listen(any).await;
                let shared = Arc::new(FakeSlackShared {
                    world: Mutex::new(FakeSlackState::new(web_address, link_address)),
                    changes: watch::Sender::new(0),
                });
                let started = (web_address, Arc::clone(&shared), Handle::current());
                ready.send(started).expect("the starter waits");
                tokio::join!(
                    web::accept(web, &shared, stop.clone()),
                    socket::accept(links, &shared, stop.clone()),
                    socket::retry(&shared, stop),
                );
            });
        let slack = Self {
            web,
            shared,
            handle,
            _thread: thread,
        };
        slack.add_workspace("T1");
        slack
    }

    /// What a client takes as the base of the Web API: `http://127.0.0.1:<port>/api/`.
    pub fn api_url(&self) -> String {
        format!("http://{}/api/", self.web)
    }

    /// Where `POST` takes the commands of other programs.
    pub fn control_url(&self) -> String {
        format!("http://{}/control", self.web)
    }

    /// Another workspace with the app: its bot has the token `xoxb-<team>` and the user id
    /// `UBOT<team>`.
    pub fn add_workspace(&self, team: &str) {
        self.shared.change(|world| world.add_team(team));
    }

    pub fn add_user(&self, team: &str, user: &str, name: &str) {
        self.shared
            .change(|world| world.team(team).add_user(user, name));
    }

    /// A conversation that the bot is in: `im`, `mpim`, `channel` or `group` (a private channel).
    pub fn add_channel(&self, team: &str, channel: &str, kind: &str) {
        self.shared
            .change(|world| world.team(team).add_channel(channel, kind));
    }

    /// A person writes. Returns the message's ts.
    pub fn say(&self, team: &str, channel: &str, user: &str, text: &str) -> String {
        self.say_with(&PostedMessage::new(team, channel, user, text))
    }

    /// A person writes in a thread.
    pub fn reply(&self, team: &str, channel: &str, thread: &str, user: &str, text: &str) -> String {
        self.say_with(&PostedMessage::new(team, channel, user, text).thread(thread))
    }

    pub fn say_with(&self, said: &PostedMessage) -> String {
        self.shared.change(|world| world.say(said))
    }

    /// A person writes and nothing is delivered, as while no app was connected for long.
    pub fn say_unheard(&self, said: &PostedMessage) -> String {
        self.shared.change(|world| world.post_as(said))
    }

    /// The same event as before, in a new envelope, as after an ack that got lost.
    pub fn say_again(&self, team: &str, channel: &str, ts: &str) {
        self.shared
            .change(|world| world.say_again(team, channel, ts));
    }

    /// A person presses a button of a message.
    pub fn press(&self, team: &str, channel: &str, ts: &str, action: &str, user: &str) {
        self.shared
            .change(|world| world.press(team, channel, ts, action, user));
    }

    /// A person uses a slash command.
    pub fn slash(&self, team: &str, channel: &str, user: &str, command: &str, text: &str) {
        self.shared
            .change(|world| world.slash(team, channel, user, command, text));
    }

    /// Any event, as Slack would send it.
    pub fn event(&self, team: &str, event: &Value) {
        self.shared.change(|world| world.event(team, event));
    }

    /// The next call of a method fails like this.
    pub fn fail_next(&self, method: &str, fault: SlackFault) {
        self.shared
            .change(|world| world.faults.push((method.to_owned(), fault)));
    }

    /// A token is no longer valid: the error of every call with it.
    pub fn revoke(&self, token: &str, error: &str) {
        self.shared.change(|world| {
            world.revoked.insert(token.to_owned(), error.to_owned());
        });
    }

    /// How long an envelope may go without its ack before it is sent again (at most 3 times).
    pub fn retry_after(&self, pause: Duration) {
        self.shared.change(|world| world.retry_after = pause);
    }

    /// Tells every connection to go: `warning`, `refresh_requested` or `link_disabled`.
    pub fn disconnect(&self, reason: &str) {
        self.shared.change(|world| {
            let frame = SocketFrame::Disconnect(reason.to_owned());
            world.tell_sockets(&frame);
        });
    }

    /// Ends every connection without a word.
    pub fn cut_sockets(&self) {
        self.shared.change(|world| {
            world.tell_sockets(&SocketFrame::Cut);
            world.sockets.clear();
        });
    }

    /// The connection that brings the next ack ends, before the ack counts or after.
    pub fn cut_at_next_ack(&self, cut: SocketCut) {
        self.shared.change(|world| world.cut_at_ack = Some(cut));
    }

    /// What was to fail from now on does not.
    pub fn clear_faults(&self) {
        self.shared.change(|world| {
            world.faults.clear();
            world.cut_at_ack = None;
        });
    }

    /// Whether Slack itself may have brought the second of two messages of a conversation first:
    /// the first had to be brought again, and had no ack yet when the second came.
    pub fn may_have_overtaken(&self, first: &str, second: &str) -> bool {
        let world = self.shared.world();
        let pair = (first.to_owned(), second.to_owned());
        world.repeated.contains(first) && world.overtook.contains(&pair)
    }

    /// Every connection of now goes silent, both ways, and stays open.
    pub fn freeze_sockets(&self) {
        self.shared
            .change(|world| world.tell_sockets(&SocketFrame::Freeze));
    }

    /// Whether connections are let in.
    pub fn refuse_sockets(&self, refuse: bool) {
        self.shared.change(|world| world.refuse = refuse);
    }

    /// Connections that said hello and are open, frozen ones among them.
    pub fn sockets(&self) -> usize {
        self.shared.world().sockets.len()
    }

    /// Connections ever made.
    pub fn sockets_ever(&self) -> usize {
        self.shared.world().sockets_ever
    }

    /// The messages of a conversation that people see, oldest first, those in threads included.
    pub fn messages(&self, team: &str, channel: &str) -> Vec<Value> {
        self.shared.world().visible(team, channel)
    }

    /// What the bot wrote in a conversation.
    pub fn answers(&self, team: &str, channel: &str) -> Vec<String> {
        let messages = self.messages(team, channel);
        let ours = messages.iter().filter(|one| one.get("bot_id").is_some());
        ours.map(|one| one["text"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Messages that only one person saw.
    pub fn ephemerals(&self, team: &str, channel: &str) -> Vec<Value> {
        let world = self.shared.world();
        world
            .channel(team, channel)
            .map(|channel| channel.ephemerals.clone())
            .unwrap_or_default()
    }

    /// What `assistant.threads.setStatus` said, in order.
    pub fn statuses(&self, team: &str, channel: &str) -> Vec<String> {
        let world = self.shared.world();
        world
            .channel(team, channel)
            .map(|channel| channel.statuses.clone())
            .unwrap_or_default()
    }

    pub fn uploads(&self) -> Vec<SlackUpload> {
        self.shared.world().uploads.values().cloned().collect()
    }

    pub fn calls(&self) -> Vec<SlackCall> {
        self.shared.world().calls.clone()
    }

    pub fn calls_of(&self, method: &str) -> Vec<SlackCall> {
        let mut calls = self.calls();
        calls.retain(|call| call.method == method);
        calls
    }

    pub fn acks(&self) -> Vec<EnvelopeAck> {
        self.shared.world().acks.clone()
    }

    /// Envelopes that wait for their ack or for a connection.
    pub fn unacked(&self) -> usize {
        let world = self.shared.world();
        world.unacked.len() + world.queued.len()
    }

    /// Waits until `enough` is true of the server.
    pub async fn wait_for(&self, enough: impl Fn(&Self) -> bool) {
        let mut changes = self.shared.changes.subscribe();
        while !enough(self) {
            changes.changed().await.expect("the server lives");
        }
    }

    /// The same for a test without a runtime.
    pub fn block_until(&self, enough: impl Fn(&Self) -> bool) {
        self.handle.block_on(self.wait_for(enough));
    }
}
