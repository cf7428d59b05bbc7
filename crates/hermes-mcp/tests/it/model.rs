//! Random sequences of server events: the invariants hold in every order.

use std::time::Duration;

use hermes_mcp::{
    CallError, CallOptions, Certainty, FailureClass, LinkEvent, McpFailure, OpOutput,
    ServerSettings, TransportKind,
};
use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::fake::{
    FakeServer, Fault, World, call_tool, failure, refused, reset, seconds, session_lost, tool,
};

const TIMEOUT: Duration = Duration::from_secs(20);
const MAX_STEPS: usize = 40;

#[derive(Clone, Debug)]
enum Step {
    /// A call, cancelled after this many milliseconds.
    Call(Option<u64>),
    Fault(Fault),
    Expire,
    Kill,
    /// The next connects fail.
    Refuse(usize, McpFailure),
    Reconnect,
    Auth,
    /// Another URL.
    Config,
    /// Switched off and on.
    Off,
    Jump,
    ToolsChanged,
    Suspect,
    Wait(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    let of = |class, certainty| failure(class, certainty, "some reason");
    prop_oneof![
        Just(Fault::Refuse(session_lost())),
        Just(Fault::Refuse(refused())),
        Just(Fault::Refuse(of(FailureClass::Rpc, Certainty::Rejected))),
        Just(Fault::Refuse(of(
            FailureClass::AuthExpired,
            Certainty::Rejected
        ))),
        Just(Fault::Refuse(of(
            FailureClass::NeedsAuth,
            Certainty::Rejected
        ))),
        Just(Fault::Refuse(of(
            FailureClass::Throttled,
            Certainty::Rejected
        ))),
        Just(Fault::BreakAfter(reset())),
        Just(Fault::BreakAfter(of(
            FailureClass::Throttled,
            Certainty::MaybeExecuted
        ))),
        Just(Fault::Hang),
        Just(Fault::ToolError),
        (1_u64..30).prop_map(|time| Fault::Slow(seconds(time))),
        (1_u64..15).prop_map(|every| Fault::Progress(seconds(every), 3)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let refusal = prop_oneof![
        4 => Just(refused()),
        1 => Just(failure(FailureClass::Permanent, Certainty::NotSent, "no such program")),
        1 => Just(failure(FailureClass::NeedsAuth, Certainty::Rejected, "no tokens")),
        1 => Just(failure(FailureClass::AuthExpired, Certainty::Rejected, "HTTP 401")),
    ];
    prop_oneof![
        12 => prop_oneof![3 => Just(None), 1 => (0_u64..3000).prop_map(Some)].prop_map(Step::Call),
        4 => fault().prop_map(Step::Fault),
        2 => Just(Step::Expire),
        2 => Just(Step::Kill),
        2 => (1_usize..7, refusal).prop_map(|(count, why)| Step::Refuse(count, why)),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Auth),
        1 => Just(Step::Config),
        1 => Just(Step::Off),
        1 => Just(Step::Jump),
        1 => Just(Step::ToolsChanged),
        1 => Just(Step::Suspect),
        6 => prop_oneof![0_u64..100, 0_u64..5_000, 0_u64..120_000].prop_map(Step::Wait),
    ]
}

type Outcome = (String, Duration, Result<OpOutput, CallError>);

/// A world and its calls in progress.
struct RandomRun {
    world: World,
    settings: ServerSettings,
    calls: JoinSet<Outcome>,
    count: usize,
}

impl RandomRun {
    fn begin(transport: TransportKind) -> Self {
        let mut settings = ServerSettings::new("fake", transport, "0".to_owned());
        settings.timeout = TIMEOUT;
        settings.max_timeout = TIMEOUT * 2;
        let server = FakeServer::new();
        server.state().tools = (0..=MAX_STEPS).map(|n| tool(&format!("t{n}"))).collect();
        Self {
            world: World::with(server, settings.clone()),
            settings,
            calls: JoinSet::new(),
            count: 0,
        }
    }

    fn call(&mut self, cancel_after: Option<u64>) {
        let name = format!("t{}", self.count);
        self.count += 1;
        let handle = self.world.handle.clone();
        self.calls.spawn(async move {
            let begin = Instant::now();
            let options = CallOptions::default();
            let cancel = options.cancel.clone();
            let call = handle.call(call_tool(&name), options);
            let result = match cancel_after {
                None => call.await,
                Some(time) => {
                    let leave = async {
                        sleep(Duration::from_millis(time)).await;
                        cancel.cancel();
                        std::future::pending::<()>().await;
                    };
                    tokio::select! {
                        result = call => result,
                        () = leave => unreachable!(),
                    }
                }
            };
            (name, begin.elapsed(), result)
        });
    }

    fn apply(&self) {
        let spec = self.world.server.spec(self.settings.clone());
        self.world.manager.apply(vec![spec]);
    }

    async fn perform(&mut self, step: Step) {
        let server = &self.world.server;
        match step {
            Step::Call(cancel_after) => self.call(cancel_after),
            Step::Fault(fault) => server.fault(fault),
            Step::Expire => server.expire(),
            Step::Kill => server.kill_if_linked(reset()),
            Step::Refuse(count, why) => {
                let mut state = server.state();
                state.connects_fail = vec![Some(why); count].into();
            }
            Step::Reconnect => self.world.handle.reconnect(),
            Step::Auth => self.world.handle.auth_changed(),
            Step::Config => {
                self.settings.fingerprint.push('x');
                self.apply();
            }
            Step::Off => {
                self.settings.enabled = !self.settings.enabled;
                self.apply();
            }
            Step::Jump => self.world.clock.jump(chrono::Duration::hours(3)),
            Step::ToolsChanged => server.send_event_if_linked(LinkEvent::ToolsChanged),
            Step::Suspect => server.send_event_if_linked(LinkEvent::Suspect("hm".to_owned())),
            Step::Wait(time) => sleep(Duration::from_millis(time)).await,
        }
        self.check();
    }

    /// Checks the invariants that always hold.
    fn check(&self) {
        let seen = self.world.server.seen();
        let max = match self.settings.transport {
            TransportKind::Stdio => 1,
            // The live one, those that still serve old calls, and one that will replace it.
            _ => 6,
        };
        assert!(seen.max_open <= max, "{} links at once", seen.max_open);
        assert!(seen.max_connecting <= 1);
        assert!(seen.epochs.is_sorted(), "{:?}", seen.epochs);
        let status = self.world.handle.connection_status();
        let catalogue = self.world.handle.catalogue();
        if status.state.is_live() {
            let epoch = catalogue.borrow().as_ref().map(|c| c.epoch);
            assert_eq!(epoch, Some(status.epoch));
        }
    }

    /// All calls ended in time, each was executed at most once, and the server recovers.
    async fn end(mut self) {
        while let Some(outcome) = self.calls.join_next().await {
            self.check_outcome(outcome.unwrap());
        }
        {
            let mut state = self.world.server.state();
            state.faults.clear();
            state.connects_fail.clear();
        }
        self.settings.enabled = true;
        self.apply();
        sleep(Duration::from_mins(15)).await;
        self.check();
        assert_eq!(self.world.state(), "ready");
        self.world.call(call_tool("t40")).await.unwrap();
        let status = self.world.handle.status();
        assert_eq!((status.inflight, status.queued), (0, 0));
        assert_eq!(self.world.server.seen().open_links, 1);
        self.world.manager.shutdown(seconds(5)).await;
        assert_eq!(self.world.server.seen().open_links, 0);
    }

    fn check_outcome(&self, (name, took, result): Outcome) {
        let seen = self.world.server.seen();
        let asked = seen.asked.iter().filter(|tool| **tool == name).count();
        let ran = seen.effects.iter().filter(|tool| **tool == name).count();
        // Once, and once more for each cause: session, token, throttling, a lost request; and eight
        // times where a session lost during a health check looks as if only some instances of the
        // server knew it.
        assert!(asked <= 13, "{name} was sent {asked} times");
        assert!(ran <= 1, "{name} ran {ran} times");
        assert!(took <= TIMEOUT * 2, "{name} took {took:?}");
        match result {
            Ok(output) => assert_eq!(ran == 0, output.result["isError"] == true, "{name}"),
            Err(error) if !error.outcome_unknown => {
                assert_eq!(ran, 0, "{name} ran although {error}");
            }
            Err(_) => {}
        }
    }
}

fn run_steps(transport: TransportKind, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut run = RandomRun::begin(transport);
        for step in steps {
            run.perform(step).await;
        }
        run.end().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_run_over_http_keeps_the_invariants(
        steps in proptest::collection::vec(step(), 1..MAX_STEPS)
    ) {
        run_steps(TransportKind::Http, steps);
    }

    #[test]
    fn any_run_over_stdio_keeps_the_invariants(
        steps in proptest::collection::vec(step(), 1..MAX_STEPS)
    ) {
        run_steps(TransportKind::Stdio, steps);
    }
}
