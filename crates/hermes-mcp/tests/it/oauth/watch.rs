//! A login in one process wakes another.

use std::time::Duration;

use hermes_mcp::{FailureClass, TokenSource as _};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, RedirectVia, TestUser, token};
use super::server::Reply;

const CHECK_INTERVAL: Duration = Duration::from_millis(5);

#[tokio::test]
async fn a_login_by_the_command_line_wakes_a_parked_gateway() {
    for had_tokens in [false, true] {
        let bench = Bench::new().await;
        if had_tokens {
            let (access, _) = bench.logged_in(3600);
            bench.server.revoke(&access);
            bench.server.next(
                "POST /token",
                Reply::json(400, &serde_json::json!({"error": "invalid_grant"})),
            );
        }
        let gateway = bench.without_user();
        let sent = gateway.bearer().await;
        let failure = gateway.rejected(sent, None).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NeedsAuth);

        let mut waiting = Box::pin(gateway.changed_with_interval(CHECK_INTERVAL));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let command = bench.with(&TestUser::new(RedirectVia::Callback));
        command.login(&CancellationToken::new()).await.unwrap();
        // A call in between must not consume the notification.
        let fresh = token(&gateway).await.unwrap();
        waiting.await;
        assert_eq!(bench.server.challenge(Some(&fresh)), None);
        assert_eq!(token(&command).await.unwrap(), fresh);
    }
}

#[tokio::test]
async fn a_login_between_the_failure_and_the_wait_is_not_missed() {
    let bench = Bench::new().await;
    let gateway = bench.without_user();
    gateway.rejected(None, None).await.unwrap_err();
    let command = bench.with(&TestUser::new(RedirectVia::Callback));
    command.login(&CancellationToken::new()).await.unwrap();
    assert!(gateway.bearer().await.is_some());
    gateway.changed_with_interval(CHECK_INTERVAL).await;
}

#[tokio::test]
async fn a_change_is_reported_once_and_our_own_renewals_are_none() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    let gateway = bench.without_user();
    assert_eq!(token(&gateway).await, Some(access));
    let (access, _) = bench.logged_in(1800);
    gateway.changed_with_interval(CHECK_INTERVAL).await;
    let mut waiting = Box::pin(gateway.changed_with_interval(CHECK_INTERVAL));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    // Neither reading the announced token nor renewing it is a change.
    bench.server.revoke(&access);
    gateway.rejected(Some(access.into()), None).await.unwrap();
    assert_eq!(bench.server.refreshes().len(), 1);
    tokio::time::timeout(CHECK_INTERVAL * 10, &mut waiting)
        .await
        .unwrap_err();
    bench.logged_in(900);
    waiting.await;
}

#[tokio::test(start_paused = true)]
async fn the_file_is_checked_every_second() {
    let bench = Bench::new().await;
    bench.logged_in(3600);
    let gateway = bench.without_user();
    let started = tokio::time::Instant::now();
    let mut waiting = Box::pin(gateway.changed());
    let quiet = tokio::time::timeout(Duration::from_secs(100), &mut waiting).await;
    assert!(quiet.is_err(), "nothing has changed");
    bench.logged_in(1800);
    waiting.await;
    assert!(started.elapsed() <= Duration::from_secs(102));
}
