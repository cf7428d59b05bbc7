//! An MCP server on loopback that fails on demand: both eras of streamable HTTP and the older
//! HTTP+SSE, by hand over TCP, so that every fault seen in the wild can be played.
//!
//! It runs on a thread of its own. Tests wait for counts and gates, not for time.
//!
//! | tool | does |
//! |---|---|
//! | `echo` | says `text` again; read-only by its own word |
//! | `bump` | counts an effect and says the count; keeps `token` as a mark |
//! | `slow` | waits at the gate named by `gate` |
//! | `fail` | reports `text` as an error of the tool; with `code` as a JSON-RPC error |
//! | `answer` | counts an effect and answers its request in the `shape` (see [`shape`]); not on the list, not over HTTP+SSE |
//! | `steps` | reports progress `count` times, `pause_ms` apart |
//!
//! There is one resource (`test://note`) and one prompt (`greet`).
//!
//! ```
//! use hermes_testkit::mcp_server::{FaultyServer, Fault, Loss};
//!
//! let server = FaultyServer::start();
//! server.lose_sessions_as(Loss::BadRequestNoId).expire_sessions();
//! server.fault("tools/call", Fault::ResetAfter);
//! assert!(server.url().ends_with("/mcp"));
//! assert_eq!(server.counts().effects, 0);
//! ```

pub mod combination;
mod forgetting;
mod gzip;
mod habits;
mod limit;
pub mod peers;
mod plan;
mod protocol;
pub mod proxy;
mod serve;
pub mod shape;
mod streams;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::server_thread::{ServerThread, listen};
use forgetting::{Balancer, Forgetting};
use limit::Limiter;

pub use crate::model_server::ReplyGate;
pub use plan::{Counts, Fault, GetStream, Loss, Ping, Seen, Wire};

/// The server. It stops when dropped.
pub struct FaultyServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    handle: Handle,
    switch: mpsc::Sender<Switch>,
    _thread: ServerThread,
}

/// A change of listening, and who waits for it.
struct Switch {
    up: bool,
    done: std::sync::mpsc::Sender<()>,
}

struct Shared {
    state: Mutex<State>,
    seen: Mutex<Vec<Seen>>,
    counts: watch::Sender<Counts>,
    /// Whether it reads nothing although it accepts.
    frozen: watch::Sender<bool>,
    /// Counts what is received and sent; see [`FaultyServer::activity`].
    activity: AtomicU64,
}

struct State {
    wire: Wire,
    sessions: HashSet<String>,
    /// So many sessions are forgotten as soon as they are given out.
    forgets_next: usize,
    gives_sessions: bool,
    /// The one id that it gives out, again and again.
    same_session: Option<String>,
    /// Sessions that were not deleted, known or not.
    places: HashSet<String>,
    /// So many of them are allowed; more are refused with this status.
    most_places: Option<(usize, u16)>,
    loss: Loss,
    /// How forgotten sessions are answered instead of by `loss`.
    forgetting: Option<Forgetting>,
    /// The instances behind a balancer, once there are two.
    balancer: Option<Balancer>,
    /// Sessions that were made by the second instance.
    second: HashSet<String>,
    limiter: Option<Limiter>,
    /// How long `ping` and `tools/list` of a session take.
    slow_questions: Duration,
    /// How long `initialize` takes.
    slow_handshakes: Duration,
    get: GetStream,
    ping: Ping,
    /// Answers as event streams.
    streams: bool,
    page: Option<usize>,
    faults: Vec<Planned>,
    tools: Vec<Value>,
    resources: Vec<Value>,
    prompts: Vec<Value>,
    capabilities: Value,
    gates: HashMap<String, ReplyGate>,
    listeners: Vec<Listener>,
    /// What is left of streams that were cut, by the id of their last event.
    cut: HashMap<String, Vec<Value>>,
    /// Tokens that `bump` was given, in order.
    marks: Vec<String>,
    /// Whether requests are remembered.
    remembers: bool,
    /// Ends every connection when cancelled.
    lines: CancellationToken,
}

struct Planned {
    method: String,
    fault: Fault,
    left: usize,
}

struct Listener {
    session: String,
    send: mpsc::Sender<Push>,
}

/// What goes out on a listening stream.
enum Push {
    Message(Value),
    /// These bytes as they are.
    Raw(String),
    End,
    Reset,
}

/// No two servers give out the same id, as in life.
fn new_session() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    format!("session-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl State {
    fn new(wire: Wire) -> Self {
        Self {
            wire,
            sessions: HashSet::new(),
            forgets_next: 0,
            gives_sessions: true,
            same_session: None,
            places: HashSet::new(),
            most_places: None,
            loss: Loss::default(),
            forgetting: None,
            balancer: None,
            second: HashSet::new(),
            limiter: None,
            slow_questions: Duration::ZERO,
            slow_handshakes: Duration::ZERO,
            get: GetStream::default(),
            ping: Ping::default(),
            streams: false,
            page: None,
            faults: Vec::new(),
            tools: protocol::tools(),
            resources: protocol::resources(),
            prompts: protocol::prompts(),
            capabilities: protocol::capabilities(),
            gates: HashMap::new(),
            listeners: Vec::new(),
            cut: HashMap::new(),
            marks: Vec::new(),
            remembers: true,
            lines: CancellationToken::new(),
        }
    }

    /// A session made by one of the instances.
    fn open_session(&mut self, second: bool) -> String {
        let session = self.same_session.clone().unwrap_or_else(new_session);
        self.places.insert(session.clone());
        match self.forgets_next.checked_sub(1) {
            Some(left) => self.forgets_next = left,
            None => {
                self.sessions.insert(session.clone());
            }
        }
        if second {
            self.second.insert(session.clone());
        }
        session
    }
}

impl FaultyServer {
    /// A legacy server with sessions.
    pub fn start() -> Self {
        Self::start_as(Wire::Legacy)
    }

    pub fn start_as(wire: Wire) -> Self {
        Self::start_on(wire, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// A server whose address is known and on which nobody listens yet.
    pub fn start_down(wire: Wire) -> Self {
        let server = Self::start_as(wire);
        server.go_down();
        server
    }

    pub fn start_on(wire: Wire, address: SocketAddr) -> Self {
        let shared = Arc::new(Shared::new(wire));
        let (switch, switches) = mpsc::channel(4);
        let served = Arc::clone(&shared);
        let (thread, (address, handle)) =
            ServerThread::start("faulty-mcp", move |ready, stop| async move {
                let (listener, bound) = listen(address).await;
                let started = (bound, Handle::current());
                ready.send(started).expect("the starter waits");
                serve::run(listener, switches, served, stop).await;
            });
        Self {
            address,
            shared,
            handle,
            switch,
            _thread: thread,
        }
    }

    /// A server on the runtime of the caller, for tests on a paused clock: all that happens in it
    /// happens between two polls of the test. [`Self::restart`] and the like need the other kind.
    pub async fn start_here(wire: Wire) -> Self {
        let (listener, address) = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let shared = Arc::new(Shared::new(wire));
        let stop = CancellationToken::new();
        let (switch, switches) = mpsc::channel(4);
        let serving = serve::run(listener, switches, Arc::clone(&shared), stop.clone());
        // Dropping the handle detaches the task; `stop` ends it.
        drop(hermes_core::task::spawn("faulty-mcp", serving));
        Self {
            address,
            shared,
            handle: Handle::current(),
            switch,
            _thread: ServerThread::task(stop),
        }
    }

    /// Where a client connects.
    pub fn url(&self) -> String {
        let path = match self.shared.state().wire {
            Wire::Sse => "sse",
            Wire::Legacy | Wire::Modern => "mcp",
        };
        format!("http://{}/{path}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How requests with a forgotten session are answered.
    pub fn lose_sessions_as(&self, loss: Loss) -> &Self {
        self.shared.state().loss = loss;
        self
    }

    /// Forgets every session. Connections and streams stay.
    pub fn expire_sessions(&self) -> &Self {
        self.shared.state().sessions.clear();
        self
    }

    /// A new process on the same port: sessions forgotten, connections ended, listening again.
    pub fn restart(&self) -> &Self {
        self.go_down();
        self.come_up();
        self
    }

    /// Nobody listens, every connection ends, sessions are forgotten. Returns when that is so.
    pub fn go_down(&self) -> &Self {
        self.switch(false)
    }

    /// Listens again on the same port. Returns when it does.
    pub fn come_up(&self) -> &Self {
        self.switch(true)
    }

    fn switch(&self, up: bool) -> &Self {
        let (done, wait) = std::sync::mpsc::channel();
        self.switch
            .try_send(Switch { up, done })
            .expect("the MCP server runs");
        wait.recv().expect("the MCP server runs");
        self
    }

    /// From now on it accepts connections and reads nothing: a black hole.
    pub fn freeze(&self) -> &Self {
        self.shared.frozen.send_replace(true);
        self
    }

    pub fn thaw(&self) -> &Self {
        self.shared.frozen.send_replace(false);
        self
    }

    /// Speaks this from the next request on; used together with [`Self::restart`].
    pub fn speak(&self, wire: Wire) -> &Self {
        self.shared.state().wire = wire;
        self
    }

    /// The next request with this JSON-RPC method (or `GET`, `DELETE`, `*`) goes wrong.
    pub fn fault(&self, method: &str, fault: Fault) -> &Self {
        self.fault_times(method, 1, fault)
    }

    pub fn fault_always(&self, method: &str, fault: Fault) -> &Self {
        self.fault_times(method, usize::MAX, fault)
    }

    pub fn fault_times(&self, method: &str, times: usize, fault: Fault) -> &Self {
        self.shared.state().faults.push(Planned {
            method: method.to_owned(),
            fault,
            left: times,
        });
        self
    }

    pub fn heal(&self) -> &Self {
        self.shared.state().faults.clear();
        self
    }
}

impl Shared {
    fn new(wire: Wire) -> Self {
        Self {
            state: Mutex::new(State::new(wire)),
            seen: Mutex::default(),
            counts: watch::Sender::new(Counts::default()),
            frozen: watch::Sender::new(false),
            activity: AtomicU64::new(0),
        }
    }

    /// Something was received or sent.
    fn note_activity(&self) {
        self.activity.fetch_add(1, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    fn gate(&self, name: &str) -> ReplyGate {
        let mut state = self.state();
        state.gates.entry(name.to_owned()).or_default().clone()
    }

    /// The fault planned for a request, if any.
    fn fault(&self, method: &str) -> Option<Fault> {
        let mut state = self.state();
        let at = state
            .faults
            .iter()
            .position(|plan| plan.method == method || plan.method == "*")?;
        let plan = &mut state.faults[at];
        plan.left -= 1;
        let fault = plan.fault.clone();
        if plan.left == 0 {
            state.faults.remove(at);
        }
        Some(fault)
    }
}
