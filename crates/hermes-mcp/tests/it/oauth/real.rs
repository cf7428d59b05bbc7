//! The complete flow with a real authorization server: npm's `oidc-provider`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use hermes_core::BoxFuture;
use hermes_core::clock::SystemClock;
use hermes_mcp::{AuthPrompt, HttpClients, LoginPage, OAuthClient, OAuthParts, TokenSource as _};
use hermes_testkit::oracle;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::bench::{http, settings};

struct Oidc {
    child: Child,
    base: String,
}

impl Drop for Oidc {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Oidc {
    fn start(modules: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/oidc.mjs");
        let mut child = Command::new("node")
            .arg(script)
            .arg(modules)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // An error if the server did not start.
        let line = lines.next().unwrap().unwrap();
        let port = line.strip_prefix("ready ").unwrap();
        Self {
            base: format!("http://127.0.0.1:{port}"),
            child,
        }
    }

    /// The scope that `/mcp` sees, or its challenge.
    async fn visit(&self, token: Option<&str>) -> Result<String, String> {
        let mut request = http().get(format!("{}/mcp", self.base));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.unwrap();
        if let Some(challenge) = response.headers().get(WWW_AUTHENTICATE) {
            return Err(challenge.to_str().unwrap().to_owned());
        }
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        Ok(body["scope"].as_str().unwrap().to_owned())
    }

    async fn revoke(&self, token: &str) {
        let url = format!("{}/revoke?token={token}", self.base);
        assert!(http().get(url).send().await.unwrap().status().is_success());
    }
}

/// A browser with cookies that follows every redirect.
#[derive(Default)]
struct Browser {
    visited: Mutex<Vec<String>>,
}

impl AuthPrompt for Browser {
    fn show(&self, page: &LoginPage) -> BoxFuture<'_, Result<(), String>> {
        let mut url = Url::parse(&page.url).unwrap();
        Box::pin(async move {
            let mut cookies: BTreeMap<String, String> = BTreeMap::new();
            for _ in 0..10 {
                self.visited.lock().unwrap().push(url.to_string());
                let jar: Vec<String> = cookies
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                let response = http()
                    .get(url.clone())
                    .header(COOKIE, jar.join("; "))
                    .send()
                    .await
                    .map_err(|error| error.to_string())?;
                for cookie in response.headers().get_all(SET_COOKIE) {
                    let pair = cookie.to_str().unwrap().split(';').next().unwrap();
                    let (name, value) = pair.split_once('=').unwrap();
                    cookies.insert(name.to_owned(), value.to_owned());
                }
                let Some(target) = response.headers().get(LOCATION) else {
                    return Ok(());
                };
                url = url.join(target.to_str().unwrap()).unwrap();
            }
            Err("redirected for ever".to_owned())
        })
    }

    fn pasted(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    fn note(&self, _: &str) {}
}

/// Where `cargo xtask setup` installs it.
fn modules() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let modules = workspace.join("target/mcp/node_modules");
    modules.join("oidc-provider").is_dir().then_some(modules)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_authorization_server_discovers_registers_grants_and_refreshes() {
    let Some(modules) = modules() else {
        oracle::skip(
            "mcp-servers",
            "oauth::real::a_real_authorization_server_discovers_registers_grants_and_refreshes",
        );
        return;
    };
    let server = Oidc::start(&modules);
    let home = tempfile::tempdir().unwrap();
    let client = |prompt: Option<Arc<dyn AuthPrompt>>| {
        OAuthClient::new(OAuthParts {
            server: "real".to_owned(),
            url: format!("{}/mcp", server.base).parse().unwrap(),
            settings: settings(),
            home: home.path(),
            clients: Arc::new(HttpClients::new(http)),
            clock: Arc::new(SystemClock),
            prompt,
            cancel: CancellationToken::new(),
        })
    };

    // The first refusal leads to discovery, registration and the browser.
    let browser = Arc::new(Browser::default());
    let user = client(Some(browser.clone()));
    let challenge = server.visit(None).await.unwrap_err();
    user.rejected(None, Some(challenge)).await.unwrap();
    let first = user.bearer().await.unwrap();
    let first = first.expose_secret();
    assert_eq!(server.visit(Some(first)).await.unwrap(), "read");
    let status = user.status().await;
    assert!(status.renewable, "{status:?}");
    assert_eq!(status.issuer.as_deref(), Some(server.base.as_str()));
    assert!(status.expires_at.is_some());
    let last = browser.visited.lock().unwrap().last().cloned().unwrap();
    assert!(last.contains("/callback?code="), "{last}");

    // Another process, without a user, renews twice with rotating refresh tokens.
    let gateway = client(None);
    let mut token = first.to_owned();
    for _ in 0..2 {
        server.revoke(&token).await;
        let challenge = server.visit(Some(&token)).await.unwrap_err();
        // Less than a minute has passed; a new process does not know that.
        let gateway = if token == first {
            gateway.clone()
        } else {
            client(None)
        };
        gateway
            .rejected(Some(token.clone().into()), Some(challenge))
            .await
            .unwrap();
        let renewed = gateway.bearer().await.unwrap().expose_secret().to_owned();
        assert_ne!(renewed, token);
        assert_eq!(server.visit(Some(&renewed)).await.unwrap(), "read");
        token = renewed;
    }
    // The user's process continues with the token that the other one fetched.
    assert_eq!(user.bearer().await.unwrap().expose_secret(), token);

    // An explicit login registers anew and replaces everything.
    user.login(&CancellationToken::new()).await.unwrap();
    let again = user.bearer().await.unwrap();
    assert_eq!(
        server.visit(Some(again.expose_secret())).await.unwrap(),
        "read"
    );
}
