//! Which authorization server a resource trusts, and where its endpoints are.
//!
//! RFC 9728 names the server, RFC 8414 or OpenID Connect discovery its endpoints. Servers of
//! 2025-03-26 have neither or only the second, on their own origin.

use serde_json::{Map, Value, json};
use url::Url;

use super::challenge::Challenge;
use super::error::{OAuthError, OAuthErrorKind};
use super::http::{OAuthHttp, place};
use super::tokens::{Meta, same_issuer};

/// What a login needs to know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Discovery {
    /// With the resource, if the server names one.
    pub(crate) meta: Meta,
    /// The scopes the resource says it knows.
    pub(crate) scopes: Vec<String>,
}

pub(crate) async fn discover(
    http: &OAuthHttp,
    server: &Url,
    challenge: Option<&Challenge>,
) -> Result<Discovery, OAuthError> {
    let Some(resource) = resource_metadata(http, server, challenge).await? else {
        return Ok(Discovery {
            meta: legacy(http, server).await?,
            scopes: Vec::new(),
        });
    };
    let name = resource
        .get("resource")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !covers(name, server) {
        return Err(OAuthError::refused(format!(
            "the protected resource metadata of {} speaks for {name:?} and not for this server: a token would go to the wrong place",
            place(server)
        )));
    }
    let issuer = resource
        .get("authorization_servers")
        .and_then(Value::as_array)
        .and_then(|list| list.iter().find_map(Value::as_str));
    let mut meta = match issuer {
        Some(issuer) => authorization_server(http, issuer).await?,
        None => legacy(http, server).await?,
    };
    meta.set_resource(Some(name));
    let scopes = resource
        .get("scopes_supported")
        .and_then(Value::as_array)
        .map(|list| {
            list.iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default();
    Ok(Discovery { meta, scopes })
}

/// The protected resource metadata: where the challenge points, else the well-known places.
async fn resource_metadata(
    http: &OAuthHttp,
    server: &Url,
    challenge: Option<&Challenge>,
) -> Result<Option<Map<String, Value>>, OAuthError> {
    let named = challenge.and_then(|challenge| challenge.resource_metadata.clone());
    let known = well_known(server, "oauth-protected-resource");
    let root = well_known(&origin(server), "oauth-protected-resource");
    let mut places: Vec<String> = named.into_iter().chain([known, root]).collect();
    places.dedup();
    let (found, _) = first(http, &places, |document| {
        if document.get("resource").is_some_and(Value::is_string) {
            Ok(())
        } else {
            Err("it names no resource".to_owned())
        }
    })
    .await?;
    Ok(found)
}

/// The metadata of `issuer`, which must say that it is the metadata of `issuer`.
async fn authorization_server(http: &OAuthHttp, issuer: &str) -> Result<Meta, OAuthError> {
    let base = http.check(issuer)?;
    let mut places = vec![
        well_known(&base, "oauth-authorization-server"),
        well_known(&base, "openid-configuration"),
    ];
    if !path_of(&base).is_empty() {
        places.push(format!(
            "{}{}/.well-known/openid-configuration",
            base.origin().ascii_serialization(),
            path_of(&base)
        ));
    }
    let (found, refused) = first(http, &places, |document| {
        let says = document
            .get("issuer")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if same_issuer(says, issuer) {
            Ok(())
        } else {
            Err(format!("it calls itself the issuer {says:?}"))
        }
    })
    .await?;
    match (found, refused) {
        (Some(document), _) => checked(http, document),
        (None, Some((place, why))) => Err(OAuthError::refused(format!(
            "{place} is not the metadata of the authorization server {issuer}: {why}"
        ))),
        (None, None) => Err(OAuthError::refused(format!(
            "the authorization server {issuer} publishes no metadata (tried {})",
            places.join(", ")
        ))),
    }
}

/// The MCP server is its own authorization server, perhaps with nothing but default endpoints.
async fn legacy(http: &OAuthHttp, server: &Url) -> Result<Meta, OAuthError> {
    let root = origin(server);
    let mut places = vec![
        well_known(server, "oauth-authorization-server"),
        well_known(&root, "oauth-authorization-server"),
        well_known(&root, "openid-configuration"),
    ];
    places.dedup();
    // That revision did not tie the issuer to the address, and some servers pass on the document
    // of another one.
    let (found, _) = first(http, &places, |document| {
        if document.get("token_endpoint").is_some_and(Value::is_string) {
            Ok(())
        } else {
            Err("it names no token endpoint".to_owned())
        }
    })
    .await?;
    let base = root.origin().ascii_serialization();
    let mut document = match found {
        Some(document) => document,
        None => Map::from_iter([
            (
                "authorization_endpoint".to_owned(),
                json!(format!("{base}/authorize")),
            ),
            ("token_endpoint".to_owned(), json!(format!("{base}/token"))),
            // Nobody could say so, and these servers are of the time that began with PKCE.
            (
                "code_challenge_methods_supported".to_owned(),
                json!(["S256"]),
            ),
            (
                "registration_endpoint".to_owned(),
                json!(format!("{base}/register")),
            ),
        ]),
    };
    if !document.get("issuer").is_some_and(Value::is_string) {
        document.insert("issuer".to_owned(), json!(base));
    }
    let mut meta = checked(http, document)?;
    meta.set_resource(None);
    Ok(meta)
}

/// Metadata whose endpoints may be used.
fn checked(http: &OAuthHttp, mut document: Map<String, Value>) -> Result<Meta, OAuthError> {
    // Our corner of the file is not the server's to fill.
    document.shift_remove("hermes");
    let meta = Meta::new(document);
    for name in ["authorization_endpoint", "token_endpoint"] {
        let Some(url) = meta.text(name) else {
            return Err(OAuthError::refused(format!(
                "the metadata of {} names no {name}",
                meta.issuer()
            )));
        };
        http.check(url)?;
    }
    if let Some(url) = meta.text("registration_endpoint") {
        http.check(url)?;
    }
    Ok(meta)
}

type Refused = Option<(String, String)>;

/// The first document that passes `accept`, or what the last one that did not was refused for.
///
/// An address that is down is passed over, but counts when no other has the document: then nobody
/// knows whether there is one.
async fn first(
    http: &OAuthHttp,
    places: &[String],
    accept: impl Fn(&Map<String, Value>) -> Result<(), String>,
) -> Result<(Option<Map<String, Value>>, Refused), OAuthError> {
    let mut refused = None;
    let mut down = None;
    for place in places {
        match http.document(place).await {
            Ok(Some(document)) => match accept(&document) {
                Ok(()) => return Ok((Some(document), None)),
                Err(why) => {
                    tracing::debug!(place, why, "metadata passed over");
                    refused = Some((place.clone(), why));
                }
            },
            Ok(None) => {}
            Err(error) if error.kind == OAuthErrorKind::Transient => {
                down.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match (refused, down) {
        (None, Some(error)) => Err(error),
        (refused, _) => Ok((None, refused)),
    }
}

/// `/.well-known/<name>` put before the path (RFC 8414 §3.1, RFC 9728 §3.1).
fn well_known(url: &Url, name: &str) -> String {
    let query = url
        .query()
        .filter(|_| name == "oauth-protected-resource")
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    format!(
        "{}/.well-known/{name}{}{query}",
        url.origin().ascii_serialization(),
        path_of(url)
    )
}

/// The path without its last slash; empty for the root.
fn path_of(url: &Url) -> &str {
    url.path().trim_end_matches('/')
}

fn origin(url: &Url) -> Url {
    let mut root = url.clone();
    root.set_path("");
    root.set_query(None);
    root.set_fragment(None);
    root
}

/// Whether a token for `resource` is one for `server`: same origin, same path or one above it.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    if resource.origin() != server.origin() || resource.fragment().is_some() {
        return false;
    }
    let (above, path) = (path_of(&resource), path_of(server));
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_goes_before_the_path() {
        let url = Url::parse("https://a.example:8443/tenant/1/?k=v").unwrap();
        assert_eq!(
            well_known(&url, "oauth-protected-resource"),
            "https://a.example:8443/.well-known/oauth-protected-resource/tenant/1?k=v"
        );
        assert_eq!(
            well_known(&origin(&url), "openid-configuration"),
            "https://a.example:8443/.well-known/openid-configuration"
        );
    }

    #[test]
    fn a_resource_covers_itself_and_what_lies_below() {
        let server = Url::parse("https://a.example/team/mcp").unwrap();
        for (resource, covered) in [
            ("https://a.example/team/mcp", true),
            ("https://a.example/team/mcp/", true),
            ("https://a.example/team", true),
            ("https://a.example", true),
            ("https://A.example:443/", true),
            ("https://a.example/te", false),
            ("https://a.example/other", false),
            ("https://a.example/team/mcp/sub", false),
            ("https://evil.example/team/mcp", false),
            ("http://a.example/team/mcp", false),
            ("https://a.example/team#x", false),
            ("", false),
        ] {
            assert_eq!(covers(resource, &server), covered, "{resource}");
        }
    }
}
