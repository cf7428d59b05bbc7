//! Speech: heard and spoken.
//!
//! Who does it is configured (`stt:`, `tts:`): a service that speaks OpenAI's protocol, a command
//! of the person, a program on this machine. A service is used only where it was named or where
//! its key is there and nobody named another.

mod settings;
mod synthesize;
mod template;
mod tool;
mod transcribe;

use std::path::{Path, PathBuf};

use hermes_core::BoxFuture;

pub use synthesize::HomeSynthesizer;
pub use tool::SpeakTool;
pub use transcribe::HomeTranscriber;

/// Turns a recording into words.
pub trait Transcriber: Send + Sync {
    /// `Err`: why there are no words, for the person. It ends in bounded time.
    fn transcribe<'a>(&'a self, recording: &'a Path) -> BoxFuture<'a, Result<String, String>>;

    /// Whether the words are shown to the person, too.
    fn echoes(&self) -> bool {
        true
    }
}

/// Turns words into a recording.
pub trait SpeechSynthesizer: Send + Sync {
    /// Whether somebody could speak at all.
    fn can_speak(&self) -> bool {
        true
    }

    /// The recording, in a file below `into`. `Err`: why there is none. It ends in bounded time.
    fn speak<'a>(&'a self, text: &'a str, into: &'a Path)
    -> BoxFuture<'a, Result<PathBuf, String>>;
}
