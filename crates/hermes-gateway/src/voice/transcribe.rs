//! Speech to text.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_platforms::{MultipartForm, PlatformHttp};
use serde_json::Value;

use super::settings::VoiceSettings;
use super::{Transcriber, template};
use hermes_app::child;

/// Maximum size of a recording.
const MAX_RECORDING_BYTES: u64 = 25 * 1024 * 1024;
const SERVICE_TIMEOUT: Duration = Duration::from_mins(2);
const COMMAND_TIMEOUT_SECONDS: u64 = 300;

/// A service with OpenAI's API.
struct TranscriptionService {
    name: &'static str,
    url: &'static str,
    url_var: &'static str,
    keys: &'static [&'static str],
    model: &'static str,
}

const SERVICES: [TranscriptionService; 4] = [
    TranscriptionService {
        name: "groq",
        url: "https://api.groq.com/openai/v1",
        url_var: "GROQ_BASE_URL",
        keys: &["GROQ_API_KEY"],
        model: "whisper-large-v3-turbo",
    },
    TranscriptionService {
        name: "openai",
        url: "https://api.openai.com/v1",
        url_var: "STT_OPENAI_BASE_URL",
        keys: &["VOICE_TOOLS_OPENAI_KEY", "OPENAI_API_KEY"],
        model: "whisper-1",
    },
    TranscriptionService {
        name: "mistral",
        url: "https://api.mistral.ai/v1",
        url_var: "MISTRAL_STT_BASE_URL",
        keys: &["MISTRAL_API_KEY"],
        model: "voxtral-mini-latest",
    },
    TranscriptionService {
        name: "deepinfra",
        url: "https://api.deepinfra.com/v1/openai",
        url_var: "DEEPINFRA_BASE_URL",
        keys: &["DEEPINFRA_API_KEY"],
        model: "openai/whisper-large-v3-turbo",
    },
];

/// The configured transcriber of a home.
pub struct HomeTranscriber {
    block: VoiceSettings,
    /// Set explicitly in config.yaml; a default does not count.
    named: Option<String>,
    http: PlatformHttp,
}

enum TranscriptionMethod {
    Service {
        url: String,
        key: Option<String>,
        model: String,
        language: Option<String>,
    },
    Command {
        template: String,
        model: String,
        language: String,
        deadline: Duration,
    },
}

impl HomeTranscriber {
    /// `stt` with defaults; `named`: `stt.provider` if set in config.yaml itself.
    pub fn new(
        stt: Option<&Value>,
        named: Option<&str>,
        env: &HashMap<String, String>,
        http: PlatformHttp,
    ) -> Self {
        Self {
            block: VoiceSettings::new(stt, env),
            named: named.map(|name| name.trim().to_lowercase()),
            http,
        }
    }

    fn method(&self) -> Result<TranscriptionMethod, String> {
        if self.block.flag("enabled") == Some(false) {
            return Err("transcription is switched off (stt.enabled)".to_owned());
        }
        let Some(name) = self.named.as_deref().filter(|name| *name != "auto") else {
            return self.any_method();
        };
        if matches!(name, "local" | "local_command") {
            return self.local().ok_or_else(|| {
                format!(
                    "stt.provider is {name}, and there is no program for it: put a command into \
                     HERMES_LOCAL_STT_COMMAND, or install whisper"
                )
            });
        }
        if let Some(service) = SERVICES.iter().find(|service| service.name == name) {
            return self.service(service).ok_or_else(|| {
                format!(
                    "stt.provider is {name}, which needs {}",
                    service.keys.join(" or ")
                )
            });
        }
        self.custom_method(name)
    }

    fn any_method(&self) -> Result<TranscriptionMethod, String> {
        let service = || {
            SERVICES[..2]
                .iter()
                .find_map(|service| self.service(service))
        };
        self.local().or_else(service).ok_or_else(|| {
            "no speech recognition is set up: set GROQ_API_KEY or VOICE_TOOLS_OPENAI_KEY, or a command in \
             HERMES_LOCAL_STT_COMMAND"
                .to_owned()
        })
    }

    fn local(&self) -> Option<TranscriptionMethod> {
        let template = self.block.var(&["HERMES_LOCAL_STT_COMMAND"]).or_else(|| {
            let whisper = self.block.program(&["whisper"])?;
            Some(format!(
                "{} {{input_path}} --model {{model}} --output_format txt --output_dir {{output_dir}}",
                template::fill("{p}", &[("p", &whisper.to_string_lossy())])
            ))
        })?;
        let language = self.block.var(&["HERMES_LOCAL_STT_LANGUAGE"]);
        Some(TranscriptionMethod::Command {
            template,
            model: self
                .block
                .text("local/model")
                .unwrap_or_else(|| "base".to_owned()),
            language: language
                .or_else(|| self.block.text("local/language"))
                .unwrap_or_else(|| "en".to_owned()),
            deadline: Duration::from_secs(COMMAND_TIMEOUT_SECONDS),
        })
    }

    fn service(&self, service: &TranscriptionService) -> Option<TranscriptionMethod> {
        let key = self.block.var(service.keys)?;
        let of = |name: &str| self.block.text(&format!("{}/{name}", service.name));
        Some(TranscriptionMethod::Service {
            url: of("base_url")
                .or_else(|| self.block.var(&[service.url_var]))
                .unwrap_or_else(|| service.url.to_owned()),
            key: Some(key),
            model: of("model").unwrap_or_else(|| service.model.to_owned()),
            language: of("language"),
        })
    }

    /// `stt.providers.<name>`: a command, or the address of a service.
    fn custom_method(&self, name: &str) -> Result<TranscriptionMethod, String> {
        let of = |key: &str| self.block.text(&format!("providers/{name}/{key}"));
        let model = of("model").unwrap_or_default();
        if let Some(template) = of("command") {
            let deadline = self.block.seconds(&format!("providers/{name}/timeout"));
            return Ok(TranscriptionMethod::Command {
                template,
                model,
                language: of("language").unwrap_or_default(),
                deadline: Duration::from_secs(deadline.unwrap_or(COMMAND_TIMEOUT_SECONDS)),
            });
        }
        if let Some(url) = of("base_url") {
            let key = of("api_key").or_else(|| self.block.var(&[&of("key_env")?]));
            return Ok(TranscriptionMethod::Service {
                url,
                key,
                model,
                language: of("language"),
            });
        }
        Err(format!(
            "stt.provider is {name}, which is not known here; known are local, groq, openai, \
             mistral, deepinfra, or your own under stt.providers.{name} with a command or base_url"
        ))
    }

    async fn transcript(&self, recording: &Path) -> Result<String, String> {
        let way = self.method()?;
        let size = tokio::fs::metadata(recording).await;
        let size = size
            .map_err(|error| format!("the recording: {error}"))?
            .len();
        if size > MAX_RECORDING_BYTES {
            let limit = MAX_RECORDING_BYTES / (1024 * 1024);
            return Err(format!("the recording is larger than {limit} MB"));
        }
        let text = match way {
            TranscriptionMethod::Service {
                url,
                key,
                model,
                language,
            } => {
                let form = MultipartForm::new(rand::random())
                    .text("model", model)
                    .text("response_format", "json");
                let form = match language {
                    Some(language) => form.text("language", language),
                    None => form,
                };
                self.ask(&url, key, form, recording).await?
            }
            TranscriptionMethod::Command {
                template,
                model,
                language,
                deadline,
            } => by_command(&template, (&model, &language), recording, deadline).await?,
        };
        let text = text.trim().to_owned();
        if text.is_empty() {
            return Err("no speech was recognised in it".to_owned());
        }
        Ok(text)
    }

    async fn ask(
        &self,
        url: &str,
        key: Option<String>,
        form: MultipartForm,
        recording: &Path,
    ) -> Result<String, String> {
        let client = self.http.client().map_err(|error| error.to_string())?;
        let form = form.file("file", recording, mime(recording)).await;
        let form = form.map_err(|error| format!("the recording: {error}"))?;
        let url = format!("{}/audio/transcriptions", url.trim_end_matches('/'));
        let mut request = client.post(&url).timeout(SERVICE_TIMEOUT);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let answer = form.into_request(request).send().await;
        let answer = answer.map_err(|error| format!("the service: {}", plain(error)))?;
        let status = answer.status();
        let body = answer.text().await.map_err(plain)?;
        if !status.is_success() {
            let error_text: String = body.chars().take(200).collect();
            return Err(format!("the service said {status}: {error_text}"));
        }
        let text = serde_json::from_str::<Value>(&body).ok();
        let text = text.and_then(|value| Some(value.get("text")?.as_str()?.to_owned()));
        text.ok_or_else(|| "the service's answer has no text".to_owned())
    }
}

/// Without the address, which may contain a key.
fn plain(error: reqwest::Error) -> String {
    let error = error.without_url();
    if error.is_timeout() {
        return format!("no answer within {} s", SERVICE_TIMEOUT.as_secs());
    }
    error.to_string()
}

/// The transcript is printed, or written to `{output_path}` or a text file in `{output_dir}`.
async fn by_command(
    template: &str,
    (model, language): (&str, &str),
    recording: &Path,
    deadline: Duration,
) -> Result<String, String> {
    let dir = scratch().await?;
    let output = dir.path().join("words.txt");
    let values = [
        ("input_path", recording.to_string_lossy()),
        ("output_path", output.to_string_lossy()),
        ("output_dir", dir.path().to_string_lossy()),
        ("model", model.into()),
        ("language", language.into()),
        ("format", "txt".into()),
    ];
    let values: Vec<(&str, &str)> = values.iter().map(|(name, v)| (*name, v.as_ref())).collect();
    let program = child::shell(&template::fill(template, &values));
    let printed = child::run(program, "", None, deadline).await?.printed()?;
    let written = std::fs::read_dir(dir.path())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|kind| kind == "txt"));
    match written {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("the words: {error}")),
        None => Ok(printed),
    }
}

pub(super) async fn scratch() -> Result<tempfile::TempDir, String> {
    tempfile::Builder::new()
        .prefix("hermes-voice-")
        .tempdir()
        .map_err(|error| format!("cannot create a file for the recording: {error}"))
}

fn mime(path: &Path) -> &'static str {
    let kind = path.extension().and_then(|kind| kind.to_str());
    match kind.unwrap_or_default().to_ascii_lowercase().as_str() {
        "mp3" | "mpga" | "mpeg" => "audio/mpeg",
        "m4a" | "mp4" => "audio/mp4",
        "wav" => "audio/wav",
        "webm" => "audio/webm",
        "flac" => "audio/flac",
        "aac" => "audio/aac",
        _ => "audio/ogg",
    }
}

impl Transcriber for HomeTranscriber {
    fn transcribe<'a>(&'a self, recording: &'a Path) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(self.transcript(recording))
    }

    fn echoes(&self) -> bool {
        self.block.flag("echo_transcripts").unwrap_or(true)
    }
}
