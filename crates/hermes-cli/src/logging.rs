//! Logs go to the home's logs directory, never to the terminal. Secrets are cut out of each line.
//!
//! `agent.log` has everything from `logging.level` up (INFO), `errors.log` from WARN up; each is
//! rotated at `logging.max_size_mb` (5), `logging.backup_count` old ones are kept (3). Files are opened at the first line, so that a quiet run costs nothing.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hermes_config::schema::Logging;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Modules whose entries also go to gateway.log.
const GATEWAY_TARGETS: [&str; 5] = [
    "hermes_gateway",
    "hermes_platforms",
    "hermes_api",
    "hermes_app::hooks",
    "hermes::commands::gateway",
];

/// `logging`, as it is used here.
#[derive(Clone, Copy, Debug)]
struct LogRules {
    level: LevelFilter,
    rotate_at: u64,
    keep: u32,
}

impl LogRules {
    fn from_config(logging: &Logging) -> Self {
        Self {
            level: match logging.level.trim().to_ascii_lowercase().as_str() {
                "debug" => LevelFilter::DEBUG,
                "warning" | "warn" => LevelFilter::WARN,
                "error" | "critical" | "fatal" => LevelFilter::ERROR,
                _ => LevelFilter::INFO,
            },
            rotate_at: logging.max_size_mb.max(1).saturating_mul(1024 * 1024),
            keep: logging.backup_count,
        }
    }
}

/// Starts logging into the home's directory. A second call in one process changes nothing.
pub(crate) fn start(cx: &crate::commands::Context) {
    let rules = rules(cx);
    begin(&cx.home.logs_dir(), rules, false, 0);
}

/// The same with settings that were read already.
pub(crate) fn start_as(dir: &Path, logging: &Logging) {
    begin(dir, LogRules::from_config(logging), false, 0);
}

/// The same for the gateway, which has a log of its own. `verbose`: how much is said on stderr.
pub(crate) fn start_gateway(cx: &crate::commands::Context, verbose: u8) {
    let rules = rules(cx);
    begin(&cx.home.logs_dir(), rules, true, verbose);
}

/// A file that cannot be read is somebody else's to complain about.
fn rules(cx: &crate::commands::Context) -> LogRules {
    let logging = cx.load_config().map(|loaded| loaded.config.logging);
    LogRules::from_config(&logging.unwrap_or_default())
}

fn begin(dir: &Path, rules: LogRules, gateway: bool, verbose: u8) {
    let file = |name: &str| LogFile::new(dir.join(name), rules);
    let layer = FileLayer {
        agent: file("agent.log"),
        errors: file("errors.log"),
        gateway: gateway.then(|| file("gateway.log")),
        verbose,
    };
    let filter = if verbose > 1 {
        LevelFilter::DEBUG
    } else {
        rules.level
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
        // Dependencies log only warnings and errors.
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
            if GATEWAY_TARGETS
                .iter()
                .any(|target| about.starts_with(target))
            {
                gateway.write(&line);
            }
        }
        if self.verbose > 0 {
            let _ = crate::output::SafeStderr.write_all(line.as_bytes());
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
    rules: LogRules,
    state: Mutex<LogFileState>,
}

enum LogFileState {
    Closed,
    Open {
        file: File,
        bytes: u64,
    },
    /// It cannot be written.
    Failed,
}

impl LogFile {
    fn new(path: PathBuf, rules: LogRules) -> Self {
        Self {
            path,
            rules,
            state: Mutex::new(LogFileState::Closed),
        }
    }

    /// A log that cannot be written is not worth stopping for.
    fn write(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A process may live for months: it rotates while it runs.
        if matches!(*state, LogFileState::Open { bytes, .. } if bytes > self.rules.rotate_at) {
            *state = LogFileState::Closed;
        }
        if matches!(*state, LogFileState::Closed) {
            *state = self.open().unwrap_or(LogFileState::Failed);
        }
        if let LogFileState::Open { file, bytes } = &mut *state {
            let _ = file.write_all(line.as_bytes());
            *bytes += line.len() as u64;
        }
    }

    fn open(&self) -> Option<LogFileState> {
        std::fs::create_dir_all(self.path.parent()?).ok()?;
        let mut bytes = std::fs::metadata(&self.path).map_or(0, |meta| meta.len());
        if bytes > self.rules.rotate_at {
            self.rotate();
            bytes = 0;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)
            .ok()?;
        Some(LogFileState::Open { file, bytes })
    }

    fn rotate(&self) {
        let numbered = |n: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{n}"));
            PathBuf::from(name)
        };
        let keep = self.rules.keep;
        if keep == 0 {
            let _ = std::fs::remove_file(&self.path);
            return;
        }
        for n in (1..keep).rev() {
            let _ = std::fs::rename(numbered(n), numbered(n + 1));
        }
        let _ = std::fs::rename(&self.path, numbered(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LOG_BYTES: u64 = 5 * 1024 * 1024;

    fn usual() -> LogRules {
        LogRules::from_config(&Logging::default())
    }

    #[test]
    fn a_log_is_rotated_while_it_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogFile::new(dir.path().join("agent.log"), usual());
        log.write("begin\n");
        log.write(&"x".repeat(MAX_LOG_BYTES as usize));
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
            let big = vec![b'0' + round as u8; MAX_LOG_BYTES as usize + 1];
            std::fs::write(&path, big).unwrap();
            LogFile::new(path.clone(), usual()).write("next\n");
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
