//! The scripted model server, as a process with a log.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// A model call as the server saw it. Times are wall-clock nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct BenchCall {
    pub arrived: u64,
    pub answered: u64,
    pub bytes: u64,
}

pub(super) struct Server {
    child: Child,
    /// The server lives as long as this pipe.
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    pub base_url: String,
}

impl Server {
    pub(super) fn start(program: &Path, script: &Value, directory: &Path) -> Result<Self> {
        let file = directory.join("script.json");
        std::fs::write(&file, script.to_string())?;
        let mut child = Command::new(program)
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let stdin = child.stdin.take();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::Null);
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let first = lines.recv().context("the model server did not start")?;
        let base_url = first["base_url"]
            .as_str()
            .context("its first line names its address")?;
        let base_url = base_url.to_owned();
        Ok(Self {
            child,
            stdin,
            lines,
            base_url,
        })
    }

    /// The model calls since the last time, complete with their answers.
    pub(super) fn calls(&self) -> Vec<BenchCall> {
        let mut calls: Vec<(u64, BenchCall)> = Vec::new();
        let open = |calls: &[(u64, BenchCall)]| calls.iter().any(|(_, call)| call.answered == 0);
        loop {
            let patience = if open(&calls) { 2000 } else { 50 };
            let Ok(line) = self.lines.recv_timeout(Duration::from_millis(patience)) else {
                return calls.into_iter().map(|(_, call)| call).collect();
            };
            let ns = line["ns"].as_u64().unwrap_or_default();
            if let Some(index) = line["arrived"].as_u64() {
                if line["model_call"] == true {
                    let call = BenchCall {
                        arrived: ns,
                        answered: 0,
                        bytes: line["bytes"].as_u64().unwrap_or_default(),
                    };
                    calls.push((index, call));
                }
            } else if let Some(index) = line["answered"].as_u64()
                && let Some((_, call)) = calls.iter_mut().find(|(number, _)| *number == index)
            {
                call.answered = ns;
            }
        }
    }

    /// Waits for the next model call to arrive.
    pub(super) fn wait_for_call(&self, patience: Duration) -> bool {
        while let Ok(line) = self.lines.recv_timeout(patience) {
            if line["model_call"] == true {
                return true;
            }
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends with its pipe; nothing is left to do if it does not.
        let _ = self.child.wait();
    }
}
