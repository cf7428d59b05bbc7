//! What goes wrong on purpose.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A fault for the next requests that match.
#[derive(Clone, Debug)]
pub struct DiscordFault {
    pub method: &'static str,
    /// A part of the path.
    pub path: &'static str,
    pub kind: DiscordFaultKind,
    pub times: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DiscordFaultKind {
    /// The connection ends before anything happened.
    Lost,
    /// It happens, and the connection ends before the answer.
    AnswerLost,
    /// It happens, and no answer ever comes.
    Hang,
    /// 429 with this many seconds.
    Limited { seconds: f64, global: bool },
    /// Nothing happens, and this status is the answer.
    Status(u16, Value),
}

/// How many requests a bucket takes within a window.
#[derive(Debug)]
pub(super) struct BucketLimits {
    pub count: u32,
    pub window: Duration,
    buckets: HashMap<String, (Instant, u32)>,
}

impl Default for BucketLimits {
    fn default() -> Self {
        Self {
            count: 50,
            window: Duration::from_secs(1),
            buckets: HashMap::new(),
        }
    }
}

/// What the headers of an answer say.
pub(super) struct BucketUse {
    pub bucket: String,
    pub limit: u32,
    pub remaining: u32,
    pub reset_after: f64,
    /// It was one too many.
    pub over: bool,
}

impl BucketLimits {
    /// Counts a request. The bucket of a route is its method and its major parameter.
    pub(super) fn spend(&mut self, bucket: &str) -> BucketUse {
        let now = Instant::now();
        let (window, count) = (self.window, self.count);
        let entry = self.buckets.entry(bucket.to_owned()).or_insert((now, 0));
        if now.duration_since(entry.0) >= window {
            *entry = (now, 0);
        }
        let over = entry.1 >= count;
        if !over {
            entry.1 += 1;
        }
        BucketUse {
            bucket: format!("{:08x}", hash(bucket)),
            limit: count,
            remaining: count - entry.1,
            reset_after: window
                .saturating_sub(now.duration_since(entry.0))
                .as_secs_f64(),
            over,
        }
    }
}

fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
