//! Speech: heard and spoken.

use std::path::{Path, PathBuf};

use hermes_core::BoxFuture;

/// Turns a recording into words.
pub trait Transcriber: Send + Sync {
    /// `Err`: why there are no words, for the person. It ends in bounded time.
    fn transcribe<'a>(&'a self, recording: &'a Path) -> BoxFuture<'a, Result<String, String>>;
}

/// Turns words into a recording.
pub trait Speaker: Send + Sync {
    /// The recording, in a file below `into`. `Err`: why there is none. It ends in bounded time.
    fn speak<'a>(&'a self, text: &'a str, into: &'a Path)
    -> BoxFuture<'a, Result<PathBuf, String>>;
}
