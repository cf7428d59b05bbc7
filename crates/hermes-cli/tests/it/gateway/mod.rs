//! The gateway as a process of its own, end to end.

mod api;
mod chaos;
mod control;
mod discord;
mod discord_away;
mod email;
mod flat;
mod harness;
mod jobs;
mod mcp_servers;
mod people;
mod process;
mod slack;
mod slack_teams;
mod systemd;
mod telegram;
mod telegram_hook;
mod telegram_places;
mod webhook;

use std::os::unix::net::UnixDatagram;
use std::process::Child;
use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::process::{FinishedProgram, Program, finish};
use serde_json::Value;

use crate::hermes;

/// What a gateway may take to say something before the test gives up.
const PATIENCE: Duration = Duration::from_mins(1);

/// A gateway that runs. It says when it is ready in the way in which it tells systemd.
pub(crate) struct GatewayChild {
    child: Option<Child>,
    words: UnixDatagram,
    pub(crate) pid: u32,
}

impl GatewayChild {
    /// Returns when it runs.
    pub(crate) fn begin(home: &TempHome, args: &[&str]) -> Self {
        Self::with(home, |program| program.args(args))
    }

    pub(crate) fn with(home: &TempHome, set: impl FnOnce(Program) -> Program) -> Self {
        let mut life = Self::unready(home, set);
        if life.says("READY=1") {
            return life;
        }
        let finished = finish(life.child.take().unwrap());
        unreachable!("it ended: {finished:?}");
    }

    fn unready(home: &TempHome, set: impl FnOnce(Program) -> Program) -> Self {
        let path = home.work().join(format!("notify-{}", rand_name()));
        let words = UnixDatagram::bind(&path).unwrap();
        words
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let program = hermes(home)
            .args(["gateway", "run"])
            .env("NOTIFY_SOCKET", &path)
            .env("HERMES_GATEWAY_LOCK_DIR", home.work().join("locks"));
        let child = set(program).spawn();
        Self {
            pid: child.id(),
            child: Some(child),
            words,
        }
    }

    /// Waits for this word. `false`: it ended before.
    pub(crate) fn says(&mut self, wanted: &str) -> bool {
        let began = std::time::Instant::now();
        let mut words = [0; 512];
        loop {
            if let Ok(count) = self.words.recv(&mut words)
                && String::from_utf8_lossy(&words[..count]).contains(wanted)
            {
                return true;
            }
            let ended = self
                .child
                .as_mut()
                .is_none_or(|child| child.try_wait().unwrap().is_some());
            if ended {
                return false;
            }
            assert!(began.elapsed() < PATIENCE, "it does not say {wanted}");
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> FinishedProgram {
        finish(self.child.take().unwrap())
    }

    /// Ends it as its person does.
    pub(crate) fn stop(self) -> FinishedProgram {
        self.signal(rustix::process::Signal::INT);
        self.end()
    }
}

impl Drop for GatewayChild {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn rand_name() -> u128 {
    use std::time::{SystemTime, UNIX_EPOCH};
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
}

pub(crate) fn state(home: &TempHome) -> Value {
    serde_json::from_str(&home.read("gateway_state.json")).unwrap()
}
