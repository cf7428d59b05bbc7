//! Discovery of the authorization server and its scopes: the scenarios of the conformance suite.

use hermes_mcp::{FailureClass, OAuthErrorKind, TokenSource as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, RedirectVia, TestUser, token};
use super::server::Reply;

const PRM: &str = "/.well-known/oauth-protected-resource/mcp";
const ASM: &str = "/.well-known/oauth-authorization-server";

async fn login(bench: &Bench) -> Result<(), hermes_mcp::OAuthError> {
    let client = bench.with(&TestUser::new(RedirectVia::Callback));
    client.login(&CancellationToken::new()).await?;
    assert!(token(&client).await.is_some());
    Ok(())
}

#[tokio::test]
async fn metadata_is_found_at_every_place_it_may_be() {
    // (resource metadata, named in the challenge, resource path, issuer path, its metadata)
    for (prm, named, resource, tenant, asm) in [
        (PRM, true, "/mcp", "", ASM),
        (PRM, false, "/mcp", "", "/.well-known/openid-configuration"),
        (
            "/.well-known/oauth-protected-resource",
            false,
            "",
            "/tenant1",
            "/.well-known/oauth-authorization-server/tenant1",
        ),
        (
            "/custom/location.json",
            true,
            "/mcp",
            "/tenant1",
            "/tenant1/.well-known/openid-configuration",
        ),
        (
            PRM,
            true,
            "/mcp",
            "/tenant1",
            "/.well-known/openid-configuration/tenant1",
        ),
    ] {
        let bench = Bench::new().await;
        let base = bench.server.base.clone();
        {
            let mut script = bench.server.script();
            script.documents.clear();
            script.prefix = tenant.to_owned();
            let issuer = format!("{base}{tenant}");
            script.put(
                prm,
                json!({"resource": format!("{base}{resource}"), "authorization_servers": [issuer]}),
            );
            let metadata = script.metadata(&issuer);
            script.put(asm, metadata);
            if named {
                script.challenge = format!("resource_metadata=\"{base}{prm}\"");
            }
        }
        login(&bench).await.unwrap();
        let asked = bench.server.seen(&format!("GET {tenant}/authorize"));
        assert_eq!(
            asked[0].query["resource"],
            format!("{base}{resource}"),
            "as published"
        );
        if tenant.is_empty() {
            let root = bench
                .server
                .seen("GET /.well-known/oauth-protected-resource");
            assert!(root.is_empty(), "the specific place has it");
        } else {
            assert!(bench.server.seen(&format!("GET {ASM}")).is_empty(), "{asm}");
        }
    }
}

#[tokio::test]
async fn servers_of_2025_03_26_have_metadata_on_their_origin_or_none() {
    for with_metadata in [true, false] {
        let bench = Bench::new().await;
        {
            let mut script = bench.server.script();
            script.documents.clear();
            if with_metadata {
                script.prefix = "/oauth".to_owned();
                // The issuer differs from the address where it was found.
                let metadata = script.metadata(&format!("{}/oauth", bench.server.base));
                script.put(ASM, metadata);
            }
        }
        login(&bench).await.unwrap();
        let prefix = if with_metadata { "/oauth" } else { "" };
        let asked = bench.server.seen(&format!("GET {prefix}/authorize"));
        assert!(!asked[0].query.contains_key("resource"), "it has none");
        assert_eq!(
            bench.server.seen(&format!("POST {prefix}/register")).len(),
            1
        );
    }
}

#[tokio::test]
async fn a_resource_that_is_not_this_server_is_refused() {
    let bench = Bench::new().await;
    bench.server.script().put(
        PRM,
        json!({"resource": "https://evil.example.com/mcp",
               "authorization_servers": [bench.server.base]}),
    );
    let error = login(&bench).await.unwrap_err();
    assert_eq!(error.kind, OAuthErrorKind::Refused);
    assert!(
        error.text.contains("https://evil.example.com/mcp"),
        "{error}"
    );
    assert!(bench.server.seen("GET /authorize").is_empty());
}

#[tokio::test]
async fn metadata_of_another_issuer_is_refused() {
    let bench = Bench::new().await;
    bench.server.metadata(|meta| {
        meta.insert("issuer".to_owned(), json!("https://attacker.example.com"));
    });
    let error = login(&bench).await.unwrap_err();
    assert_eq!(error.kind, OAuthErrorKind::Refused);
    assert!(error.text.contains("attacker.example.com"), "{error}");
    assert!(bench.server.seen("POST /register").is_empty());
}

#[tokio::test]
async fn a_server_without_s256_or_endpoints_is_refused() {
    let bench = Bench::new().await;
    bench.server.metadata(|meta| {
        meta.insert(
            "code_challenge_methods_supported".to_owned(),
            json!(["plain"]),
        );
    });
    let error = login(&bench).await.unwrap_err();
    assert!(error.text.contains("S256"), "{error}");

    let bench = Bench::new().await;
    bench.server.metadata(|meta| {
        meta.remove("code_challenge_methods_supported");
    });
    let error = login(&bench).await.unwrap_err();
    assert!(error.text.contains("oauth.assume_pkce"), "{error}");
    assert!(bench.server.seen("POST /register").is_empty());

    let bench = Bench::new().await;
    bench.server.metadata(|meta| {
        meta.remove("token_endpoint");
    });
    let error = login(&bench).await.unwrap_err();
    assert!(error.text.contains("token_endpoint"), "{error}");
}

#[tokio::test]
async fn an_authorization_server_that_is_down_is_not_taken_for_a_missing_one() {
    let bench = Bench::new().await;
    bench.server.script().always.insert(
        format!("GET {PRM}"),
        Reply::empty(503).header("Retry-After", "7"),
    );
    let error = login(&bench).await.unwrap_err();
    assert_eq!(error.kind, OAuthErrorKind::Transient);
    assert_eq!(error.retry_after.unwrap().as_secs(), 7);
    let failure = error.into_failure(hermes_mcp::Certainty::NotSent);
    assert_eq!(failure.class, FailureClass::Throttled);
}

#[tokio::test]
async fn redirects_of_documents_are_followed_within_reason() {
    let bench = Bench::new().await;
    {
        let mut script = bench.server.script();
        let document = script.documents.remove(PRM).unwrap();
        script.documents.insert("/moved".to_owned(), document);
        script.always.insert(
            format!("GET {PRM}"),
            Reply::empty(302).header("Location", "/moved"),
        );
    }
    login(&bench).await.unwrap();

    let bench = Bench::new().await;
    bench.server.script().always.insert(
        format!("GET {PRM}"),
        Reply::empty(302).header("Location", PRM),
    );
    // A redirect loop is no document; the server then counts as one of 2025-03-26.
    login(&bench).await.unwrap();
}

#[tokio::test]
async fn scopes_come_from_the_most_specific_place() {
    // (configured, challenge, resource, authorization server, requested)
    for (configured, challenge, resource, server, asked) in [
        (None, "", None, None, None),
        (
            None,
            "mcp:basic",
            Some(vec!["a", "b"]),
            None,
            Some("mcp:basic"),
        ),
        (None, "", Some(vec!["a", "b"]), None, Some("a b")),
        (
            None,
            "",
            Some(vec!["a"]),
            Some(vec!["a", "offline_access"]),
            Some("a offline_access"),
        ),
        (
            None,
            "",
            Some(vec!["a", "offline_access"]),
            Some(vec!["a"]),
            Some("a"),
        ),
        (
            Some("mine"),
            "mcp:basic",
            Some(vec!["a"]),
            None,
            Some("mine"),
        ),
    ] {
        let mut bench = Bench::new().await;
        bench.settings.scope = configured.map(str::to_owned);
        {
            let base = bench.server.base.clone();
            let mut script = bench.server.script();
            if !challenge.is_empty() {
                script.challenge = format!("scope=\"{challenge}\"");
            }
            let mut document =
                json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]});
            if let Some(scopes) = resource {
                document["scopes_supported"] = json!(scopes);
            }
            script.put(PRM, document);
        }
        if let Some(scopes) = server {
            bench.server.metadata(|meta| {
                meta.insert("scopes_supported".to_owned(), json!(scopes));
            });
        }
        login(&bench).await.unwrap();
        let query = &bench.server.seen("GET /authorize")[0].query;
        assert_eq!(query.get("scope").map(String::as_str), asked);
        let consent = asked.is_some_and(|scope| scope.contains("offline_access"));
        assert_eq!(query.contains_key("prompt"), consent);
        // A scope that the server does not repeat was granted as requested.
        assert_eq!(
            bench.read("srv.json").get("scope").and_then(|s| s.as_str()),
            asked
        );
    }
}

#[tokio::test]
async fn a_registration_refused_for_its_scope_is_tried_without() {
    let bench = Bench::new().await;
    bench.server.script().challenge = "scope=\"odd\"".to_owned();
    bench.server.next(
        "POST /register",
        Reply::json(400, &json!({"error": "invalid_client_metadata"})),
    );
    login(&bench).await.unwrap();
    let registered = bench.server.seen("POST /register");
    assert_eq!(registered[0].json["scope"], "odd");
    assert!(registered[1].json.get("scope").is_none());
    assert_eq!(bench.server.seen("GET /authorize")[0].query["scope"], "odd");
}

#[tokio::test]
async fn the_first_refusal_leads_through_the_whole_flow() {
    let bench = Bench::new().await;
    bench.server.script().challenge = format!(
        "scope=\"read\", resource_metadata=\"{}{PRM}\"",
        bench.server.base
    );
    let user = TestUser::new(RedirectVia::Callback);
    let client = bench.with(&user);
    assert!(client.bearer().await.is_none());
    client
        .rejected(None, bench.server.challenge(None))
        .await
        .unwrap();
    let access = token(&client).await.unwrap();
    assert_eq!(bench.server.challenge(Some(&access)), None);
    assert_eq!(user.asked(), 1);
    assert!(
        bench.server.seen("POST /mcp").is_empty(),
        "the challenge was at hand"
    );
}
