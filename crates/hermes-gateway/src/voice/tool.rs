//! The tool `text_to_speech`.

use std::path::PathBuf;
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};

use super::HomeSynthesizer;

const ABOUT: &str = "Reads a text out into an audio file. Who speaks, and with which voice, is \
configured and not yours to choose. To send the recording, put the returned media_tag into your \
answer as it is.";

pub(crate) struct SpeakTool {
    spec: ToolSpec,
    speaker: Arc<HomeSynthesizer>,
    /// The directory for recordings; a path chosen by the model would need the checks of the file
    /// tools.
    dir: PathBuf,
}

impl SpeakTool {
    pub(crate) fn new(speaker: Arc<HomeSynthesizer>, dir: PathBuf) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "What is read out"},
                "output_path": {
                    "type": "string",
                    "description": "Kept for older prompts; the file's name is chosen for you"
                }
            },
            "required": ["text"]
        });
        Self {
            spec: ToolSpec {
                name: "text_to_speech".to_owned(),
                description: ABOUT.to_owned(),
                parameters: Arc::new(parameters),
                toolset: "tts",
                effects: Effects::ReadOnly,
                untrusted: false,
            },
            speaker,
            dir,
        }
    }
}

impl Tool for SpeakTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let Some(text) = args.get("text").and_then(Value::as_str) else {
                return ToolOutcome::error(ToolErrorKind::BadArguments, "text is missing");
            };
            let speaking = self.speaker.speak(text, &self.dir);
            let spoken = tokio::select! {
                () = cx.cancel.cancelled() => {
                    return ToolOutcome::error(ToolErrorKind::Cancelled, "stopped");
                }
                spoken = speaking => spoken,
            };
            match spoken {
                Ok(path) => {
                    let path = path.to_string_lossy();
                    ToolOutcome::json(&json!({
                        "success": true,
                        "file_path": path,
                        "media_tag": format!("[[audio_as_voice]]\nMEDIA:{path}"),
                    }))
                }
                Err(why) => ToolOutcome::error(ToolErrorKind::Failed, why),
            }
        })
    }
}
