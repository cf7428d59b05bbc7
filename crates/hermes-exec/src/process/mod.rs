//! Background processes: registry, output, notices, and survival of a restart.

mod checkpoint;
mod entry;
mod notice;
mod registry;
mod watch;

pub use entry::{EndReason, ProcessEnd, ProcessInfo};
pub use notice::{Notice, NoticeKind, Notices};
pub use registry::{NewProcess, ProcessError, ProcessRegistry, RegistryOptions, WaitOutcome};

/// Where a process was started from, for platforms that reply there. The field names are those of the
/// checkpoint file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ProcessRouting {
    pub watcher_platform: String,
    pub watcher_chat_id: String,
    pub watcher_user_id: String,
    pub watcher_user_name: String,
    pub watcher_thread_id: String,
    pub watcher_message_id: String,
}
