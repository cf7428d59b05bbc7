//! `hermes mcp login` itself, against a real authorization server (npm's `oidc-provider`).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hermes_http::{HttpSettings, Redirects};
use hermes_testkit::oracle;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use serde_json::Value;

use crate::CliHarness;

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

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

impl Oidc {
    /// `None`, and a skip on record, where `cargo xtask setup` did not install it.
    fn start(test: &str) -> Option<Self> {
        let modules = crates().join("../target/mcp/node_modules");
        if !modules.join("oidc-provider").is_dir() {
            oracle::skip("mcp-servers", test);
            return None;
        }
        let mut child = Command::new("node")
            .arg(crates().join("hermes-mcp/tests/servers/oidc.mjs"))
            .arg(modules)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let port = line.strip_prefix("ready ").unwrap();
        Some(Self {
            base: format!("http://127.0.0.1:{port}"),
            child,
        })
    }
}

/// Follows every redirect with cookies, to the callback of the program.
async fn browse(from: &str) -> String {
    let settings = HttpSettings {
        redirects: Redirects::Never,
        ..HttpSettings::default()
    };
    let client = hermes_http::client(&settings).unwrap();
    let mut url: url::Url = from.parse().unwrap();
    let mut cookies: BTreeMap<String, String> = BTreeMap::new();
    for _ in 0..10 {
        let jar: Vec<String> = cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let sending = client.get(url.clone()).header(COOKIE, jar.join("; "));
        let response = sending.send().await.unwrap();
        for cookie in response.headers().get_all(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            cookies.insert(name.to_owned(), value.to_owned());
        }
        match response.headers().get(LOCATION) {
            Some(target) => url = url.join(target.to_str().unwrap()).unwrap(),
            None => break,
        }
    }
    url.to_string()
}

/// A login as a person does it; gives what the program said.
fn log_in(oidc: &Oidc, setup: &CliHarness) -> (Value, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hermes"))
        .args(["mcp", "login", "srv", "--no-browser", "--json"])
        .env_clear()
        .envs(setup.home.vars())
        .current_dir(setup.home.work())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let page = said
        .by_ref()
        .map(Result::unwrap)
        .find(|line| line.trim().starts_with(&oidc.base))
        .unwrap();
    // Read to its end, so that the program never waits for its reader.
    let rest = std::thread::spawn(move || said.map_while(Result::ok).collect::<Vec<_>>());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let landed = runtime.block_on(browse(page.trim()));
    assert!(landed.contains("/callback?code="), "{landed}");
    let mut stdout = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut stdout)
        .unwrap();
    let code = child.wait().unwrap().code();
    let rest = rest.join().unwrap();
    assert_eq!(code, Some(0), "{stdout} {rest:?}");
    let done = serde_json::from_str(&stdout).unwrap();
    (done, format!("{stdout}{}", rest.join("\n")))
}

#[test]
fn a_login_through_the_command_leaves_a_token_that_only_the_person_can_read() {
    let test = "mcp::login::a_login_through_the_command";
    let Some(oidc) = Oidc::start(test) else {
        return;
    };
    // Also where nobody wrote down that there is a login.
    for auth in ["    auth: oauth\n", ""] {
        let setup = CliHarness::with_config(&format!(
            "mcp_servers:\n  srv:\n    url: {}/mcp\n{auth}",
            oidc.base
        ));
        let (done, all) = log_in(&oidc, &setup);
        assert_eq!(done["logged_in"][0]["name"], "srv", "{done}");
        assert_eq!(done["logged_in"][0]["renewable"], true, "{done}");
        let file = setup.home.join("mcp-tokens/srv.json");
        let token: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let token = token["access_token"].as_str().unwrap();
        assert!(!token.is_empty() && !all.contains(token));
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let config = setup.home.read("config.yaml");
        assert_eq!(config.matches("auth: oauth").count(), 1, "{config}");
    }
}
