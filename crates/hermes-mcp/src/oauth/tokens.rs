//! The content of the three token files.

use hermes_core::clock::Clock;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use super::error::OAuthError;
use super::store::{TokenFile, TokenFileVersion, TokenStore};

/// Our own key in `.meta.json`; the original ignores it.
const OWN_KEY: &str = "hermes";

/// The token file. `Debug` hides secrets.
#[derive(Clone)]
pub(crate) struct Tokens {
    object: Map<String, Value>,
    pub(crate) access: SecretString,
    pub(crate) refresh: Option<SecretString>,
    /// Seconds since the epoch. `None`: unknown; used until it is refused.
    pub(crate) expires_at: Option<f64>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("refresh", &self.refresh.is_some())
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// The stored tokens and the version of their file.
    pub(crate) fn load(store: &TokenStore) -> Result<Option<(Self, TokenFileVersion)>, OAuthError> {
        let Some((object, version)) = store.read(TokenFile::Tokens)? else {
            return Ok(None);
        };
        let Some(tokens) = Self::from_object(object, version) else {
            return Err(store.corrupt(&store.tokens_path(), "it has no access_token"));
        };
        Ok(Some((tokens, version)))
    }

    fn from_object(object: Map<String, Value>, version: TokenFileVersion) -> Option<Self> {
        let expires_at = number(&object, "expires_at").or_else(|| {
            // Files of old releases count from when they were written.
            lifetime(&object).map(|span| version.modified() + span)
        });
        Some(Self {
            access: secret(&object, "access_token")?,
            refresh: secret(&object, "refresh_token"),
            expires_at,
            object,
        })
    }

    /// Merges the response of a token endpoint into the previous tokens: a refresh token or scope
    /// that is not repeated is kept, and so are unknown fields.
    pub(crate) fn granted(
        answer: &Map<String, Value>,
        before: Option<&Self>,
        clock: &dyn Clock,
    ) -> Option<Self> {
        let mut object = before.map(|old| old.object.clone()).unwrap_or_default();
        object.shift_remove("expires_in");
        object.shift_remove("expires_at");
        for (name, value) in answer {
            // Some servers send an empty refresh token instead of none.
            if !value.is_null() && value.as_str() != Some("") {
                object.insert(name.clone(), value.clone());
            }
        }
        // The original always writes it in this spelling.
        object.insert("token_type".to_owned(), json!("Bearer"));
        let span = lifetime(&object);
        let expires_at = span.map(|span| clock.epoch_seconds() + span);
        match (span, expires_at) {
            (Some(span), Some(at)) => {
                // The original only reads whole seconds.
                object.insert("expires_in".to_owned(), json!(span.ceil() as i64));
                object.insert("expires_at".to_owned(), json!(at));
            }
            _ => drop(object.shift_remove("expires_in")),
        }
        Some(Self {
            access: secret(&object, "access_token")?,
            refresh: secret(&object, "refresh_token"),
            expires_at,
            object,
        })
    }

    pub(crate) fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    pub(crate) fn is(&self, access: &SecretString) -> bool {
        self.access.expose_secret() == access.expose_secret()
    }

    /// The lifetime when it was issued, in seconds.
    pub(crate) fn lifetime(&self) -> Option<f64> {
        lifetime(&self.object)
    }

    /// The granted scope, if known.
    pub(crate) fn scope(&self) -> Option<&str> {
        text(&self.object, "scope")
    }

    /// If the response names no scope, the requested one was granted (RFC 6749 §5.1).
    pub(crate) fn assume_scope(&mut self, asked: Option<&str>) {
        if let Some(asked) = asked
            && self.scope().is_none()
        {
            self.object.insert("scope".to_owned(), json!(asked));
        }
    }

    /// Whether it expires within `seconds` from now.
    pub(crate) fn expires_within(&self, seconds: f64, clock: &dyn Clock) -> bool {
        self.expires_at
            .is_some_and(|at| at - clock.epoch_seconds() <= seconds)
    }
}

/// The registration: `.client.json`. `Debug` hides secrets.
#[derive(Clone, Default)]
pub(crate) struct Registration {
    object: Map<String, Value>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("client_id", &self.client_id())
            .finish_non_exhaustive()
    }
}

impl Registration {
    pub(crate) fn load(store: &TokenStore) -> Result<Option<Self>, OAuthError> {
        Ok(store
            .read(TokenFile::Client)?
            .map(|(object, _)| Self { object }))
    }

    pub(crate) fn new(object: Map<String, Value>) -> Self {
        Self { object }
    }

    pub(crate) fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    pub(crate) fn client_id(&self) -> Option<&str> {
        text(&self.object, "client_id")
    }

    pub(crate) fn secret(&self) -> Option<SecretString> {
        secret(&self.object, "client_secret")
    }

    pub(crate) fn auth_method(&self) -> Option<&str> {
        text(&self.object, "token_endpoint_auth_method")
    }

    pub(crate) fn redirect_uris(&self) -> Vec<&str> {
        self.object
            .get("redirect_uris")
            .and_then(Value::as_array)
            .map(|uris| uris.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    pub(crate) fn has_expired(&self, clock: &dyn Clock) -> bool {
        // 0 means never (RFC 7591 §3.2.1).
        number(&self.object, "client_secret_expires_at")
            .is_some_and(|at| at > 0.0 && at <= clock.epoch_seconds())
    }

    /// The authorization server it belongs to. Files of the original do not contain it.
    pub(crate) fn issuer(&self) -> Option<&str> {
        text(&self.object, "issuer")
    }

    pub(crate) fn bind(&mut self, issuer: &str) {
        self.object.insert("issuer".to_owned(), json!(issuer));
    }
}

/// The authorization server's metadata: `.meta.json`, unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Meta {
    object: Map<String, Value>,
}

impl Meta {
    pub(crate) fn load(store: &TokenStore) -> Result<Option<Self>, OAuthError> {
        Ok(store
            .read(TokenFile::Meta)?
            .map(|(object, _)| Self { object }))
    }

    pub(crate) fn new(object: Map<String, Value>) -> Self {
        Self { object }
    }

    pub(crate) fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        text(&self.object, name)
    }

    pub(crate) fn issuer(&self) -> &str {
        self.text("issuer").unwrap_or_default()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.object.get(name).and_then(Value::as_bool) == Some(true)
    }

    /// A list of strings; `None` if missing.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<&str>> {
        let list = self.object.get(name)?.as_array()?;
        Some(list.iter().filter_map(Value::as_str).collect())
    }

    fn own(&self) -> Option<&Map<String, Value>> {
        self.object.get(OWN_KEY)?.as_object()
    }

    fn own_text(&self, name: &str) -> Option<&str> {
        text(self.own()?, name)
    }

    fn set_own(&mut self, name: &str, value: Value) {
        let own = self
            .object
            .entry(OWN_KEY)
            .or_insert_with(|| Value::Object(Map::new()));
        if !own.is_object() {
            *own = Value::Object(Map::new());
        }
        if let Some(own) = own.as_object_mut() {
            own.insert(name.to_owned(), value);
        }
    }

    /// Whether we wrote it, so that a missing resource means that there is none.
    pub(crate) fn is_complete(&self) -> bool {
        self.own().is_some()
    }

    /// Forces a new discovery before the next use.
    pub(crate) fn invalidate(&mut self) {
        self.object.shift_remove(OWN_KEY);
    }

    /// The resource of RFC 8707, sent exactly as the server spells it.
    pub(crate) fn resource(&self) -> Option<&str> {
        self.own_text("resource")
    }

    pub(crate) fn set_resource(&mut self, resource: Option<&str>) {
        self.set_own("resource", json!(resource));
    }

    /// A scope that was demanded while no user could grant it.
    pub(crate) fn wanted_scope(&self) -> Option<&str> {
        self.own_text("wanted_scope")
    }

    pub(crate) fn set_wanted_scope(&mut self, scope: &str) {
        self.set_own("wanted_scope", json!(scope));
    }
}

/// Issuers are compared exactly, except that the original appends a slash to a bare host.
pub(crate) fn same_issuer(a: &str, b: &str) -> bool {
    a.strip_suffix('/').unwrap_or(a) == b.strip_suffix('/').unwrap_or(b)
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object
        .get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.trim().is_empty())
}

/// In seconds; some servers send 0 for unknown.
fn lifetime(object: &Map<String, Value>) -> Option<f64> {
    number(object, "expires_in").filter(|span| *span > 0.0)
}

fn secret(object: &Map<String, Value>, name: &str) -> Option<SecretString> {
    text(object, name).map(|text| SecretString::from(text.to_owned()))
}

/// Numbers, and texts that hold one: servers send both.
fn number(object: &Map<String, Value>, name: &str) -> Option<f64> {
    match object.get(name)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use hermes_testkit::clock::ManualClock;
    use pretty_assertions::assert_eq;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            other => panic!("{other} is not an object"),
        }
    }

    fn granted(answer: Value, before: Option<&Tokens>) -> Tokens {
        Tokens::granted(&object(answer), before, &ManualClock::at(1000)).unwrap()
    }

    #[test]
    fn what_a_refresh_omits_stays() {
        let first = granted(
            json!({"access_token": "a1", "token_type": "bearer", "expires_in": "60",
                   "refresh_token": "r1", "scope": "x", "vendor": {"k": 1}}),
            None,
        );
        assert_eq!(
            Value::Object(first.object().clone()),
            json!({"access_token": "a1", "token_type": "Bearer", "expires_in": 60,
                   "refresh_token": "r1", "scope": "x", "vendor": {"k": 1},
                   "expires_at": 1060.0})
        );
        let second = granted(
            json!({"access_token": "a2", "refresh_token": null}),
            Some(&first),
        );
        assert_eq!(
            Value::Object(second.object().clone()),
            json!({"access_token": "a2", "token_type": "Bearer", "refresh_token": "r1",
                   "scope": "x", "vendor": {"k": 1}})
        );
        assert_eq!(
            second.expires_at, None,
            "an old expiry is not a new token's"
        );
        let third = granted(
            json!({"access_token": "a3", "refresh_token": ""}),
            Some(&second),
        );
        assert!(third.refresh.is_some(), "an empty one is an omitted one");
        let endless = granted(json!({"access_token": "a4", "expires_in": 0}), None);
        assert_eq!((endless.expires_at, endless.lifetime()), (None, None));
    }

    #[test]
    fn an_answer_without_a_token_is_none() {
        let clock = ManualClock::default();
        assert!(Tokens::granted(&Map::new(), None, &clock).is_none());
        assert!(Tokens::granted(&object(json!({"access_token": " "})), None, &clock).is_none());
    }

    #[test]
    fn a_file_without_absolute_expiry_counts_from_its_age() {
        let home = tempfile::tempdir().unwrap();
        let store = TokenStore::new(home.path(), "s");
        store
            .write(
                TokenFile::Tokens,
                &object(json!({"access_token": "a", "expires_in": 100})),
            )
            .unwrap();
        let (tokens, version) = Tokens::load(&store).unwrap().unwrap();
        assert_eq!(tokens.expires_at, Some(version.modified() + 100.0));
    }

    #[test]
    fn the_corner_of_our_own_leaves_the_rest_alone() {
        let mut meta = Meta::new(object(json!({"issuer": "https://a", "x": [1]})));
        assert!(!meta.is_complete());
        meta.set_resource(Some("https://m/mcp"));
        meta.set_wanted_scope("w");
        assert_eq!(meta.resource(), Some("https://m/mcp"));
        assert_eq!(meta.wanted_scope(), Some("w"));
        assert!(meta.is_complete());
        assert_eq!(meta.object()["x"], json!([1]));
        meta.set_resource(None);
        assert_eq!(meta.resource(), None);
        assert!(meta.is_complete());
        assert!(same_issuer("https://a", "https://a/"));
        assert!(!same_issuer("https://a/x", "https://a"));
    }

    #[test]
    fn secrets_are_not_printed() {
        let tokens = granted(
            json!({"access_token": "s3cret", "refresh_token": "s3cret"}),
            None,
        );
        assert!(!format!("{tokens:?}").contains("s3cret"));
    }
}
