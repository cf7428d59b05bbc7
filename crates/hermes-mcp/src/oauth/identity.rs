//! Our client identity at an authorization server: configured, by a public document (CIMD), or
//! registered dynamically (RFC 7591). A registration belongs to one issuer and is never sent to
//! another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hermes_core::clock::Clock;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use url::Url;

use super::error::OAuthError;
use super::http::{OAuthHttp, OAuthResponse, display_url, unavailable};
use super::tokens::{Meta, Registration, same_issuer};
use crate::config::OAuth as Settings;

/// How the client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    None,
    Basic,
    Post,
}

impl AuthMethod {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::None, Self::Basic, Self::Post]
            .into_iter()
            .find(|method| method.name() == name)
    }
}

/// A client that the authorization server knows.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) client_id: String,
    pub(crate) secret: Option<SecretString>,
    pub(crate) method: AuthMethod,
    /// The content of `.client.json`.
    pub(crate) registration: Registration,
}

impl Identity {
    pub(crate) fn from_registration(
        registration: Registration,
        meta: &Meta,
    ) -> Result<Self, OAuthError> {
        let Some(client_id) = registration.client_id().map(str::to_owned) else {
            return Err(OAuthError::refused(format!(
                "the registration with {} has no client_id",
                meta.issuer()
            )));
        };
        let secret = registration.secret();
        let method = match (registration.auth_method(), &secret) {
            (_, None) => AuthMethod::None,
            (Some(name), Some(_)) => AuthMethod::named(name).ok_or_else(|| {
                OAuthError::refused(format!(
                    "{} wants clients to authenticate by {name}, which is not supported",
                    meta.issuer()
                ))
            })?,
            (None, Some(_)) => with_secret(meta),
        };
        Ok(Self {
            client_id,
            secret,
            method,
            registration,
        })
    }

    /// The form fields and the header of a token request.
    pub(crate) fn credentials(&self) -> (Vec<(&str, &str)>, Option<HeaderValue>) {
        let id = ("client_id", self.client_id.as_str());
        match (self.method, &self.secret) {
            (AuthMethod::Basic, Some(secret)) => {
                let encode = |text: &str| -> String {
                    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
                };
                let pair = format!(
                    "{}:{}",
                    encode(&self.client_id),
                    encode(secret.expose_secret())
                );
                let header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
                (Vec::new(), header.ok())
            }
            (AuthMethod::Post, Some(secret)) => {
                (vec![id, ("client_secret", secret.expose_secret())], None)
            }
            _ => (vec![id], None),
        }
    }
}

/// The default method if the registration specifies none (RFC 8414 §2: Basic unless declared
/// otherwise).
fn with_secret(meta: &Meta) -> AuthMethod {
    let Some(offered) = meta.list("token_endpoint_auth_methods_supported") else {
        return AuthMethod::Basic;
    };
    [AuthMethod::Basic, AuthMethod::Post, AuthMethod::None]
        .into_iter()
        .find(|method| offered.contains(&method.name()))
        .unwrap_or(AuthMethod::Basic)
}

/// The method requested when registering: without a secret if the server allows it.
fn wanted_method(meta: &Meta) -> AuthMethod {
    match meta.list("token_endpoint_auth_methods_supported") {
        Some(offered) if !offered.contains(&"none") => with_secret(meta),
        _ => AuthMethod::None,
    }
}

/// The configured identity, if any, which needs no registration.
pub(crate) fn configured(
    settings: &Settings,
    meta: &Meta,
    redirect_uri: &str,
) -> Option<Registration> {
    let mut object = Map::new();
    if let Some(client_id) = &settings.client_id {
        object.insert("client_id".to_owned(), json!(client_id));
        if let Some(secret) = &settings.client_secret {
            object.insert("client_secret".to_owned(), json!(secret));
        }
    } else if let Some(url) = &settings.client_metadata_url
        && meta.flag("client_id_metadata_document_supported")
    {
        object.insert("client_id".to_owned(), json!(url));
    } else {
        return None;
    }
    let method = if object.contains_key("client_secret") {
        with_secret(meta)
    } else {
        AuthMethod::None
    };
    for (name, value) in metadata(settings, redirect_uri, method, settings.scope.as_deref()) {
        object.entry(name).or_insert(value);
    }
    let mut registration = Registration::new(object);
    registration.bind(meta.issuer());
    Some(registration)
}

/// Whether a stored registration can be reused: same issuer, same redirect URI, not expired.
///
/// `stored_issuer` is from the metadata stored with it, for files that do not name the issuer.
pub(crate) fn reusable(
    registration: &Registration,
    stored_issuer: Option<&str>,
    meta: &Meta,
    redirect_uri: &str,
    clock: &dyn Clock,
) -> bool {
    let issuer = registration.issuer().or(stored_issuer);
    registration.client_id().is_some()
        && issuer.is_some_and(|issuer| same_issuer(issuer, meta.issuer()))
        && registration.redirect_uris().contains(&redirect_uri)
        && !registration.has_expired(clock)
}

/// Registers with the authorization server.
pub(crate) async fn register(
    http: &OAuthHttp,
    settings: &Settings,
    meta: &Meta,
    redirect_uri: &str,
    scope: Option<&str>,
) -> Result<Registration, OAuthError> {
    let Some(endpoint) = meta.text("registration_endpoint") else {
        return Err(OAuthError::refused(format!(
            "{} does not let clients register themselves: register one there for {redirect_uri} and set oauth.client_id (and oauth.client_secret) of the server in config.yaml",
            meta.issuer()
        )));
    };
    let endpoint = http.check(endpoint)?;
    let mut request = metadata(settings, redirect_uri, wanted_method(meta), scope);
    let mut answer = http.post_json(&endpoint, &request).await?;
    if answer.status == 400 && request.shift_remove("scope").is_some() {
        // Some servers have scopes that clients may not register for.
        answer = http.post_json(&endpoint, &request).await?;
    }
    registered(&endpoint, &answer, request, meta)
}

fn registered(
    endpoint: &Url,
    answer: &OAuthResponse,
    request: Map<String, Value>,
    meta: &Meta,
) -> Result<Registration, OAuthError> {
    if answer.is_transient() {
        return Err(unavailable(endpoint, answer));
    }
    let object = answer.object().unwrap_or_default();
    let client_id = object.get("client_id").and_then(Value::as_str);
    if !answer.is_success() || client_id.is_none() {
        return Err(OAuthError::refused(format!(
            "{} refused to register this client (HTTP {}{}); if it wants clients registered by hand, set oauth.client_id of the server in config.yaml",
            display_url(endpoint),
            answer.status,
            explanation(&object)
        )));
    }
    let names_method = object.contains_key("token_endpoint_auth_method");
    let has_secret = object.get("client_secret").is_some_and(Value::is_string);
    let mut merged = request;
    for (name, value) in object {
        if !value.is_null() {
            merged.insert(name, value);
        }
    }
    if !names_method && has_secret {
        merged.insert(
            "token_endpoint_auth_method".to_owned(),
            json!(with_secret(meta).name()),
        );
    }
    let mut registration = Registration::new(merged);
    registration.bind(meta.issuer());
    Ok(registration)
}

fn metadata(
    settings: &Settings,
    redirect_uri: &str,
    method: AuthMethod,
    scope: Option<&str>,
) -> Map<String, Value> {
    let native = Url::parse(redirect_uri).is_ok_and(|url| url.scheme() == "http");
    let mut object = Map::from_iter([
        ("client_name".to_owned(), json!(settings.client_name)),
        ("redirect_uris".to_owned(), json!([redirect_uri])),
        (
            "grant_types".to_owned(),
            json!(["authorization_code", "refresh_token"]),
        ),
        ("response_types".to_owned(), json!(["code"])),
        (
            "token_endpoint_auth_method".to_owned(),
            json!(method.name()),
        ),
        (
            "application_type".to_owned(),
            json!(if native { "native" } else { "web" }),
        ),
    ]);
    if let Some(scope) = scope {
        object.insert("scope".to_owned(), json!(scope));
    }
    object
}

/// `: error: description` of an OAuth error, bounded.
pub(crate) fn explanation(object: &Map<String, Value>) -> String {
    let mut out = String::new();
    for name in ["error", "error_description"] {
        if let Some(text) = object.get(name).and_then(Value::as_str) {
            out.push_str(": ");
            out.extend(text.chars().take(300));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use hermes_testkit::clock::ManualClock;
    use pretty_assertions::assert_eq;

    use super::*;

    const REDIRECT: &str = "http://127.0.0.1:1/callback";

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            other => panic!("{other} is not an object"),
        }
    }

    fn meta(methods: Option<&[&str]>) -> Meta {
        let mut meta = object(json!({"issuer": "https://as.example"}));
        if let Some(methods) = methods {
            meta.insert(
                "token_endpoint_auth_methods_supported".to_owned(),
                json!(methods),
            );
        }
        Meta::new(meta)
    }

    fn registration(value: Value) -> Registration {
        Registration::new(object(value))
    }

    #[test]
    fn the_method_is_the_registered_one_else_what_is_offered() {
        let post = registration(json!({"client_id": "a b", "client_secret": "s:%",
            "token_endpoint_auth_method": "client_secret_post"}));
        let identity = Identity::from_registration(post, &meta(None)).unwrap();
        let (form, header) = identity.credentials();
        assert_eq!(form, [("client_id", "a b"), ("client_secret", "s:%")]);
        assert!(header.is_none());

        let open = registration(json!({"client_id": "a b", "client_secret": "s:%"}));
        for (offered, method) in [
            (None, AuthMethod::Basic),
            (Some(["client_secret_post"].as_slice()), AuthMethod::Post),
            (
                Some(["client_secret_post", "client_secret_basic"].as_slice()),
                AuthMethod::Basic,
            ),
            (Some(["none"].as_slice()), AuthMethod::None),
        ] {
            let identity = Identity::from_registration(open.clone(), &meta(offered)).unwrap();
            assert_eq!(identity.method, method);
        }
        let identity = Identity::from_registration(open, &meta(None)).unwrap();
        let (form, header) = identity.credentials();
        assert!(form.is_empty());
        // Each half is form-encoded first (RFC 6749 §2.3.1): "a+b:s%3A%25".
        assert_eq!(header.unwrap(), "Basic YStiOnMlM0ElMjU=");
    }

    #[test]
    fn unknown_methods_and_missing_ids_are_errors() {
        let jwt = registration(json!({"client_id": "a", "client_secret": "s",
            "token_endpoint_auth_method": "private_key_jwt"}));
        let error = Identity::from_registration(jwt, &meta(None)).unwrap_err();
        assert!(error.text.contains("private_key_jwt"), "{error}");
        assert!(Identity::from_registration(registration(json!({})), &meta(None)).is_err());
    }

    #[test]
    fn registering_asks_for_no_secret_where_possible() {
        assert_eq!(wanted_method(&meta(None)), AuthMethod::None);
        assert_eq!(
            wanted_method(&meta(Some(&["client_secret_basic", "none"]))),
            AuthMethod::None
        );
        assert_eq!(
            wanted_method(&meta(Some(&["client_secret_post"]))),
            AuthMethod::Post
        );
    }

    #[test]
    fn a_registration_serves_only_its_issuer_redirect_and_time() {
        let clock = ManualClock::at(1000);
        let base = json!({"client_id": "a", "redirect_uris": [REDIRECT]});
        let with = |name: &str, value: Value| {
            let mut changed = object(base.clone());
            changed.insert(name.to_owned(), value);
            Registration::new(changed)
        };
        let serves = |registration: &Registration, stored: Option<&str>| {
            reusable(registration, stored, &meta(None), REDIRECT, &clock)
        };
        let plain = registration(base.clone());
        assert!(serves(&plain, Some("https://as.example/")));
        assert!(!serves(&plain, Some("https://other.example")));
        assert!(!serves(&plain, None));
        assert!(serves(&with("issuer", json!("https://as.example")), None));
        assert!(!serves(
            &with("issuer", json!("https://other.example")),
            Some("https://as.example")
        ));
        let stored = Some("https://as.example");
        assert!(serves(&with("client_secret_expires_at", json!(0)), stored));
        assert!(!serves(
            &with("client_secret_expires_at", json!(999)),
            stored
        ));
        assert!(!serves(
            &with("redirect_uris", json!(["http://127.0.0.1:2/callback"])),
            stored
        ));
    }
}
