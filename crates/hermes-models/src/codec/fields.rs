//! Fields and headers shared by several formats.

use hermes_core::model::WireFormat;
use hermes_core::tool::ToolSpec;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{EncodeScope, body, ids};
use crate::quirks::{CacheTtl, TemperaturePolicy};

/// `max_tokens` if the format requires one and the model is unknown.
const FALLBACK_MAX_TOKENS: u32 = 32_000;

/// Headers of the request, without the credential.
pub(super) fn headers(scope: &EncodeScope<'_>) -> Vec<(String, String)> {
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        (
            "accept".to_owned(),
            "text/event-stream, application/json".to_owned(),
        ),
    ];
    if scope.quirks.format == WireFormat::AnthropicMessages {
        headers.push(("anthropic-version".to_owned(), "2023-06-01".to_owned()));
    }
    let session = scope.request.session.as_str();
    for (name, value) in &scope.quirks.headers {
        let name = name.to_ascii_lowercase();
        headers.retain(|(present, _)| *present != name);
        headers.push((name, body::fill(value, session)));
    }
    headers
}

/// The limit of the answer, if one is sent.
pub(super) fn max_tokens(scope: &EncodeScope<'_>) -> Option<u32> {
    let rule = scope.quirks.max_tokens;
    if let Some(asked) = scope.request.max_tokens {
        return Some(asked);
    }
    let default = rule
        .default
        .map(|default| default.max(rule.floor.unwrap_or(0)))
        .or_else(|| mandatory_max_tokens(scope))?;
    let max_output = scope.info.max_output.unwrap_or(u32::MAX);
    // At most half the window: the prompt needs space, too.
    Some(
        default
            .min(max_output)
            .min((scope.info.context_length / 2).max(1)),
    )
}

fn mandatory_max_tokens(scope: &EncodeScope<'_>) -> Option<u32> {
    (scope.quirks.format == WireFormat::AnthropicMessages)
        .then(|| scope.info.max_output.unwrap_or(FALLBACK_MAX_TOKENS))
}

/// The temperature as a decimal that prints as written (0.7, not 0.699999988079071).
pub(super) fn temperature(scope: &EncodeScope<'_>) -> Option<f64> {
    if scope.quirks.temperature == TemperaturePolicy::Omit {
        return None;
    }
    let temperature = scope.request.temperature?;
    temperature.to_string().parse().ok()
}

/// `prompt_cache_key`: the same for every conversation with this prompt and these tools.
pub(super) fn prompt_cache_key(scope: &EncodeScope<'_>) -> Option<String> {
    if !scope.quirks.prompt_cache_key {
        return None;
    }
    let mut tools: Vec<&ToolSpec> = scope.tools().iter().collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hash = Sha256::new();
    hash.update(scope.request.system.trim());
    for tool in tools {
        for text in [tool.name.as_str(), tool.description.as_str()] {
            hash.update([0]);
            hash.update(text);
        }
        hash.update([0]);
        hash.update(tool.parameters.to_string());
    }
    Some(format!("pck_{}", ids::hex(&hash.finalize()[..12])))
}

/// A cache breakpoint.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    pub(super) fn new(ttl: CacheTtl) -> Self {
        Self {
            kind: "ephemeral",
            ttl: match ttl {
                CacheTtl::FiveMinutes => None,
                CacheTtl::OneHour => Some("1h"),
            },
        }
    }
}
