//! What follows from a URL alone: wire format, whether it is local, whose key it may receive.

use std::net::IpAddr;

use hermes_core::model::WireFormat;
use hermes_http::is_private_address;
use url::{Host, Url};

use super::{PROVIDERS, Provider};

/// Kimi Code keys (`sk-kimi-…`) work only here, in the Anthropic format.
pub const KIMI_CODE_URL: &str = "https://api.kimi.com/coding";

/// A base URL, trimmed and without a trailing slash.
pub fn tidy(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

/// Checks a configured URL. The message describes what is wrong with it.
pub fn validate(url: &str) -> Result<(), String> {
    let parsed = Url::parse(url).map_err(|error| format!("{url:?} is not a URL ({error})"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(format!("{url:?} must start with http:// or https://"));
    }
    if parsed.host_str().is_none_or(str::is_empty) {
        return Err(format!("{url:?} names no host"));
    }
    Ok(())
}

fn host(url: &str) -> Option<String> {
    Url::parse(url.trim())
        .ok()?
        .host_str()
        .map(str::to_ascii_lowercase)
}

/// Whether the URL's host is `domain` or below it. Look-alikes (`domain.evil.test`) are not.
pub fn host_is_under(url: &str, domain: &str) -> bool {
    host(url).is_some_and(|host| {
        host == domain
            || host
                .strip_suffix(domain)
                .is_some_and(|rest| rest.ends_with('.'))
    })
}

/// The wire format that an address implies, if any.
pub fn format_of(url: &str) -> Option<WireFormat> {
    let parsed = Url::parse(url.trim()).ok()?;
    let path = parsed.path().trim_end_matches('/').to_ascii_lowercase();
    match parsed.host_str()?.to_ascii_lowercase().as_str() {
        "api.openai.com" | "api.x.ai" => return Some(WireFormat::Responses),
        "api.anthropic.com" => return Some(WireFormat::AnthropicMessages),
        "api.kimi.com" if path == "/coding" || path.starts_with("/coding/") => {
            return Some(WireFormat::AnthropicMessages);
        }
        _ => {}
    }
    (path.ends_with("/anthropic") || path.ends_with("/anthropic/v1"))
        .then_some(WireFormat::AnthropicMessages)
}

/// The wire format of a config value (`api_mode`, `transport`), in every spelling in use.
pub fn parse_format(text: &str) -> Option<WireFormat> {
    match text.trim().to_ascii_lowercase().as_str() {
        "chat_completions" | "openai_chat" | "chat" | "openai" => Some(WireFormat::ChatCompletions),
        "anthropic_messages" | "anthropic" | "messages" => Some(WireFormat::AnthropicMessages),
        "codex_responses" | "responses" | "openai_responses" => Some(WireFormat::Responses),
        _ => None,
    }
}

/// Domains that are never public.
const LOCAL_DOMAINS: &[&str] = &[
    "localhost",
    "local",
    "docker.internal",
    "containers.internal",
    "lima.internal",
];

/// Whether the address is on this machine or the local network.
pub fn is_local(url: &str) -> bool {
    let Ok(parsed) = Url::parse(url.trim()) else {
        return false;
    };
    match parsed.host() {
        Some(Host::Domain(name)) => {
            // A name without dots is local: a container, an entry of /etc/hosts.
            !name.contains('.')
                || LOCAL_DOMAINS
                    .iter()
                    .any(|domain| host_is_under(url, domain))
        }
        Some(Host::Ipv4(address)) => is_private_address(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => is_private_address(IpAddr::V6(address)),
        None => false,
    }
}

/// The built-in provider whose endpoint a URL belongs to, judged by host.
pub fn owner_of(url: &str) -> Option<&'static Provider> {
    let wanted = host(url)?;
    PROVIDERS.iter().find(|provider| {
        provider.local.is_none() && host(provider.base_url).is_some_and(|own| own == wanted)
    })
}

/// Domains (including subdomains) to which a provider's own key may be sent.
fn key_domains(id: &str) -> &'static [&'static str] {
    match id {
        "openrouter" => &["openrouter.ai"],
        "openai-api" => &["openai.com", "openai.azure.com"],
        "anthropic" => &["anthropic.com", "claude.com"],
        "zai" => &["z.ai", "bigmodel.cn"],
        "kimi-coding" => &["moonshot.ai", "kimi.com"],
        "kimi-coding-cn" => &["moonshot.cn"],
        "gemini" => &["googleapis.com"],
        "alibaba" | "alibaba-coding-plan" => &["aliyuncs.com"],
        "minimax" => &["minimax.io"],
        "minimax-cn" => &["minimaxi.com"],
        "huggingface" => &["huggingface.co"],
        "nous" => &["nousresearch.com"],
        "ollama-cloud" => &["ollama.com"],
        _ => &[],
    }
}

/// Whether the key of `provider` may be sent to `url`.
pub fn accepts_key_of(url: &str, provider: &Provider) -> bool {
    let domains = key_domains(provider.id);
    if domains.is_empty() {
        return host(url).is_some() && host(url) == host(provider.base_url);
    }
    domains.iter().any(|domain| host_is_under(url, domain))
}

/// The conventional variable with the key for an unconfigured host: `api.acme.ai` → `ACME_API_KEY`.
/// Look-alike hosts yield their own name, not the imitated one.
pub fn conventional_key_env(url: &str) -> Option<String> {
    let parsed = Url::parse(url.trim()).ok()?;
    let Some(Host::Domain(name)) = parsed.host() else {
        return None;
    };
    let labels: Vec<&str> = name.split('.').filter(|label| !label.is_empty()).collect();
    let vendor = labels.get(labels.len().checked_sub(2)?)?;
    let vendor: String = vendor
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    let reserved = matches!(vendor.as_str(), "OPENAI" | "OPENROUTER" | "OLLAMA");
    (vendor.starts_with(|c: char| c.is_ascii_alphabetic()) && !reserved)
        .then(|| format!("{vendor}_API_KEY"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_from_the_address() {
        use WireFormat::{AnthropicMessages, Responses};
        for (url, format) in [
            ("https://api.openai.com/v1", Some(Responses)),
            ("https://api.x.ai/v1/", Some(Responses)),
            ("https://api.anthropic.com", Some(AnthropicMessages)),
            ("https://api.minimax.io/anthropic", Some(AnthropicMessages)),
            ("https://proxy.test/anthropic/v1/", Some(AnthropicMessages)),
            ("https://api.kimi.com/coding", Some(AnthropicMessages)),
            ("https://api.kimi.com/codings", None),
            ("https://api.anthropic.com.evil.test/v1", None),
            ("https://evil.test/api.openai.com/v1", None),
            ("http://127.0.0.1:11434/v1", None),
            ("nonsense", None),
        ] {
            assert_eq!(format_of(url), format, "{url}");
        }
    }

    #[test]
    fn local_addresses() {
        for url in [
            "http://localhost:1234/v1",
            "http://127.0.0.1:8000",
            "http://[::1]:8000/v1",
            "http://10.1.2.3/v1",
            "http://172.20.0.2/v1",
            "http://192.168.1.9:11434",
            "http://100.100.1.2:11434",
            "http://host.docker.internal:11434",
            "http://ollama:11434/v1",
            "http://nas.local:8080",
        ] {
            assert!(is_local(url), "{url}");
        }
        for url in [
            "https://api.openai.com/v1",
            "http://8.8.8.8/v1",
            "http://100.128.0.1",
            "x",
        ] {
            assert!(!is_local(url), "{url}");
        }
    }

    #[test]
    fn a_key_goes_only_to_its_own_host() {
        let openrouter = super::super::by_id("openrouter").unwrap();
        assert!(accepts_key_of("https://openrouter.ai/api/v1", openrouter));
        assert!(!accepts_key_of(
            "https://openrouter.ai.evil.test/v1",
            openrouter
        ));
        assert!(!accepts_key_of(
            "https://evil.test/openrouter.ai",
            openrouter
        ));
        let deepseek = super::super::by_id("deepseek").unwrap();
        assert!(accepts_key_of(
            "https://api.deepseek.com/anthropic",
            deepseek
        ));
        assert!(!accepts_key_of("http://127.0.0.1:8000/v1", deepseek));
        for provider in PROVIDERS
            .iter()
            .filter(|p| p.local.is_none() && !p.base_url.is_empty())
        {
            assert!(
                accepts_key_of(provider.base_url, provider),
                "{}",
                provider.id
            );
        }
    }

    #[test]
    fn conventional_names_come_from_the_registered_domain() {
        let env = |url| conventional_key_env(url);
        assert_eq!(
            env("https://api.groq.com/openai/v1").as_deref(),
            Some("GROQ_API_KEY")
        );
        assert_eq!(
            env("https://api.groq.com.evil.test/v1").as_deref(),
            Some("EVIL_API_KEY")
        );
        assert_eq!(env("http://127.0.0.1:8000/v1"), None);
        assert_eq!(env("http://localhost:8000/v1"), None);
        assert_eq!(env("https://api.openai.com/v1"), None);
    }

    #[test]
    fn urls_are_checked_with_a_reason() {
        assert!(validate("http://127.0.0.1:1/v1").is_ok());
        assert!(
            validate("127.0.0.1:8000/v1")
                .unwrap_err()
                .contains("127.0.0.1:8000/v1")
        );
        assert!(validate("ftp://x/").unwrap_err().contains("http"));
    }

    #[test]
    fn an_endpoint_knows_its_provider() {
        assert_eq!(
            owner_of("https://api.deepseek.com/v1").map(|p| p.id),
            Some("deepseek")
        );
        assert_eq!(owner_of("http://127.0.0.1:1234/v1").map(|p| p.id), None);
    }
}
