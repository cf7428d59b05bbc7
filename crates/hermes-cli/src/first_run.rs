//! The first start: finds or asks for a model, tests it and saves it.
//!
//! Keys in the environment and a configured model need no question: the router uses them. What is
//! left is to look for model servers on this machine, try the best model there for real, and let
//! the person say yes.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_config::Config;
use hermes_core::figures::size;
use hermes_core::model::{ModelRouter as _, RouteError};
use hermes_models::Overrides;
use hermes_models::live::{LocalProbe, LocalServerInfo};
use hermes_models::local::{LocalModelSettings, machine, program};
use hermes_models::providers::LocalServer;

use crate::args::TurnArgs;
use crate::commands::Context;
use crate::commands::model::local::LocalModelRow;
use crate::commands::model::{self, PickedModel, SetArgs};
use crate::commands::setup::keys::{self, PastedKey};
use crate::exit::{Exit, Failure};
use crate::{prompt, wiring};

/// Timeout for probing local servers.
const PROBE_TIMEOUT: Duration = Duration::from_millis(400);
/// Timeout for testing a model: a large one has to be loaded first.
const MODEL_TEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Below this, tools and a conversation do not fit together.
const MIN_TOOL_WINDOW: u32 = 16_000;

/// The next step, where nothing was found.
const NOTHING_FOUND: &str = "\
Your text is kept. To continue, choose one:
  /model         in the chat: choose a provider and paste its key, or enter your own endpoint
  hermes setup   the same and more, step by step
  ollama serve   or another server on this machine, then hermes again";

/// The same where the built-in model was not wanted.
const NEXT_STEPS: &str = "\
Your text is kept. To continue, choose one:
  hermes --local the small model that comes with hermes
  /model         in the chat: choose a provider and paste its key, or enter your own endpoint
  hermes setup   the same and more, step by step
  ollama serve   or another server on this machine, then hermes again";

/// What a chat at a terminal goes through before it opens. With a model configured this is free:
/// no question, no network. Without one, what this machine offers is looked for and proposed; the
/// context that comes back has read what was written. When nothing was found or chosen the context
/// comes back as it was, and the chat opens all the same: it keeps what is typed.
pub(crate) fn before_chat(turn: &TurnArgs, cx: Context) -> Result<Context, Failure> {
    let named = turn.model.is_some() || turn.provider.is_some() || turn.local;
    if named || turn.ignore_user_config || turn.safe_mode {
        return Ok(cx);
    }
    // The chat reports config errors; do not report them twice.
    let Ok(loaded) = cx.load_config() else {
        return Ok(cx);
    };
    let config = Arc::new(loaded.config);
    let router = wiring::router(&cx, &config, Overrides::default());
    if router.describe() != Err(RouteError::NothingConfigured) {
        return Ok(cx);
    }
    cx.out.error(format!(
        "hermes {}: looking for a model …",
        env!("CARGO_PKG_VERSION")
    ));
    let (found, probe) = wiring::runtime()?.block_on(async {
        let found = router.local_servers_within(PROBE_TIMEOUT).await;
        let probe = match best(&found) {
            Some(offer) => tokio::time::timeout(
                PROBE_TIMEOUT,
                router.local_probe(offer.server, &offer.base_url, &offer.model),
            )
            .await
            .ok()
            .flatten(),
            None => None,
        };
        (found, probe)
    });
    report(&cx, &router.local_candidates(), &found);
    let chosen = match best(&found) {
        Some(offer) => propose(&cx, &config, &offer, probe)?,
        None => propose_local(&cx, &config)?,
    };
    Ok(chosen.unwrap_or(cx))
}

/// `--local`: the built-in model is made ready, and named.
pub(crate) fn local(turn: &mut TurnArgs, cx: &Context) -> Result<(), Failure> {
    if turn.local {
        let weights = model::local::ready(cx, turn.model.as_deref())?;
        turn.model = Some(weights.name);
        // This name means nothing else, whatever the config says.
        turn.provider = Some(program::NAME.to_owned());
    }
    Ok(())
}

/// Nothing else is there: the built-in model is offered. `None`: the chat opens without a model.
fn propose_local(cx: &Context, config: &Arc<Config>) -> Result<Option<Context>, Failure> {
    let settings = LocalModelSettings::new(&cx.home, config);
    let row = match built_in(&settings, model::local::is_installed()) {
        Ok(row) => row,
        Err(why) => {
            let line = format!("  {:<13} {why}", "built in");
            let width = crate::output::terminal_width();
            cx.out.error(prompt::fitted(&line, width, 14));
            return nothing_found(cx, config);
        }
    };
    let cost = if row.is_downloaded {
        "already downloaded".to_owned()
    } else {
        format!("{} to download, once", size(row.bytes))
    };
    let question = format!(
        "nothing found. Use the small model that comes with hermes? {}: runs on this machine, chats and \
         answers simple questions, has no tools ({cost})",
        row.weights.name
    );
    match ask(cx, config, &question)? {
        ProposalAnswer::Accepted => {
            let selected = model::local::ready(cx, Some(&row.weights.name))
                .and_then(|weights| model::local::select(&weights, cx));
            match selected {
                Ok(()) => cx.reread().map(Some),
                Err(failure) => {
                    cx.out.error(failure.message);
                    Ok(None)
                }
            }
        }
        ProposalAnswer::Declined => {
            cx.out.error(NEXT_STEPS);
            Ok(None)
        }
        ProposalAnswer::OtherModel(chosen) => Ok(chosen),
    }
}

/// The answer to a proposed model.
enum ProposalAnswer {
    Accepted,
    /// The chat opens without a model.
    Declined,
    OtherModel(Option<Context>),
}

/// Asks whether to use the proposed model, until something is chosen.
fn ask(cx: &Context, config: &Arc<Config>, question: &str) -> Result<ProposalAnswer, Failure> {
    let question = format!(
        "{question}\n  [Enter] yes  [m] other  [k] paste a key  [u] your own endpoint  [q] quit "
    );
    choose(cx, config, &question, &['y', 'm', 'k', 'u', 'q'])
}

/// Asks until something is chosen. The first of `keys` is what Enter means.
fn choose(
    cx: &Context,
    config: &Arc<Config>,
    question: &str,
    keys: &[char],
) -> Result<ProposalAnswer, Failure> {
    loop {
        let picked = match prompt::key(question, keys)? {
            Some('m') => model::pick(cx)?,
            Some('u') => model::endpoint::ask(cx, None)?,
            Some('k') => {
                if let Some(chosen) = ask_for_key_and_select(cx, config)? {
                    return Ok(ProposalAnswer::OtherModel(Some(chosen)));
                }
                None
            }
            Some('q') => return Err(Failure::silent(Exit::Ok)),
            Some(_) => return Ok(ProposalAnswer::Accepted),
            None => return Ok(ProposalAnswer::Declined),
        };
        if let Some(PickedModel { choice, key }) = picked {
            return test_and_save(cx, config, &choice, key).map(ProposalAnswer::OtherModel);
        }
    }
}

/// Nothing answers and nothing is built in: the user can enter a key or an address; Esc opens the chat.
fn nothing_found(cx: &Context, config: &Arc<Config>) -> Result<Option<Context>, Failure> {
    let question = "nothing found.\n  [k] paste a key  [u] your own endpoint  [m] choose from a list  \
         [Enter] open the chat without a model  [q] quit ";
    match choose(cx, config, question, &['c', 'k', 'u', 'm', 'q'])? {
        ProposalAnswer::OtherModel(chosen) => Ok(chosen),
        ProposalAnswer::Accepted | ProposalAnswer::Declined => {
            cx.out.error(NOTHING_FOUND);
            Ok(None)
        }
    }
}

/// The built-in model as the config names it, or why it cannot be offered.
fn built_in(settings: &LocalModelSettings, is_installed: bool) -> Result<LocalModelRow, String> {
    let weights = settings
        .weights(&settings.default_name())
        .map_err(|error| error.to_string())?;
    let row = model::local::rows(settings)
        .into_iter()
        .find(|row| row.weights == weights)
        .ok_or_else(|| format!("{} is not known", weights.name))?;
    match unavailable_reason(&row, is_installed) {
        Some(why) => Err(why),
        None => Ok(row),
    }
}

fn unavailable_reason(row: &LocalModelRow, is_installed: bool) -> Option<String> {
    if !is_installed {
        return Some(program::HOW_TO_GET.to_owned());
    }
    if row.weights.model.is_none() && !row.is_downloaded {
        return Some(format!("{} does not exist", row.weights.path.display()));
    }
    (!row.fits).then(|| {
        format!(
            "{} needs about {} of memory, but only {} is free",
            row.weights.name,
            size(row.memory),
            size(machine::free_memory().unwrap_or_default())
        )
    })
}

/// A model that could be used.
struct LocalModelOffer {
    server: LocalServer,
    base_url: String,
    model: String,
}

/// The first model of the first server that is meant for talking; one that is loaded goes first.
fn best(found: &[LocalServerInfo]) -> Option<LocalModelOffer> {
    let is_chat_model = |name: &str| {
        let name = name.to_lowercase();
        !["embed", "rerank", "whisper"]
            .iter()
            .any(|word| name.contains(word))
    };
    found.iter().find_map(|server| {
        let mut models = server
            .models
            .iter()
            .filter(|model| is_chat_model(&model.id) && model.tools != Some(false));
        let first = models.clone().next();
        let chosen = models
            .find(|model| model.loaded == Some(true))
            .or(first)
            .or_else(|| server.models.iter().find(|model| is_chat_model(&model.id)))?;
        Some(LocalModelOffer {
            server: server.server,
            base_url: server.base_url.clone(),
            model: chosen.id.clone(),
        })
    })
}

/// What was looked at, in a few lines.
fn report(cx: &Context, asked: &[(LocalServer, String)], found: &[LocalServerInfo]) {
    cx.out
        .error("  keys          none in the environment or .env");
    let mut absent = Vec::new();
    for (server, base_url) in asked {
        let name = server_name(*server);
        let address = address(base_url);
        match found.iter().find(|found| &found.base_url == base_url) {
            Some(found) => {
                let names: Vec<&str> = found
                    .models
                    .iter()
                    .take(4)
                    .map(|model| model.id.as_str())
                    .collect();
                let more = found.models.len().saturating_sub(names.len());
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                let names = if names.is_empty() {
                    "runs, but has no models".to_owned()
                } else {
                    names.join(", ")
                };
                let line = format!("  {name:<13} {address}: {names}{more}");
                cx.out.error(crate::output::harmless(&line));
            }
            None => absent.push(format!("{name} {address}")),
        }
    }
    if !absent.is_empty() {
        cx.out
            .error(format!("  not running   {}", absent.join(" · ")));
    }
    let logins: Vec<&str> = LOGINS
        .iter()
        .filter(|(path, _)| exists(cx, path))
        .map(|(_, name)| *name)
        .collect();
    if !logins.is_empty() {
        cx.out.error(format!(
            "  logins        {} (of other programs: not used)",
            logins.join(", ")
        ));
    }
    if exists(cx, "~/.openclaw") {
        cx.out
            .error("  openclaw      ~/.openclaw found (left as it is)");
    }
}

/// Logins of other programs that people may wonder about.
const LOGINS: [(&str, &str); 2] = [
    ("~/.codex/auth.json", "codex"),
    ("~/.claude/.credentials.json", "claude"),
];

fn exists(cx: &Context, path: &str) -> bool {
    let path: PathBuf = cx.home.expand_user(path);
    path.is_absolute() && path.exists()
}

fn server_name(server: LocalServer) -> &'static str {
    match server {
        LocalServer::Ollama => "ollama",
        LocalServer::LmStudio => "lm studio",
        LocalServer::LlamaCpp => "llama-server",
        LocalServer::Vllm => "vllm",
        LocalServer::BuiltIn => "built in",
    }
}

fn address(base_url: &str) -> &str {
    let address = base_url
        .trim_start_matches("http://")
        .trim_end_matches("/v1");
    // For localhost, the port is enough.
    address.strip_prefix("127.0.0.1:").unwrap_or(address)
}

/// Tries the offer and asks. `None`: the chat opens without a model.
fn propose(
    cx: &Context,
    config: &Arc<Config>,
    offer: &LocalModelOffer,
    probe: Option<LocalProbe>,
) -> Result<Option<Context>, Failure> {
    let (provider, base_url) = model::provider_of(offer.server, &offer.base_url);
    let choice = SetArgs {
        model: offer.model.clone(),
        provider: Some(provider.to_owned()),
        base_url,
        key_env: None,
    };
    let window = probe.and_then(|probe| probe.context_length);
    let test_summary = test_model(cx, config, &choice, None, window)?;
    let question = format!("Use {} on this machine? {test_summary}", choice.model);
    match ask(cx, config, &question)? {
        ProposalAnswer::Accepted => {
            model::set(&choice, cx)?;
            cx.reread().map(Some)
        }
        ProposalAnswer::Declined => Ok(None),
        ProposalAnswer::OtherModel(chosen) => Ok(chosen),
    }
}

/// A pasted key and the provider's usual model.
fn ask_for_key_and_select(cx: &Context, config: &Arc<Config>) -> Result<Option<Context>, Failure> {
    let Some(pasted) = keys::ask(cx, None)? else {
        return Ok(None);
    };
    let Some(usual) = pasted.provider.default_model else {
        cx.out.error(format!(
            "which model of {}? hermes model set MODEL --provider {}",
            pasted.provider.name, pasted.provider.id
        ));
        keys::store(cx, &pasted)?;
        return cx.reread().map(Some);
    };
    let choice = SetArgs {
        model: usual.to_owned(),
        provider: Some(pasted.provider.id.to_owned()),
        base_url: None,
        key_env: None,
    };
    test_and_save(cx, config, &choice, Some(pasted))
}

/// Tries what was chosen, and keeps it.
fn test_and_save(
    cx: &Context,
    config: &Arc<Config>,
    choice: &SetArgs,
    key: Option<PastedKey>,
) -> Result<Option<Context>, Failure> {
    let test_summary = test_model(cx, config, choice, key.as_ref(), None)?;
    cx.out.error(format!("{}: {test_summary}", choice.model));
    if let Some(key) = key {
        keys::store(cx, &key)?;
    }
    model::set(choice, &cx.reread()?)?;
    cx.reread().map(Some)
}

/// A real call and a real tool call; what came of them in words.
fn test_model(
    cx: &Context,
    config: &Arc<Config>,
    choice: &SetArgs,
    key: Option<&PastedKey>,
    window: Option<u32>,
) -> Result<String, Failure> {
    let overrides = Overrides {
        model: Some(choice.model.clone()),
        provider: choice.provider.clone(),
        base_url: choice.base_url.clone(),
        api_key: key.map(|pasted| pasted.key.clone()),
    };
    let client = wiring::router(cx, config, overrides).primary()?;
    cx.out.error(format!(
        "  trying        {} (an answer and a tool call, at most {} s; Ctrl+C leaves)",
        choice.model,
        MODEL_TEST_TIMEOUT.as_secs()
    ));
    let window = window.unwrap_or(client.info().context_length);
    let tried = wiring::runtime()?.block_on(model::attempt(client, MODEL_TEST_TIMEOUT));
    let mut test_summary = match tried {
        Ok(tried) => {
            let seconds = tried.elapsed.as_secs_f64();
            match tried.tools {
                Some(true) => format!("tools: yes (tested {seconds:.1} s)"),
                Some(false) => {
                    format!("tools: no (tested {seconds:.1} s): it can chat, but not act")
                }
                None => {
                    format!("tools: none (answered in {seconds:.1} s): it can chat, but not act")
                }
            }
        }
        Err(why) => format!("it did not answer: {why}"),
    };
    if window < MIN_TOOL_WINDOW {
        // Writing to a String cannot fail.
        let _ = write!(
            test_summary,
            "\n  its window is {} tokens: too small for long work; give it at least {}",
            model::tokens(window),
            model::tokens(MIN_TOOL_WINDOW)
        );
    }
    Ok(test_summary)
}

#[cfg(test)]
mod tests {
    use hermes_config::home::Home;

    use super::*;

    fn offered(name: &str, context: u32, is_installed: bool) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = LocalModelSettings::new(&Home::at(dir.path()), &Config::default());
        settings.model = Some(name.to_owned());
        settings.context = context;
        built_in(&settings, is_installed).map(|row| row.weights.name)
    }

    #[test]
    fn the_built_in_model_is_offered_or_it_is_said_why_not() {
        // In any case, as everywhere else.
        let found = offered("SmolLM2-135M", 0, true);
        assert_eq!(found.as_deref(), Ok("smollm2-135m"));
        let missing = offered("smollm2-135m", 0, false).unwrap_err();
        assert_eq!(missing, program::HOW_TO_GET);
        let absent = offered("own/file.gguf", 0, true).unwrap_err();
        assert!(absent.ends_with("own/file.gguf does not exist"), "{absent}");
        let unknown = offered("gpt-5", 0, true).unwrap_err();
        assert!(unknown.contains("neither a listed model"), "{unknown}");
    }

    #[test]
    fn a_model_that_does_not_fit_is_not_offered() {
        let dir = tempfile::tempdir().unwrap();
        let settings = LocalModelSettings::new(&Home::at(dir.path()), &Config::default());
        let rows = || model::local::rows(&settings);
        let mut row = rows().remove(0);
        row.fits = false;
        assert!(
            unavailable_reason(&row, true)
                .unwrap()
                .contains("of memory")
        );
        assert_eq!(
            unavailable_reason(&rows()[0], false).as_deref(),
            Some(program::HOW_TO_GET)
        );
    }
}
