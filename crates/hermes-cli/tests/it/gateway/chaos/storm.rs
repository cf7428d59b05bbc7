//! One home, one model, some platforms, and gateways that are killed one after the other.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::ModelServer;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::model;
use super::platform::{ChaosPlatform, ChaosSetup};
use super::traffic::TurnTally;

/// How long nothing may happen in peace: a little more than the outbox pauses at most, which it does
/// after four attempts in a row of which nobody knows whether they arrived.
const PEACE: Duration = Duration::from_secs(330);
/// The gateway asks to be started again: as whatever supervises it does.
const START_AGAIN: i32 = 75;

pub(super) struct Storm {
    rng: SmallRng,
    home: Rc<TempHome>,
    _model: ModelServer,
    platforms: Vec<Box<dyn ChaosPlatform>>,
    gateway: Option<Child>,
    pub(super) kills: usize,
}

impl Storm {
    pub(super) fn new(
        seed: u64,
        (busy, streaming): (&str, bool),
        home: Rc<TempHome>,
        platforms: Vec<Box<dyn ChaosPlatform>>,
    ) -> Self {
        let model = model::start(&home.work().join("effects"));
        let config = json!({
            "model": {
                "default": "scripted", "provider": "custom",
                "base_url": model.base_url(), "api_key": "k", "context_length": 200_000
            },
            "auxiliary": {"title_generation": {"enabled": false}},
            "display": {"busy_input_mode": busy},
            "streaming": {"enabled": streaming, "transport": "edit", "edit_interval": 0.2, "buffer_threshold": 1},
            "terminal": {"cwd": home.work()},
            "platforms": {}
        });
        let mut setting = ChaosSetup {
            config,
            env: String::new(),
        };
        for platform in &platforms {
            platform.configure(&mut setting);
        }
        let ChaosSetup { config, env } = setting;
        home.config_json(&config).env_file(&env);
        Self {
            rng: SmallRng::seed_from_u64(seed),
            home,
            _model: model,
            platforms,
            gateway: None,
            kills: 0,
        }
    }

    fn log_file(&self) -> PathBuf {
        self.home.work().join("gateway.out")
    }

    fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_hermes"))
            .args(["gateway", "run", "--force"])
            .env_clear()
            .envs(self.home.vars())
            // Who is killed does not clean up.
            .env("TMPDIR", self.home.work())
            .current_dir(self.home.work())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log)
            .spawn()
            .expect("the gateway starts");
        self.gateway = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            self.assert_alive(&mut gateway);
            gateway.kill().expect("it dies");
            gateway.wait().expect("it is dead");
            self.kills += 1;
        }
    }

    /// `false`: it wants to be started again.
    fn assert_alive(&self, gateway: &mut Child) -> bool {
        let ended = gateway.try_wait().expect("its state");
        let again = ended.is_some_and(|status| status.code() == Some(START_AGAIN));
        assert!(
            ended.is_none() || again,
            "it ended by itself: {ended:?}\n{}",
            self.log()
        );
        !again
    }

    /// As a supervisor does.
    fn watch(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            if self.assert_alive(&mut gateway) {
                self.gateway = Some(gateway);
            } else {
                self.start();
            }
        }
    }

    fn log(&self) -> String {
        let tail = |path: PathBuf| {
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        };
        let (said, logged) = (self.log_file(), self.home.join("logs/gateway.log"));
        format!("{}\n{}", tail(said), tail(logged))
    }

    /// A gateway without trouble, until nothing is `left`, or nothing changes any more; then it is
    /// killed.
    fn live(&mut self, mut left: impl FnMut(&mut Self) -> Vec<String>) -> Vec<String> {
        self.start();
        let (mut now, mut since) = (left(self), Instant::now());
        while !now.is_empty() && since.elapsed() < PEACE {
            std::thread::sleep(Duration::from_millis(100));
            self.watch();
            let next = left(self);
            if next != now {
                (now, since) = (next, Instant::now());
            }
        }
        self.kill();
        now
    }

    /// A first process, in which everybody gets to know everybody.
    pub(super) fn begin(&mut self) {
        let home = Rc::clone(&self.home);
        let left = self.live(|storm| {
            let mut left = Vec::new();
            for platform in &mut storm.platforms {
                if !platform.is_ready(&home) {
                    left.push(platform.name().to_owned());
                }
            }
            left
        });
        assert!(left.is_empty(), "not ready: {left:?}\n{}", self.log());
    }

    pub(super) fn rage(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.start();
            // Some processes end before they have started, some get something done.
            let life = match self.rng.random_range(0..4) {
                0 => self.rng.random_range(0..300),
                1 => self.rng.random_range(300..1500),
                _ => self.rng.random_range(1500..5000),
            };
            let death = Instant::now() + Duration::from_millis(life);
            while Instant::now() < death {
                self.watch();
                self.blow();
                std::thread::sleep(Duration::from_millis(self.rng.random_range(5..60)));
            }
            self.kill();
        }
    }

    /// Somebody writes, or something breaks.
    fn blow(&mut self) {
        let at = self.rng.random_range(0..self.platforms.len());
        let platform = &mut self.platforms[at];
        if self.rng.random_range(0..20) < 6 {
            platform.trouble(&mut self.rng);
        } else {
            platform.say(&mut self.rng);
        }
    }

    /// Last processes, without trouble, until everything is answered, and once more.
    pub(super) fn calm(&mut self) {
        for platform in &mut self.platforms {
            platform.still();
        }
        self.settle();
        for platform in &mut self.platforms {
            platform.last_words();
        }
        self.settle();
    }

    fn settle(&mut self) {
        let open = self.live(|storm| storm.open());
        if !open.is_empty() {
            self.keep_database();
        }
        assert!(
            open.is_empty(),
            "never answered: {open:#?}\n{}\n{}",
            self.seen(&open),
            self.log()
        );
    }

    /// For whoever wants to know why: the database, in the directory that `HERMES_CHAOS_KEEP` names.
    fn keep_database(&self) {
        let Some(dir) = std::env::var_os("HERMES_CHAOS_KEEP") else {
            return;
        };
        for name in ["state.db", "state.db-wal"] {
            let kept = PathBuf::from(&dir).join(name);
            // A database without a log of its own has one file only.
            let _ = std::fs::copy(self.home.join(name), &kept);
        }
    }

    fn open(&self) -> Vec<String> {
        let mut open = Vec::new();
        for platform in &self.platforms {
            let name = platform.name();
            open.extend(platform.open().iter().map(|what| format!("{name}: {what}")));
        }
        open
    }

    /// What people see where something is open.
    fn seen(&self, open: &[String]) -> String {
        let mut seen = String::new();
        for platform in &self.platforms {
            let name = platform.name();
            if open.iter().any(|what| what.starts_with(name)) {
                // Writing to a string does not fail.
                let _ = writeln!(seen, "{name}: {:#}", platform.seen());
            }
        }
        seen
    }

    /// Fails if anything was lost, doubled or out of order.
    pub(super) fn judge(&self) -> TurnTally {
        let mut all = TurnTally::default();
        let mut words = Vec::new();
        for platform in &self.platforms {
            let tally = platform.judge();
            words.push(format!(
                "{} {} (again, marked: {})",
                platform.name(),
                tally.messages,
                tally.again
            ));
            all += tally;
        }
        let effects = std::fs::read_to_string(self.home.work().join("effects"));
        let effects = effects.unwrap_or_default();
        let mut done = BTreeSet::new();
        for line in effects.lines() {
            assert!(done.insert(line), "the command of {line} ran twice");
        }
        let (words, kills) = (words.join(", "), self.kills);
        super::tell(&format!("{words}; {} commands, {kills} kills", done.len()));
        all
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        if let Some(mut gateway) = self.gateway.take() {
            // It may be gone already.
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
    }
}
