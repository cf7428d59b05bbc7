//! Servers whose tools change during use: announced once or in bursts, or unannounced while the
//! session is lost.
//!
//! A failing run is printed with its seed; `HERMES_CHANGES='7 12'` runs those again.

use std::time::Duration;

use hermes_mcp::ReportedState;
use hermes_testkit::mcp_server::combination::{Combination, Scenario, Scope, Transport};
use hermes_testkit::mcp_server::shape::ShapeRng;
use serde_json::{Value, json};

use super::chains::refusal_of_session;
use super::invariants::{Broken, effects};
use super::number;
use super::stage::{Outcome, Stage};
use super::time::with_virtual_time;
use crate::rig::call;

const RUNS: u64 = 80;
/// Longer than the delay in which changes are coalesced.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// Number of list requests allowed in that time, whatever is announced: one per coalescing delay,
/// and one that was due.
const MAX_LISTS: usize = 6;

fn tool(name: &str) -> Value {
    json!({"name": name, "description": name, "inputSchema": {"type": "object"}})
}

/// The calls so far, and the tools that the server offers besides `bump`.
struct ChangingServer<'a> {
    stage: &'a Stage,
    dice: ShapeRng,
    name: usize,
    calls: Vec<Outcome>,
    broken: Vec<Broken>,
}

impl ChangingServer<'_> {
    fn rename(&mut self) {
        self.name += 1;
        let tools = vec![tool("bump"), tool(&self.own())];
        self.stage.server.set_tools(tools);
    }

    fn own(&self) -> String {
        format!("own_{}", self.name)
    }

    fn lose(&self) {
        self.stage.server.lose_sessions_in(&Combination {
            transport: Transport::Http,
            scenario: Scenario::Forgotten,
            scope: self.dice.pick(&[Scope::All, Scope::All, Scope::Calls]),
            shape: refusal_of_session(&self.dice),
            callers: 1,
            seed: 0,
        });
    }

    /// Two calls, of which the second succeeds.
    async fn twice(&mut self) {
        for _ in 0..2 {
            self.calls.push(self.stage.call().await);
        }
        let last = self.calls.last().unwrap();
        if !last.is_ok() {
            self.broken
                .push(("1 the second call succeeds", last.describe()));
        }
    }

    /// The offered tools are those of the server, and work; removed ones are refused.
    async fn check_tools(&mut self) {
        self.stage.pass(SETTLE_TIME).await;
        let own = self.own();
        let known = self.stage.peer.catalogue().borrow().clone().unwrap();
        if !known.has_tool(&own) || known.tools.len() != 2 {
            let details = format!("{own}: {:?}", known.tools);
            self.broken.push(("2 the list is the server's", details));
            return;
        }
        let works = self.stage.op(call(&own, json!({"text": "x"}))).await;
        if !matches!(works, Some(Ok(_))) {
            let details = format!("{works:?}");
            self.broken
                .push(("3 a tool that is offered works", details));
        }
        let gone = self.stage.op(call("own_0", json!({}))).await;
        if !matches!(gone, Some(Err(_))) {
            self.broken
                .push(("4 what is gone is refused", format!("{gone:?}")));
        }
    }

    /// This many announcements at once, repeated for a while.
    async fn storm(&mut self) {
        let before = self.stage.server.counts();
        let mut passed = Duration::ZERO;
        while passed < SETTLE_TIME {
            self.stage.server.flood(self.dice.pick(&[1, 10, 50]));
            let pause = Duration::from_millis(self.dice.pick(&[10, 100, 400]));
            self.stage.pass(pause).await;
            passed += pause;
            if self.dice.percent(30) {
                self.rename();
            }
        }
        let after = self.stage.server.counts();
        let lists = after.tool_lists - before.tool_lists;
        if lists > MAX_LISTS {
            self.broken.push((
                "5 a storm is read once in a while",
                format!("{lists} lists"),
            ));
        }
        if after.sessions != before.sessions {
            self.broken
                .push(("6 a storm costs no session", String::new()));
        }
    }

    async fn step(&mut self) {
        match self.dice.below(6) {
            0 => {
                self.rename();
                self.stage.server.flood(1);
                self.check_tools().await;
            }
            1 => {
                self.storm().await;
                self.stage.server.flood(1);
                self.check_tools().await;
            }
            2 => {
                self.lose();
                self.twice().await;
            }
            // The change is not announced: the new session reveals it.
            3 => {
                self.rename();
                self.lose();
                self.twice().await;
                if self.stage.server.counts().listening > 0 {
                    self.stage.server.flood(1);
                }
                self.check_tools().await;
            }
            4 => self.twice().await,
            _ => {
                let pause = self.dice.pick(&[20, 600, 3000]);
                self.stage.pass(Duration::from_millis(pause)).await;
            }
        }
    }
}

fn broken(seed: u64) -> Vec<Broken> {
    with_virtual_time(|| async {
        let stage = match Stage::set(Transport::Http, seed).await {
            Ok(stage) => stage,
            Err(why) => return vec![("0 it connects", why)],
        };
        let mut run = ChangingServer {
            stage: &stage,
            dice: ShapeRng::new(seed),
            name: 0,
            calls: Vec::new(),
            broken: Vec::new(),
        };
        run.rename();
        stage.server.flood(1);
        for _ in 0..3 + run.dice.below(6) {
            run.step().await;
        }
        let (calls, mut broken) = (run.calls, run.broken);
        broken.extend(effects(&stage, &calls));
        let status = stage.status();
        if status.state != ReportedState::Ready {
            broken.push(("7 the status says ready", status.state.name().to_owned()));
        }
        broken
    })
}

#[test]
fn tools_change_while_they_are_used() {
    let given = std::env::var("HERMES_CHANGES").unwrap_or_default();
    let mut seeds: Vec<u64> = given
        .split_whitespace()
        .map(|seed| seed.parse().unwrap())
        .collect();
    if seeds.is_empty() {
        seeds = (0..number("HERMES_LIVES", RUNS)).collect();
    }
    let mut report = Vec::new();
    for seed in seeds {
        for (rule, details) in broken(seed) {
            report.push(format!("seed {seed}: {rule}: {details}"));
        }
    }
    report.truncate(20);
    assert!(report.is_empty(), "{}", report.join("\n"));
}
