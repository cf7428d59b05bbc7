//! A token that grants too little.

use hermes_mcp::{FailureClass, McpFailure, OAuthClient, TokenSource as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, RedirectVia, TestUser, token};

async fn forbidden(client: &OAuthClient, scope: &str) -> Result<(), McpFailure> {
    let sent = client.bearer().await;
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
    client.rejected(sent, Some(challenge)).await.map(|_| ())
}

#[tokio::test]
async fn a_step_up_asks_for_both_and_keeps_the_grant_until_it_succeeds() {
    let bench = Bench::new().await;
    bench.logged_in(3600);
    let user = TestUser::new(RedirectVia::Callback);
    let client = bench.with(&user);
    forbidden(&client, "write").await.unwrap();
    let asked = &bench.server.seen("GET /authorize")[0].query;
    assert_eq!(asked["scope"], "write read");
    assert!(bench.server.refreshes().is_empty());
    assert_eq!(bench.read("srv.json")["scope"], json!("write read"));
}

#[tokio::test]
async fn without_a_user_the_scope_is_remembered_for_the_next_login() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    let client = bench.without_user();
    let failure = forbidden(&client, "write").await.unwrap_err();
    assert_eq!(failure.class, FailureClass::ScopeNeeded);
    assert!(failure.text.contains("\"write\""), "{failure}");
    assert!(failure.text.contains("hermes mcp login srv"), "{failure}");
    assert_eq!(
        token(&client).await.unwrap(),
        access,
        "still good for the rest"
    );

    let user = TestUser::new(RedirectVia::Callback);
    bench
        .with(&user)
        .login(&CancellationToken::new())
        .await
        .unwrap();
    let asked = &bench.server.seen("GET /authorize")[0].query;
    assert_eq!(asked["scope"], "read write");
    // Granted: not requested a second time.
    assert!(
        bench.read("srv.meta.json")["hermes"]
            .get("wanted_scope")
            .is_none()
    );
}

#[tokio::test]
async fn a_scope_that_is_there_already_is_not_asked_for_again() {
    let bench = Bench::new().await;
    bench.logged_in(3600);
    let user = TestUser::new(RedirectVia::Callback);
    let client = bench.with(&user);
    for scope in ["read", ""] {
        let failure = forbidden(&client, scope).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::ScopeNeeded);
    }
    assert_eq!(user.asked(), 0);
}

#[tokio::test]
async fn the_user_is_asked_three_times_at_most() {
    let bench = Bench::new().await;
    bench.logged_in(3600);
    // The server always grants less than requested.
    bench
        .server
        .script()
        .grant
        .insert("scope".to_owned(), json!("read"));
    let user = TestUser::new(RedirectVia::Callback);
    let client = bench.with(&user);
    for _ in 0..3 {
        forbidden(&client, "write").await.unwrap();
    }
    for _ in 0..5 {
        let failure = forbidden(&client, "write").await.unwrap_err();
        assert_eq!(failure.class, FailureClass::ScopeNeeded);
    }
    assert_eq!(user.asked(), 3);
}

#[tokio::test]
async fn the_step_up_of_another_process_is_adopted() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    let client = bench.without_user();
    let sent = client.bearer().await;
    let (wider, _) = bench.server.issue();
    bench.write(
        "srv.json",
        &json!({"access_token": wider, "scope": "read write"}),
    );
    client
        .rejected(
            sent,
            Some("Bearer error=\"insufficient_scope\", scope=\"write\"".to_owned()),
        )
        .await
        .unwrap();
    assert_ne!(token(&client).await.unwrap(), access);
}
