//! Text to speech.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_platforms::{Markup, PlatformHttp, render};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::settings::VoiceSettings;
use super::template;
use super::transcribe::scratch;
use hermes_app::child;

/// Longer texts are cut.
const MAX_TEXT_CHARS: usize = 4096;
const SERVICE_TIMEOUT: Duration = Duration::from_mins(2);
const COMMAND_TIMEOUT_SECONDS: u64 = 120;
/// Maximum size of a recording from a service.
const MAX_RECORDING_BYTES: usize = 25 * 1024 * 1024;

/// The configured synthesizer of a home.
pub struct HomeSynthesizer {
    block: VoiceSettings,
    /// Set explicitly in config.yaml; a default does not count.
    named: Option<String>,
    http: PlatformHttp,
}

enum SpeechMethod {
    OpenAi,
    ElevenLabs,
    Command {
        template: String,
        format: String,
        voice: String,
        model: String,
        deadline: Duration,
    },
}

impl HomeSynthesizer {
    /// `tts` with defaults; `named`: `tts.provider` if set in config.yaml itself.
    pub fn new(
        tts: Option<&Value>,
        named: Option<&str>,
        env: &HashMap<String, String>,
        http: PlatformHttp,
    ) -> Self {
        Self {
            block: VoiceSettings::new(tts, env),
            named: named.map(|name| name.trim().to_lowercase()),
            http,
        }
    }

    fn method(&self) -> Result<SpeechMethod, String> {
        let named = self.named.as_deref().filter(|name| *name != "auto");
        match named {
            None => self
                .local()
                .or_else(|| self.openai_key().map(|_| SpeechMethod::OpenAi))
                .ok_or_else(|| {
                    "no speech output is set up: install espeak-ng, or set VOICE_TOOLS_OPENAI_KEY, or name a \
                     tts.provider"
                        .to_owned()
                }),
            Some("openai") => match self.openai_key() {
                Some(_) => Ok(SpeechMethod::OpenAi),
                None => {
                    Err("tts.provider is openai, which needs VOICE_TOOLS_OPENAI_KEY".to_owned())
                }
            },
            Some("elevenlabs") => match self.block.var(&["ELEVENLABS_API_KEY"]) {
                Some(_) => Ok(SpeechMethod::ElevenLabs),
                None => {
                    Err("tts.provider is elevenlabs, which needs ELEVENLABS_API_KEY".to_owned())
                }
            },
            Some(name @ ("espeak-ng" | "espeak" | "flite")) => self
                .program(name)
                .ok_or_else(|| format!("tts.provider is {name}, which is not installed")),
            // The original's browser voice is not supported; a local one is used instead.
            Some("edge") => self.local().ok_or_else(|| {
                "tts.provider edge is not supported here: install espeak-ng, or choose openai, \
                 elevenlabs or a command of your own (tts.providers)"
                    .to_owned()
            }),
            Some(name) => self.custom_method(name),
        }
    }

    fn openai_key(&self) -> Option<String> {
        self.block
            .var(&["VOICE_TOOLS_OPENAI_KEY", "OPENAI_API_KEY"])
    }

    fn local(&self) -> Option<SpeechMethod> {
        ["espeak-ng", "espeak", "flite"]
            .into_iter()
            .find_map(|name| self.program(name))
    }

    fn program(&self, name: &str) -> Option<SpeechMethod> {
        let program = self.block.program(&[name])?;
        let program = template::fill("{p}", &[("p", &program.to_string_lossy())]);
        let of = |key: &str| self.block.text(&format!("{name}/{key}"));
        let template = match name {
            "flite" => format!("{program} -f {{input_path}} -o {{output_path}}"),
            _ => match of("voice") {
                Some(_) => format!("{program} -v {{voice}} -f {{input_path}} -w {{output_path}}"),
                None => format!("{program} -f {{input_path}} -w {{output_path}}"),
            },
        };
        Some(SpeechMethod::Command {
            template,
            format: "wav".to_owned(),
            voice: of("voice").unwrap_or_default(),
            model: String::new(),
            deadline: Duration::from_secs(COMMAND_TIMEOUT_SECONDS),
        })
    }

    fn custom_method(&self, name: &str) -> Result<SpeechMethod, String> {
        let of = |key: &str| self.block.text(&format!("providers/{name}/{key}"));
        let Some(template) = of("command") else {
            return Err(format!(
                "tts.provider is {name}, which is not known here; known are openai, elevenlabs, \
                 espeak-ng, flite, or your own command under tts.providers.{name}"
            ));
        };
        let deadline = self.block.seconds(&format!("providers/{name}/timeout"));
        Ok(SpeechMethod::Command {
            template,
            format: of("output_format").unwrap_or_else(|| "mp3".to_owned()),
            voice: of("voice").unwrap_or_default(),
            model: of("model").unwrap_or_default(),
            deadline: Duration::from_secs(deadline.unwrap_or(COMMAND_TIMEOUT_SECONDS)),
        })
    }

    /// Whether synthesis is available.
    pub fn can_speak(&self) -> bool {
        self.method().is_ok()
    }

    /// The recording, in a file below `into`. `Err`: why there is none. Takes bounded time.
    pub async fn speak(&self, text: &str, into: &Path) -> Result<PathBuf, String> {
        let way = self.method()?;
        let text = spoken(text);
        if text.is_empty() {
            return Err("there is nothing to say".to_owned());
        }
        tokio::fs::create_dir_all(into)
            .await
            .map_err(|error| format!("{}: {error}", into.display()))?;
        let name = format!("speech-{:016x}", rand::random::<u64>());
        match way {
            SpeechMethod::OpenAi => self.by_openai(&text, &into.join(name + ".ogg")).await,
            SpeechMethod::ElevenLabs => self.by_elevenlabs(&text, &into.join(name + ".ogg")).await,
            SpeechMethod::Command { ref format, .. } => {
                let output = into.join(format!("{name}.{format}"));
                by_command(way, &text, output).await
            }
        }
    }

    async fn by_openai(&self, text: &str, output: &Path) -> Result<PathBuf, String> {
        let of = |key: &str| self.block.text(&format!("openai/{key}"));
        let base = of("base_url").or_else(|| self.block.var(&["TTS_OPENAI_BASE_URL"]));
        let base = base.unwrap_or_else(|| "https://api.openai.com/v1".to_owned());
        let client = self.http.client().map_err(|error| error.to_string())?;
        let request = client
            .post(format!("{}/audio/speech", base.trim_end_matches('/')))
            .bearer_auth(self.openai_key().unwrap_or_default())
            .header("content-type", "application/json")
            .body(
                json!({
                    "model": of("model").unwrap_or_else(|| "gpt-4o-mini-tts".to_owned()),
                    "voice": of("voice").unwrap_or_else(|| "alloy".to_owned()),
                    "input": text,
                    "response_format": "opus",
                })
                .to_string(),
            );
        download(request, output).await
    }

    async fn by_elevenlabs(&self, text: &str, output: &Path) -> Result<PathBuf, String> {
        let of = |key: &str| self.block.text(&format!("elevenlabs/{key}"));
        let base = of("base_url").or_else(|| self.block.var(&["ELEVENLABS_BASE_URL"]));
        let base = base.unwrap_or_else(|| "https://api.elevenlabs.io".to_owned());
        let voice = of("voice_id").unwrap_or_else(|| "pNInz6obpgDQGcFmaJgB".to_owned());
        let model = of("model_id").unwrap_or_else(|| "eleven_multilingual_v2".to_owned());
        let client = self.http.client().map_err(|error| error.to_string())?;
        let base = base.trim_end_matches('/');
        let request = client
            .post(format!(
                "{base}/v1/text-to-speech/{voice}?output_format=opus_48000_64"
            ))
            .header(
                "xi-api-key",
                self.block.var(&["ELEVENLABS_API_KEY"]).unwrap_or_default(),
            )
            .header("content-type", "application/json")
            .body(json!({"text": text, "model_id": model}).to_string());
        download(request, output).await
    }
}

/// The text to speak: without markup, limited in length.
fn spoken(text: &str) -> String {
    let text = render(Markup::Plain, text);
    hermes_core::text::first_chars(text.trim(), MAX_TEXT_CHARS).to_owned()
}

async fn download(request: reqwest::RequestBuilder, output: &Path) -> Result<PathBuf, String> {
    let answer = request.timeout(SERVICE_TIMEOUT).send().await;
    let mut answer = answer.map_err(|error| format!("the service: {}", error.without_url()))?;
    let status = answer.status();
    if !status.is_success() {
        let error_text = answer.text().await.unwrap_or_default();
        let error_text: String = error_text.chars().take(200).collect();
        return Err(format!("the service said {status}: {error_text}"));
    }
    let at = |error: std::io::Error| format!("{}: {error}", output.display());
    let mut file = tokio::fs::File::create(output).await.map_err(at)?;
    let mut length = 0;
    while let Some(chunk) = answer
        .chunk()
        .await
        .map_err(|e| e.without_url().to_string())?
    {
        length += chunk.len();
        if length > MAX_RECORDING_BYTES {
            return Err("the service sent more than a recording can be".to_owned());
        }
        file.write_all(&chunk).await.map_err(at)?;
    }
    file.flush().await.map_err(at)?;
    if length == 0 {
        return Err("the service sent an empty recording".to_owned());
    }
    Ok(output.to_owned())
}

async fn by_command(way: SpeechMethod, text: &str, output: PathBuf) -> Result<PathBuf, String> {
    let SpeechMethod::Command {
        template,
        format,
        voice,
        model,
        deadline,
    } = way
    else {
        return Err("no command".to_owned());
    };
    let dir = scratch().await?;
    let input = dir.path().join("words.txt");
    tokio::fs::write(&input, text)
        .await
        .map_err(|error| format!("{}: {error}", input.display()))?;
    let values = [
        ("input_path", input.to_string_lossy()),
        ("text_path", input.to_string_lossy()),
        ("output_path", output.to_string_lossy()),
        ("format", format.as_str().into()),
        ("voice", voice.as_str().into()),
        ("model", model.as_str().into()),
        ("speed", "1.0".into()),
    ];
    let values: Vec<(&str, &str)> = values.iter().map(|(name, v)| (*name, v.as_ref())).collect();
    let program = child::shell(&template::fill(&template, &values));
    child::run(program, "", None, deadline).await?.printed()?;
    let written = tokio::fs::metadata(&output)
        .await
        .map_or(0, |data| data.len());
    if written == 0 {
        return Err("the command wrote no recording".to_owned());
    }
    Ok(output)
}
