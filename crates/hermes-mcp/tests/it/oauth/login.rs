//! The login flow with a user.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use hermes_mcp::{FailureClass, OAuthErrorKind, TokenSource as _};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, NOW, RedirectVia, TestUser, token};
use super::server::{Reply, client_of};

#[tokio::test]
async fn a_login_registers_asks_and_stores_what_the_original_reads() {
    let bench = Bench::new().await;
    bench
        .server
        .script()
        .grant
        .insert("extra".to_owned(), json!({"k": 1}));
    let user = TestUser::new(RedirectVia::Callback);
    let client = bench.with(&user);
    let status = client.login(&CancellationToken::new()).await.unwrap();
    assert!(status.logged_in && status.renewable);
    assert_eq!(status.expires_at.unwrap().timestamp(), NOW + 3600);
    assert_eq!(status.issuer.as_deref(), Some(bench.server.base.as_str()));

    let redirect = user.page().redirect_uri;
    let registered = &bench.server.seen("POST /register")[0].json;
    assert_eq!(
        *registered,
        json!({
            "client_name": "Hermes Agent",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
        })
    );
    let asked = &bench.server.seen("GET /authorize")[0].query;
    assert_eq!(asked["response_type"], "code");
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["resource"], bench.server.mcp_url());
    assert_eq!(asked["redirect_uri"], redirect);
    assert!(!asked.contains_key("scope") && !asked.contains_key("prompt"));
    let exchanged = &bench.server.seen("POST /token")[0].form;
    assert_eq!(exchanged["resource"], bench.server.mcp_url());

    let access = token(&client).await.unwrap();
    assert_eq!(bench.server.challenge(Some(&access)), None);
    let tokens = bench.read("srv.json");
    assert_eq!(
        tokens,
        json!({"access_token": access, "token_type": "Bearer",
               "refresh_token": tokens["refresh_token"], "expires_in": 3600,
               "extra": {"k": 1}, "expires_at": (NOW + 3600) as f64})
    );
    let registration = bench.read("srv.client.json");
    assert_eq!(registration["redirect_uris"], json!([redirect]));
    assert_eq!(registration["issuer"], json!(bench.server.base));
    assert_eq!(
        bench.read("srv.meta.json")["token_endpoint"],
        json!(format!("{}/token", bench.server.base))
    );
    for name in ["srv.json", "srv.client.json", "srv.meta.json"] {
        let mode = std::fs::metadata(bench.file(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let dir = std::fs::metadata(bench.file("srv.json").parent().unwrap()).unwrap();
    assert_eq!(dir.mode() & 0o777, 0o700);
}

#[tokio::test]
async fn callback_favicon_prefetch_and_wrong_state_come_first() {
    let bench = Bench::new().await;
    let user = TestUser::altering(RedirectVia::Callback, |right| {
        let url = url::Url::parse(&right).unwrap();
        let origin = url.origin().ascii_serialization();
        vec![
            format!("{origin}/favicon.ico"),
            format!("{origin}/callback"),
            format!("{origin}/callback?code=stolen&state=guess"),
            format!("{origin}/callback?error=access_denied&state=guess"),
            right,
        ]
    });
    let client = bench.with(&user);
    client.login(&CancellationToken::new()).await.unwrap();
    assert!(token(&client).await.is_some());
}

#[tokio::test]
async fn the_address_can_be_pasted_and_mistakes_are_explained() {
    let bench = Bench::new().await;
    let user = TestUser::altering(RedirectVia::Paste, |right| {
        let query = right.split_once('?').unwrap().1.to_owned();
        vec![
            "what?".to_owned(),
            right.replace("state=", "state=old"),
            query,
        ]
    });
    let client = bench.with(&user);
    client.login(&CancellationToken::new()).await.unwrap();
    assert!(token(&client).await.is_some());
    let notes = user.notes.lock().unwrap().clone();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[1].contains("another login"), "{notes:?}");
}

#[tokio::test]
async fn a_redirect_elsewhere_needs_the_pasted_address() {
    let mut bench = Bench::new().await;
    bench.settings.redirect_uri = Some("https://proxy.example/cb".to_owned());
    let user = TestUser::new(RedirectVia::Paste);
    bench
        .with(&user)
        .login(&CancellationToken::new())
        .await
        .unwrap();
    assert!(!user.page().listening);
    let registered = &bench.server.seen("POST /register")[0].json;
    assert_eq!(registered["application_type"], "web");
    assert_eq!(registered["redirect_uris"][0], "https://proxy.example/cb");
}

#[tokio::test]
async fn skipping_timing_out_and_cancelling_leave_everything_as_it_was() {
    let mut bench = Bench::new().await;
    bench.logged_in(3600);
    let before = bench.read("srv.json");
    let never = CancellationToken::new();

    let user = TestUser::new(RedirectVia::Never);
    user.types("skip");
    let error = bench.with(&user).login(&never).await.unwrap_err();
    assert_eq!(error.kind, OAuthErrorKind::Cancelled);
    assert!(error.text.contains("hermes mcp login srv"), "{error}");

    let user = TestUser::new(RedirectVia::Never);
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let error = bench.with(&user).login(&cancelled).await.unwrap_err();
    assert_eq!(error.kind, OAuthErrorKind::Cancelled);

    bench.settings.timeout = Duration::from_millis(20);
    let error = bench.with(&user).login(&never).await.unwrap_err();
    assert!(error.text.contains("the login was not finished"), "{error}");

    assert_eq!(bench.read("srv.json"), before);
    assert_eq!(bench.read("srv.client.json")["client_id"], "client-0");
}

#[tokio::test]
async fn a_refusal_by_the_user_is_reported_with_its_reason() {
    let bench = Bench::new().await;
    let user = TestUser::altering(RedirectVia::Callback, |right| {
        let state = right.split_once("state=").unwrap().1;
        let base = right.split_once('?').unwrap().0;
        vec![format!(
            "{base}?error=access_denied&error_description=not+today&state={state}"
        )]
    });
    let error = bench
        .with(&user)
        .login(&CancellationToken::new())
        .await
        .unwrap_err();
    assert!(error.text.contains("access_denied (not today)"), "{error}");
    assert!(!bench.file("srv.json").exists());
}

/// The `iss` of a server, from its own address.
type Iss = fn(&str) -> Option<String>;

#[tokio::test]
async fn the_answer_must_come_from_the_server_that_was_asked() {
    // (announced, iss in the answer, accepted)
    let cases: [(bool, Iss, bool); 6] = [
        (true, |base| Some(base.to_owned()), true),
        (false, |_| None, true),
        (false, |base| Some(base.to_owned()), true),
        (true, |_| None, false),
        (true, |base| Some(format!("{base}/")), false),
        (false, |_| Some("https://evil.example".to_owned()), false),
    ];
    for (promised, iss, accepted) in cases {
        let bench = Bench::new().await;
        let iss = iss(&bench.server.base);
        bench.server.script().iss.clone_from(&iss);
        bench.server.metadata(|meta| {
            meta.insert(
                "authorization_response_iss_parameter_supported".to_owned(),
                json!(promised),
            );
        });
        let client = bench.with(&TestUser::new(RedirectVia::Callback));
        let done = client.login(&CancellationToken::new()).await;
        assert_eq!(done.is_ok(), accepted, "{promised} {iss:?}: {done:?}");
        let exchanged = bench.server.seen("POST /token").len();
        assert_eq!(exchanged, usize::from(accepted), "{promised} {iss:?}");
    }
}

#[tokio::test]
async fn without_a_user_the_failure_names_the_command_at_once() {
    let bench = Bench::new().await;
    let client = bench.without_user();
    assert!(client.bearer().await.is_none());
    let failure = client
        .rejected(None, bench.server.challenge(None))
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::NeedsAuth);
    assert!(failure.text.contains("hermes mcp login srv"), "{failure}");
    assert!(bench.server.seen("GET /authorize").is_empty());
    let error = client.login(&CancellationToken::new()).await.unwrap_err();
    assert!(error.text.contains("hermes mcp login srv"), "{error}");
}

#[tokio::test]
async fn a_busy_port_from_the_configuration_is_an_error_and_a_remembered_one_is_not() {
    let mut bench = Bench::new().await;
    let busy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = busy.local_addr().unwrap().port();
    let user = TestUser::new(RedirectVia::Callback);

    bench.settings.redirect_port = port;
    let error = bench
        .with(&user)
        .login(&CancellationToken::new())
        .await
        .unwrap_err();
    assert!(error.text.contains(&port.to_string()), "{error}");
    assert!(error.text.contains("redirect_port"), "{error}");

    bench.settings.redirect_port = 0;
    bench.write(
        "srv.client.json",
        &json!({"client_id": "old", "issuer": bench.server.base,
                "redirect_uris": [format!("http://127.0.0.1:{port}/callback")]}),
    );
    let client = bench.with(&user);
    client
        .rejected(None, bench.server.challenge(None))
        .await
        .unwrap();
    // The server knows the old client by the old address only.
    assert_eq!(bench.server.seen("POST /register").len(), 1);
    assert_ne!(bench.read("srv.client.json")["client_id"], "old");
}

#[tokio::test]
async fn a_registration_is_used_again_with_its_port() {
    let bench = Bench::new().await;
    let user = TestUser::new(RedirectVia::Callback);
    bench
        .with(&user)
        .login(&CancellationToken::new())
        .await
        .unwrap();
    let first = user.page().redirect_uri;
    std::fs::remove_file(bench.file("srv.json")).unwrap();
    bench
        .with(&user)
        .rejected(None, bench.server.challenge(None))
        .await
        .unwrap();
    assert_eq!(user.page().redirect_uri, first);
    assert_eq!(bench.server.seen("POST /register").len(), 1);
}

#[tokio::test]
async fn clients_registered_by_hand_authenticate_as_the_server_wants() {
    for (method, header, secret) in [
        ("client_secret_basic", true, false),
        ("client_secret_post", false, true),
    ] {
        let mut bench = Bench::new().await;
        bench.settings.client_id = Some("by-hand".to_owned());
        bench.settings.client_secret = Some("hush".to_owned());
        bench.server.metadata(|meta| {
            meta.remove("registration_endpoint");
            meta.insert(
                "token_endpoint_auth_methods_supported".to_owned(),
                json!([method]),
            );
        });
        let client = bench.with(&TestUser::new(RedirectVia::Callback));
        client.login(&CancellationToken::new()).await.unwrap();
        let exchanged = &bench.server.seen("POST /token")[0];
        assert_eq!(client_of(exchanged), "by-hand");
        assert_eq!(exchanged.headers.contains_key("authorization"), header);
        assert_eq!(exchanged.form.contains_key("client_secret"), secret);
    }
}

#[tokio::test]
async fn a_secret_registered_with_the_server_is_used() {
    let bench = Bench::new().await;
    bench.server.metadata(|meta| {
        meta.insert(
            "token_endpoint_auth_methods_supported".to_owned(),
            json!(["client_secret_post"]),
        );
    });
    bench
        .server
        .script()
        .registration
        .insert("client_secret".to_owned(), json!("given"));
    let client = bench.with(&TestUser::new(RedirectVia::Callback));
    client.login(&CancellationToken::new()).await.unwrap();
    assert_eq!(
        bench.server.seen("POST /token")[0].form["client_secret"],
        "given"
    );
}

#[tokio::test]
async fn a_client_document_replaces_registration_where_it_is_supported() {
    let document = "https://client.example/hermes.json";
    for supported in [true, false] {
        let mut bench = Bench::new().await;
        bench.settings.client_metadata_url = Some(document.to_owned());
        bench.server.metadata(|meta| {
            meta.insert(
                "client_id_metadata_document_supported".to_owned(),
                json!(supported),
            );
        });
        let client = bench.with(&TestUser::new(RedirectVia::Callback));
        client.login(&CancellationToken::new()).await.unwrap();
        let asked = &bench.server.seen("GET /authorize")[0].query;
        assert_eq!(asked["client_id"] == document, supported);
        assert_eq!(bench.server.seen("POST /register").is_empty(), supported);
    }
}

#[tokio::test]
async fn a_server_without_registration_gets_advice() {
    let bench = Bench::new().await;
    bench.server.metadata(|meta| {
        meta.remove("registration_endpoint");
    });
    let client = bench.with(&TestUser::new(RedirectVia::Callback));
    let error = client.login(&CancellationToken::new()).await.unwrap_err();
    assert!(error.text.contains("oauth.client_id"), "{error}");

    let bench = Bench::new().await;
    let refusal = json!({"error": "invalid_redirect_uri", "error_description": "no"});
    bench
        .server
        .next("POST /register", Reply::json(400, &refusal));
    let client = bench.with(&TestUser::new(RedirectVia::Callback));
    let error = client.login(&CancellationToken::new()).await.unwrap_err();
    assert!(error.text.contains("invalid_redirect_uri: no"), "{error}");
}

#[tokio::test]
async fn a_new_issuer_gets_a_new_registration_and_never_sees_the_old_one() {
    let bench = Bench::new().await;
    let other = super::server::AuthServer::start().await;
    other
        .script()
        .registration
        .insert("client_id".to_owned(), json!("elsewhere"));
    let user = TestUser::new(RedirectVia::Callback);
    let client = bench.with(&user);
    client
        .rejected(None, bench.server.challenge(None))
        .await
        .unwrap();
    let (first, old) = (
        token(&client).await.unwrap(),
        bench.read("srv.client.json")["client_id"].clone(),
    );

    bench.server.revoke(&first);
    bench.server.script().put(
        "/.well-known/oauth-protected-resource/mcp",
        json!({"resource": bench.server.mcp_url(), "authorization_servers": [other.base]}),
    );
    // The refresh token belongs to the first server, which now refuses it.
    bench.server.next(
        "POST /token",
        Reply::json(400, &json!({"error": "invalid_grant"})),
    );
    client
        .rejected(Some(first.into()), bench.server.challenge(None))
        .await
        .unwrap();
    assert_eq!(other.seen("POST /register").len(), 1);
    for seen in [other.seen("GET /authorize"), other.seen("POST /token")].concat() {
        let id = seen.query.get("client_id").or(seen.form.get("client_id"));
        assert_ne!(id.map(String::as_str), old.as_str());
        assert!(!seen.form.contains_key("refresh_token"));
    }
    assert_eq!(bench.read("srv.client.json")["issuer"], json!(other.base));
}

#[tokio::test]
async fn a_configured_secret_is_not_shown_to_a_new_issuer() {
    let mut bench = Bench::new().await;
    bench.settings.client_id = Some("by-hand".to_owned());
    bench.settings.client_secret = Some("hush".to_owned());
    bench.write(
        "srv.client.json",
        &json!({"client_id": "by-hand", "issuer": "https://before.example"}),
    );
    let client = bench.with(&TestUser::new(RedirectVia::Callback));
    let error = client.login(&CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind, OAuthErrorKind::Refused);
    assert!(error.text.contains("https://before.example"), "{error}");
    assert!(bench.server.seen("POST /token").is_empty());
}

#[tokio::test]
async fn damaged_files_are_reported_kept_and_put_aside_by_a_login() {
    let bench = Bench::new().await;
    bench.logged_in(3600);
    for name in ["srv.json", "srv.client.json"] {
        std::fs::write(bench.file(name), "{\"access_tok").unwrap();
    }
    let client = bench.without_user();
    assert!(client.bearer().await.is_none());
    let failure = client
        .rejected(None, bench.server.challenge(None))
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::NeedsAuth);
    assert!(failure.text.contains("srv.json is damaged"), "{failure}");
    assert_eq!(
        std::fs::read_to_string(bench.file("srv.json")).unwrap(),
        "{\"access_tok"
    );
    assert!(client.status().await.problem.is_some());

    let user = TestUser::new(RedirectVia::Callback);
    bench
        .with(&user)
        .login(&CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(bench.file("srv.json.damaged")).unwrap(),
        "{\"access_tok"
    );
    assert!(bench.file("srv.client.json.damaged").exists());
    assert_eq!(user.notes.lock().unwrap().len(), 2);
    assert!(token(&client).await.is_some(), "the other process goes on");
}

#[tokio::test]
async fn a_rejected_code_is_reported_and_nothing_is_stored() {
    let bench = Bench::new().await;
    bench.server.next(
        "POST /token",
        Reply::json(
            400,
            &json!({"error": "invalid_grant", "error_description": "late"}),
        ),
    );
    let client = bench.with(&TestUser::new(RedirectVia::Callback));
    let error = client.login(&CancellationToken::new()).await.unwrap_err();
    assert!(error.text.contains("invalid_grant: late"), "{error}");
    assert!(!bench.file("srv.json").exists());

    for (answer, expected_text) in [
        (json!({"token_type": "Bearer"}), "without an access token"),
        (json!({"access_token": "a", "token_type": "DPoP"}), "DPoP"),
    ] {
        bench.server.next("POST /token", Reply::json(200, &answer));
        let error = client.login(&CancellationToken::new()).await.unwrap_err();
        assert!(error.text.contains(expected_text), "{error}");
    }
}

#[tokio::test]
async fn forgetting_removes_the_files() {
    let bench = Bench::new().await;
    bench.logged_in(3600);
    let client = bench.without_user();
    assert!(client.forget().await.unwrap());
    assert!(!client.forget().await.unwrap());
    assert_eq!(token(&client).await, None);
    assert_eq!(
        Value::Null,
        json!(client.status().await.scope),
        "nothing is known any more"
    );
}
