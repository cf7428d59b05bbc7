//! What the fake Slack knows.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tokio::sync::mpsc;

/// How a call of the Web API goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlackFault {
    /// 429 with `Retry-After` in seconds.
    RateLimited(u64),
    /// This status, with a body that is not JSON.
    Status(u16),
    /// `{"ok": false, "error": …}`.
    Error(String),
    /// The request is read and not done, and the connection ends with a reset.
    CutBefore,
    /// The request is read and done, and the connection ends with a reset.
    CutAfter,
    /// The request is read and not done, and no answer ever comes.
    HangBefore,
    /// The request is read and done, and no answer ever comes.
    HangAfter,
}

/// When a connection ends around an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketCut {
    /// The ack is lost.
    Before,
    After,
}

/// A call of the Web API that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct SlackCall {
    pub method: String,
    pub token: String,
    pub args: Value,
}

/// An acknowledgement that came.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvelopeAck {
    pub envelope_id: String,
    /// `events_api`, `interactive`, `slash_commands`.
    pub kind: String,
    /// What the ack carried.
    pub payload: Value,
}

/// A file that the app sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SlackUpload {
    pub id: String,
    pub team: String,
    pub name: String,
    pub length: usize,
    pub bytes: Option<Vec<u8>>,
    /// Whether it was completed.
    pub complete: bool,
}

#[derive(Clone, Debug)]
pub(super) enum SocketFrame {
    Text(String),
    Disconnect(String),
    Freeze,
    Cut,
}

pub(super) struct FakeSocket {
    pub id: u64,
    pub frames: mpsc::Sender<SocketFrame>,
    /// Open, and nobody is there.
    pub frozen: bool,
}

/// Something for the app that has no ack yet.
#[derive(Clone, Debug)]
pub(super) struct FakeEnvelope {
    pub kind: &'static str,
    pub payload: Value,
    pub retry: u32,
}

pub(super) struct SentEnvelope {
    pub envelope: FakeEnvelope,
    pub at: Instant,
    /// The connection that it went to.
    pub socket: u64,
}

pub(super) struct FakeSlackState {
    pub web: SocketAddr,
    pub links: SocketAddr,
    pub teams: BTreeMap<String, FakeTeam>,
    pub tickets: BTreeSet<String>,
    pub sockets: Vec<FakeSocket>,
    pub sockets_ever: usize,
    pub refuse: bool,
    pub queued: VecDeque<FakeEnvelope>,
    pub unacked: HashMap<String, SentEnvelope>,
    pub acks: Vec<EnvelopeAck>,
    pub calls: Vec<SlackCall>,
    pub faults: Vec<(String, SlackFault)>,
    pub revoked: HashMap<String, String>,
    pub uploads: BTreeMap<String, SlackUpload>,
    pub retry_after: Duration,
    /// The connection that brings the next ack ends: before the ack counts, or after.
    pub cut_at_ack: Option<SocketCut>,
    /// Messages that were brought while an earlier one had no ack: that one, then this one.
    pub overtook: BTreeSet<(String, String)>,
    /// Messages that were brought more than once.
    pub repeated: BTreeSet<String>,
    /// Events by team, channel and ts, to send them again.
    pub said: HashMap<(String, String, String), Value>,
    last_ts: u64,
    counter: u64,
}

pub(super) struct FakeTeam {
    pub id: String,
    pub token: String,
    pub bot_user: String,
    pub bot_id: String,
    pub users: BTreeMap<String, String>,
    pub channels: BTreeMap<String, FakeSlackChannel>,
    /// Files that people sent: id, then content.
    pub files: BTreeMap<String, (Value, Vec<u8>)>,
}

pub(super) struct FakeSlackChannel {
    pub kind: String,
    /// Slack's message objects, oldest first.
    pub messages: Vec<Value>,
    pub ephemerals: Vec<Value>,
    pub statuses: Vec<String>,
}

impl FakeSlackState {
    pub(super) fn new(web: SocketAddr, links: SocketAddr) -> Self {
        Self {
            web,
            links,
            teams: BTreeMap::new(),
            tickets: BTreeSet::new(),
            sockets: Vec::new(),
            sockets_ever: 0,
            refuse: false,
            queued: VecDeque::new(),
            unacked: HashMap::new(),
            acks: Vec::new(),
            calls: Vec::new(),
            faults: Vec::new(),
            revoked: HashMap::new(),
            uploads: BTreeMap::new(),
            retry_after: Duration::from_secs(3),
            cut_at_ack: None,
            overtook: BTreeSet::new(),
            repeated: BTreeSet::new(),
            said: HashMap::new(),
            last_ts: 0,
            counter: 0,
        }
    }

    pub(super) fn add_team(&mut self, id: &str) {
        let bot_user = format!("UBOT{id}");
        let users = BTreeMap::from([(bot_user.clone(), "hermes".to_owned())]);
        let team = FakeTeam {
            id: id.to_owned(),
            token: format!("xoxb-{id}"),
            bot_user,
            bot_id: format!("B{id}"),
            users,
            channels: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        self.teams.insert(id.to_owned(), team);
    }

    pub(super) fn team(&mut self, id: &str) -> &mut FakeTeam {
        self.teams
            .get_mut(id)
            .unwrap_or_else(|| panic!("no workspace {id}"))
    }

    pub(super) fn team_of(&self, token: &str) -> Option<&FakeTeam> {
        self.teams.values().find(|team| team.token == token)
    }

    pub(super) fn channel(&self, team: &str, channel: &str) -> Option<&FakeSlackChannel> {
        self.teams.get(team)?.channels.get(channel)
    }

    pub(super) fn visible(&self, team: &str, channel: &str) -> Vec<Value> {
        self.channel(team, channel)
            .map(|channel| channel.messages.clone())
            .unwrap_or_default()
    }

    /// A number of its own, for ids.
    pub(super) fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// A ts of its own: time, and always later than the one before.
    pub(super) fn next_ts(&mut self) -> String {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_micros() as u64);
        self.last_ts = now.max(self.last_ts + 1);
        format!(
            "{}.{:06}",
            self.last_ts / 1_000_000,
            self.last_ts % 1_000_000
        )
    }

    pub(super) fn take_fault(&mut self, method: &str) -> Option<SlackFault> {
        let at = self.faults.iter().position(|(name, _)| name == method)?;
        Some(self.faults.remove(at).1)
    }

    pub(super) fn tell_sockets(&mut self, frame: &SocketFrame) {
        self.sockets.retain_mut(|socket| {
            socket.frozen |= matches!(frame, SocketFrame::Freeze);
            socket.frames.try_send(frame.clone()).is_ok()
        });
    }

    /// To one connection, as Slack does, or later to the next one.
    pub(super) fn deliver(&mut self, envelope: FakeEnvelope) {
        self.queued.push_back(envelope);
        self.flush();
    }

    pub(super) fn flush(&mut self) {
        while !self.sockets.is_empty() {
            let Some(envelope) = self.queued.pop_front() else {
                return;
            };
            let number = self.number();
            let id = format!("00000000-0000-4000-8000-{number:012x}");
            let text = json!({
                "envelope_id": id,
                "payload": envelope.payload,
                "type": envelope.kind,
                "accepts_response_payload": envelope.kind != "events_api",
                "retry_attempt": envelope.retry,
                "retry_reason": if envelope.retry > 0 { "timeout" } else { "" },
            });
            // Any of them, as long as each has its turn.
            let at = (number as usize) % self.sockets.len();
            let frame = SocketFrame::Text(text.to_string());
            if self.sockets[at].frames.try_send(frame).is_err() {
                self.sockets.remove(at);
                self.queued.push_front(envelope);
                continue;
            }
            self.note_order(&envelope);
            let sent = SentEnvelope {
                envelope,
                at: Instant::now(),
                socket: self.sockets[at].id,
            };
            self.unacked.insert(id, sent);
        }
    }

    /// Keeps which messages of a conversation may have changed places on the way.
    fn note_order(&mut self, envelope: &FakeEnvelope) {
        let place = |envelope: &FakeEnvelope| {
            let event = &envelope.payload["event"];
            let text = |name: &str| event[name].as_str().map(str::to_owned);
            Some((text("channel")?, text("ts")?))
        };
        let Some((channel, ts)) = place(envelope) else {
            return;
        };
        if envelope.retry > 0 {
            self.repeated.insert(ts);
            return;
        }
        let waiting = self.unacked.values().map(|sent| &sent.envelope);
        let earlier: Vec<(String, String)> = waiting
            .chain(&self.queued)
            .filter_map(place)
            .filter(|(other, before)| *other == channel && *before < ts)
            .map(|(_, before)| (before, ts.clone()))
            .collect();
        self.overtook.extend(earlier);
    }

    /// Sends again what has waited too long for its ack, and drops what did so three times.
    pub(super) fn retry(&mut self) {
        let old: Vec<String> = self
            .unacked
            .iter()
            .filter(|(_, sent)| sent.at.elapsed() >= self.retry_after)
            .map(|(id, _)| id.clone())
            .collect();
        for id in old {
            if let Some(sent) = self.unacked.remove(&id) {
                // A connection that does not answer is given up, as at Slack.
                self.sockets
                    .retain(|socket| !(socket.frozen && socket.id == sent.socket));
                let retry = sent.envelope.retry + 1;
                // Slack tries events three more times, and others not at all.
                if retry <= 3 && sent.envelope.kind == "events_api" {
                    let envelope = FakeEnvelope {
                        retry,
                        ..sent.envelope
                    };
                    self.deliver(envelope);
                }
            }
        }
    }

    /// What an app says. `Some`: its connection ends now.
    pub(super) fn hear(&mut self, text: &str) -> Option<SocketCut> {
        let cut = self.cut_at_ack.take();
        if cut != Some(SocketCut::Before) {
            self.acknowledge(text);
        }
        cut
    }

    pub(super) fn acknowledge(&mut self, text: &str) {
        let Ok(ack) = serde_json::from_str::<Value>(text) else {
            return;
        };
        let id = ack["envelope_id"].as_str().unwrap_or_default();
        if let Some(sent) = self.unacked.remove(id) {
            self.acks.push(EnvelopeAck {
                envelope_id: id.to_owned(),
                kind: sent.envelope.kind.to_owned(),
                payload: ack["payload"].clone(),
            });
        }
    }
}

impl FakeTeam {
    pub(super) fn add_user(&mut self, id: &str, name: &str) {
        self.users.insert(id.to_owned(), name.to_owned());
    }

    pub(super) fn add_channel(&mut self, id: &str, kind: &str) {
        let channel = FakeSlackChannel {
            kind: kind.to_owned(),
            messages: Vec::new(),
            ephemerals: Vec::new(),
            statuses: Vec::new(),
        };
        self.channels.insert(id.to_owned(), channel);
    }
}

impl FakeSlackChannel {
    pub(super) fn message(&mut self, ts: &str) -> Option<&mut Value> {
        self.messages.iter_mut().find(|one| one["ts"] == ts)
    }
}
