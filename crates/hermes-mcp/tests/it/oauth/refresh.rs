//! Renewing tokens: once, without losing any.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hermes_mcp::{
    ConnectRequest, Connector as _, FailureClass, HttpClients, HttpTarget, McpConnector,
    McpFailure, MemoryEraCache, OAuthClient, Protocol, ServerTarget, TokenAnswer, TokenSource as _,
};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, NOW, RedirectVia, TestUser, http, token};
use super::server::Reply;

/// One call: sends the token; a refusal leads to another one.
async fn call(bench: &Bench, client: &OAuthClient) -> Result<String, McpFailure> {
    let sent = token(client).await;
    let Some(challenge) = bench.server.challenge(sent.as_deref()) else {
        return Ok(sent.unwrap());
    };
    let answer = client
        .rejected(sent.map(Into::into), Some(challenge))
        .await?;
    assert_eq!(answer, TokenAnswer::Fresh);
    Ok(token(client).await.unwrap())
}

fn denied(code: &str) -> Reply {
    Reply::json(400, &json!({"error": code}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_parallel_401_make_one_refresh() {
    let bench = Bench::new().await;
    let (access, refresh) = bench.logged_in(3600);
    bench.server.revoke(&access);
    let client = bench.without_user();
    let calls = join_all((0..10).map(|_| call(&bench, &client))).await;
    let fresh: Vec<String> = calls.into_iter().map(Result::unwrap).collect();
    assert!(
        fresh
            .iter()
            .all(|token| *token == fresh[0] && *token != access)
    );
    let refreshes = bench.server.refreshes();
    assert_eq!(refreshes.len(), 1);
    assert_eq!(refreshes[0].form["refresh_token"], refresh);
    assert_eq!(
        refreshes[0].form["resource"],
        bench.server.mcp_url(),
        "found although the original does not store it"
    );
    assert_eq!(refreshes[0].form["client_id"], "client-0");
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_stop_the_refresh() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    let client = bench.without_user();
    let mut impatient = Box::pin(client.rejected(Some(access.clone().into()), None));
    // One poll starts it.
    assert!(futures_util::poll!(&mut impatient).is_pending());
    while bench.server.refreshes().is_empty() {
        tokio::task::yield_now().await;
        // Polled once to start it; dropped before the answer arrives.
        if futures_util::poll!(&mut impatient).is_ready() {
            break;
        }
    }
    drop(impatient);
    assert!(call(&bench, &client).await.is_ok());
    assert_eq!(bench.server.refreshes().len(), 1);
    assert_eq!(bench.server.script().reused, 0);
}

#[tokio::test]
async fn an_omitted_refresh_token_and_unknown_fields_are_kept() {
    let bench = Bench::new().await;
    let (access, refresh) = bench.logged_in(3600);
    bench.server.script().rotate = false;
    bench.server.revoke(&access);
    let client = bench.without_user();
    let fresh = call(&bench, &client).await.unwrap();
    assert_eq!(
        bench.read("srv.json"),
        json!({"access_token": fresh, "token_type": "Bearer", "refresh_token": refresh,
               "scope": "read", "vendor": "kept", "expires_in": 3600,
               "expires_at": (NOW + 3600) as f64})
    );
    // It works again.
    bench.clock.advance(Duration::from_hours(1));
    bench.server.revoke(&fresh);
    assert_ne!(token(&client).await.unwrap(), fresh);
    assert_eq!(bench.server.refreshes().len(), 2);
}

#[tokio::test]
async fn tokens_are_renewed_a_minute_before_they_end() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(600);
    let client = bench.without_user();
    bench.clock.advance(Duration::from_secs(539));
    assert_eq!(token(&client).await.unwrap(), access);
    assert!(bench.server.refreshes().is_empty());
    bench.clock.advance(Duration::from_secs(1));
    let tokens = join_all((0..5).map(|_| token(&client))).await;
    assert!(tokens.iter().all(|token| *token != Some(access.clone())));
    assert_eq!(bench.server.refreshes().len(), 1);
}

#[tokio::test]
async fn a_token_without_expiry_is_used_until_it_is_refused() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    let mut file = bench.read("srv.json");
    for name in ["expires_in", "expires_at"] {
        file.as_object_mut().unwrap().remove(name);
    }
    bench.write("srv.json", &file);
    let client = bench.without_user();
    bench.clock.advance(Duration::from_hours(240));
    assert_eq!(token(&client).await.unwrap(), access);
}

#[tokio::test]
async fn a_refusal_with_a_newer_file_adopts_the_file() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    let (newer, _) = bench.server.issue();
    let path = bench.file("srv.json");
    let content = json!({"access_token": newer, "refresh_token": "r", "expires_at": NOW + 99});
    // The original program refreshes at the same time, without our lock.
    bench.server.next_with("POST /token", move || {
        std::fs::write(path, content.to_string()).unwrap();
        Some(denied("invalid_grant"))
    });
    let client = bench.without_user();
    assert_eq!(call(&bench, &client).await.unwrap(), newer);
    assert_eq!(bench.server.refreshes().len(), 1);
}

#[tokio::test]
async fn another_process_that_was_faster_saves_the_refresh() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    let client = bench.without_user();
    assert_eq!(token(&client).await.unwrap(), access);
    let (newer, _) = bench.server.issue();
    bench.write(
        "srv.json",
        &json!({"access_token": newer, "refresh_token": "r", "expires_at": NOW + 99}),
    );
    client.rejected(Some(access.into()), None).await.unwrap();
    assert_eq!(token(&client).await.unwrap(), newer);
    assert!(bench.server.refreshes().is_empty());
}

#[tokio::test]
async fn a_dead_grant_is_asked_about_once() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    bench
        .server
        .script()
        .always
        .insert("POST /token".to_owned(), denied("invalid_grant"));
    let client = bench.without_user();
    let calls = join_all((0..10).map(|_| call(&bench, &client))).await;
    for outcome in calls {
        let failure = outcome.unwrap_err();
        assert_eq!(failure.class, FailureClass::NeedsAuth);
        assert!(failure.text.contains("hermes mcp login srv"), "{failure}");
    }
    call(&bench, &client).await.unwrap_err();
    assert_eq!(bench.server.refreshes().len(), 1);
    assert_eq!(
        bench.read("srv.json")["access_token"],
        json!(access),
        "kept"
    );
}

#[tokio::test]
async fn a_busy_or_broken_authorization_server_keeps_the_tokens() {
    for (reply, wait) in [
        (Reply::empty(500), 1),
        (Reply::empty(429).header("Retry-After", "17"), 17),
        (
            Reply::json(503, &json!({"error": "temporarily_unavailable"})),
            1,
        ),
        (denied("temporarily_unavailable"), 1),
        // A proxy in between.
        (Reply::empty(403), 1),
        (Reply::json(200, &json!(["not", "tokens"])), 1),
    ] {
        let bench = Bench::new().await;
        let (access, refresh) = bench.logged_in(3600);
        bench.server.revoke(&access);
        bench.server.next("POST /token", reply);
        let client = bench.without_user();
        let failure = call(&bench, &client).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Throttled, "{failure}");
        let left = failure.retry_after.unwrap();
        assert_eq!(left.as_secs_f64().ceil() as u64, wait);
        let file = bench.read("srv.json");
        assert_eq!(file["refresh_token"], json!(refresh));

        // Not again before its time.
        call(&bench, &client).await.unwrap_err();
        assert_eq!(bench.server.refreshes().len(), 1);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(wait)).await;
        tokio::time::resume();
        call(&bench, &client).await.unwrap();
        assert_eq!(bench.server.refreshes().len(), 2);
    }
}

#[tokio::test]
async fn an_unreachable_authorization_server_keeps_a_token_in_use() {
    let bench = Bench::new().await;
    let (access, refresh) = bench.logged_in(30);
    let mut meta = bench.read("srv.meta.json");
    meta["token_endpoint"] = json!("http://127.0.0.1:1/token");
    meta["hermes"] = json!({"resource": null});
    bench.write("srv.meta.json", &meta);
    let client = bench.without_user();
    // It is about to expire but still valid.
    assert_eq!(token(&client).await.unwrap(), access);
    assert_eq!(bench.read("srv.json")["refresh_token"], json!(refresh));
}

#[tokio::test]
async fn a_token_endpoint_that_moved_is_found_again() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    let mut meta = bench.read("srv.meta.json");
    meta["token_endpoint"] = json!(format!("{}/old/token", bench.server.base));
    meta["hermes"] = json!({"resource": bench.server.mcp_url()});
    bench.write("srv.meta.json", &meta);
    let client = bench.without_user();
    let failure = call(&bench, &client).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled, "{failure}");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    call(&bench, &client).await.unwrap();
    assert_eq!(bench.server.refreshes().len(), 1);
}

#[tokio::test]
async fn short_and_unknown_lifetimes_are_respected() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    bench
        .server
        .script()
        .grant
        .insert("expires_in".to_owned(), json!(40));
    let client = bench.without_user();
    let fresh = call(&bench, &client).await.unwrap();
    bench.clock.advance(Duration::from_secs(29));
    assert_eq!(token(&client).await.unwrap(), fresh);
    bench
        .server
        .script()
        .grant
        .insert("expires_in".to_owned(), json!(0));
    bench.clock.advance(Duration::from_secs(1));
    let endless = token(&client).await.unwrap();
    assert_ne!(endless, fresh);
    assert_eq!(token(&client).await.unwrap(), endless);
    assert_eq!(bench.server.refreshes().len(), 2);
}

#[tokio::test]
async fn a_slow_user_does_not_delay_renewals() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(600);
    let user = TestUser::new(RedirectVia::Never);
    let client = bench.with(&user);
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
    let mut waiting =
        Box::pin(client.rejected(Some(access.clone().into()), Some(challenge.to_owned())));
    while user.asked() == 0 {
        assert!(futures_util::poll!(&mut waiting).is_pending());
        tokio::task::yield_now().await;
    }
    bench.clock.advance(Duration::from_secs(590));
    assert_ne!(token(&client).await.unwrap(), access);
    assert!(futures_util::poll!(&mut waiting).is_pending());
}

#[tokio::test]
async fn refreshed_but_still_401_needs_a_login_and_does_not_loop() {
    let bench = Bench::new().await;
    let (mut access, _) = bench.logged_in(3600);
    let client = bench.without_user();
    for _ in 0..5 {
        bench.server.revoke(&access);
        access = call(&bench, &client).await.unwrap();
    }
    bench.server.revoke(&access);
    for _ in 0..3 {
        let failure = call(&bench, &client).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NeedsAuth);
        assert!(failure.text.contains("hermes mcp login srv"), "{failure}");
        assert!(failure.text.contains("every token"), "{failure}");
    }
    assert_eq!(bench.server.refreshes().len(), 5);
    // The verdict is not permanent.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert_ne!(call(&bench, &client).await.unwrap(), access);
}

#[tokio::test]
async fn a_token_revoked_right_after_its_renewal_is_renewed_again() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    let client = bench.without_user();
    let fresh = call(&bench, &client).await.unwrap();
    bench.server.revoke(&fresh);
    assert_ne!(call(&bench, &client).await.unwrap(), fresh);
    assert_eq!(bench.server.refreshes().len(), 2);
}

/// However fast tokens are revoked, those used in between were valid.
#[tokio::test]
async fn tokens_that_worked_before_they_were_revoked_are_renewed_without_a_login() {
    let bench = Bench::new().await;
    let (mut access, _) = bench.logged_in(3600);
    let client = bench.without_user();
    for _ in 0..12 {
        bench.server.revoke(&access);
        let fresh = call(&bench, &client).await.unwrap();
        assert_ne!(fresh, access);
        client.accepted();
        access = fresh;
    }
    // If the server accepts none of them, the user must log in.
    let mut renewed = 0;
    let failure = loop {
        bench.server.revoke(&access);
        match call(&bench, &client).await {
            Ok(fresh) => access = fresh,
            Err(failure) => break failure,
        }
        renewed += 1;
        assert!(renewed < 10, "without end");
    };
    assert_eq!(failure.class, FailureClass::NeedsAuth, "{failure}");
}

#[tokio::test]
async fn an_unknown_client_must_be_unknown_twice() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    let client = bench.without_user();
    bench.server.next("POST /token", denied("invalid_client"));
    let failure = call(&bench, &client).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled, "{failure}");
    assert!(bench.file("srv.client.json").exists());

    bench.server.next("POST /token", denied("invalid_client"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    let failure = call(&bench, &client).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NeedsAuth, "{failure}");
    assert!(!bench.file("srv.client.json").exists());
    assert!(!bench.file("srv.meta.json").exists());
    assert_eq!(bench.read("srv.client.json.bak")["client_id"], "client-0");
    assert!(bench.file("srv.json").exists(), "tokens stay");
}

#[tokio::test]
async fn an_unknown_client_from_the_configuration_is_not_dropped() {
    let mut bench = Bench::new().await;
    bench.settings.client_id = Some("client-0".to_owned());
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    bench.server.next("POST /token", denied("invalid_client"));
    let failure = call(&bench, &bench.without_user()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NeedsAuth);
    assert!(failure.text.contains("oauth.client_id"), "{failure}");
    assert!(bench.file("srv.client.json").exists());
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_stops_before_the_grant_is_used() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    // Simulates a read-only directory, which would not stop root.
    std::fs::create_dir(bench.file("srv.lock")).unwrap();
    let client = bench.without_user();
    let failure = call(&bench, &client).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Permanent);
    assert!(failure.text.contains("mcp-tokens"), "{failure}");
    assert!(bench.server.refreshes().is_empty());
    // Nothing needs repair once writing is possible again.
    std::fs::remove_dir(bench.file("srv.lock")).unwrap();
    call(&bench, &client).await.unwrap();
}

#[tokio::test]
async fn a_refresh_token_never_goes_to_another_issuer() {
    let bench = Bench::new().await;
    let other = super::server::AuthServer::start().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    bench.server.script().put(
        "/.well-known/oauth-protected-resource/mcp",
        json!({"resource": bench.server.mcp_url(), "authorization_servers": [other.base]}),
    );
    let failure = call(&bench, &bench.without_user()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NeedsAuth);
    assert!(failure.text.contains(&other.base), "{failure}");
    assert!(other.seen("POST /token").is_empty());
}

#[tokio::test]
async fn with_a_user_a_dead_grant_becomes_a_login() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    bench.server.revoke(&access);
    bench.server.next("POST /token", denied("invalid_grant"));
    let user = TestUser::new(RedirectVia::Callback);
    let client = bench.with(&user);
    let calls = join_all((0..4).map(|_| call(&bench, &client))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!(user.asked(), 1);
}

#[tokio::test]
async fn a_401_during_initialize_heals_the_connection() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    let client = bench.without_user();
    let target = ServerTarget::Http(HttpTarget {
        url: bench.url.parse().unwrap(),
        headers: reqwest::header::HeaderMap::new(),
        clients: Arc::new(HttpClients::new(http)),
        tokens: Some(Arc::new(client)),
    });
    let mut connector = McpConnector::new("srv", target, Arc::new(MemoryEraCache::default()));
    connector.protocol = Protocol::Legacy;
    let connect = |epoch| {
        let (events, _) = mpsc::channel(8);
        connector.connect(ConnectRequest {
            epoch,
            deadline: Instant::now() + Duration::from_secs(30),
            cancel: CancellationToken::new(),
            events,
        })
    };
    let first = connect(1).await.unwrap();
    assert_eq!(first.facts().server_name, "guarded");
    first.close().await;
    bench.server.revoke(&access);
    let second = connect(2).await.unwrap();
    assert_eq!(bench.server.refreshes().len(), 1);
    second.close().await;
}
