//! Discovers the authorization server of a resource, and its endpoints.
//!
//! RFC 9728 names the server, RFC 8414 or OpenID Connect discovery its endpoints. Servers of
//! 2025-03-26 have neither, or only the latter on their own origin.

use serde_json::{Map, Value, json};
use url::Url;

use super::challenge::Challenge;
use super::error::{OAuthError, OAuthErrorKind};
use super::http::{OAuthHttp, display_url};
use super::tokens::{Meta, same_issuer};

/// The input of a login.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Discovery {
    /// Includes the resource if the server names one.
    pub(crate) meta: Meta,
    /// The scopes the resource declares.
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
            display_url(server)
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

/// The protected resource metadata, from the URL in the challenge or from the well-known URLs.
async fn resource_metadata(
    http: &OAuthHttp,
    server: &Url,
    challenge: Option<&Challenge>,
) -> Result<Option<Map<String, Value>>, OAuthError> {
    let named = challenge.and_then(|challenge| challenge.resource_metadata.clone());
    let known = well_known(server, "oauth-protected-resource");
    let root = well_known(&origin(server), "oauth-protected-resource");
    let mut urls: Vec<String> = named.into_iter().chain([known, root]).collect();
    urls.dedup();
    let (found, _) = first_document(http, &urls, |document| {
        if document.get("resource").is_some_and(Value::is_string) {
            Ok(())
        } else {
            Err("it names no resource".to_owned())
        }
    })
    .await?;
    Ok(found)
}

/// The metadata of `issuer`, which must name itself as the issuer.
async fn authorization_server(http: &OAuthHttp, issuer: &str) -> Result<Meta, OAuthError> {
    let base = http.check(issuer)?;
    let mut urls = vec![
        well_known(&base, "oauth-authorization-server"),
        well_known(&base, "openid-configuration"),
    ];
    if !path_of(&base).is_empty() {
        urls.push(format!(
            "{}{}/.well-known/openid-configuration",
            base.origin().ascii_serialization(),
            path_of(&base)
        ));
    }
    let (found, refused) = first_document(http, &urls, |document| {
        let claimed = document
            .get("issuer")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if same_issuer(claimed, issuer) {
            Ok(())
        } else {
            Err(format!("it calls itself the issuer {claimed:?}"))
        }
    })
    .await?;
    match (found, refused) {
        (Some(document), _) => checked_metadata(http, document),
        (None, Some((url, why))) => Err(OAuthError::refused(format!(
            "{url} is not the metadata of the authorization server {issuer}: {why}"
        ))),
        (None, None) => Err(OAuthError::refused(format!(
            "the authorization server {issuer} publishes no metadata (tried {})",
            urls.join(", ")
        ))),
    }
}

/// The MCP server is its own authorization server, possibly with default endpoints only.
async fn legacy(http: &OAuthHttp, server: &Url) -> Result<Meta, OAuthError> {
    let root = origin(server);
    let mut urls = vec![
        well_known(server, "oauth-authorization-server"),
        well_known(&root, "oauth-authorization-server"),
        well_known(&root, "openid-configuration"),
    ];
    urls.dedup();
    // That revision did not tie the issuer to the URL, and some servers return another server's
    // document.
    let (found, _) = first_document(http, &urls, |document| {
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
            // There is no metadata to declare it, and PKCE was required from that revision on.
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
    let mut meta = checked_metadata(http, document)?;
    meta.set_resource(None);
    Ok(meta)
}

/// Validates the endpoints in metadata.
fn checked_metadata(
    http: &OAuthHttp,
    mut document: Map<String, Value>,
) -> Result<Meta, OAuthError> {
    // This key is reserved for us; a server must not set it.
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

/// The first document that passes `accept`, or why the last one was refused.
///
/// An unreachable URL is skipped, but is an error if no other URL has the document: it might have
/// had it.
async fn first_document(
    http: &OAuthHttp,
    urls: &[String],
    accept: impl Fn(&Map<String, Value>) -> Result<(), String>,
) -> Result<(Option<Map<String, Value>>, Refused), OAuthError> {
    let mut refused = None;
    let mut down = None;
    for url in urls {
        match http.document(url).await {
            Ok(Some(document)) => match accept(&document) {
                Ok(()) => return Ok((Some(document), None)),
                Err(why) => {
                    tracing::debug!(place = url, why, "metadata passed over");
                    refused = Some((url.clone(), why));
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

/// `/.well-known/<name>` inserted before the path (RFC 8414 §3.1, RFC 9728 §3.1).
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

/// The path without a trailing slash; empty for the root.
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

/// Whether a token for `resource` is valid for `server`: same origin, and the same path or a
/// parent.
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
