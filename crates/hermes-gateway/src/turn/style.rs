//! How much of its work a conversation shows, by platform.

use std::time::Duration;

use hermes_platforms::{Batching, definition};
use serde_json::Value;

use crate::settings::{BusyMode, GatewaySettings, StreamTransport, StreamingSettings};

/// Which tool calls are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolProgress {
    Off,
    /// Each tool once in a row.
    New,
    All,
}

#[derive(Clone, Debug)]
pub(super) struct ChatStyle {
    /// The answer is shown while it is generated.
    pub(super) stream: bool,
    pub(super) progress: ToolProgress,
    pub(super) typing: bool,
    pub(super) reactions: bool,
    /// How often a long turn reports that it is running.
    pub(super) notice_every: Option<Duration>,
    /// How long to wait for further parts of a message.
    pub(super) batch: BatchWindows,
    /// Acknowledge queued messages with a text if the platform has no reactions.
    pub(super) ack: bool,
}

/// How long to wait for more.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchWindows {
    pub(super) short: Duration,
    /// After a text of the maximum length that clients send.
    pub(super) split: Duration,
    pub(super) album: Duration,
    /// Only parts of one message are merged, not separate messages in quick succession.
    only_parts: bool,
}

impl ChatStyle {
    pub(super) fn from_settings(settings: &GatewaySettings, platform: &str) -> Self {
        let block = settings.platform(platform);
        let display = |name: &str| {
            let own = format!("/display/platforms/{platform}/{name}");
            settings.tree.pointer(&own)
        };
        let flag = |name: &str| display(name).and_then(Value::as_bool);
        let word = display("tool_progress")
            .or_else(|| settings.tree.pointer("/display/tool_progress"))
            .and_then(Value::as_str);
        let progress = match word.map(str::trim) {
            Some("off" | "log") => ToolProgress::Off,
            Some("new") => ToolProgress::New,
            Some("all" | "verbose") => ToolProgress::All,
            _ if definition(platform).is_some_and(|one| one.shows_tools) => ToolProgress::All,
            _ => match platform {
                "mattermost" | "matrix" | "feishu" | "whatsapp" => ToolProgress::New,
                _ => ToolProgress::Off,
            },
        };
        let streaming: &StreamingSettings = &settings.streaming;
        let notice = settings.config.agent.gateway_notify_interval;
        let ack = settings.config.display.busy_steer_ack_enabled;
        Self {
            stream: streaming.enabled
                && streaming.transport != StreamTransport::Off
                && flag("streaming").unwrap_or(true),
            progress,
            typing: block.and_then(|block| block.flag("typing_indicator")) != Some(false),
            // Without a configured block, the platform's capability decides.
            reactions: block.is_none_or(|block| block.flag("reactions") == Some(true)),
            notice_every: (notice > 0).then(|| Duration::from_secs(notice)),
            batch: BatchWindows::from_platform(platform).in_mode(settings.busy),
            ack,
        }
    }

    /// Whether there is anything to show besides typing.
    pub(super) fn shows(&self) -> bool {
        self.stream || self.progress != ToolProgress::Off || self.notice_every.is_some()
    }
}

impl BatchWindows {
    fn from_platform(platform: &str) -> Self {
        let batching = definition(platform).map_or(Batching::USUAL, |one| one.batching);
        Self {
            short: Duration::from_millis(batching.short),
            split: Duration::from_millis(batching.split),
            album: Duration::from_millis(batching.album),
            only_parts: false,
        }
    }

    /// If each message gets its own answer, only parts of one message are merged.
    fn in_mode(self, busy: BusyMode) -> Self {
        match busy {
            BusyMode::Queue => Self {
                short: Duration::ZERO,
                only_parts: true,
                ..self
            },
            BusyMode::Interrupt | BusyMode::Steer => self,
        }
    }

    /// How long after a message of this length to wait. Clients cut texts a little below the
    /// limit of their platform.
    pub(super) fn wait(&self, chars: usize, limit: usize, media: bool) -> Duration {
        if media {
            self.album
        } else if is_cut(chars, limit) {
            self.split
        } else if chars > 256 {
            self.short.mul_f64(1.5)
        } else {
            self.short
        }
    }

    /// Whether a message may be merged with the previous one, by its length and by which of them
    /// have files.
    pub(super) fn joins(&self, chars_before: usize, limit: usize, files: (bool, bool)) -> bool {
        !self.only_parts || files == (true, true) || is_cut(chars_before, limit)
    }
}

/// Whether a text of this length may be the first part of a longer one.
fn is_cut(chars: usize, limit: usize) -> bool {
    chars >= limit.saturating_sub(limit / 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_queue_only_the_parts_of_one_message_go_together() {
        let queue = BatchWindows::from_platform("telegram").in_mode(BusyMode::Queue);
        let steer = BatchWindows::from_platform("telegram").in_mode(BusyMode::Steer);
        for (chars, files, together) in [
            (5, (false, false), false),
            (300, (false, false), false),
            (4096, (false, false), true),
            (5, (true, true), true),
            (5, (true, false), false),
            (5, (false, true), false),
        ] {
            assert_eq!(
                queue.joins(chars, 4096, files),
                together,
                "{chars} {files:?}"
            );
            assert!(steer.joins(chars, 4096, files));
        }
        assert!(queue.wait(5, 4096, false).is_zero());
        assert!(queue.wait(300, 4096, false).is_zero());
    }
}
