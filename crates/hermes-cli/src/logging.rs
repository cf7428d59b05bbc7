//! Logs go to the home's logs directory, never to the terminal. Secrets are cut out of each line.
//!
//! `agent.log` has everything from INFO up, `errors.log` from WARN up; each is rotated at 5 MB,
//! three old ones are kept. Files are opened at the first line, so that a quiet run costs nothing.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

const ROTATE_AT: u64 = 5 * 1024 * 1024;
const KEEP: u32 = 3;

/// Starts logging into `dir`. A second call in one process changes nothing.
pub(crate) fn start(dir: &Path) {
    begin(dir, None, 0);
}

/// The same for the gateway, which has a log of its own. `verbose`: how much is said on stderr.
pub(crate) fn start_gateway(dir: &Path, verbose: u8) {
    begin(dir, Some(LogFile::new(dir.join("gateway.log"))), verbose);
}

fn begin(dir: &Path, gateway: Option<LogFile>, verbose: u8) {
    let layer = FileLayer {
        agent: LogFile::new(dir.join("agent.log")),
        errors: LogFile::new(dir.join("errors.log")),
        gateway,
        verbose,
    };
    let filter = if verbose > 1 {
        tracing_subscriber::filter::LevelFilter::DEBUG
    } else {
        tracing_subscriber::filter::LevelFilter::INFO
    };
    // Already started: the first one stays.
    let _ = tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init();
}

struct FileLayer {
    agent: LogFile,
    errors: LogFile,
    gateway: Option<LogFile>,
    /// Lines that go to stderr, too.
    verbose: u8,
}

impl<S: Subscriber> Layer<S> for FileLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        // Libraries below us are heard only when something is wrong.
        if !meta.target().starts_with("hermes") && *meta.level() > Level::WARN {
            return;
        }
        let mut text = LineBuilder::default();
        event.record(&mut text);
        let now = chrono::Local::now().format("%Y-%m-%d %H:%M:%S,%3f");
        let line = format!("{now} {} {}: {}\n", meta.level(), meta.target(), text.0);
        let line = hermes_core::redact::secrets(&line);
        // Whoever looks at the file does so on a terminal.
        let line = crate::output::harmless(&line);
        self.agent.write(&line);
        if *meta.level() <= Level::WARN {
            self.errors.write(&line);
        }
        if let Some(gateway) = &self.gateway {
            let about = meta.target();
            if about.starts_with("hermes_gateway") || about.starts_with("hermes::commands::gateway")
            {
                gateway.write(&line);
            }
        }
        if self.verbose > 0 {
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }
}

#[derive(Default)]
struct LineBuilder(String);

impl Visit for LineBuilder {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = if field.name() == "message" {
            write!(self.0, "{value:?} ")
        } else {
            write!(self.0, "{}={value:?} ", field.name())
        };
    }
}

struct LogFile {
    path: PathBuf,
    state: Mutex<State>,
}

enum State {
    Closed,
    Open {
        file: File,
        bytes: u64,
    },
    /// It cannot be written.
    Failed,
}

impl LogFile {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            state: Mutex::new(State::Closed),
        }
    }

    /// A log that cannot be written is not worth stopping for.
    fn write(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A process may live for months: it rotates while it runs.
        if matches!(*state, State::Open { bytes, .. } if bytes > ROTATE_AT) {
            *state = State::Closed;
        }
        if matches!(*state, State::Closed) {
            *state = self.open().unwrap_or(State::Failed);
        }
        if let State::Open { file, bytes } = &mut *state {
            let _ = file.write_all(line.as_bytes());
            *bytes += line.len() as u64;
        }
    }

    fn open(&self) -> Option<State> {
        std::fs::create_dir_all(self.path.parent()?).ok()?;
        let mut bytes = std::fs::metadata(&self.path).map_or(0, |meta| meta.len());
        if bytes > ROTATE_AT {
            self.rotate();
            bytes = 0;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)
            .ok()?;
        Some(State::Open { file, bytes })
    }

    fn rotate(&self) {
        let numbered = |n: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{n}"));
            PathBuf::from(name)
        };
        for n in (1..KEEP).rev() {
            let _ = std::fs::rename(numbered(n), numbered(n + 1));
        }
        let _ = std::fs::rename(&self.path, numbered(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_rotated_while_it_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogFile::new(dir.path().join("agent.log"));
        log.write("begin\n");
        log.write(&"x".repeat(ROTATE_AT as usize));
        log.write("next\n");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("agent.log"), "next\n");
        assert!(read("agent.log.1").starts_with("begin\n"));
    }

    #[test]
    fn a_large_log_is_rotated_and_three_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        for round in 0..5_u32 {
            let big = vec![b'0' + round as u8; ROTATE_AT as usize + 1];
            std::fs::write(&path, big).unwrap();
            LogFile::new(path.clone()).write("next\n");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["agent.log", "agent.log.1", "agent.log.2", "agent.log.3"]
        );
    }
}
