//! A home directory, a server and clients for it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_mcp::config::OAuth as Settings;
use hermes_mcp::{AuthPrompt, HttpClients, LoginPage, OAuthClient, OAuthParts};
use hermes_testkit::clock::ManualClock;
use reqwest::header::LOCATION;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::server::AuthServer;

/// Start time of the test, in seconds since the epoch.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) struct Bench {
    pub(crate) home: TempDir,
    pub(crate) server: AuthServer,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) settings: Settings,
    /// The address of the MCP server.
    pub(crate) url: String,
}

pub(crate) fn settings() -> Settings {
    Settings {
        client_id: None,
        client_secret: None,
        client_metadata_url: None,
        scope: None,
        redirect_port: 0,
        redirect_uri: None,
        redirect_host: "127.0.0.1".to_owned(),
        client_name: "Hermes Agent".to_owned(),
        assume_pkce: false,
        timeout: Duration::from_secs(30),
    }
}

pub(crate) fn http() -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Another test of this binary may have installed it.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
    });
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .unwrap()
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let server = AuthServer::start().await;
        Self {
            home: tempfile::tempdir().unwrap(),
            url: server.mcp_url(),
            server,
            clock: Arc::new(ManualClock::at(NOW)),
            settings: settings(),
        }
    }

    /// A process without a user at the keyboard.
    pub(crate) fn without_user(&self) -> OAuthClient {
        self.client(None)
    }

    pub(crate) fn with(&self, user: &Arc<TestUser>) -> OAuthClient {
        self.client(Some(user.clone()))
    }

    fn client(&self, prompt: Option<Arc<dyn AuthPrompt>>) -> OAuthClient {
        OAuthClient::new(OAuthParts {
            server: "srv".to_owned(),
            url: self.url.parse().unwrap(),
            settings: self.settings.clone(),
            home: self.home.path(),
            clients: Arc::new(HttpClients::new(http)),
            clock: self.clock.clone(),
            prompt,
            cancel: CancellationToken::new(),
        })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join("mcp-tokens").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &Value) {
        let path = self.file(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content.to_string()).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.file(name)).unwrap()).unwrap()
    }

    /// Files as after a login some time ago: (access, refresh). Expires in `left` seconds.
    pub(crate) fn logged_in(&self, left: i64) -> (String, String) {
        let (access, refresh) = self.server.issue();
        self.write(
            "srv.json",
            &json!({"access_token": access, "token_type": "Bearer", "expires_in": 3600,
                    "refresh_token": refresh, "scope": "read", "vendor": "kept",
                    "expires_at": NOW + left}),
        );
        self.write(
            "srv.client.json",
            &json!({"client_id": "client-0", "redirect_uris": ["http://127.0.0.1:1/callback"],
                    "token_endpoint_auth_method": "none", "issuer": self.server.base}),
        );
        // As the original writes it: with the slash, without the resource.
        self.write(
            "srv.meta.json",
            &json!({"issuer": format!("{}/", self.server.base),
                    "authorization_endpoint": format!("{}/authorize", self.server.base),
                    "token_endpoint": format!("{}/token", self.server.base),
                    "registration_endpoint": format!("{}/register", self.server.base)}),
        );
        (access, refresh)
    }
}

/// The token that a client would send.
pub(crate) async fn token(client: &OAuthClient) -> Option<String> {
    client
        .token()
        .await
        .map(|token| token.expose_secret().to_owned())
}

/// How the browser returns the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectVia {
    Callback,
    Paste,
    /// It does not.
    Never,
}

/// A user who clicks "allow" at once.
pub(crate) struct TestUser {
    redirect_via: RedirectVia,
    http: reqwest::Client,
    pub(crate) pages: Mutex<Vec<LoginPage>>,
    pub(crate) notes: Mutex<Vec<String>>,
    /// Changes the address that the browser is sent to.
    pub(crate) alter: Box<dyn Fn(String) -> Vec<String> + Send + Sync>,
    lines: (
        mpsc::UnboundedSender<String>,
        tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
    ),
}

impl TestUser {
    pub(crate) fn new(redirect_via: RedirectVia) -> Arc<Self> {
        Self::altering(redirect_via, |url| vec![url])
    }

    /// The browser visits (or the user pastes) the addresses returned by `alter`, in order.
    pub(crate) fn altering(
        redirect_via: RedirectVia,
        alter: impl Fn(String) -> Vec<String> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Arc::new(Self {
            redirect_via,
            http: http(),
            pages: Mutex::default(),
            notes: Mutex::default(),
            alter: Box::new(alter),
            lines: (sender, tokio::sync::Mutex::new(receiver)),
        })
    }

    /// Types a line before anything is shown.
    pub(crate) fn types(&self, line: &str) {
        self.lines.0.send(line.to_owned()).unwrap();
    }

    pub(crate) fn page(&self) -> LoginPage {
        self.pages.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) fn asked(&self) -> usize {
        self.pages.lock().unwrap().len()
    }
}

impl AuthPrompt for TestUser {
    fn show(&self, page: &LoginPage) -> BoxFuture<'_, Result<(), String>> {
        let page = page.clone();
        self.pages.lock().unwrap().push(page.clone());
        Box::pin(async move {
            if self.redirect_via == RedirectVia::Never {
                return Ok(());
            }
            let answer = self.http.get(&page.url).send().await.unwrap();
            let target = answer.headers()[LOCATION].to_str().unwrap().to_owned();
            for address in (self.alter)(target) {
                if self.redirect_via == RedirectVia::Callback {
                    self.http.get(address).send().await.unwrap();
                } else {
                    self.types(&address);
                }
            }
            Ok(())
        })
    }

    fn pasted(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move { self.lines.1.lock().await.recv().await })
    }

    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }
}
