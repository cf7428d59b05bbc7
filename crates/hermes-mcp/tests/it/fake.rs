//! A fake server behind the `Connector` interface: sessions that expire, faults on demand, and
//! counters of what really happened. All time is virtual.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::BoxFuture;
use hermes_core::clock::{Clock, Rng};
use hermes_mcp::{
    CallError, CallOptions, Certainty, ConnectRequest, Connector, Era, FailureClass, Link,
    LinkCall, LinkEvent, LinkFacts, McpFailure, McpManager, Op, OpOutput, ServerHandle,
    ServerSettings, ServerSpec, TransportKind,
};
use hermes_testkit::clock::FixedRng;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The fault of the next request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Refused without effect.
    Refuse(McpFailure),
    /// The same after this time.
    RefuseLate(Duration, McpFailure),
    /// Executed, but the answer is this failure.
    BreakAfter(McpFailure),
    /// Executed after this time.
    Slow(Duration),
    /// Reports progress at this interval, this many times, then answers.
    Progress(Duration, u32),
    Hang,
    /// An answer with `isError`.
    ToolError,
    /// A bug in the transport.
    Panic,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Sessions of other generations are unknown.
    pub(crate) generation: u64,
    pub(crate) lost: McpFailure,
    /// Faults of calls (not of probes and lists), in order.
    pub(crate) faults: VecDeque<Fault>,
    /// The fault of a probe, if not a success.
    pub(crate) ping: Option<Fault>,
    pub(crate) list: Option<Fault>,
    /// Results of connects, in order; `None` is a success.
    pub(crate) connects_fail: VecDeque<Option<McpFailure>>,
    /// The failure of all later connects.
    pub(crate) down: Option<McpFailure>,
    pub(crate) latency: Duration,
    pub(crate) connect_latency: Duration,
    pub(crate) era: Era,
    pub(crate) session: bool,
    pub(crate) waits_for_user: bool,
    pub(crate) tools: Vec<Value>,
    pub(crate) close_latency: Duration,
    /// Whether users can log in to it.
    pub(crate) login: bool,
    /// Number of connects that panic.
    pub(crate) connect_bugs: usize,
    seen: Observations,
}

/// Counters of what happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    pub(crate) connects: Vec<Instant>,
    pub(crate) epochs: Vec<u64>,
    pub(crate) connecting: usize,
    pub(crate) max_connecting: usize,
    /// Tools that were executed, by name.
    pub(crate) effects: Vec<String>,
    pub(crate) requests: Vec<(String, Instant)>,
    /// Tools that were requested, by name.
    pub(crate) asked: Vec<String>,
    pub(crate) open_links: usize,
    pub(crate) max_open: usize,
    pub(crate) cancelled: usize,
    pub(crate) resumed: usize,
}

impl Observations {
    pub(crate) fn count(&self, op: &str) -> usize {
        self.requests.iter().filter(|(name, _)| name == op).count()
    }
}

#[derive(Clone)]
pub(crate) struct FakeServer {
    state: Arc<Mutex<State>>,
    links: Arc<Mutex<Vec<Arc<FakeLink>>>>,
}

pub(crate) fn failure(class: FailureClass, certainty: Certainty, text: &str) -> McpFailure {
    McpFailure::new(class, certainty, text)
}

pub(crate) fn session_lost() -> McpFailure {
    failure(
        FailureClass::SessionLost,
        Certainty::Rejected,
        "Invalid params: Invalid or expired session",
    )
}

pub(crate) fn refused() -> McpFailure {
    failure(
        FailureClass::NotSent,
        Certainty::NotSent,
        "connection refused",
    )
}

pub(crate) fn reset() -> McpFailure {
    failure(
        FailureClass::Ambiguous,
        Certainty::MaybeExecuted,
        "connection reset",
    )
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

impl FakeServer {
    pub(crate) fn new() -> Self {
        let state = State {
            generation: 0,
            lost: session_lost(),
            faults: VecDeque::new(),
            ping: None,
            list: None,
            connects_fail: VecDeque::new(),
            down: None,
            latency: Duration::from_millis(10),
            connect_latency: Duration::from_millis(50),
            era: Era::Legacy,
            session: true,
            waits_for_user: false,
            tools: vec![tool("write"), tool("read")],
            close_latency: Duration::ZERO,
            login: false,
            connect_bugs: 0,
            seen: Observations::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            links: Arc::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn seen(&self) -> Observations {
        self.state().seen.clone()
    }

    pub(crate) fn connects(&self) -> usize {
        self.state().seen.connects.len()
    }

    /// The server forgets all sessions.
    pub(crate) fn expire(&self) {
        self.state().generation += 1;
    }

    pub(crate) fn fault(&self, fault: Fault) {
        self.state().faults.push_back(fault);
    }

    /// The newest link.
    pub(crate) fn link(&self) -> Arc<FakeLink> {
        Arc::clone(self.links.lock().unwrap().last().expect("a link"))
    }

    /// How long the server was silent.
    pub(crate) fn link_age(&self) -> Duration {
        self.link().last_activity().elapsed()
    }

    pub(crate) fn first_link(&self) -> Arc<FakeLink> {
        Arc::clone(self.links.lock().unwrap().first().expect("a link"))
    }

    /// The link breaks, as when a child exits.
    pub(crate) fn kill(&self, why: McpFailure) {
        self.link().fail(why);
    }

    pub(crate) fn send_event(&self, event: LinkEvent) {
        let _ = self.link().events.try_send(event);
    }

    /// The same if there ever was a link.
    pub(crate) fn kill_if_linked(&self, why: McpFailure) {
        if let Some(link) = self.links.lock().unwrap().last() {
            link.fail(why);
        }
    }

    pub(crate) fn send_event_if_linked(&self, event: LinkEvent) {
        if let Some(link) = self.links.lock().unwrap().last() {
            let _ = link.events.try_send(event);
        }
    }

    pub(crate) fn spec(&self, settings: ServerSettings) -> ServerSpec {
        ServerSpec {
            settings,
            connector: Arc::new(self.clone()),
        }
    }

    fn make(&self, request: &ConnectRequest) -> Arc<FakeLink> {
        let mut state = self.state();
        let link = Arc::new(FakeLink {
            server: self.clone(),
            generation: state.generation,
            facts: LinkFacts {
                era: state.era,
                protocol_version: "2025-11-25".into(),
                server_name: "fake".into(),
                server_version: "1".into(),
                capabilities: json!({"tools": {}, "resources": {}, "prompts": {}}),
                instructions: None,
                session: state.session,
                child_pid: None,
                handshake: state.connect_latency,
            },
            failed: CancellationToken::new(),
            why: Mutex::new(None),
            last_active: Mutex::new(Instant::now()),
            events: request.events.clone(),
            open: Mutex::new(true),
            hangs: Mutex::new(false),
        });
        state.seen.epochs.push(request.epoch);
        state.seen.open_links += 1;
        state.seen.max_open = state.seen.max_open.max(state.seen.open_links);
        self.links.lock().unwrap().push(Arc::clone(&link));
        link
    }
}

/// Counts connects in progress, including dropped ones.
struct Connecting(FakeServer);

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.state().seen.connecting -= 1;
    }
}

impl Connector for FakeServer {
    fn logs_in(&self) -> bool {
        self.state().login
    }

    fn connect(&self, request: ConnectRequest) -> BoxFuture<'_, Result<Arc<dyn Link>, McpFailure>> {
        Box::pin(async move {
            let (latency, fails) = {
                let mut state = self.state();
                state.seen.connects.push(Instant::now());
                state.seen.connecting += 1;
                state.seen.max_connecting = state.seen.max_connecting.max(state.seen.connecting);
                let planned = state.connects_fail.pop_front();
                let fails = planned.unwrap_or_else(|| state.down.clone());
                (state.connect_latency, fails)
            };
            let _connecting = Connecting(self.clone());
            sleep(latency).await;
            let bug = {
                let mut state = self.state();
                let bug = state.connect_bugs > 0;
                state.connect_bugs = state.connect_bugs.saturating_sub(1);
                bug
            };
            assert!(!bug, "a bug in the connector");
            if let Some(failure) = fails {
                return Err(failure);
            }
            Ok(self.make(&request) as Arc<dyn Link>)
        })
    }
}

pub(crate) struct FakeLink {
    server: FakeServer,
    generation: u64,
    facts: LinkFacts,
    failed: CancellationToken,
    why: Mutex<Option<McpFailure>>,
    last_active: Mutex<Instant>,
    events: mpsc::Sender<LinkEvent>,
    open: Mutex<bool>,
    hangs: Mutex<bool>,
}

impl FakeLink {
    pub(crate) fn fail(&self, why: McpFailure) {
        self.why.lock().unwrap().get_or_insert(why);
        self.failed.cancel();
    }

    /// From now on it accepts requests and answers none.
    pub(crate) fn hang(&self) {
        *self.hangs.lock().unwrap() = true;
    }

    pub(crate) fn record_activity(&self) {
        *self.last_active.lock().unwrap() = Instant::now();
    }

    async fn answer(&self, op: &Op, call: &LinkCall) -> Result<OpOutput, McpFailure> {
        let (latency, fault, forgotten) = {
            let mut state = self.server.state();
            state
                .seen
                .requests
                .push((op.name().to_owned(), Instant::now()));
            if let Op::CallTool { name, .. } = op {
                state.seen.asked.push(name.clone());
            }
            let fault = match op {
                Op::Probe => state.ping.clone(),
                Op::ProbeByList | Op::ListTools => state.list.clone(),
                _ => state.faults.pop_front(),
            };
            let forgotten =
                (state.generation != self.generation && state.session).then(|| state.lost.clone());
            (state.latency, fault, forgotten)
        };
        sleep(latency).await;
        let hangs = *self.hangs.lock().unwrap();
        if hangs {
            std::future::pending::<()>().await;
        }
        if let Some(failure) = forgotten {
            self.record_activity();
            return Err(failure);
        }
        match fault {
            Some(Fault::Refuse(failure)) => Err(failure),
            Some(Fault::RefuseLate(time, failure)) => {
                sleep(time).await;
                Err(failure)
            }
            Some(Fault::BreakAfter(failure)) => {
                self.carry_out(op);
                Err(failure)
            }
            Some(Fault::Slow(time)) => {
                sleep(time).await;
                Ok(self.carry_out(op))
            }
            Some(Fault::Progress(every, times)) => {
                for step in 0..times {
                    sleep(every).await;
                    self.record_activity();
                    if let Some(progress) = &call.progress {
                        let _ = progress.try_send(format!("step {step}"));
                    }
                }
                Ok(self.carry_out(op))
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("a bug in the link"),
            Some(Fault::ToolError) => {
                self.record_activity();
                Ok(OpOutput {
                    result: json!({"isError": true, "content": [{"type": "text", "text": "session expired"}]}),
                })
            }
            None => Ok(self.carry_out(op)),
        }
    }

    fn carry_out(&self, op: &Op) -> OpOutput {
        self.record_activity();
        let mut state = self.server.state();
        let result = match op {
            Op::CallTool { name, .. } => {
                state.seen.effects.push(name.clone());
                json!({"content": [{"type": "text", "text": format!("ran {name}")}]})
            }
            Op::ListTools | Op::ProbeByList => json!({"tools": state.tools}),
            Op::ListResources => json!({"resources": [{"uri": "a://b"}]}),
            Op::ListResourceTemplates => json!({"resourceTemplates": []}),
            Op::ReadResource { uri } => json!({"contents": [{"uri": uri, "text": "hello"}]}),
            Op::ListPrompts => json!({"prompts": [{"name": "p"}]}),
            Op::GetPrompt { .. } => json!({"messages": []}),
            Op::Probe => json!({}),
        };
        OpOutput { result }
    }
}

impl Link for FakeLink {
    fn facts(&self) -> &LinkFacts {
        &self.facts
    }

    fn request<'a>(
        &'a self,
        op: &'a Op,
        call: LinkCall,
    ) -> BoxFuture<'a, Result<OpOutput, McpFailure>> {
        Box::pin(async move {
            if self.failed.is_cancelled() {
                return Err(refused());
            }
            tokio::select! {
                biased;
                () = self.failed.cancelled() => Err(reset()),
                () = call.cancel.cancelled() => {
                    self.server.state().seen.cancelled += 1;
                    Err(failure(FailureClass::Cancelled, Certainty::MaybeExecuted, "cancelled"))
                }
                () = sleep_until(call.deadline) => {
                    Err(failure(FailureClass::TimedOut, Certainty::MaybeExecuted, "no answer"))
                }
                answer = self.answer(op, &call) => answer,
            }
        })
    }

    fn closed(&self) -> BoxFuture<'_, McpFailure> {
        Box::pin(async move {
            self.failed.cancelled().await;
            let why = self.why.lock().unwrap().clone();
            why.unwrap_or_else(reset)
        })
    }

    fn last_activity(&self) -> Instant {
        *self.last_active.lock().unwrap()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let latency = self.server.state().close_latency;
            sleep(latency).await;
            if std::mem::take(&mut *self.open.lock().unwrap()) {
                self.server.state().seen.open_links -= 1;
            }
            self.fail(reset());
        })
    }

    fn resumed(&self) {
        self.server.state().seen.resumed += 1;
    }

    fn waits_for_user(&self) -> bool {
        self.server.state().waits_for_user
    }
}

/// Wall time that follows virtual time until it is made to jump.
pub(crate) struct TestClock {
    base: DateTime<Utc>,
    start: Instant,
    jump: Mutex<chrono::Duration>,
}

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            base: DateTime::from_timestamp(1_767_323_045, 0).unwrap(),
            start: Instant::now(),
            jump: Mutex::new(chrono::Duration::zero()),
        })
    }

    pub(crate) fn jump(&self, by: chrono::Duration) {
        *self.jump.lock().unwrap() += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> DateTime<Utc> {
        let passed = chrono::Duration::from_std(self.start.elapsed()).unwrap();
        self.base + passed + *self.jump.lock().unwrap()
    }
}

/// No jitter.
pub(crate) fn no_jitter() -> Arc<dyn Rng> {
    Arc::new(FixedRng(1 << 63))
}

pub(crate) fn settings(name: &str) -> ServerSettings {
    ServerSettings::new(name, TransportKind::Http, name.to_owned())
}

/// A manager with one server called `fake`.
pub(crate) struct World {
    pub(crate) server: FakeServer,
    pub(crate) manager: McpManager,
    pub(crate) handle: ServerHandle,
    pub(crate) clock: Arc<TestClock>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(FakeServer::new(), settings("fake"))
    }

    pub(crate) fn with(server: FakeServer, settings: ServerSettings) -> Self {
        let clock = TestClock::new();
        let manager = McpManager::start(
            vec![server.spec(settings)],
            Arc::clone(&clock) as Arc<dyn Clock>,
            no_jitter(),
        );
        let handle = manager.server("fake").expect("it was configured");
        Self {
            server,
            manager,
            handle,
            clock,
        }
    }

    /// The same, once the server is up.
    pub(crate) async fn ready() -> Self {
        Self::new().up().await
    }

    pub(crate) async fn up(self) -> Self {
        self.handle.settled().await;
        assert_eq!(self.state(), "ready");
        self
    }

    pub(crate) fn state(&self) -> &'static str {
        self.handle.connection_status().state.name()
    }

    pub(crate) async fn call(&self, op: Op) -> Result<Value, CallError> {
        let output = self.handle.call(op, CallOptions::default()).await?;
        Ok(output.result)
    }

    /// Waits for a state by name.
    pub(crate) async fn until(&self, name: &str) {
        let mut events = self.manager.events();
        while self.state() != name {
            let _ = events.recv().await;
        }
    }
}

pub(crate) fn call_tool(name: &str) -> Op {
    Op::CallTool {
        name: name.to_owned(),
        arguments: Map::new(),
    }
}

/// All operations of users.
pub(crate) fn five_ops() -> Vec<Op> {
    vec![
        call_tool("write"),
        Op::ListResources,
        Op::ReadResource {
            uri: "a://b".to_owned(),
        },
        Op::ListPrompts,
        Op::GetPrompt {
            name: "p".to_owned(),
            arguments: Map::new(),
        },
    ]
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
