//! Several processes that share one home and one rotating refresh token.

use std::process::{Command, Stdio};
use std::sync::Arc;

use hermes_core::clock::SystemClock;
use hermes_mcp::{HttpClients, OAuthClient, OAuthParts, TokenSource as _};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, http, settings};

const PROCESSES: usize = 5;
const HOME: &str = "HERMES_TEST_OAUTH_HOME";
const URL: &str = "HERMES_TEST_OAUTH_URL";
const FAILED: &str = "HERMES_TEST_OAUTH_FAILED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_processes_share_a_rotating_refresh_token() {
    let bench = Bench::new().await;
    let (access, _) = bench.logged_in(3600);
    // The children use the real clock.
    let mut file = bench.read("srv.json");
    file["expires_at"] = json!(4_000_000_000_u64);
    bench.write("srv.json", &file);
    bench.server.revoke(&access);

    let program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(&program)
                .args(["--exact", "oauth::processes::one_of_them", "--ignored"])
                .args(["--nocapture", "--test-threads", "1"])
                .env(HOME, bench.home.path())
                .env(URL, &bench.url)
                .env(FAILED, &access)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut tokens = Vec::new();
    for child in children {
        let output = tokio::task::spawn_blocking(|| child.wait_with_output())
            .await
            .unwrap()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let token = stdout
            .split_once("token=")
            .map(|(_, rest)| rest.split_whitespace().next().unwrap().to_owned());
        tokens.push(token.unwrap_or_else(|| panic!("no token in {stdout}")));
    }
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert_eq!(bench.server.challenge(Some(&tokens[0])), None);
    assert_eq!(bench.server.refreshes().len(), 1);
    assert_eq!(bench.server.script().reused, 0);
}

#[tokio::test]
#[ignore = "one process of the test above, which starts it"]
async fn one_of_them() {
    let (Ok(home), Ok(url), Ok(failed)) = (
        std::env::var(HOME),
        std::env::var(URL),
        std::env::var(FAILED),
    ) else {
        return;
    };
    let client = OAuthClient::new(OAuthParts {
        server: "srv".to_owned(),
        url: url.parse().unwrap(),
        settings: settings(),
        home: home.as_ref(),
        clients: Arc::new(HttpClients::new(http)),
        clock: Arc::new(SystemClock),
        prompt: None,
        cancel: CancellationToken::new(),
    });
    client.rejected(Some(failed.into()), None).await.unwrap();
    println!("token={}", client.bearer().await.unwrap().expose_secret());
}
