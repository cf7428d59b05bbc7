//! Values that complete a word of a command.

use std::path::Path;

use hermes_core::slash::{self, CommandDef, Values};
use hermes_models::catalogue;
use hermes_store::skills::SkillLibrary;
use hermes_store::{ListFilter, SessionOrder};
use hermes_tui::Theme;
use hermes_tui::port::Candidate;

use hermes_app::text::shorten;
use hermes_app::{Conversation, slash_commands};

/// Answers that are given.
const MAX_COMPLETIONS: usize = 50;

/// What may stand where `word` is typed. The best come first: what begins with it, then what has it.
pub(super) async fn candidates(
    conversation: &Conversation,
    command: &str,
    before: &str,
    word: &str,
) -> Vec<Candidate> {
    let Some(command) = slash::find(command) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    if before.trim().is_empty() {
        let words = command.subcommands.iter();
        all.extend(words.map(|word| candidate(*word, "")));
    }
    all.extend(values(conversation, command, before, word).await);
    let lower = word.to_lowercase();
    let rank = |candidate: &Candidate| {
        let value = candidate.value.to_lowercase();
        if value.starts_with(&lower) {
            Some(0)
        } else if value.contains(&lower) || candidate.about.to_lowercase().contains(&lower) {
            Some(1)
        } else {
            None
        }
    };
    let mut ranked: Vec<(u8, Candidate)> = all
        .into_iter()
        .filter_map(|candidate| Some((rank(&candidate)?, candidate)))
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(MAX_COMPLETIONS);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

fn candidate(value: impl Into<String>, about: impl Into<String>) -> Candidate {
    Candidate {
        value: value.into(),
        about: about.into(),
    }
}

async fn values(
    conversation: &Conversation,
    command: &CommandDef,
    before: &str,
    word: &str,
) -> Vec<Candidate> {
    let chat = &conversation.chat;
    match command.values {
        Values::None | Values::Checkpoints => Vec::new(),
        Values::Models => models(conversation, before),
        Values::Sessions => sessions(conversation).await,
        Values::Skills => SkillLibrary::of_home(&conversation.cx.home, &chat.config, Some("cli"))
            .scan()
            .into_iter()
            .map(|skill| candidate(skill.name, shorten(&skill.description, 60)))
            .collect(),
        Values::McpServers => {
            let toolbox = chat.mcp.as_ref().and_then(|mcp| mcp.toolbox());
            let names = toolbox.map_or_else(Vec::new, |toolbox| toolbox.names());
            let named = before.split_whitespace().next();
            if named.is_some_and(|named| names.iter().any(|name| name == named)) {
                let words = ["reconnect", "login", "on", "off"];
                return words.map(|word| candidate(word, "")).into();
            }
            names.into_iter().map(|name| candidate(name, "")).collect()
        }
        Values::Themes => Theme::names()
            .map(|(name, about)| candidate(name, about))
            .collect(),
        Values::Personalities => slash_commands::personalities(conversation)
            .into_iter()
            .map(|(name, text)| candidate(name, shorten(&text, 60)))
            .chain([candidate("none", "as the home says")])
            .collect(),
        Values::Toolsets if before.trim().is_empty() => Vec::new(),
        Values::Toolsets => {
            let sets = chat.tools.toolsets().into_iter();
            sets.map(|name| candidate(name, "")).collect()
        }
        Values::Files => files(&chat.cwd, word),
        Values::Commands => slash::COMMANDS
            .iter()
            .map(|command| candidate(command.name, command.summary))
            .collect(),
    }
}

/// Those of the provider in use, as far as they are known without asking it.
fn models(conversation: &Conversation, before: &str) -> Vec<Candidate> {
    let words: Vec<&str> = before.split_whitespace().collect();
    if let [.., "--provider"] = words.as_slice() {
        let providers = hermes_models::providers::PROVIDERS.iter();
        return providers
            .map(|provider| candidate(provider.id, provider.name))
            .collect();
    }
    let route = &conversation.chat.route;
    let mut all = vec![candidate(route.model.as_str(), "in use")];
    all.extend(
        catalogue::models_by_provider(&route.provider)
            .into_iter()
            .filter(|entry| entry.id != route.model)
            .map(|entry| candidate(entry.id, route.provider.as_str())),
    );
    if !words.is_empty() {
        all.extend(["--provider", "--global", "--session"].map(|flag| candidate(flag, "")));
    }
    all.retain(|candidate| !candidate.value.is_empty());
    all
}

async fn sessions(conversation: &Conversation) -> Vec<Candidate> {
    let filter = ListFilter {
        order: SessionOrder::LastActive,
        limit: 100,
        ..ListFilter::default()
    };
    let rows = conversation.chat.store.list(filter).await;
    let rows = rows.unwrap_or_default().into_iter();
    rows.map(|row| {
        let about = match &row.title {
            Some(title) => title.clone(),
            None => shorten(&row.preview, 60),
        };
        candidate(row.id, about)
    })
    .collect()
}

/// Entries of the directory that the word names.
fn files(cwd: &Path, word: &str) -> Vec<Candidate> {
    let (dir, prefix) = match word.rsplit_once('/') {
        Some((dir, _)) => (format!("{dir}/"), format!("{dir}/")),
        None => (String::new(), String::new()),
    };
    let Ok(entries) = std::fs::read_dir(cwd.join(dir)) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .take(2000)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let slash = if entry.path().is_dir() { "/" } else { "" };
            Some(format!("{prefix}{name}{slash}"))
        })
        .collect();
    names.sort();
    names.into_iter().map(|name| candidate(name, "")).collect()
}
