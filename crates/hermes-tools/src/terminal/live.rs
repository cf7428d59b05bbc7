//! Live output: collected for the model, with the latest lines shown to the user.

use std::time::Duration;

use hermes_core::event::ProgressSink;
use hermes_exec::output::{CollectedOutput, OutputCollector};
use hermes_exec::{OutputSink, OutputStream};
use tokio::time::Instant;

use super::hide;

const UPDATE_INTERVAL: Duration = Duration::from_millis(250);
const MAX_SHOWN_CHARS: usize = 500;

pub(super) struct LiveOutput<'a> {
    collector: OutputCollector,
    command: &'a str,
    progress: &'a ProgressSink,
    last: Instant,
}

impl<'a> LiveOutput<'a> {
    pub(super) fn new(limit: usize, command: &'a str, progress: &'a ProgressSink) -> Self {
        Self {
            collector: OutputCollector::new(limit),
            command,
            progress,
            last: Instant::now(),
        }
    }

    pub(super) fn finish(self) -> CollectedOutput {
        self.collector.finish()
    }
}

impl OutputSink for LiveOutput<'_> {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.collector.push(stream, bytes);
        let now = Instant::now();
        if now - self.last >= UPDATE_INTERVAL {
            self.last = now;
            let tail = self.collector.tail(MAX_SHOWN_CHARS);
            self.progress
                .report(hide::output(self.command, tail.trim_end()));
        }
    }
}
