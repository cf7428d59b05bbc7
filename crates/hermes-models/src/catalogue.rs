//! Bundled data about models: context lengths, capabilities and prices.
//!
//! The list is plain text inside the binary. A lookup scans it line by line (some microseconds) and
//! parses only the matching line, so it costs nothing at start.

use hermes_core::usage::{PriceSource, Prices};

use crate::providers::names;

const MODELS: &str = include_str!("../data/models.txt");

/// A catalogue entry.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueEntry {
    /// The name in the list: the model, or a family ending in `*`.
    pub id: &'static str,
    /// The provider whose list price this is. `None`: open weights, served by many.
    pub provider: Option<&'static str>,
    pub context_length: u32,
    pub max_output: Option<u32>,
    pub images: bool,
    pub tools: bool,
    /// Known only for an exact model, never for a family.
    pub prices: Option<ListPrice>,
}

/// A published price and the month it was published in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListPrice {
    pub prices: Prices,
    /// `2026-06`
    pub as_of: &'static str,
}

/// How closely a line matches a name; greater is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameFit {
    Family(usize),
    /// A variant of a listed model (`…-pro`): same size, possibly another price.
    Variant(usize),
    Exact,
}

/// The entry for `model`, in any provider's spelling.
pub fn lookup(model: &str) -> Option<CatalogueEntry> {
    let wanted = normalize_name(model);
    let (fit, line) = lines()
        .filter_map(|line| {
            let id = line.split_ascii_whitespace().next()?;
            Some((fit(&wanted, id)?, line))
        })
        .max_by_key(|(fit, _)| *fit)?;
    let mut entry = parse(line)?;
    if fit != NameFit::Exact {
        entry.prices = None;
    }
    Some(entry)
}

/// The price of `model` at `provider`: the provider's own list price or, for a reseller that passes
/// prices on, the vendor's.
pub fn price(provider: &str, model: &str) -> Option<ListPrice> {
    let entry = lookup(model)?;
    let listed = entry.provider?;
    let direct = listed == provider
        || matches!(
            (listed, provider),
            ("minimax", "minimax-cn") | ("kimi-coding", "kimi-coding-cn")
        );
    let passed_on = provider == "openrouter"
        && model
            .split_once('/')
            .is_some_and(|(vendor, _)| names::vendor_of(listed) == Some(vendor))
        && !model.contains(':');
    (direct || passed_on).then_some(entry.prices).flatten()
}

/// The provider that makes `model`, if the model itself is listed.
pub fn vendor(model: &str) -> Option<&'static str> {
    let entry = lookup(model)?;
    (!entry.id.ends_with('*'))
        .then_some(entry.provider)
        .flatten()
}

/// The listed models of a provider, best first.
pub fn models_by_provider(provider: &str) -> Vec<CatalogueEntry> {
    lines()
        .filter_map(parse)
        .filter(|entry| entry.provider == Some(provider) && !entry.id.ends_with('*'))
        .collect()
}

fn lines() -> impl Iterator<Item = &'static str> {
    MODELS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Lower case, without path and `:variant`, with dots as hyphens.
fn normalize_name(model: &str) -> String {
    let name = model.trim().rsplit('/').next().unwrap_or(model);
    // `qwen3:8b` has a size, `…:free` a tariff; neither is part of the listed name.
    let name = name.split(':').next().unwrap_or(name);
    hyphenated(name)
}

fn hyphenated(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '.' | '_' | ' ' => '-',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

fn fit(wanted: &str, id: &str) -> Option<NameFit> {
    if let Some(family) = id.strip_suffix('*') {
        // A version number ends with its digits: gpt-4.1 is not in the family of gpt-4-1106.
        let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
        let torn = digit(family.as_bytes().last()) && digit(wanted.as_bytes().get(family.len()));
        return (starts_with(wanted, family) && !torn).then_some(NameFit::Family(family.len()));
    }
    if !starts_with(wanted, id) {
        return None;
    }
    match wanted.as_bytes().get(id.len()) {
        None => Some(NameFit::Exact),
        Some(b'-') if is_release(&wanted[id.len() + 1..]) => Some(NameFit::Exact),
        Some(b'-') => Some(NameFit::Variant(id.len())),
        Some(_) => None,
    }
}

/// `starts_with` that reads the listed name's dots as hyphens without allocating.
fn starts_with(wanted: &str, listed: &str) -> bool {
    wanted.len() >= listed.len()
        && wanted
            .bytes()
            .zip(listed.bytes())
            .all(|(a, b)| a == if b == b'.' { b'-' } else { b })
}

/// A date or `latest` names a release of the same model at the same price.
fn is_release(suffix: &str) -> bool {
    suffix == "latest"
        || (suffix.len() >= 4
            && suffix
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-'))
}

fn parse(line: &'static str) -> Option<CatalogueEntry> {
    let mut columns = line.split_ascii_whitespace();
    let id = columns.next()?;
    let provider = known(columns.next()?);
    let context_length = columns.next()?.parse().ok()?;
    let max_output = known(columns.next()?).and_then(|text| text.parse().ok());
    let abilities = columns.next()?;
    let mut number = || known(columns.next()?)?.parse::<f64>().ok();
    let (input, output, cache_read, cache_write) = (number(), number(), number(), number());
    let as_of = columns.next().and_then(known);
    let prices = match (input, output, as_of) {
        (Some(input), Some(output), Some(as_of)) => Some(ListPrice {
            prices: Prices {
                input,
                output,
                cache_read,
                cache_write,
                source: PriceSource::OfficialDocsSnapshot,
            },
            as_of,
        }),
        _ => None,
    };
    Some(CatalogueEntry {
        id,
        provider,
        context_length,
        max_output,
        images: abilities.contains('v'),
        tools: abilities.contains('t'),
        prices,
    })
}

fn known(column: &'static str) -> Option<&'static str> {
    (column != "-").then_some(column)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_is_well_formed() {
        let mut seen = HashSet::new();
        for line in lines() {
            assert_eq!(line.split_ascii_whitespace().count(), 10, "{line}");
            let entry = parse(line).expect(line);
            assert!(entry.context_length >= 4096, "{line}");
            assert!(seen.insert(hyphenated(entry.id)), "{line} is listed twice");
            if let Some(id) = entry.provider {
                assert!(crate::providers::by_id(id).is_some(), "{line}");
            }
            if let Some(price) = entry.prices {
                assert!(price.prices.output >= price.prices.input, "{line}");
                assert!(
                    price
                        .prices
                        .cache_read
                        .is_none_or(|read| read <= price.prices.input)
                );
                assert_eq!(price.as_of.len(), 7, "{line}");
            } else {
                let columns: Vec<&str> = line.split_ascii_whitespace().collect();
                assert!(columns[5..].iter().all(|column| *column == "-"), "{line}");
            }
        }
    }

    #[test]
    fn spellings_meet_in_one_line() {
        for (name, id) in [
            ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
            ("anthropic/claude-haiku-4.5", "claude-haiku-4-5"),
            ("anthropic/claude-sonnet-4.6:beta", "claude-sonnet-4-6"),
            ("openai/gpt-5.4-mini", "gpt-5.4-mini"),
            ("gpt-4-1106-preview", "gpt-4*"),
            ("gpt-4.1-2025-04-14", "gpt-4.1"),
            ("accounts/fireworks/models/kimi-k2p6", "kimi-k2p6"),
            ("MiniMax-M3", "minimax-m3"),
            ("qwen3:8b", "qwen*"),
            ("Qwen/Qwen3-Coder-480B", "qwen3-coder*"),
            ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
            ("claude-mystery-9", "claude*"),
        ] {
            assert_eq!(lookup(name).map(|entry| entry.id), Some(id), "{name}");
        }
        assert_eq!(lookup("nobody-knows-this"), None);
    }

    #[test]
    fn a_price_belongs_to_the_very_model_at_its_own_provider() {
        let direct = price("anthropic", "claude-haiku-4-5-20251001").unwrap();
        assert!((direct.prices.input - 1.0).abs() < 1e-9);
        assert_eq!(
            price("openrouter", "anthropic/claude-haiku-4.5"),
            Some(direct)
        );
        // A variant may cost something else; a reseller may, too.
        assert_eq!(price("openai-api", "gpt-5.6-sol-pro"), None);
        assert_eq!(price("custom", "claude-haiku-4-5"), None);
        assert_eq!(price("nous", "anthropic/claude-haiku-4.5"), None);
        assert_eq!(price("openrouter", "deepseek/deepseek-chat:free"), None);
        assert_eq!(price("anthropic", "claude-mystery-9"), None);
        // The size of a variant is still known.
        assert_eq!(lookup("gpt-5.6-sol-pro").unwrap().context_length, 1_050_000);
    }

    #[test]
    fn default_models_are_known() {
        for provider in crate::providers::PROVIDERS {
            for model in [provider.default_model, provider.aux_model]
                .into_iter()
                .flatten()
            {
                assert!(lookup(model).is_some(), "{}: {model}", provider.id);
            }
        }
        assert!(models_by_provider("anthropic").len() > 5);
    }
}
