//! Model servers on this machine: discovery, and querying the context window of a model.

use std::time::Duration;

use futures_util::future::join_all;
use hermes_core::model::WireFormat;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{ListedModel, ModelEndpoint, answer, authorize, get, parse};
use crate::providers::{LocalServer, endpoint};
use crate::quirks::AuthStyle;

/// A server on this machine accepts at once or does not exist.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(150);
/// All queries of one probe together.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// For a model that is loaded to learn its window. The first call would wait equally long.
pub(crate) const LOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// What a local server reports about a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalProbe {
    pub context_length: Option<u32>,
    pub images: Option<bool>,
    pub tools: Option<bool>,
    /// The window may turn out smaller, because the model is not loaded yet.
    pub may_shrink: bool,
}

/// A server that answered.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalServerInfo {
    pub server: LocalServer,
    pub base_url: String,
    pub models: Vec<ListedModel>,
}

/// The usual addresses of servers. `ollama_host` is the address from `OLLAMA_HOST`, used only if it
/// is on this machine.
pub(crate) fn candidates(ollama_host: Option<&str>) -> Vec<(LocalServer, String)> {
    let own_ollama = ollama_host
        .filter(|url| is_loopback(url))
        .map(|url| (LocalServer::Ollama, url.to_owned()));
    let mut all = vec![
        own_ollama.unwrap_or((LocalServer::Ollama, "http://127.0.0.1:11434/v1".to_owned())),
        (LocalServer::LmStudio, "http://127.0.0.1:1234/v1".to_owned()),
        (LocalServer::LlamaCpp, "http://127.0.0.1:8080/v1".to_owned()),
        (LocalServer::Vllm, "http://127.0.0.1:8000/v1".to_owned()),
    ];
    all.dedup_by(|a, b| a.1 == b.1);
    all
}

fn is_loopback(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    })
}

/// The servers among `candidates` that answer in time, all queried at once. `http` should stop
/// connecting after [`CONNECT_TIMEOUT`].
pub(crate) async fn discover(
    http: &reqwest::Client,
    candidates: Vec<(LocalServer, String)>,
    within: Duration,
) -> Vec<LocalServerInfo> {
    let questions = candidates.into_iter().map(|(server, base_url)| async move {
        let models = tokio::time::timeout(within, list(http, server, &base_url))
            .await
            .ok()
            .flatten()?;
        Some(LocalServerInfo {
            server,
            base_url,
            models,
        })
    });
    join_all(questions).await.into_iter().flatten().collect()
}

async fn list(
    http: &reqwest::Client,
    server: LocalServer,
    base_url: &str,
) -> Option<Vec<ListedModel>> {
    let url = match server {
        LocalServer::Ollama => format!("{}/api/tags", root(base_url)),
        _ => format!("{base_url}/models"),
    };
    parse::list(&get(http, &url, None).await.ok()?)
}

/// Like [`probe`], but loads the model within [`LOAD_TIMEOUT`] if only that determines its window:
/// the beginning of a conversation depends on it.
pub(crate) async fn probe_loaded(
    http: &reqwest::Client,
    hint: Option<LocalServer>,
    base_url: &str,
    model: &str,
    key: Option<&SecretString>,
) -> Option<LocalProbe> {
    let first = probe(http, hint, base_url, model, key).await?;
    if !first.may_shrink {
        return Some(first);
    }
    // A request without a prompt only loads the model.
    let url = format!("{}/api/generate", root(base_url));
    let request = http
        .post(&url)
        .json_body(&json!({"model": model, "stream": false}));
    let endpoint = endpoint_of(base_url, key);
    let loading = answer(&url, authorize(request, &endpoint));
    match tokio::time::timeout(LOAD_TIMEOUT, loading).await {
        Ok(Ok(_)) => probe(http, hint, base_url, model, key)
            .await
            .or(Some(first)),
        _ => Some(first),
    }
}

fn endpoint_of(base_url: &str, key: Option<&SecretString>) -> ModelEndpoint {
    ModelEndpoint {
        base_url: endpoint::tidy(base_url).to_owned(),
        format: WireFormat::ChatCompletions,
        auth: AuthStyle::Bearer,
        key: key.cloned(),
        headers: Vec::new(),
    }
}

/// Queries a server about one model, within [`PROBE_TIMEOUT`]. `hint` avoids detecting the kind of
/// server.
pub async fn probe(
    http: &reqwest::Client,
    hint: Option<LocalServer>,
    base_url: &str,
    model: &str,
    key: Option<&SecretString>,
) -> Option<LocalProbe> {
    let endpoint = endpoint_of(base_url, key);
    let question = async {
        match hint.or_else(|| by_port(base_url)) {
            Some(LocalServer::Ollama) => ollama(http, &endpoint, model).await,
            Some(LocalServer::LmStudio) => lmstudio(http, &endpoint, model).await,
            Some(LocalServer::LlamaCpp) => llamacpp(http, &endpoint, model).await,
            _ => listed(http, &endpoint, model).await,
        }
    };
    tokio::time::timeout(PROBE_TIMEOUT, question)
        .await
        .ok()
        .flatten()
}

pub(crate) fn by_port(base_url: &str) -> Option<LocalServer> {
    match url::Url::parse(base_url).ok()?.port()? {
        11434 => Some(LocalServer::Ollama),
        1234 => Some(LocalServer::LmStudio),
        _ => None,
    }
}

/// The address without the version of the OpenAI-compatible interface.
fn root(base_url: &str) -> &str {
    let base = endpoint::tidy(base_url);
    base.strip_suffix("/v1").unwrap_or(base)
}

async fn ollama(
    http: &reqwest::Client,
    endpoint: &ModelEndpoint,
    model: &str,
) -> Option<LocalProbe> {
    let url = format!("{}/api/show", root(&endpoint.base_url));
    let request = http
        .post(&url)
        .json_body(&json!({"model": model, "name": model}));
    let shown = answer(&url, authorize(request, endpoint)).await.ok()?;
    let mut probe = ollama_show(&shown);
    // The compatible interface takes no window: what the server allocates is the limit, and only a
    // running model has it allocated.
    if configured_window(&shown).is_none() {
        let url = format!("{}/api/ps", root(&endpoint.base_url));
        let running = get(http, &url, Some(endpoint)).await.ok();
        match running.as_ref().and_then(|list| allocated(list, model)) {
            Some(tokens) => {
                if probe.context_length.is_some_and(|trained| tokens < trained) {
                    tracing::warn!(
                        model,
                        tokens,
                        "Ollama gives this model less room than it was trained for; set OLLAMA_CONTEXT_LENGTH for the server, or num_ctx in a model file"
                    );
                }
                probe.context_length = Some(tokens);
            }
            None => probe.may_shrink = true,
        }
    }
    Some(probe)
}

/// The window of a running model (`/api/ps`).
fn allocated(list: &Value, model: &str) -> Option<u32> {
    let plain = |name: &str| {
        name.strip_suffix(":latest")
            .unwrap_or(name)
            .to_ascii_lowercase()
    };
    let wanted = plain(model);
    let models = list.get("models")?.as_array()?;
    let is_it = |row: &&Value| {
        ["model", "name"].iter().any(|key| {
            row.get(key)
                .and_then(Value::as_str)
                .is_some_and(|name| plain(name) == wanted)
        })
    };
    let tokens = models.iter().find(is_it)?.get("context_length")?.as_u64()?;
    u32::try_from(tokens).ok().filter(|tokens| *tokens > 0)
}

/// `num_ctx` of the model file.
fn configured_window(shown: &Value) -> Option<u32> {
    let text = shown.get("parameters").and_then(Value::as_str)?;
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("num_ctx"))
        .find_map(|rest| rest.trim().parse().ok())
}

/// `num_ctx` of the model file is what the server allocates; the trained window comes second.
fn ollama_show(shown: &Value) -> LocalProbe {
    let configured = configured_window(shown);
    let trained = shown
        .get("model_info")
        .and_then(Value::as_object)
        .and_then(|info| {
            info.iter()
                .find(|(key, _)| key.ends_with(".context_length"))
                .and_then(|(_, value)| value.as_u64())
                .and_then(|tokens| u32::try_from(tokens).ok())
        });
    let abilities = shown.get("capabilities").and_then(Value::as_array);
    let can = |what: &str| abilities.map(|list| list.iter().any(|ability| ability == what));
    LocalProbe {
        context_length: configured.or(trained),
        images: can("vision"),
        tools: can("tools"),
        may_shrink: false,
    }
}

async fn lmstudio(
    http: &reqwest::Client,
    endpoint: &ModelEndpoint,
    model: &str,
) -> Option<LocalProbe> {
    let root = root(&endpoint.base_url);
    for path in ["/api/v1/models", "/api/v0/models"] {
        let found = find(http, endpoint, &format!("{root}{path}"), model).await;
        if found.is_some() {
            return found;
        }
    }
    find(
        http,
        endpoint,
        &format!("{}/models", endpoint.base_url),
        model,
    )
    .await
}

async fn llamacpp(
    http: &reqwest::Client,
    endpoint: &ModelEndpoint,
    model: &str,
) -> Option<LocalProbe> {
    let props = get(
        http,
        &format!("{}/props", root(&endpoint.base_url)),
        Some(endpoint),
    )
    .await;
    if let Ok(props) = props
        && let Some(probe) = llamacpp_props(&props)
    {
        return Some(probe);
    }
    find(
        http,
        endpoint,
        &format!("{}/models", endpoint.base_url),
        model,
    )
    .await
}

fn llamacpp_props(props: &Value) -> Option<LocalProbe> {
    let settings = props.get("default_generation_settings")?;
    let context_length =
        parse::tokens(settings, &["n_ctx"]).or_else(|| parse::tokens(props, &["n_ctx"]));
    Some(LocalProbe {
        context_length,
        images: props.pointer("/modalities/vision").and_then(Value::as_bool),
        tools: None,
        may_shrink: false,
    })
}

/// A server of unknown kind: its list may contain everything, or at least its kind.
async fn listed(
    http: &reqwest::Client,
    endpoint: &ModelEndpoint,
    model: &str,
) -> Option<LocalProbe> {
    let url = format!("{}/models", endpoint.base_url);
    let body = get(http, &url, Some(endpoint)).await.ok()?;
    let owner = body
        .get("data")
        .and_then(Value::as_array)
        .and_then(|rows| rows.first()?.get("owned_by")?.as_str())
        .unwrap_or_default()
        .to_owned();
    match owner.as_str() {
        "library" => return ollama(http, endpoint, model).await,
        "llamacpp" => return llamacpp(http, endpoint, model).await,
        _ => {}
    }
    in_list(&body, model)
}

async fn find(
    http: &reqwest::Client,
    endpoint: &ModelEndpoint,
    url: &str,
    model: &str,
) -> Option<LocalProbe> {
    in_list(&get(http, url, Some(endpoint)).await.ok()?, model)
}

/// The row of a model; servers prefix names with the publisher.
fn in_list(body: &Value, model: &str) -> Option<LocalProbe> {
    let list = parse::list(body)?;
    let slug = |id: &str| id.rsplit('/').next().unwrap_or(id).to_ascii_lowercase();
    let row = list
        .iter()
        .find(|row| row.id.eq_ignore_ascii_case(model))
        .or_else(|| list.iter().find(|row| slug(&row.id) == slug(model)))
        .or_else(|| list.first().filter(|_| list.len() == 1))?;
    row.context_length.map(|tokens| LocalProbe {
        context_length: Some(tokens),
        images: row.images,
        tools: row.tools,
        may_shrink: false,
    })
}

/// reqwest's own `json` is behind a feature that is not needed elsewhere.
trait JsonBody {
    fn json_body(self, value: &Value) -> Self;
}

impl JsonBody for reqwest::RequestBuilder {
    fn json_body(self, value: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_prefers_what_it_allocates() {
        let shown = json!({"parameters": "stop \"<x>\"\nnum_ctx    8192\n",
            "model_info": {"qwen3.context_length": 40960}, "capabilities": ["completion", "tools"]});
        let probe = ollama_show(&shown);
        assert_eq!(probe.context_length, Some(8192));
        assert_eq!((probe.tools, probe.images), (Some(true), Some(false)));
        let plain = json!({"model_info": {"general.name": "x", "qwen3.context_length": 40960}});
        assert_eq!(ollama_show(&plain).context_length, Some(40_960));
        assert_eq!(ollama_show(&plain).tools, None);
        let running = json!({"models": [
            {"name": "other:latest", "context_length": 1},
            {"name": "qwen3:latest", "model": "qwen3:latest", "context_length": 4096},
        ]});
        assert_eq!(allocated(&running, "qwen3"), Some(4096));
        assert_eq!(allocated(&running, "llama"), None);
    }

    #[test]
    fn llamacpp_states_its_slot_size() {
        let props =
            json!({"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": true}});
        let probe = llamacpp_props(&props).unwrap();
        assert_eq!(
            (probe.context_length, probe.images),
            (Some(4096), Some(true))
        );
        assert_eq!(llamacpp_props(&json!({"error": "x"})), None);
    }

    #[test]
    fn only_this_machine_is_searched() {
        let urls = |host| {
            candidates(host)
                .into_iter()
                .map(|(_, url)| url)
                .collect::<Vec<_>>()
        };
        assert_eq!(urls(None).len(), 4);
        assert_eq!(
            urls(Some("http://127.0.0.1:9999/v1"))[0],
            "http://127.0.0.1:9999/v1"
        );
        assert_eq!(
            urls(Some("http://192.168.1.5:11434/v1"))[0],
            "http://127.0.0.1:11434/v1"
        );
    }
}
