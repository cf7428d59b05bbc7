//! A provider and a model with everything but the key.

use hermes_core::model::WireFormat;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use crate::credentials::fingerprint;
use crate::providers::Provider;
use crate::providers::custom::{CustomProvider, ModelOverride};

/// What a caller specified besides the model's name.
#[derive(Clone, Debug, Default)]
pub(super) struct ExplicitRoute {
    pub(super) provider: Option<String>,
    pub(super) base_url: Option<String>,
    pub(super) api_key: Option<SecretString>,
    pub(super) key_env: Option<String>,
    pub(super) api_mode: Option<String>,
    pub(super) extras: RequestExtras,
}

/// What a step of the chain or an auxiliary task adds to its calls.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestExtras {
    pub(super) context_length: Option<u32>,
    pub(super) max_tokens: Option<u32>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Map<String, Value>,
}

/// The destination of calls, without the key.
#[derive(Clone, Debug)]
pub(super) struct RouteTarget {
    /// Id of a built-in provider, `custom:<name>` of a custom one, or `custom`.
    pub(super) provider: String,
    pub(super) builtin: Option<&'static Provider>,
    pub(super) own: Option<CustomProvider>,
    pub(super) model: String,
    pub(super) base_url: String,
    /// The address is not the provider's own but was configured.
    pub(super) moved: bool,
    pub(super) format: WireFormat,
    /// The key and headers of the `model` section belong to this target.
    pub(super) from_model_section: bool,
    pub(super) explicit_key: Option<SecretString>,
    pub(super) explicit_key_env: Option<String>,
    pub(super) extras: RequestExtras,
}

impl RouteTarget {
    /// The configured values of this model.
    pub(super) fn model_override(&self) -> Option<&ModelOverride> {
        self.own.as_ref()?.models.get(&self.model)
    }

    /// The name under which auth.json stores the keys of this target.
    pub(super) fn pool_key(&self) -> String {
        match (&self.own, self.builtin) {
            (Some(own), None) => format!("custom:{}", own.key),
            (Some(own), Some(builtin)) if builtin.id == "custom" => format!("custom:{}", own.key),
            _ => self.provider.clone(),
        }
    }

    /// Which keys in memory belong to this target: those of auth.json, and any given just for it.
    pub(super) fn slot_key(&self) -> String {
        let given = self
            .explicit_key
            .as_ref()
            .map(|key| fingerprint(key.expose_secret()))
            .or_else(|| self.explicit_key_env.clone())
            .unwrap_or_default();
        format!("{}\n{}\n{given}", self.pool_key(), self.base_url)
    }

    pub(super) fn is_same(&self, provider: &str, model: &str, base_url: &str) -> bool {
        self.provider.eq_ignore_ascii_case(provider)
            && self.model.eq_ignore_ascii_case(model)
            && self.base_url.eq_ignore_ascii_case(base_url)
    }
}
