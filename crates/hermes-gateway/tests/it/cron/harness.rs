//! A home with jobs, a program that answers as it is told, and a courier who remembers.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_app::wiring::CommandOutput;
use hermes_app::{
    ConversationHost, ConversationRequest, ConversationUpdate, HomeScript, HostError,
    HostErrorKind, OpenedConversation, OpeningRequest,
};
use hermes_config::Zone;
use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::clock::Clock;
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::store::StoreError;
use hermes_core::task;
use hermes_gateway::cron::{
    JobEnvironment, JobMessenger, Scheduler, SchedulerDeps, SchedulerPolicy,
};
use hermes_gateway::{ConversationPool, PoolLimits};
use hermes_platforms::{HomeChannel, Offer, PostError, Posting};
use hermes_store::delivery::{Owner, Processes};
use hermes_store::jobs::{Execution, Executions, Job, JobTable};
use hermes_testkit::clock::SeqRng;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fake_conversation::{self, FakeSide};

/// The wall follows tokio's clock, which tests move.
pub(crate) struct WallClock {
    start: DateTime<Utc>,
    from: Instant,
}

impl WallClock {
    pub(crate) fn at(text: &str) -> Arc<Self> {
        Arc::new(Self {
            start: text.parse().unwrap(),
            from: Instant::now(),
        })
    }
}

impl Clock for WallClock {
    fn now(&self) -> DateTime<Utc> {
        self.start + chrono::TimeDelta::from_std(self.from.elapsed()).unwrap()
    }
}

/// What the model does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum ModelStep {
    Answer(String),
    /// After a while.
    Slowly(Duration, String),
    Fail(String),
    /// Asks for an approval and answers with the verdict.
    Ask,
    Hang,
    Refuse(String),
    Panic,
}

#[derive(Default)]
pub(crate) struct OpenedJob {
    pub openings: Vec<OpeningRequest>,
    pub prompts: Vec<String>,
    pub scripts: Vec<HomeScript>,
    pub interrupts: usize,
}

pub(crate) struct FakeProgram {
    pub act: Mutex<ModelStep>,
    pub ran: Mutex<HashMap<PathBuf, Result<CommandOutput, HostError>>>,
    pub told: Arc<Mutex<OpenedJob>>,
    pub busy: Arc<AtomicUsize>,
    pub most_busy: Arc<AtomicUsize>,
}

impl FakeProgram {
    pub(crate) fn new(act: ModelStep) -> Arc<Self> {
        Arc::new(Self {
            act: Mutex::new(act),
            ran: Mutex::default(),
            told: Arc::default(),
            busy: Arc::default(),
            most_busy: Arc::default(),
        })
    }

    pub(crate) fn script(&self, name: &str, status: i32, output: &str) {
        let ran = CommandOutput {
            status: Some(status),
            output: output.to_owned(),
            errors: String::new(),
        };
        self.ran.lock().unwrap().insert(name.into(), Ok(ran));
    }

    pub(crate) fn prompts(&self) -> Vec<String> {
        self.told.lock().unwrap().prompts.clone()
    }
}

fn summary(exit: TurnExit, text: &str) -> ConversationUpdate {
    ConversationUpdate::Event(AgentEvent::TurnFinished {
        summary: fake_conversation::summary(exit, text),
    })
}

async fn talk(
    act: ModelStep,
    told: Arc<Mutex<OpenedJob>>,
    FakeSide {
        mut requests,
        updates,
    }: FakeSide,
) {
    let say = |one: ConversationUpdate| {
        let updates = updates.clone();
        async move { drop(updates.send(one).await) }
    };
    while let Some(request) = requests.recv().await {
        match request {
            ConversationRequest::Input(input) => {
                told.lock().unwrap().prompts.push(input.text);
                match &act {
                    ModelStep::Answer(text) => say(summary(TurnExit::Answered, text)).await,
                    ModelStep::Slowly(pause, text) => {
                        tokio::time::sleep(*pause).await;
                        say(summary(TurnExit::Answered, text)).await;
                    }
                    ModelStep::Fail(why) => {
                        let why = why.clone();
                        say(summary(TurnExit::NoAnswer { why }, "")).await;
                    }
                    ModelStep::Ask => {
                        let request = ApprovalRequest {
                            kind: hermes_core::approval::ApprovalKind::Action,
                            id: "r1".to_owned(),
                            tool: "terminal".to_owned(),
                            action: "rm -rf ~".to_owned(),
                            reasons: Vec::new(),
                            rule: None,
                            posture: None,
                        };
                        say(ConversationUpdate::Event(AgentEvent::ApprovalNeeded {
                            request,
                        }))
                        .await;
                    }
                    ModelStep::Hang | ModelStep::Refuse(_) | ModelStep::Panic => {}
                }
            }
            ConversationRequest::Agent(AgentCommand::Answer { verdict, .. }) => {
                let text = match verdict {
                    Verdict::Deny { .. } => "it was denied",
                    _ => "it was allowed",
                };
                say(summary(TurnExit::Answered, text)).await;
            }
            ConversationRequest::Agent(AgentCommand::Interrupt) => {
                told.lock().unwrap().interrupts += 1;
                say(summary(TurnExit::Interrupted, "")).await;
            }
            _ => {}
        }
    }
}

impl ConversationHost for FakeProgram {
    fn ready(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn open(
        &self,
        opening: OpeningRequest,
    ) -> BoxFuture<'_, Result<OpenedConversation, HostError>> {
        let act = self.act.lock().unwrap().clone();
        let id = opening.id.clone();
        self.told.lock().unwrap().openings.push(opening);
        let (told, busy, most) = (
            Arc::clone(&self.told),
            Arc::clone(&self.busy),
            Arc::clone(&self.most_busy),
        );
        Box::pin(async move {
            match &act {
                ModelStep::Refuse(why) => {
                    return Err(HostError::new(HostErrorKind::Failed, why.clone()));
                }
                ModelStep::Panic => panic!("the program broke"),
                _ => {}
            }
            let (opened, side) = fake_conversation::open(&id);
            most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            drop(task::spawn("a conversation", async move {
                talk(act, told, side).await;
                busy.fetch_sub(1, Ordering::SeqCst);
            }));
            Ok(opened)
        })
    }

    fn script(&self, script: HomeScript) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        let ran = self.ran.lock().unwrap().get(&script.path).cloned();
        self.told.lock().unwrap().scripts.push(script);
        let none = || {
            Err(HostError::new(
                HostErrorKind::NotFound,
                "there is no such script",
            ))
        };
        Box::pin(std::future::ready(ran.unwrap_or_else(none)))
    }

    fn commands(&self) -> Vec<Offer> {
        Vec::new()
    }
}

/// Where a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    Lives,
    /// The message is not stored.
    DiesBefore,
    /// The message is stored, and nobody learns of it.
    DiesAfter,
    /// The store is busy, once.
    Stumbles,
}

/// Outlives every process, as a database does.
#[derive(Default)]
pub(crate) struct MessageTable {
    pub posted: Mutex<Vec<Posting>>,
}

pub(crate) struct FakeMessenger {
    pub mail: Arc<MessageTable>,
    pub fate: Mutex<CrashPoint>,
    pub died: CancellationToken,
}

impl JobMessenger for FakeMessenger {
    fn post(&self, posting: Posting) -> BoxFuture<'_, Result<usize, PostError>> {
        Box::pin(async move {
            let fate = *self.fate.lock().unwrap();
            if fate == CrashPoint::Stumbles {
                *self.fate.lock().unwrap() = CrashPoint::Lives;
                let waited = Duration::from_secs(5);
                return Err(StoreError::Busy { waited }.into());
            }
            if fate == CrashPoint::DiesBefore {
                self.died.cancel();
                std::future::pending::<()>().await;
            }
            {
                let mut posted = self.mail.posted.lock().unwrap();
                if posted.iter().any(|known| known.id == posting.id) {
                    return Err(StoreError::Ended(posting.id).into());
                }
                posted.push(posting);
            }
            if fate == CrashPoint::DiesAfter {
                self.died.cancel();
                std::future::pending::<()>().await;
            }
            Ok(1)
        })
    }
}

pub(crate) struct CronHarness {
    pub route: Mutex<Option<(String, String)>>,
}

impl JobEnvironment for CronHarness {
    fn homes(&self) -> Vec<(String, HomeChannel)> {
        let home = HomeChannel {
            chat_id: "1".to_owned(),
            thread_id: None,
            name: None,
        };
        vec![("telegram".to_owned(), home)]
    }

    fn serves(&self, platform: &str) -> bool {
        ["telegram", "slack"].contains(&platform)
    }

    fn find(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn route(&self) -> Option<(String, String)> {
        self.route.lock().unwrap().clone()
    }
}

/// Which processes live is for the test to say.
#[derive(Default)]
pub(crate) struct Alive(pub Mutex<HashSet<u32>>);

impl Processes for Alive {
    fn alive(&self, pid: u32, _: Option<i64>) -> bool {
        self.0.lock().unwrap().contains(&pid)
    }
}

/// What outlives a process.
pub(crate) struct CronFiles {
    pub dir: tempfile::TempDir,
    pub mail: Arc<MessageTable>,
    pub alive: Arc<Alive>,
    pids: AtomicU32,
    pub zone: Zone,
    pub policy: SchedulerPolicy,
}

/// A process.
pub(crate) struct SchedulerProcess {
    pub scheduler: Scheduler,
    pub program: Arc<FakeProgram>,
    pub courier: Arc<FakeMessenger>,
    pub town: Arc<CronHarness>,
    pub pid: u32,
    pub cancel: CancellationToken,
    /// The table as this process uses it.
    pub jobs: JobTable,
}

impl CronFiles {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            mail: Arc::default(),
            alive: Arc::default(),
            pids: AtomicU32::new(100),
            zone: Zone::parse("UTC").unwrap(),
            policy: SchedulerPolicy {
                wrap: false,
                poll: Duration::from_hours(1),
                ..SchedulerPolicy::default()
            },
        }
    }

    pub(crate) fn with(jobs: &Value) -> Self {
        let ground = Self::new();
        let text = json!({ "jobs": jobs }).to_string();
        std::fs::write(ground.table().path(), text).unwrap();
        ground
    }

    pub(crate) fn table(&self) -> JobTable {
        JobTable::new(self.dir.path())
    }

    pub(crate) fn job(&self, id: &str) -> Job {
        self.table().get(id).unwrap()
    }

    pub(crate) fn history(&self) -> Vec<Execution> {
        Executions::new(self.dir.path()).list(None, 100).unwrap()
    }

    /// What was sent, and where.
    pub(crate) fn mail(&self) -> Vec<(String, String)> {
        let posted = self.mail.posted.lock().unwrap();
        let shown = posted.iter().map(|posting| {
            let target = &posting.target;
            let place = format!("{}:{}", target.platform, target.chat_id);
            (place, posting.text.clone())
        });
        shown.collect()
    }

    pub(crate) fn outputs(&self, job: &str) -> Vec<String> {
        let dir = self.dir.path().join("output").join(job);
        let Ok(entries) = std::fs::read_dir(dir) else {
            return Vec::new();
        };
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        paths.into_iter().map(read).collect()
    }

    pub(crate) fn life(&self, act: ModelStep, clock: Arc<dyn Clock>) -> SchedulerProcess {
        self.life_of(act, clock, true)
    }

    pub(crate) fn life_of(
        &self,
        act: ModelStep,
        clock: Arc<dyn Clock>,
        delivers: bool,
    ) -> SchedulerProcess {
        let pid = self.pids.fetch_add(1, Ordering::SeqCst);
        self.alive.0.lock().unwrap().insert(pid);
        let program = FakeProgram::new(act);
        let courier = Arc::new(FakeMessenger {
            mail: Arc::clone(&self.mail),
            fate: Mutex::new(CrashPoint::Lives),
            died: CancellationToken::new(),
        });
        let town = Arc::new(CronHarness {
            route: Mutex::default(),
        });
        let cancel = CancellationToken::new();
        let jobs = self.table();
        let scheduler = Scheduler::new(SchedulerDeps {
            jobs: jobs.clone(),
            dir: self.dir.path().to_owned(),
            zone: self.zone.clone(),
            pool: ConversationPool::new(
                Arc::clone(&program) as _,
                PoolLimits::default(),
                cancel.clone(),
            ),
            environment: Arc::clone(&town) as _,
            messenger: delivers.then(|| Arc::clone(&courier) as _),
            store: None,
            owner: Owner {
                pid,
                started_at: None,
                instance: format!("life{pid}"),
            },
            processes: Arc::clone(&self.alive) as _,
            clock,
            rng: Arc::new(SeqRng::new(u64::from(pid) * 1000)),
            policy: self.policy,
        });
        SchedulerProcess {
            scheduler,
            program,
            courier,
            town,
            pid,
            cancel,
            jobs,
        }
    }

    pub(crate) fn bury(&self, life: &SchedulerProcess) {
        self.alive.0.lock().unwrap().remove(&life.pid);
    }
}

pub(crate) fn every(id: &str, minutes: u64, next: &str) -> Value {
    json!({"id": id, "name": id, "prompt": format!("do {id}"), "deliver": "telegram",
           "schedule": {"kind": "interval", "minutes": minutes, "display": format!("every {minutes}m")},
           "repeat": {"times": null, "completed": 0}, "next_run_at": next})
}

pub(crate) fn once(id: &str, run_at: &str) -> Value {
    json!({"id": id, "name": id, "prompt": format!("do {id}"), "deliver": "telegram",
           "schedule": {"kind": "once", "run_at": run_at, "display": "once"},
           "repeat": {"times": 1, "completed": 0}, "next_run_at": run_at})
}
