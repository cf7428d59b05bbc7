//! Names of models and providers as typed by people.

use super::{PROVIDERS, Provider};

/// Vendor prefixes that resellers use in model names (`anthropic/claude-…`), with the provider
/// that serves the same models directly.
const VENDORS: &[(&str, Option<&str>)] = &[
    ("anthropic", Some("anthropic")),
    ("openai", Some("openai-api")),
    ("google", Some("gemini")),
    ("x-ai", Some("xai")),
    ("deepseek", Some("deepseek")),
    ("qwen", Some("alibaba")),
    ("moonshotai", Some("kimi-coding")),
    ("minimax", Some("minimax")),
    ("z-ai", Some("zai")),
    ("xiaomi", Some("xiaomi")),
    ("stepfun", Some("stepfun")),
    ("mistralai", Some("mistral")),
    ("nvidia", Some("nvidia")),
    ("arcee-ai", Some("arcee")),
    ("tencent", Some("tencent-tokenhub")),
    ("meta-llama", None),
    ("nousresearch", None),
    ("microsoft", None),
    ("cohere", None),
    ("amazon", None),
    ("perplexity", None),
    ("openrouter", None),
    ("sakana", None),
    ("baidu", None),
    ("bytedance", None),
    ("inception", None),
];

/// Whether resellers use this prefix for models of a vendor.
pub(crate) fn is_vendor(prefix: &str) -> bool {
    VENDORS
        .iter()
        .any(|(vendor, _)| vendor.eq_ignore_ascii_case(prefix))
}

/// The prefix that resellers give models of a provider.
pub(crate) fn vendor_of(provider: &str) -> Option<&'static str> {
    VENDORS
        .iter()
        .find(|(_, id)| *id == Some(provider))
        .map(|(vendor, _)| *vendor)
}

/// The name under which `provider` knows `model`. Prefixes and dots differ between resellers and
/// vendors; unrecognised names are left unchanged.
pub(crate) fn native(provider: &Provider, model: &str) -> String {
    let model = model.trim();
    if matches!(provider.id, "openrouter" | "nous" | "kilocode") {
        return with_vendor(model);
    }
    let bare = match model.split_once('/') {
        Some((prefix, rest))
            if !provider.aggregator
                && (vendor_of(provider.id).is_some_and(|v| v.eq_ignore_ascii_case(prefix))
                    || provider.id.eq_ignore_ascii_case(prefix)) =>
        {
            rest
        }
        _ => model,
    };
    if provider.id == "anthropic" && bare.starts_with("claude-") {
        return bare.replace('.', "-");
    }
    bare.to_owned()
}

/// `claude-sonnet-4-6` → `anthropic/claude-sonnet-4.6`, for models the catalogue knows.
fn with_vendor(model: &str) -> String {
    if model.contains('/') {
        return model.to_owned();
    }
    let Some(vendor) = crate::catalogue::vendor(model).and_then(vendor_of) else {
        return model.to_owned();
    };
    if vendor == "anthropic" {
        format!("{vendor}/{}", dotted(model))
    } else {
        format!("{vendor}/{}", model.to_ascii_lowercase())
    }
}

/// Single digits joined by a hyphen are a version: `opus-4-6` → `opus-4.6`; a date that follows is
/// dropped.
fn dotted(model: &str) -> String {
    let mut parts: Vec<&str> = model.split('-').collect();
    if parts
        .last()
        .is_some_and(|part| part.len() == 8 && is_digits(part))
    {
        parts.pop();
    }
    let mut out = String::with_capacity(model.len());
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            let version = part.len() == 1
                && is_digits(part)
                && parts[index - 1].len() == 1
                && is_digits(parts[index - 1]);
            out.push(if version { '.' } else { '-' });
        }
        out.push_str(part);
    }
    out
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The known provider name closest to a misspelt one.
pub(crate) fn closest<'a>(name: &str, own: impl Iterator<Item = &'a str>) -> Option<String> {
    let name = name.trim().to_ascii_lowercase();
    let known = PROVIDERS
        .iter()
        .flat_map(|p| std::iter::once(p.id).chain(p.aliases.iter().copied()));
    let limit = (name.chars().count() / 3).clamp(1, 3);
    known
        .chain(own)
        .map(|candidate| (distance(&name, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}

/// Edit distance with transpositions of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::super::by_id;
    use super::*;

    #[test]
    fn misspelt_names_find_their_provider() {
        let none = std::iter::empty;
        assert_eq!(closest("openruoter", none()).as_deref(), Some("openrouter"));
        assert_eq!(closest("antropic", none()).as_deref(), Some("anthropic"));
        assert_eq!(
            closest("my-serber", ["my-server"].into_iter()).as_deref(),
            Some("my-server")
        );
        assert_eq!(closest("zzzzzz", none()), None);
    }

    #[test]
    fn models_are_named_as_the_provider_names_them() {
        for (provider, typed, sent) in [
            (
                "anthropic",
                "anthropic/claude-sonnet-4.6",
                "claude-sonnet-4-6",
            ),
            ("anthropic", "claude-opus-4.8", "claude-opus-4-8"),
            (
                "openrouter",
                "claude-sonnet-4-6",
                "anthropic/claude-sonnet-4.6",
            ),
            (
                "openrouter",
                "claude-haiku-4-5-20251001",
                "anthropic/claude-haiku-4.5",
            ),
            ("openrouter", "gpt-5.4", "openai/gpt-5.4"),
            ("openrouter", "openrouter/auto", "openrouter/auto"),
            ("openrouter", "my-own-thing", "my-own-thing"),
            ("openai-api", "openai/gpt-5.4", "gpt-5.4"),
            ("zai", "z-ai/glm-5.2", "glm-5.2"),
            ("groq", "openai/gpt-oss-120b", "openai/gpt-oss-120b"),
            ("custom", "anthropic/claude-x", "anthropic/claude-x"),
            ("deepseek", "deepseek/deepseek-chat", "deepseek-chat"),
        ] {
            assert_eq!(
                native(by_id(provider).unwrap(), typed),
                sent,
                "{provider} {typed}"
            );
        }
    }
}
