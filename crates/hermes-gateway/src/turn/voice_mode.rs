//! Whether answers are spoken, per chat: `/voice`. The file format is the original's.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hermes_config::fs::write_atomic;
use hermes_store::delivery::Target;
use serde_json::Value;

use super::shared::GatewayShared;

const FILE: &str = "gateway_voice_mode.json";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoiceMode {
    Off,
    /// Voice messages get spoken answers.
    Spoken,
    All,
}

impl VoiceMode {
    fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Spoken => "voice_only",
            Self::All => "all",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Off, Self::Spoken, Self::All]
            .into_iter()
            .find(|mode| mode.word() == word)
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Off => "off: answers are written",
            Self::Spoken => "on: voice messages are also answered by voice",
            Self::All => "tts: every answer is spoken as well",
        }
    }
}

fn key(target: &Target) -> String {
    format!("{}:{}", target.platform, target.chat_id)
}

impl GatewayShared {
    fn voice_file(&self) -> PathBuf {
        self.settings.home.join(FILE)
    }

    /// Missing or unreadable values are ignored.
    fn voice_modes(&self) -> BTreeMap<String, Value> {
        let text = std::fs::read_to_string(self.voice_file()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The chat's choice, else the configured default.
    pub(super) fn voice_mode(&self, target: &Target) -> VoiceMode {
        let modes = self.voice_modes();
        let chosen = modes.get(&key(target)).and_then(Value::as_str);
        chosen.and_then(VoiceMode::parse).unwrap_or_else(|| {
            let wanted = self.settings.setting("voice_replies");
            match wanted.and_then(Value::as_bool) {
                Some(false) => VoiceMode::Off,
                _ => VoiceMode::Spoken,
            }
        })
    }

    pub(super) fn set_voice_mode(&self, target: &Target, mode: VoiceMode) -> std::io::Result<()> {
        let _one_at_a_time = self.homes.lock();
        let mut modes = self.voice_modes();
        modes.insert(key(target), mode.word().into());
        let text = serde_json::to_string_pretty(&modes).map_err(std::io::Error::other)?;
        let path = self.voice_file();
        write_atomic(&path, text.as_bytes(), 0o600)
    }
}
