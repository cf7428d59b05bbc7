//! Part of the `/model` panel: the user's own endpoint, by its address.

use hermes_app::{show_text, slash_commands};
use hermes_core::front_end::TextKind;
use hermes_core::model::Route;
use hermes_tui::port::{PanelGroup, PanelRequest, PanelRow, RowMark};
use secrecy::SecretString;

use super::model::{ModelPanelChoice, keep, mark, router};
use super::{PanelKeyResult, text};
use crate::chat::host::ScreenConversation;
use crate::commands::counted;
use crate::commands::model::endpoint::{self, ListingError};
use crate::commands::setup::keys;
use crate::exit::Failure;

/// A server by its address: the way to it, and its models once it is known.
pub(super) fn groups(known: Option<&CustomEndpoint>, route: &Route) -> Vec<PanelGroup> {
    let way = endpoint::address_row("endpoint", "type an address");
    let mut groups = Vec::new();
    if let Some(known) = known {
        let mut rows: Vec<PanelRow> = known
            .models
            .iter()
            .map(|model| PanelRow {
                id: ModelPanelChoice::Model {
                    provider: endpoint::PROVIDER.to_owned(),
                    model: model.clone(),
                    base_url: Some(known.url.clone()),
                }
                .id(),
                mark: if route.base_url == known.url {
                    mark(route, endpoint::PROVIDER, model)
                } else {
                    RowMark::None
                },
                cells: vec![model.clone()],
                ..PanelRow::default()
            })
            .collect();
        let question = format!("key for {} (stored in .env, never shown)", known.url);
        let mut takes_key = endpoint::typed_row("endpoint-key", "type its key", &question);
        if let Some(enter) = &mut takes_key.enter {
            enter.secret = true;
        }
        rows.push(takes_key);
        rows.push(endpoint::typed_row(
            "endpoint-model",
            "type the name of a model",
            "model",
        ));
        groups.push(PanelGroup {
            title: format!("your own endpoint   {}", known.url),
            rows,
        });
    }
    groups.push(PanelGroup {
        title: "your own endpoint".to_owned(),
        rows: vec![way],
    });
    groups.push(PanelGroup {
        title: "another model".to_owned(),
        rows: vec![endpoint::typed_row(
            "name",
            "type its name",
            "model, or provider/model",
        )],
    });
    groups
}

/// A server that the person has named.
pub(super) struct CustomEndpoint {
    url: String,
    key: Option<SecretString>,
    models: Vec<String>,
}

/// Asks the server for its models, with the key that is known.
async fn look_at(
    conversation: &mut ScreenConversation,
    url: String,
    key: Option<SecretString>,
) -> Result<PanelKeyResult, Failure> {
    let router = router(conversation)?;
    let (note, known) = match endpoint::list(&router, &url, key.as_ref()).await {
        Ok(listing) => (
            format!(
                "{} has {}: choose one",
                listing.url,
                counted(listing.models.len(), "model")
            ),
            CustomEndpoint {
                url: listing.url,
                key,
                models: listing.models,
            },
        ),
        Err(why) => {
            let note = match why {
                ListingError::NeedsKey if key.is_some() => {
                    format!("{url} does not accept this key")
                }
                ListingError::NeedsKey => format!("{url} needs a key"),
                ListingError::Other(why) => format!("{why}; type the name of a model, or a key"),
            };
            (
                note,
                CustomEndpoint {
                    url,
                    key,
                    models: Vec::new(),
                },
            )
        }
    };
    let mut shared = conversation.panels.shared();
    shared.endpoint = Some(known);
    shared.goes_to_endpoint = true;
    drop(shared);
    Ok(PanelKeyResult::Note(note))
}

/// What is done about an own endpoint. `None`: it is about something else.
pub(super) async fn act(
    conversation: &mut ScreenConversation,
    ask: &PanelRequest,
) -> Option<Result<PanelKeyResult, Failure>> {
    let typed = text(ask).to_owned();
    let known = || {
        let shared = conversation.panels.shared();
        let known = shared.endpoint.as_ref();
        known.map(|known| (known.url.clone(), known.key.clone()))
    };
    match (ask.action.as_str(), known()) {
        ("endpoint" | "endpoint-key" | "endpoint-model" | "name", _) if typed.is_empty() => {
            Some(Ok(PanelKeyResult::Again))
        }
        ("endpoint", _) => Some(match endpoint::address(&typed) {
            Ok(url) => look_at(conversation, url, None).await,
            Err(why) => Err(Failure::usage(why)),
        }),
        ("endpoint-key", Some((url, _))) => {
            let key = Some(SecretString::from(typed));
            Some(look_at(conversation, url, key).await)
        }
        ("endpoint-model", Some((url, key))) => Some(use_it(conversation, &url, typed, key).await),
        ("name", _) => Some(by_name(conversation, &typed).await),
        _ => None,
    }
}

/// A model that is in no list.
async fn by_name(
    conversation: &mut ScreenConversation,
    name: &str,
) -> Result<PanelKeyResult, Failure> {
    let line = format!("/model {name}");
    match slash_commands::line(conversation, &line).await {
        Some(result) => Ok(PanelKeyResult::Leave(result?)),
        None => Err(Failure::failed(format!("{line} is not a command"))),
    }
}

/// A model of the endpoint that is known.
pub(super) async fn take(
    conversation: &mut ScreenConversation,
    url: &str,
    model: String,
) -> Result<PanelKeyResult, Failure> {
    let key = {
        let shared = conversation.panels.shared();
        let known = shared.endpoint.as_ref().filter(|known| known.url == url);
        known.and_then(|known| known.key.clone())
    };
    use_it(conversation, url, model, key).await
}

/// An own endpoint is the default from then on, and is gone on with: the address is in the config.
async fn use_it(
    conversation: &mut ScreenConversation,
    url: &str,
    model: String,
    key: Option<SecretString>,
) -> Result<PanelKeyResult, Failure> {
    if conversation.busy {
        return Err(Failure::usage("a turn is running: stop it first"));
    }
    let picked = endpoint::choice(url, model, key)?;
    if let Some(key) = &picked.key {
        keys::store(&conversation.cx, key)?;
    }
    let PanelKeyResult::Note(note) = keep(conversation, &picked.choice)? else {
        return Ok(PanelKeyResult::Again);
    };
    // What was chosen for this conversation before is not meant any more.
    conversation.options.model = None;
    conversation.options.provider = None;
    let result = match slash_commands::line(conversation, "/reload").await {
        Some(result) => result?,
        None => return Err(Failure::failed("/reload is not a command")),
    };
    Ok(PanelKeyResult::Leave(
        result.and(show_text(TextKind::Info, &note)),
    ))
}
