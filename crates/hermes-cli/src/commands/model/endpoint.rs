//! An own endpoint: any server that speaks like OpenAI's, by its address.

use hermes_models::live::{LIST_TIMEOUT, ListError};
use hermes_models::providers::{Provider, endpoint};
use hermes_models::{LiveError, Overrides, Router, providers};
use hermes_tui::port::{Panel, PanelGroup, PanelKey, PanelRow};
use secrecy::SecretString;

use super::{PickedModel, SetArgs, router};
use crate::choose;
use crate::commands::Context;
use crate::commands::setup::keys::PastedKey;
use crate::exit::Failure;
use crate::prompt::{self, PromptAnswer};
use crate::wiring;

/// The provider that is nothing but an address.
pub(crate) const PROVIDER: &str = "custom";
/// What is sent where no key is needed.
const NO_KEY: &str = "none";
/// What the address is asked for with.
pub(crate) const ADDRESS: &str = "address of the server, such as http://host:8000/v1";

/// An address as it is stored.
pub(crate) fn address(typed: &str) -> Result<String, String> {
    let typed = typed.trim();
    if typed.is_empty() || typed.ends_with("://") {
        return Err(format!(
            "{typed:?} is not a valid URL; expected http://host:port/v1"
        ));
    }
    let typed = typed.trim_end_matches('/');
    let full = if typed.contains("://") {
        typed.to_owned()
    } else {
        // Nobody types the scheme of a machine at home; elsewhere it matters.
        format!("http://{typed}")
    };
    let bad = || format!("{typed:?} is not a valid URL; expected http://host:port/v1");
    let url = url::Url::parse(&full).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(bad());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("enter the key separately; it does not belong in the address".to_owned());
    }
    Ok(full)
}

/// What a server has, and under which address: many are named without their `/v1`.
pub(crate) struct ModelListing {
    pub(crate) url: String,
    pub(crate) models: Vec<String>,
}

/// Why there is no list.
pub(crate) enum ListingError {
    /// It wants a key, or another one.
    NeedsKey,
    Other(String),
}

/// Asks the server for its models.
pub(crate) async fn list(
    router: &Router,
    url: &str,
    key: Option<&SecretString>,
) -> Result<ModelListing, ListingError> {
    let key = key.cloned().unwrap_or_else(|| SecretString::from(NO_KEY));
    let mut urls = vec![url.to_owned()];
    if !url.ends_with("/v1") {
        urls.push(format!("{url}/v1"));
    }
    let mut why = None;
    for url in urls {
        let asked = router.models_with_key(PROVIDER, Some(&url), key.clone(), LIST_TIMEOUT);
        match asked.await {
            Ok(models) => {
                let models = models.into_iter().map(|model| model.id).collect();
                return Ok(ModelListing { url, models });
            }
            Err(LiveError::List(ListError::Refused {
                status: 401 | 403, ..
            })) => return Err(ListingError::NeedsKey),
            // The first reason is about what was typed.
            Err(error) => {
                why.get_or_insert_with(|| error.to_string());
            }
        }
    }
    Err(ListingError::Other(why.unwrap_or_default()))
}

/// The variable that keeps the key of an address.
pub(crate) fn variable(url: &str) -> String {
    endpoint::conventional_key_env(url).unwrap_or_else(|| "CUSTOM_API_KEY".to_owned())
}

pub(crate) fn provider() -> Result<&'static Provider, Failure> {
    providers::by_id(PROVIDER).ok_or_else(|| Failure::failed("there is no provider custom"))
}

/// The choice that an address, a model and perhaps a key mean.
pub(crate) fn choice(
    url: &str,
    model: String,
    key: Option<SecretString>,
) -> Result<PickedModel, Failure> {
    let variable = key.is_some().then(|| variable(url));
    let key = match key {
        Some(key) => Some(PastedKey {
            provider: provider()?,
            key,
            variable: variable.clone(),
        }),
        None => None,
    };
    Ok(PickedModel {
        choice: SetArgs {
            model,
            provider: Some(PROVIDER.to_owned()),
            base_url: Some(url.to_owned()),
            key_env: variable,
        },
        key,
    })
}

/// Asks for address, key and model, one after the other. `None`: the person went back.
pub(crate) fn ask(cx: &Context, typed: Option<String>) -> Result<Option<PickedModel>, Failure> {
    let (_, router) = router(cx, Overrides::default())?;
    let mut typed = typed.filter(|text| !text.trim().is_empty());
    loop {
        let line = match typed.take() {
            Some(line) => line,
            None => match prompt::line(&format!("{ADDRESS} (Esc: back): "))? {
                PromptAnswer::Back => return Ok(None),
                PromptAnswer::Line(line) if line.is_empty() => return Ok(None),
                PromptAnswer::Line(line) => line,
            },
        };
        let url = match address(&line) {
            Ok(url) => url,
            Err(why) => {
                cx.out.error(why);
                continue;
            }
        };
        if let Some(picked) = at_address(cx, &router, &url)? {
            return Ok(Some(picked));
        }
    }
}

fn at_address(cx: &Context, router: &Router, url: &str) -> Result<Option<PickedModel>, Failure> {
    let mut key: Option<SecretString> = None;
    let listing = loop {
        cx.out.remark(format!("asking {url} for its models …"));
        match wiring::runtime()?.block_on(list(router, url, key.as_ref())) {
            Ok(listing) => break listing,
            Err(ListingError::NeedsKey) => {
                let wanted = if key.is_some() {
                    "the server does not accept this key; enter another"
                } else {
                    "the server needs a key"
                };
                match prompt::secret(&format!("{wanted} (not shown, Esc: back): "))?.or_empty() {
                    typed if typed.is_empty() => return Ok(None),
                    typed => key = Some(SecretString::from(typed)),
                }
            }
            Err(ListingError::Other(why)) => {
                cx.out.error(crate::output::harmless(&why));
                if !prompt::confirm("use this URL anyway?", false)? {
                    return Ok(None);
                }
                if key.is_none() {
                    let typed =
                        prompt::secret("its key, if it needs one (not shown, Enter: none): ")?;
                    let typed = typed.or_empty();
                    key = (!typed.is_empty()).then(|| SecretString::from(typed));
                }
                break ModelListing {
                    url: url.to_owned(),
                    models: Vec::new(),
                };
            }
        }
    };
    match model_of(cx, &listing)? {
        Some(model) => choice(&listing.url, model, key).map(Some),
        None => Ok(None),
    }
}

/// One of the models that the server has, or a name that is typed.
fn model_of(cx: &Context, listing: &ModelListing) -> Result<Option<String>, Failure> {
    if listing.models.is_empty() || !choose::can_show(cx) {
        for model in &listing.models {
            cx.out.foreign_line(&format!("  {model}"))?;
        }
        let usual = listing.models.first().map_or("", String::as_str);
        let hint = if usual.is_empty() {
            String::new()
        } else {
            format!(" [{}]", crate::output::harmless(usual))
        };
        let typed = match prompt::line(&format!("model{hint} (Esc: back): "))? {
            PromptAnswer::Back => return Ok(None),
            PromptAnswer::Line(line) if line.is_empty() => usual.to_owned(),
            PromptAnswer::Line(line) => line,
        };
        return Ok((!typed.is_empty()).then_some(typed));
    }
    let rows = listing.models.iter().map(|model| PanelRow {
        id: model.clone(),
        cells: vec![model.clone()],
        ..PanelRow::default()
    });
    let panel = Panel {
        id: "endpoint".to_owned(),
        title: format!("Models of {}", listing.url),
        groups: vec![
            PanelGroup {
                title: String::new(),
                rows: rows.collect(),
            },
            PanelGroup {
                title: "another".to_owned(),
                rows: vec![typed_row("name", "type a name", "model")],
            },
        ],
        keys: vec![choose::enter("use")],
        filters: true,
        ..Panel::default()
    };
    let Some(ask) = choose::pick(cx, panel)? else {
        return Ok(None);
    };
    let named = match ask.action.as_str() {
        "name" => ask.text,
        _ => ask.row,
    };
    Ok(named
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty()))
}

/// The row that takes the address of a server, by whatever words it is looked for.
pub(crate) fn address_row(action: &str, label: &str) -> PanelRow {
    PanelRow {
        also: "own endpoint custom server url base_url address openai compatible self-hosted http:// https://"
            .to_owned(),
        ..typed_row(action, label, ADDRESS)
    }
}

/// A row on which Enter asks for a text.
pub(crate) fn typed_row(action: &str, label: &str, question: &str) -> PanelRow {
    PanelRow {
        id: action.to_owned(),
        cells: vec![label.to_owned()],
        enter: Some(Box::new(PanelKey {
            action: action.to_owned(),
            text: Some(question.to_owned()),
            ..choose::enter(label)
        })),
        ..PanelRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_people_type_it() {
        for (typed, url) in [
            ("http://host:8000/v1", "http://host:8000/v1"),
            (" https://api.acme.ai/v1/ ", "https://api.acme.ai/v1"),
            ("192.168.1.7:8080", "http://192.168.1.7:8080"),
            ("[::1]:8000/v1", "http://[::1]:8000/v1"),
        ] {
            assert_eq!(address(typed).as_deref(), Ok(url), "{typed}");
        }
        for typed in [
            "",
            "ftp://host/v1",
            "http://",
            "https://key@host/v1",
            "two words",
        ] {
            assert!(address(typed).is_err(), "{typed}");
        }
    }
}
