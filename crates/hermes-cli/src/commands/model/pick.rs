//! Choosing a model at a terminal: a list in groups, narrowed by typing.

use std::fmt::Write as _;

use hermes_core::figures::size;
use hermes_core::model::RouteError;
use hermes_models::live::LocalServerInfo;
use hermes_models::local::PROVIDER;
use hermes_models::providers::LocalServer;
use hermes_models::{Overrides, Router, catalogue, providers};
use hermes_tui::port::{Panel, PanelGroup, PanelRow};

use super::{SetArgs, endpoint, local, router, tokens};
use crate::choose;
use crate::commands::Context;
use crate::commands::setup::keys::{self, PastedKey};
use crate::exit::Failure;
use crate::prompt::{self, PromptAnswer};
use crate::wiring;

/// How many models of one provider are shown before anything is typed.
const UNFILTERED_PER_PROVIDER: usize = 4;
/// How many rows are shown at once.
const MAX_ROWS: usize = 40;

/// Where a model is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ModelGroup {
    Here,
    WithKey,
    BuiltIn,
    NeedsKey,
}

impl ModelGroup {
    fn title(self) -> &'static str {
        match self {
            Self::Here => "on this machine",
            Self::WithKey => "with your keys",
            Self::NeedsKey => "needs a key (choose one to paste it)",
            Self::BuiltIn => "built in: small, runs on this machine, no key",
        }
    }
}

struct PickRow {
    group: ModelGroup,
    provider: String,
    model: String,
    base_url: Option<String>,
    note: String,
    /// Shown before anything is typed.
    first: bool,
}

impl PickRow {
    fn matches(&self, words: &str) -> bool {
        let text = format!("{}/{} {}", self.provider, self.model, self.note).to_lowercase();
        words.split_whitespace().all(|word| text.contains(word))
    }
}

/// What was chosen, and a key that was pasted for it and is kept nowhere yet.
pub(crate) struct PickedModel {
    pub(crate) choice: SetArgs,
    pub(crate) key: Option<PastedKey>,
}

/// Asks until something is chosen. `None`: nothing is.
pub(crate) fn pick(cx: &Context) -> Result<Option<PickedModel>, Failure> {
    let (_, router) = router(cx, Overrides::default())?;
    let found = wiring::runtime()?.block_on(router.local_servers());
    let mut rows = rows(&router, found);
    if local::is_installed() {
        rows.extend(built_in(&router));
        rows.sort_by_key(|row| row.group);
    }
    if let Ok(route) = router.describe() {
        cx.out
            .line(format!("in use: {} ({})", route.model, route.provider))?;
    }
    if !rows.iter().any(|row| row.group != ModelGroup::NeedsKey) && cx.no_input {
        return Err(Failure::from(RouteError::NothingConfigured));
    }
    if choose::can_show(cx) {
        return with_arrows(&rows, cx);
    }
    line_by_line(&rows, cx)
}

/// What begins an own endpoint in the list.
const OWN: &str = "own";

/// A list with arrows and a filter.
fn with_arrows(rows: &[PickRow], cx: &Context) -> Result<Option<PickedModel>, Failure> {
    let panel = || {
        let mut groups: Vec<PanelGroup> = Vec::new();
        let mut last = None;
        for (index, row) in rows.iter().enumerate() {
            if last != Some(row.group) {
                last = Some(row.group);
                groups.push(PanelGroup {
                    title: row.group.title().to_owned(),
                    rows: Vec::new(),
                });
            }
            let shown = PanelRow {
                id: index.to_string(),
                cells: vec![row.model.clone(), row.provider.clone(), row.note.clone()],
                ..PanelRow::default()
            };
            if let Some(group) = groups.last_mut() {
                group.rows.push(shown);
            }
        }
        let another = PanelGroup {
            title: "another".to_owned(),
            rows: vec![
                endpoint::address_row(OWN, "your own endpoint: type its URL"),
                endpoint::typed_row("name", "type a name", "provider/model"),
            ],
        };
        // The providers without a key are many: what needs none stands before them.
        let keyless = ModelGroup::NeedsKey.title();
        let keyless = groups.iter().position(|group| group.title == keyless);
        groups.insert(keyless.unwrap_or(groups.len()), another);
        Panel {
            id: "model".to_owned(),
            title: "Model".to_owned(),
            groups,
            keys: vec![choose::enter("use")],
            filters: true,
            ..Panel::default()
        }
    };
    loop {
        let Some(ask) = choose::pick(cx, panel())? else {
            return Ok(None);
        };
        let typed = ask.text.unwrap_or_default().trim().to_owned();
        let row = ask.row.and_then(|id| id.parse::<usize>().ok());
        let chosen = match (ask.action.as_str(), row.and_then(|index| rows.get(index))) {
            (OWN, _) => endpoint::ask(cx, Some(typed))?,
            ("name", _) if typed.is_empty() => None,
            ("name", _) => Some(by_name(typed)),
            (_, Some(row)) => take(row, cx)?,
            (_, None) => None,
        };
        if chosen.is_some() {
            return Ok(chosen);
        }
    }
}

/// A model that only its name is known of.
fn by_name(model: String) -> PickedModel {
    PickedModel {
        choice: SetArgs {
            model,
            provider: None,
            base_url: None,
            key_env: None,
        },
        key: None,
    }
}

/// Numbers and words, for a terminal that shows no lists.
fn line_by_line(rows: &[PickRow], cx: &Context) -> Result<Option<PickedModel>, Failure> {
    let mut filter = String::new();
    loop {
        let shown: Vec<&PickRow> = rows
            .iter()
            .filter(|row| {
                if filter.is_empty() {
                    row.first
                } else {
                    row.matches(&filter)
                }
            })
            .collect();
        print(&shown, rows.len(), cx)?;
        let typed = match prompt::line(
            "number, words to filter, provider/model, or the URL of your own endpoint (Enter: leave): ",
        )? {
            PromptAnswer::Back if !filter.is_empty() => {
                filter.clear();
                continue;
            }
            PromptAnswer::Back => return Ok(None),
            PromptAnswer::Line(line) if line.is_empty() => return Ok(None),
            PromptAnswer::Line(line) => line,
        };
        if let Ok(number) = typed.parse::<usize>() {
            match number.checked_sub(1).and_then(|index| shown.get(index)) {
                Some(row) => {
                    if let Some(chosen) = take(row, cx)? {
                        return Ok(Some(chosen));
                    }
                }
                None => cx.out.error(format!("there is no {number} in the list")),
            }
            continue;
        }
        let words = typed.to_lowercase();
        if words.contains("://")
            || matches!(
                words.as_str(),
                OWN | "custom" | "own endpoint" | "your own endpoint"
            )
        {
            let address = words.contains("://").then_some(typed);
            match endpoint::ask(cx, address)? {
                Some(chosen) => return Ok(Some(chosen)),
                None => continue,
            }
        }
        if rows.iter().any(|row| row.matches(&words)) {
            filter = words;
        } else if prompt::confirm(&format!("nothing matches; use {typed:?} as it is?"), false)? {
            return Ok(Some(by_name(typed)));
        }
    }
}

/// The choice that a row means; a missing key is asked for. `None`: there is still none.
fn take(row: &PickRow, cx: &Context) -> Result<Option<PickedModel>, Failure> {
    let key = if row.group == ModelGroup::NeedsKey {
        match keys::ask(cx, Some(&row.provider))? {
            Some(key) => Some(key),
            None => return Ok(None),
        }
    } else {
        None
    };
    if row.group == ModelGroup::BuiltIn {
        local::ready(cx, Some(&row.model))?;
    }
    Ok(Some(PickedModel {
        choice: SetArgs {
            model: row.model.clone(),
            provider: Some(row.provider.clone()),
            base_url: row.base_url.clone(),
            key_env: None,
        },
        key,
    }))
}

fn print(shown: &[&PickRow], all: usize, cx: &Context) -> Result<(), Failure> {
    let mut group = None;
    for (index, row) in shown.iter().take(MAX_ROWS).enumerate() {
        if group != Some(row.group) {
            cx.out.line(row.group.title())?;
            group = Some(row.group);
        }
        let line = format!(
            "{:>4}  {:<40} {:<14} {}",
            index + 1,
            row.model,
            row.provider,
            row.note
        );
        cx.out.foreign_line(line.trim_end())?;
    }
    let hidden = all - shown.len().min(MAX_ROWS);
    if hidden > 0 {
        cx.out
            .line(format!("      {hidden} more: type to filter"))?;
    }
    Ok(())
}

/// The provider that stands for a server found on this machine, and its address where it is not
/// the usual one.
pub(crate) fn provider_of(server: LocalServer, base_url: &str) -> (&'static str, Option<String>) {
    let provider = providers::PROVIDERS
        .iter()
        .find(|provider| provider.local == Some(server));
    let usual = provider.is_some_and(|provider| provider.base_url == base_url);
    (
        provider.map_or("custom", |provider| provider.id),
        (!usual).then(|| base_url.to_owned()),
    )
}

fn rows(router: &Router, found: Vec<LocalServerInfo>) -> Vec<PickRow> {
    let mut rows = Vec::new();
    for server in found {
        let (provider, base_url) = provider_of(server.server, &server.base_url);
        for model in server.models {
            let mut note = String::new();
            if let Some(bytes) = model.size_bytes {
                // Writing to a String cannot fail.
                let _ = write!(note, "{}  ", size(bytes));
            }
            if let Some(window) = model.context_length {
                let _ = write!(note, "{} ctx  ", tokens(window));
            }
            if model.loaded == Some(true) {
                note.push_str("loaded");
            }
            rows.push(PickRow {
                group: ModelGroup::Here,
                provider: provider.to_owned(),
                model: model.id,
                base_url: base_url.clone(),
                note,
                first: true,
            });
        }
    }
    for provider in router.providers() {
        let own = provider.own && provider.id.starts_with("custom:");
        let group = if provider.key.is_some() || own {
            ModelGroup::WithKey
        } else if provider.key_env.is_some() {
            ModelGroup::NeedsKey
        } else {
            continue;
        };
        let mut models: Vec<String> = provider.default_model.iter().cloned().collect();
        if group == ModelGroup::WithKey {
            let known = catalogue::models_by_provider(&provider.id);
            models.extend(known.into_iter().map(|entry| entry.id.to_owned()));
            let mut seen = std::collections::HashSet::new();
            models.retain(|model| seen.insert(model.clone()));
        }
        for (index, model) in models.into_iter().enumerate() {
            let note = match (group, provider.key_env) {
                (ModelGroup::NeedsKey, Some(name)) => name.to_owned(),
                _ => about(&provider.id, &model),
            };
            rows.push(PickRow {
                group,
                provider: provider.id.clone(),
                model,
                base_url: None,
                note,
                first: index < UNFILTERED_PER_PROVIDER && group == ModelGroup::WithKey,
            });
        }
    }
    rows.sort_by_key(|row| row.group);
    // With nothing else at hand, what a key would open is the list.
    if !rows.iter().any(|row| row.first) {
        for row in &mut rows {
            row.first = true;
        }
    }
    rows
}

/// The models that this program runs itself, those that are here before those to be fetched.
fn built_in(router: &Router) -> Vec<PickRow> {
    let mut all = local::rows(&router.local_settings());
    all.retain(|row| row.fits);
    all.sort_by_key(|row| !row.is_downloaded);
    let row = |(index, row): (usize, local::LocalModelRow)| PickRow {
        group: ModelGroup::BuiltIn,
        provider: PROVIDER.to_owned(),
        note: if row.is_downloaded {
            format!("{} memory  here", size(row.memory))
        } else {
            format!(
                "{} memory  {} to download",
                size(row.memory),
                size(row.bytes)
            )
        },
        model: row.weights.name,
        base_url: None,
        first: index == 0,
    };
    all.into_iter().enumerate().map(row).collect()
}

fn about(provider: &str, model: &str) -> String {
    let mut parts = Vec::new();
    if let Some(entry) = catalogue::lookup(model) {
        parts.push(format!("{} ctx", tokens(entry.context_length)));
        if !entry.tools {
            parts.push("no tools".to_owned());
        }
    }
    if let Some(price) = catalogue::price(provider, model) {
        parts.push(format!(
            "${}/${} per M",
            price.prices.input, price.prices.output
        ));
    }
    parts.join("  ")
}
