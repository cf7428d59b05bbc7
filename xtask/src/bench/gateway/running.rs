//! A gateway that runs: ours, the original's, or a bare server that only passes on.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::client::Client;
use crate::bench::programs::{Programs, Who, configure};

pub(super) const KEY: &str = "bench-key-0123456789abcdef";
/// How long a program may take until it answers.
const START: Duration = Duration::from_mins(1);
/// The kernel counts a process's time in these.
const TICK_MS: f64 = 10.0;

pub(super) struct BenchGateway {
    child: Child,
    pub(super) port: u16,
}

impl BenchGateway {
    /// Returns when it answers, and how long that took.
    pub(super) fn start(
        programs: &Programs,
        who: Who,
        home: &Path,
        model: &str,
    ) -> Result<(Self, Duration)> {
        let port = free_port()?;
        let env =
            format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY={KEY}\nAPI_SERVER_PORT={port}\n");
        std::fs::write(home.join("home/.env"), env)?;
        let log = std::fs::File::create(home.join("gateway.log"))?;
        let mut command = Command::new(programs.path(who));
        if who == Who::Bare {
            command.args(["serve", model, &port.to_string()]);
        } else {
            command.args(["gateway", "run"]);
        }
        let begun = Instant::now();
        let child = command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HERMES_HOME", home.join("home"))
            .env("HOME", home.join("user"))
            .env("HERMES_GATEWAY_LOCK_DIR", home.join("locks"))
            .env("LANG", "C.UTF-8")
            .current_dir(home.join("work"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| programs.path(who).display().to_string())?;
        let mut gateway = Self { child, port };
        loop {
            if Client::new(port)
                .and_then(|mut client| client.get("/health"))
                .is_ok()
            {
                return Ok((gateway, begun.elapsed()));
            }
            if let Some(status) = gateway.child.try_wait()? {
                let log = std::fs::read_to_string(home.join("gateway.log"))?;
                bail!("{who:?} ended with {status}\n{log}");
            }
            ensure!(begun.elapsed() < START, "{who:?} does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resident memory now, in MB.
    pub(super) fn resident(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kb = line.and_then(|line| line.split_whitespace().nth(1));
        let kb: f64 = kb.context("VmRSS")?.parse()?;
        Ok(kb / 1024.0)
    }

    /// Processor time so far, of the program and in the kernel for it, in ms.
    pub(super) fn worked(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name may hold anything, brackets too; what follows it has fixed places.
        let (_, rest) = stat.rsplit_once(')').context("a process has a name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| -> Result<f64> {
            Ok(fields.get(at).context("times of a process")?.parse()?)
        };
        Ok((ticks(11)? + ticks(12)?) * TICK_MS)
    }
}

impl Drop for BenchGateway {
    fn drop(&mut self) {
        // A stop in order is not measured here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A home that is pointed at the model.
pub(super) fn home(programs: &Programs, name: &str, who: Who, model: &str) -> Result<PathBuf> {
    let home = programs.home(name, who)?;
    configure(&home, model)?;
    let path = home.join("home/config.yaml");
    let mut config = std::fs::read_to_string(&path)?;
    config.push_str("gateway:\n  api_server:\n    max_concurrent_runs: 0\n");
    std::fs::write(&path, config)?;
    Ok(home)
}
