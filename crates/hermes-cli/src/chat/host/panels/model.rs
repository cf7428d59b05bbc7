//! `/model`: available models, grouped by whether they can be used now.

use std::sync::Arc;
use std::time::Duration;

use hermes_app::slash_commands;
use hermes_config::Env;
use hermes_config::edit::ConfigDoc;
use hermes_config::env::ProcessEnv;
use hermes_core::figures::size;
use hermes_core::model::{ModelRouter as _, Route};
use hermes_models::live::{LIST_TIMEOUT, ListError, LocalServerInfo};
use hermes_models::local::{LocalModelSettings, PROVIDER as BUILT_IN};
use hermes_models::{LiveError, Overrides, ProviderStatus, Router, catalogue, providers};
use hermes_tui::port::{Panel, PanelGroup, PanelKey, PanelRequest, PanelRow, RowMark};
use secrecy::SecretString;

use super::{PanelKeyResult, custom_endpoint, key, row, text, unknown};
use crate::chat::host::ScreenConversation;
use crate::commands::counted;
use crate::commands::model::endpoint;
use crate::commands::model::{self, SetArgs, provider_of, tokens};
use crate::commands::setup::keys::{self, PastedKey};
use crate::exit::Failure;
use crate::wiring;

pub(super) const ID: &str = "model";

/// Timeout for the test of a model.
const MODEL_TEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Between the parts of a row's id; no name has it.
const PART: char = '\u{1f}';
/// The first part of the id of a row that only wants a key.
const KEYLESS: &str = "key";

/// Providers that only want a key.
const KEYLESS_TITLE: &str = "needs a key";

/// What a row means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModelPanelChoice {
    Model {
        provider: String,
        model: String,
        base_url: Option<String>,
    },
    Key {
        provider: String,
    },
}

impl ModelPanelChoice {
    pub(super) fn id(&self) -> String {
        match self {
            Self::Model {
                provider,
                model,
                base_url,
            } => {
                let url = base_url.as_deref().unwrap_or_default();
                format!("{provider}{PART}{model}{PART}{url}")
            }
            Self::Key { provider } => format!("{KEYLESS}{PART}{provider}"),
        }
    }

    fn read(id: &str) -> Result<Self, Failure> {
        let mut parts = id.split(PART);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(KEYLESS), Some(provider), None) => Ok(Self::Key {
                provider: provider.to_owned(),
            }),
            (Some(provider), Some(model), Some(url)) => Ok(Self::Model {
                provider: provider.to_owned(),
                model: model.to_owned(),
                base_url: (!url.is_empty()).then(|| url.to_owned()),
            }),
            _ => Err(Failure::failed("this row names no model")),
        }
    }
}

pub(super) fn router(conversation: &ScreenConversation) -> Result<Arc<Router>, Failure> {
    let config = Arc::new(conversation.cx.load_config()?.config);
    Ok(wiring::router(
        &conversation.cx,
        &config,
        Overrides::default(),
    ))
}

/// The provider that is nothing but an address in the config.
const NAMED: &str = "custom";
/// How long its list of models may take.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the ports where model servers of this machine usually listen, and the server in use for
/// what else it has where nothing else knows.
pub(super) fn look_around(conversation: &ScreenConversation) -> Result<(), Failure> {
    let router = router(conversation)?;
    let tray = conversation.panels.tray();
    let only_named = conversation.chat.route.provider == NAMED;
    conversation
        .panels
        .start("local-models", "looking on this machine", async move {
            let served = async {
                if !only_named {
                    return Vec::new();
                }
                // Without an answer there is only the model that is in use.
                router
                    .live_models(None, MODEL_LIST_TIMEOUT)
                    .await
                    .unwrap_or_default()
            };
            let (found, served) = tokio::join!(router.local_servers(), served);
            let mut tray = tray.lock();
            tray.found = Some(found);
            tray.served = served.into_iter().map(|model| model.id).collect();
            Ok(None)
        });
    Ok(())
}

pub(super) fn panel(conversation: &ScreenConversation) -> Result<Panel, Failure> {
    let router = router(conversation)?;
    let mut shared = conversation.panels.shared();
    let route = &conversation.chat.route;
    let found = shared.found.as_deref();
    let mut panel = shown(&router.providers(), found, route, &shared.served);
    // What needs no key stands before what needs one.
    let own = custom_endpoint::groups(shared.endpoint.as_ref(), route);
    if std::mem::take(&mut shared.goes_to_endpoint) {
        panel.fresh = true;
        panel.selected = own
            .first()
            .and_then(|group| Some(group.rows.first()?.id.clone()));
    }
    let mut ways = Vec::new();
    if model::local::is_installed() {
        ways.push(built_in(&router.local_settings(), route));
    }
    ways.extend(own);
    let keyless = panel
        .groups
        .iter()
        .position(|group| group.title == KEYLESS_TITLE);
    let at = keyless.unwrap_or(panel.groups.len());
    panel.groups.splice(at..at, ways);
    for row in panel.groups.iter_mut().flat_map(|group| &mut group.rows) {
        if let Some(test_result) = shared.tried.get(&row.id) {
            row.cells.push(test_result.clone());
        }
    }
    Ok(panel)
}

fn shown(
    all: &[ProviderStatus],
    found: Option<&[LocalServerInfo]>,
    route: &Route,
    served: &[String],
) -> Panel {
    let mut groups: Vec<PanelGroup> = found
        .unwrap_or_default()
        .iter()
        .map(|server| local_server_group(server, route))
        .collect();
    if found.is_some_and(<[_]>::is_empty) {
        groups.push(PanelGroup {
            title: "on this machine   nothing answers (Ollama, LM Studio, llama-server, vLLM)"
                .to_owned(),
            rows: Vec::new(),
        });
    }
    let mut keyed = Vec::new();
    let mut keyless = Vec::new();
    for provider in all {
        let own = provider.own && provider.id.starts_with("custom:");
        if provider.key.is_some() || own {
            keyed.extend(offered(provider, route));
        } else if let Some(variable) = provider.key_env {
            keyless.push(PanelRow {
                id: ModelPanelChoice::Key {
                    provider: provider.id.clone(),
                }
                .id(),
                mark: RowMark::Off,
                cells: vec![provider.id.clone(), variable.to_owned()],
                detail: format!("{}: Enter takes a key, or set {variable}", provider.name),
                also: provider.name.clone(),
                enter: Some(Box::new(PanelKey {
                    text: Some(format!(
                        "key for {} (stored in .env, never shown)",
                        provider.name
                    )),
                    secret: true,
                    ..key("enter", "add key", "key")
                })),
                ..PanelRow::default()
            });
        }
    }
    for (title, rows) in [("with your keys", keyed), (KEYLESS_TITLE, keyless)] {
        if !rows.is_empty() {
            groups.push(PanelGroup {
                title: title.to_owned(),
                rows,
            });
        }
    }
    // A server that only the config names is in none of the lists.
    let listed = groups.iter().flat_map(|group| &group.rows);
    if !route.model.is_empty() && !listed.clone().any(|row| row.mark == RowMark::Current) {
        groups.insert(0, in_use(route, served));
    }
    let listed = groups.iter().flat_map(|group| &group.rows);
    let usable = listed.filter(|row| row.mark != RowMark::Off).count();
    Panel {
        id: ID.to_owned(),
        title: "Model".to_owned(),
        note: format!("{usable} usable"),
        groups,
        keys: keys_of_panel(),
        filters: true,
        ..Panel::default()
    }
}

fn keys_of_panel() -> Vec<PanelKey> {
    vec![
        key("enter", "use here", "use"),
        key("ctrl+s", "set default", "default"),
        key("ctrl+t", "test call", "test"),
        PanelKey {
            text: Some("key (stored in .env, never shown)".to_owned()),
            secret: true,
            ..key("ctrl+k", "add key", "key")
        },
        PanelKey {
            row: false,
            ..key("ctrl+r", "look again", "look")
        },
    ]
}

/// The models that this program runs itself: those that are here before those to be fetched.
fn built_in(settings: &LocalModelSettings, route: &Route) -> PanelGroup {
    let mut all = model::local::rows(settings);
    all.retain(|row| row.fits);
    all.sort_by_key(|row| !row.is_downloaded);
    let rows = all.into_iter().map(|row| {
        let choice = ModelPanelChoice::Model {
            provider: BUILT_IN.to_owned(),
            model: row.weights.name.clone(),
            base_url: None,
        };
        let state = if row.is_downloaded {
            "here".to_owned()
        } else {
            format!("{} to download", size(row.bytes))
        };
        PanelRow {
            id: choice.id(),
            mark: mark(route, BUILT_IN, &row.weights.name),
            cells: vec![
                row.weights.name,
                format!("{} memory", size(row.memory)),
                state,
            ],
            detail:
                "runs on this machine without a key; small: it chats and answers simple questions"
                    .to_owned(),
            also: "built in local".to_owned(),
            ..PanelRow::default()
        }
    });
    PanelGroup {
        title: "built in".to_owned(),
        rows: rows.collect(),
    }
}

/// Fetches a built-in model beside the panel.
fn fetch(conversation: &ScreenConversation, name: String) -> PanelKeyResult {
    let cx = conversation.context();
    let label = format!("downloading {name}");
    conversation.panels.start("fetch-model", label, async move {
        let fetched = {
            let name = name.clone();
            tokio::task::spawn_blocking(move || model::local::ready(&cx, Some(&name))).await
        };
        match fetched {
            Ok(Ok(_)) => Ok(Some(format!("{name} is downloaded: Enter uses it"))),
            Ok(Err(failure)) => Err(failure.message),
            Err(error) => Err(error.to_string()),
        }
    });
    PanelKeyResult::Again
}

/// The model in use, and the others of its server.
fn in_use(route: &Route, served: &[String]) -> PanelGroup {
    let others = served.iter().filter(|model| **model != route.model);
    let rows = std::iter::once(&route.model).chain(others).map(|model| {
        let choice = ModelPanelChoice::Model {
            provider: route.provider.clone(),
            model: model.clone(),
            base_url: None,
        };
        PanelRow {
            id: choice.id(),
            mark: mark(route, &route.provider, model),
            cells: vec![model.clone(), route.provider.clone()],
            detail: hermes_config::redact::url(&route.base_url),
            ..PanelRow::default()
        }
    });
    PanelGroup {
        title: "in use".to_owned(),
        rows: rows.collect(),
    }
}

/// The models of a server on this machine.
fn local_server_group(server: &LocalServerInfo, route: &Route) -> PanelGroup {
    let (provider, base_url) = provider_of(server.server, &server.base_url);
    let rows = server.models.iter().map(|model| {
        let size = model.size_bytes.map_or_else(String::new, size);
        let choice = ModelPanelChoice::Model {
            provider: provider.to_owned(),
            model: model.id.clone(),
            base_url: base_url.clone(),
        };
        let known = catalogue::lookup(&model.id);
        let window = model
            .context_length
            .or_else(|| known.as_ref().map(|entry| entry.context_length));
        PanelRow {
            id: choice.id(),
            mark: mark(route, provider, &model.id),
            cells: vec![
                model.id.clone(),
                size,
                window.map_or_else(String::new, |count| format!("{} ctx", tokens(count))),
                abilities(model.tools, model.images),
                if model.loaded == Some(true) {
                    "loaded"
                } else {
                    ""
                }
                .to_owned(),
            ],
            also: provider.to_owned(),
            ..PanelRow::default()
        }
    });
    let address = server.base_url.trim_start_matches("http://");
    PanelGroup {
        title: format!(
            "on this machine   {provider} {}",
            address.trim_end_matches("/v1")
        ),
        rows: rows.collect(),
    }
}

/// What a provider with a key offers, as far as it is known without asking.
fn offered(provider: &ProviderStatus, route: &Route) -> Vec<PanelRow> {
    let mut models: Vec<String> = provider.default_model.iter().cloned().collect();
    if provider.current && !route.model.is_empty() && route.provider == provider.id {
        models.push(route.model.clone());
    }
    let known = catalogue::models_by_provider(&provider.id);
    models.extend(known.into_iter().map(|entry| entry.id.to_owned()));
    let mut seen = std::collections::HashSet::new();
    models.retain(|model| seen.insert(model.clone()));
    let rows = models.into_iter().map(|model| {
        let entry = catalogue::lookup(&model);
        let price = catalogue::price(&provider.id, &model);
        let choice = ModelPanelChoice::Model {
            provider: provider.id.clone(),
            model: model.clone(),
            base_url: None,
        };
        let able = entry.as_ref();
        PanelRow {
            id: choice.id(),
            mark: mark(route, &provider.id, &model),
            cells: vec![
                model,
                provider.id.clone(),
                able.map_or_else(String::new, |entry| {
                    format!("{} ctx", tokens(entry.context_length))
                }),
                able.map_or_else(String::new, |entry| {
                    abilities(Some(entry.tools), Some(entry.images))
                }),
                price.map_or_else(String::new, |price| {
                    format!("${}/${} per M", price.prices.input, price.prices.output)
                }),
            ],
            detail: price.map_or_else(String::new, |price| {
                format!("price in and out per million tokens, as of {}", price.as_of)
            }),
            also: provider.name.clone(),
            ..PanelRow::default()
        }
    });
    rows.collect()
}

fn abilities(tools: Option<bool>, images: Option<bool>) -> String {
    let mut words = Vec::new();
    match tools {
        Some(true) => words.push("tools"),
        Some(false) => words.push("no tools"),
        None => {}
    }
    if images == Some(true) {
        words.push("images");
    }
    words.join(" ")
}

pub(super) fn mark(route: &Route, provider: &str, model: &str) -> RowMark {
    if route.model == model && route.provider == provider {
        RowMark::Current
    } else {
        RowMark::None
    }
}

pub(super) async fn act(
    conversation: &mut ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    if ask.action == "look" {
        conversation.panels.shared().found = None;
        look_around(conversation)?;
        return Ok(PanelKeyResult::Again);
    }
    if let Some(done) = custom_endpoint::act(conversation, ask).await {
        return done;
    }
    let id = row(ask)?;
    let choice = ModelPanelChoice::read(id)?;
    if ask.action == "key" {
        return add_key(conversation, &choice, text(ask)).await;
    }
    let ModelPanelChoice::Model {
        provider,
        model,
        base_url,
    } = choice
    else {
        return Err(Failure::usage(
            "this provider has no key yet\nEnter takes one",
        ));
    };
    if provider == BUILT_IN && matches!(ask.action.as_str(), "use" | "default" | "test") {
        let there = router(conversation)?
            .local_settings()
            .weights(&model)
            .is_ok_and(|weights| weights.is_there());
        if !there {
            return Ok(fetch(conversation, model));
        }
    }
    if let ("use", endpoint::PROVIDER, Some(url)) =
        (ask.action.as_str(), provider.as_str(), &base_url)
    {
        return custom_endpoint::take(conversation, url, model).await;
    }
    let args = SetArgs {
        model,
        provider: Some(provider),
        base_url,
        key_env: None,
    };
    match ask.action.as_str() {
        "use" => take(conversation, &args).await,
        "default" => keep(conversation, &args),
        "test" => test(conversation, id.to_owned(), args),
        _ => Err(unknown(ask)),
    }
}

/// Goes on with another model in this conversation.
async fn take(
    conversation: &mut ScreenConversation,
    args: &SetArgs,
) -> Result<PanelKeyResult, Failure> {
    if args.base_url.is_some() {
        return Err(Failure::usage(
            "this server is not at its usual address\n^S makes it the default, then /reload",
        ));
    }
    let provider = args.provider.as_deref().unwrap_or_default();
    let line = format!("/model {} --provider {provider}", args.model);
    match slash_commands::line(conversation, &line).await {
        Some(told) => Ok(PanelKeyResult::Leave(told?)),
        None => Err(Failure::failed(format!("{line} is not a command"))),
    }
}

pub(super) fn keep(
    conversation: &ScreenConversation,
    args: &SetArgs,
) -> Result<PanelKeyResult, Failure> {
    let router = router(conversation)?;
    let route = model::resolve(args, &router)?;
    let failed = |error: hermes_config::edit::EditError| Failure::failed(error.to_string());
    let home = &conversation.cx.home;
    home.ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut doc = ConfigDoc::open(&home.config_path()).map_err(failed)?;
    let dropped = model::enter(&mut doc, args, &route)?;
    doc.save().map_err(failed)?;
    let mut told = format!(
        "{} ({}) is the default of new conversations",
        route.model, route.provider
    );
    if !dropped.is_empty() {
        told.push_str("; removed what belonged to the old one: model.");
        told.push_str(&dropped.join(", model."));
    }
    Ok(PanelKeyResult::Note(told))
}

/// A real call and a real call of a tool, beside the panel.
fn test(
    conversation: &ScreenConversation,
    id: String,
    args: SetArgs,
) -> Result<PanelKeyResult, Failure> {
    let config = Arc::new(conversation.cx.load_config()?.config);
    let overrides = Overrides {
        model: Some(args.model.clone()),
        provider: args.provider.clone(),
        base_url: args.base_url.clone(),
        ..Overrides::default()
    };
    let client = wiring::router(&conversation.cx, &config, overrides).primary()?;
    let tray = conversation.panels.tray();
    let name = args.model;
    let label = format!("calling {name}");
    conversation.panels.start("model-test", label, async move {
        let tried = model::attempt(client, MODEL_TEST_TIMEOUT).await;
        let (short, test_result) = match &tried {
            Ok(tried) => {
                let elapsed = format!("{:.1}s", tried.elapsed.as_secs_f64());
                match tried.tools {
                    Some(true) => (
                        "tools ok",
                        format!("{name} answers and calls tools ({elapsed})"),
                    ),
                    Some(false) => (
                        "tools fail",
                        format!("{name} answers but does not call tools: it can chat, but not act ({elapsed})"),
                    ),
                    None => (
                        "chat only",
                        format!("{name} answers; it has no tools ({elapsed})"),
                    ),
                }
            }
            Err(why) => ("fails", format!("{name}: {why}")),
        };
        tray.lock().tried.insert(id, short.to_owned());
        if tried.is_ok() {
            Ok(Some(test_result))
        } else {
            Err(test_result)
        }
    });
    Ok(PanelKeyResult::Again)
}

/// Tries a key, keeps it in .env and reads that again.
async fn add_key(
    conversation: &mut ScreenConversation,
    choice: &ModelPanelChoice,
    typed: &str,
) -> Result<PanelKeyResult, Failure> {
    if typed.is_empty() {
        return Ok(PanelKeyResult::Again);
    }
    let (ModelPanelChoice::Key { provider: id } | ModelPanelChoice::Model { provider: id, .. }) =
        choice;
    let provider = providers::find(id).filter(|provider| !provider.key_envs.is_empty());
    let provider =
        provider.ok_or_else(|| Failure::usage(format!("{id} has no variable for a key")))?;
    let secret = SecretString::from(typed.to_owned());
    let router = router(conversation)?;
    let asked = router
        .models_with_key(provider.id, None, secret.clone(), LIST_TIMEOUT)
        .await;
    let remark = match asked {
        Ok(models) => format!(
            "{} accepts it ({})",
            provider.name,
            counted(models.len(), "model")
        ),
        Err(LiveError::List(ListError::Refused {
            status: status @ (401 | 403),
            ..
        })) => {
            return Err(Failure::failed(format!(
                "{} refuses this key ({status}); it was not stored\ncheck that it was copied completely",
                provider.name
            )));
        }
        Err(error) => format!("it could not be tested: {error}"),
    };
    let pasted = PastedKey {
        provider,
        key: secret,
        variable: None,
    };
    keys::store(&conversation.cx, &pasted)?;
    let env = Env::load(&conversation.cx.home, &ProcessEnv::current())
        .map_err(|error| Failure::failed(error.to_string()))?;
    hermes_config::secrets::remember(&conversation.cx.home, &env);
    conversation.cx.env = env;
    let mut told = format!("the key is in .env; {remark}");
    // The session has its own copy of the keys.
    if conversation.busy {
        told.push_str("; /reload applies it when the turn is done");
    } else if let Some(Err(failure)) = slash_commands::line(conversation, "/reload").await {
        told = format!("{told}; /reload failed: {}", failure.message);
    }
    Ok(PanelKeyResult::Note(told))
}

#[cfg(test)]
mod tests {
    use hermes_core::model::WireFormat;
    use hermes_models::live::ListedModel;
    use hermes_models::providers::LocalServer;

    use super::*;

    fn provider(id: &str, key: Option<&str>, key_env: Option<&'static str>) -> ProviderStatus {
        ProviderStatus {
            id: id.to_owned(),
            name: id.to_uppercase(),
            base_url: format!("https://{id}.example/v1"),
            key: key.map(str::to_owned),
            key_env,
            default_model: None,
            own: false,
            current: false,
        }
    }

    fn route(provider: &str, model: &str) -> Route {
        Route {
            provider: provider.to_owned(),
            model: model.to_owned(),
            base_url: String::new(),
            format: WireFormat::ChatCompletions,
            credential: None,
        }
    }

    #[test]
    fn the_built_in_model_and_an_own_endpoint_are_offered() {
        let dir = tempfile::tempdir().unwrap();
        let home = hermes_config::home::Home::at(dir.path());
        let settings = LocalModelSettings::new(&home, &hermes_config::Config::default());
        let group = built_in(&settings, &route("", ""));
        let row = &group.rows[0];
        assert!(row.cells[2].ends_with("to download"), "{row:?}");
        let choice = ModelPanelChoice::read(&row.id).unwrap();
        assert!(
            matches!(&choice, ModelPanelChoice::Model { provider, .. } if provider == BUILT_IN),
            "{choice:?}"
        );
        let groups = custom_endpoint::groups(None, &route("", ""));
        let asks = groups[0].rows[0].enter.as_ref().unwrap();
        assert_eq!(asks.text.as_deref(), Some(endpoint::ADDRESS));
    }

    #[test]
    fn models_stand_by_whether_they_can_be_used() {
        let found = [LocalServerInfo {
            server: LocalServer::Ollama,
            base_url: "http://127.0.0.1:11434/v1".to_owned(),
            models: vec![ListedModel {
                id: "qwen3:8b".to_owned(),
                size_bytes: Some(5_200_000_000),
                context_length: Some(40_960),
                tools: Some(true),
                ..ListedModel::default()
            }],
        }];
        let all = [
            provider("anthropic", Some("env"), Some("ANTHROPIC_API_KEY")),
            provider("groq", None, Some("GROQ_API_KEY")),
        ];
        let panel = shown(&all, Some(&found), &route("ollama", "qwen3:8b"), &[]);
        assert_eq!(
            panel.groups[0].title,
            "on this machine   ollama 127.0.0.1:11434"
        );
        let local = &panel.groups[0].rows[0];
        assert_eq!(local.cells, ["qwen3:8b", "5.2 GB", "40k ctx", "tools", ""]);
        assert_eq!(local.mark, RowMark::Current);
        assert!(!panel.groups[1].rows.is_empty(), "the catalogue has some");
        assert!(
            panel.groups[1]
                .rows
                .iter()
                .all(|row| row.cells[1] == "anthropic")
        );
        assert_eq!(panel.groups[2].rows[0].cells, ["groq", "GROQ_API_KEY"]);
        assert_eq!(
            ModelPanelChoice::read(&panel.groups[2].rows[0].id).unwrap(),
            ModelPanelChoice::Key {
                provider: "groq".to_owned()
            }
        );
    }

    #[test]
    fn a_row_means_what_it_was_made_of() {
        for choice in [
            ModelPanelChoice::Model {
                provider: "ollama".to_owned(),
                model: "a/b:c".to_owned(),
                base_url: Some("http://127.0.0.1:9/v1".to_owned()),
            },
            ModelPanelChoice::Model {
                provider: "x".to_owned(),
                model: "y".to_owned(),
                base_url: None,
            },
            ModelPanelChoice::Key {
                provider: "groq".to_owned(),
            },
        ] {
            assert_eq!(ModelPanelChoice::read(&choice.id()).unwrap(), choice);
        }
        assert!(ModelPanelChoice::read("nonsense").is_err());
    }

    #[test]
    fn an_empty_machine_says_where_was_looked() {
        let panel = shown(&[], Some(&[]), &route("", ""), &[]);
        assert!(panel.groups[0].title.contains("nothing answers"));
        assert_eq!(panel.note, "0 usable");
        let looking = shown(&[], None, &route("", ""), &[]);
        assert_eq!(looking.groups, []);
        let served = ["mine".to_owned(), "another".to_owned()];
        let own = shown(&[], None, &route("custom", "mine"), &served);
        let names = own.groups[0].rows.iter().map(|row| row.cells[0].as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["mine", "another"]);
        assert_eq!(own.groups[0].rows[1].mark, RowMark::None);
        assert_eq!(own.groups[0].rows[0].cells, ["mine", "custom"]);
    }
}
