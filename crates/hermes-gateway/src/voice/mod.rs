//! Speech: transcription and synthesis.
//!
//! Configured by `stt:` and `tts:`: a service with OpenAI's protocol, a custom command, or a local
//! program. A service is used only if it is configured, or if its key exists and nothing else is
//! configured.

mod settings;
mod synthesize;
mod template;
mod tool;
mod transcribe;

use std::path::Path;

use hermes_core::BoxFuture;

pub use synthesize::HomeSynthesizer;
pub(crate) use tool::SpeakTool;
pub use transcribe::HomeTranscriber;

/// Transcribes recordings.
pub trait Transcriber: Send + Sync {
    /// `Err`: why there is no transcript, for the person. Takes bounded time.
    fn transcribe<'a>(&'a self, recording: &'a Path) -> BoxFuture<'a, Result<String, String>>;

    /// Whether the transcript is shown to the person, too.
    fn echoes(&self) -> bool {
        true
    }
}
