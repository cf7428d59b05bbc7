//! Output while it comes: collected for the model, its latest lines shown to the person.

use std::time::Duration;

use hermes_core::event::ProgressSink;
use hermes_exec::output::{Collected, Collector};
use hermes_exec::{Sink, Stream};
use tokio::time::Instant;

use super::hide;

const EVERY: Duration = Duration::from_millis(250);
const SHOWN: usize = 500;

pub(super) struct Live<'a> {
    collector: Collector,
    command: &'a str,
    progress: &'a ProgressSink,
    last: Instant,
}

impl<'a> Live<'a> {
    pub(super) fn new(limit: usize, command: &'a str, progress: &'a ProgressSink) -> Self {
        Self {
            collector: Collector::new(limit),
            command,
            progress,
            last: Instant::now(),
        }
    }

    pub(super) fn finish(self) -> Collected {
        self.collector.finish()
    }
}

impl Sink for Live<'_> {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        self.collector.push(stream, bytes);
        let now = Instant::now();
        if now - self.last >= EVERY {
            self.last = now;
            let tail = self.collector.tail(SHOWN);
            self.progress
                .report(hide::output(self.command, tail.trim_end()));
        }
    }
}
