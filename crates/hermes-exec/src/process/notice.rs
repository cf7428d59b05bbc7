//! Notices to the owner of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hermes_core::ids::SessionId;

use super::ProcessRouting;
use super::entry::ProcessEnd;

/// An event of a background process for its session.
#[derive(Clone, Debug)]
pub struct Notice {
    pub session: SessionId,
    pub routing: ProcessRouting,
    pub process: String,
    /// As started; may contain secrets.
    pub command: String,
    pub kind: NoticeKind,
    consumed: ConsumedFlag,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// It ended.
    Completed { ended: ProcessEnd, output: String },
    /// A line of its output contains a pattern.
    Matched {
        pattern: String,
        output: String,
        /// Matches suppressed since the last notice.
        suppressed: u64,
    },
    /// It matched too often; only its end will be reported.
    WatchDisabled { suppressed: u64 },
    /// Too many matches of all processes together: notices are paused.
    Overflow,
    /// The pause is over.
    Resumed { suppressed: u64 },
}

/// Whether the end of a process has been read in another way.
#[derive(Clone, Debug, Default)]
pub(super) struct ConsumedFlag(Arc<AtomicBool>);

impl ConsumedFlag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Notice {
    pub(super) fn new(
        session: SessionId,
        routing: ProcessRouting,
        (process, command): (String, String),
        kind: NoticeKind,
        consumed: ConsumedFlag,
    ) -> Self {
        Self {
            session,
            routing,
            process,
            command,
            kind,
            consumed,
        }
    }

    /// Whether this is outdated because the session has waited for the end or read it. Checked right before
    /// delivery.
    pub fn is_stale(&self) -> bool {
        matches!(self.kind, NoticeKind::Completed { .. }) && self.consumed.is_set()
    }

    /// For the model, with secrets redacted.
    pub fn text(&self) -> String {
        let text = match &self.kind {
            NoticeKind::Completed { ended, output } => format!(
                "[Background process {} {}.\nCommand: {}\nEnd of its output:\n{}]",
                self.process,
                ended.phrase(),
                self.command,
                output.trim_end()
            ),
            NoticeKind::Matched {
                pattern,
                output,
                suppressed,
            } => {
                let before = match suppressed {
                    0 => String::new(),
                    n => format!("\n({n} matching lines before were not reported)"),
                };
                format!(
                    "[Background process {} printed what you watch for ({pattern:?}).\nCommand: {}\n\
                     Lines:\n{output}{before}]",
                    self.process, self.command
                )
            }
            NoticeKind::WatchDisabled { suppressed } => format!(
                "[Background process {} matches its watch patterns too often ({suppressed} lines \
                 were not reported). They are off now; you will be told when it ends.]",
                self.process
            ),
            NoticeKind::Overflow => {
                "[Background processes match their watch patterns too often. Matches are not \
                 reported for half a minute.]"
                    .to_owned()
            }
            NoticeKind::Resumed { suppressed } => format!(
                "[Matches of background processes are reported again; {suppressed} were left out.]"
            ),
        };
        hermes_core::redact::secrets(&text).into_owned()
    }

    /// One line for the user.
    pub fn headline(&self) -> String {
        let first = self.command.lines().next().unwrap_or_default();
        let mut command: String = first.chars().take(60).collect();
        if command.len() < self.command.trim_end().len() {
            command.push('…');
        }
        let line = match &self.kind {
            NoticeKind::Completed { ended, .. } => {
                format!("{} {}: {command}", self.process, ended.phrase())
            }
            NoticeKind::Matched { pattern, .. } => {
                format!("{} printed {pattern:?}: {command}", self.process)
            }
            NoticeKind::WatchDisabled { .. } => {
                format!(
                    "{}: watch patterns turned off, too many matches",
                    self.process
                )
            }
            NoticeKind::Overflow => "background processes: matches paused".to_owned(),
            NoticeKind::Resumed { .. } => "background processes: matches again".to_owned(),
        };
        hermes_core::redact::secrets(&line).into_owned()
    }
}

/// Delivers notices. Must not block.
pub trait Notices: Send + Sync {
    fn deliver(&self, notice: Notice);

    /// Whether a notice can still reach this session after its turn.
    fn can_reach(&self, session: &SessionId) -> bool;
}
