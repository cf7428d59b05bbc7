//! Background processes: who runs, what they say, who is told of it, and what survives a restart.

mod checkpoint;
mod entry;
mod notice;
mod registry;
mod watch;

pub use entry::{Ended, LogPage, ProcessInfo, Reason};
pub use notice::{Notice, NoticeKind, Notices, Silent};
pub use registry::{NewProcess, ProcessError, ProcessRegistry, RegistryOptions, Waited};
pub use watch::{Breaker, Watcher};

/// Where a process was started from, for platforms that answer there. The names are those of the
/// checkpoint file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Routing {
    pub watcher_platform: String,
    pub watcher_chat_id: String,
    pub watcher_user_id: String,
    pub watcher_user_name: String,
    pub watcher_thread_id: String,
    pub watcher_message_id: String,
}
