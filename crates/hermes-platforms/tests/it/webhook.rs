//! Webhooks, called as services call them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_config::{Config, Env, Home, ProcessEnv};
use hermes_core::BoxFuture;
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::store::StoreError;
use hermes_gateway::MessageInbox;
use hermes_gateway::process;
use hermes_gateway::{SessionKey, SessionSharing};
use hermes_platforms::webhook::{self, WebhookHost, sign_github};
use hermes_platforms::{
    AdapterLink, Arrival, HealthReporter, IncomingMessage, PlatformHttp, PlatformSettings,
    PostError, Posting,
};
use hermes_store::Store;
use hermes_store::delivery::{Delivery, Processes, Target};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Earlier processes have ended.
struct NoProcesses;

impl Processes for NoProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

/// The store of the home, and a note of what was posted.
struct RecordedPosts {
    store: Store,
    posted: Mutex<Vec<Posting>>,
}

impl WebhookHost for RecordedPosts {
    fn received<'a>(
        &'a self,
        chat_id: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.store.was_received("webhook", "", chat_id, id))
    }

    fn target(&self, text: &str) -> Result<Target, PostError> {
        let (platform, chat) = text.split_once(':').unwrap_or((text, "home"));
        if platform != "telegram" {
            return Err(PostError::Target(format!("{platform} is not connected")));
        }
        Ok(Target {
            platform: platform.to_owned(),
            account: String::new(),
            chat_id: chat.to_owned(),
            thread_id: None,
        })
    }

    fn post(&self, posting: Posting) -> BoxFuture<'_, Result<usize, PostError>> {
        let mut posted = self.posted.lock().unwrap();
        let again = posted.iter().any(|known| known.id == posting.id);
        let result = if again {
            Err(StoreError::Ended(posting.id).into())
        } else {
            posted.push(posting);
            Ok(1)
        };
        Box::pin(std::future::ready(result))
    }
}

/// One server process on a home.
struct WebhookHarness {
    url: String,
    client: reqwest::Client,
    notes: Arc<RecordedPosts>,
    /// Messages that were stored.
    stored: mpsc::UnboundedReceiver<i64>,
    delivery: Delivery,
    cancel: CancellationToken,
}

impl WebhookHarness {
    async fn new(home: &Path, extra: Value) -> Self {
        Self::with(home, extra, true).await
    }

    /// `storing`: whether somebody takes what comes.
    async fn with(home: &Path, extra: Value, storing: bool) -> Self {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut settings = PlatformSettings {
            name: "webhook".to_owned(),
            extra: extra.as_object().cloned().unwrap(),
            ..PlatformSettings::default()
        };
        settings.extra.insert("port".to_owned(), json!(port));
        let host = settings.extra.entry("host").or_insert(json!("127.0.0.1"));
        if host.is_null() {
            settings.extra.remove("host");
        }
        let store = Store::open(home.join("state.db"), Arc::new(SystemClock)).unwrap();
        let owned = store.own_delivery(
            process::this_process(),
            Duration::from_mins(10),
            Arc::new(NoProcesses),
        );
        let (delivery, _) = owned.await.unwrap();
        let notes = Arc::new(RecordedPosts {
            store,
            posted: Mutex::default(),
        });
        let home = Home::at(home);
        let env = Env::from_process(&ProcessEnv::from_vars(Vec::<(&str, &str)>::new()));
        let loaded = Config::load(&home, &env).unwrap();
        let made = webhook::platform(
            &home,
            &loaded.config,
            &settings,
            Arc::clone(&notes) as Arc<dyn WebhookHost>,
            Arc::new(SystemClock),
        );
        let cancel = CancellationToken::new();
        let (arrivals, queue) = mpsc::channel::<Arrival>(4);
        let link = AdapterLink {
            arrivals,
            health: HealthReporter::new().0,
            cancel: cancel.clone(),
        };
        drop(hermes_core::task::spawn(
            "webhook",
            made.unwrap().inbound.run(link),
        ));
        let (tell, stored) = mpsc::unbounded_channel();
        if storing {
            let (inbox, token) = (
                MessageInbox::new(delivery.clone(), SessionSharing::default()),
                cancel.clone(),
            );
            let run = async move {
                let stored = move |id| assert!(tell.send(id).is_ok());
                inbox.run(queue, token, stored).await;
            };
            drop(hermes_core::task::spawn("inbox", run));
        }
        let life = Self {
            url: format!("http://127.0.0.1:{port}"),
            client: PlatformHttp::new(&HashMap::new(), None).client().unwrap(),
            notes,
            stored,
            delivery,
            cancel,
        };
        life.healthy().await;
        life
    }

    async fn healthy(&self) {
        let health = async {
            loop {
                if let Ok(answer) = self.client.get(format!("{}/health", self.url)).send().await {
                    assert!(answer.text().await.unwrap().contains("webhook"));
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), health)
            .await
            .unwrap();
    }

    async fn call(&self, route: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let mut request = self
            .client
            .post(format!("{}/webhooks/{route}", self.url))
            .body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (
            status,
            serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap(),
        )
    }

    /// As GitHub does it, with the secret of the tests.
    async fn github(&self, route: &str, id: &str, body: &str) -> (u16, Value) {
        let signature = sign_github("s3cret", body.as_bytes());
        let headers = [
            ("X-Hub-Signature-256", signature.as_str()),
            ("X-GitHub-Delivery", id),
            ("X-GitHub-Event", "issues"),
        ];
        self.call(route, &headers, body).await
    }

    /// What waits for an answer.
    async fn waiting(&self) -> Vec<IncomingMessage> {
        let waiting = self.delivery.waiting(100).await.unwrap();
        waiting
            .into_iter()
            .map(|one| serde_json::from_value(one.message.payload).unwrap())
            .collect()
    }
}

impl Drop for WebhookHarness {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn routes(route: &Value) -> Value {
    json!({"secret": "s3cret", "routes": {"r": route}})
}

#[tokio::test]
async fn a_call_is_stored_before_it_is_accepted_and_known_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let route = json!({"prompt": "Issue {issue.title} by {issue.user}", "deliver": "telegram",
        "deliver_extra": {"chat_id": "{issue.chat}", "thread_id": 9}});
    let body = r#"{"issue": {"title": "Broken", "user": "ann", "chat": 42}}"#;
    {
        let mut life = WebhookHarness::new(home.path(), routes(&route)).await;
        let (status, answer) = life.github("r", "d-1", body).await;
        assert_eq!(
            (status, &answer["status"]),
            (202, &json!("accepted")),
            "{answer}"
        );
        life.stored
            .try_recv()
            .expect("stored before it was accepted");
        let (status, answer) = life.github("r", "d-1", body).await;
        assert_eq!((status, &answer["status"]), (200, &json!("duplicate")));
    }
    let life = WebhookHarness::new(home.path(), routes(&route)).await;
    let (status, answer) = life.github("r", "d-1", body).await;
    assert_eq!((status, &answer["status"]), (200, &json!("duplicate")));
    let waiting = life.waiting().await;
    assert_eq!(waiting.len(), 1);
    let message = &waiting[0];
    assert_eq!(message.text, "Issue Broken by ann");
    assert_eq!(message.source.chat_id, "webhook:r:d-1");
    let key = SessionKey::new_for(&message.source, SessionSharing::default());
    assert_eq!(
        key.as_str(),
        "agent:main:webhook:webhook:webhook:r:d-1:webhook:r"
    );
    assert_eq!(
        message.native["answer_to"],
        json!({"platform": "telegram", "account": "", "chat_id": "42", "thread_id": "9"})
    );
}

#[tokio::test]
async fn what_is_not_stored_is_not_accepted_and_may_come_again() {
    let home = tempfile::tempdir().unwrap();
    let life = WebhookHarness::with(home.path(), routes(&json!({})), false).await;
    for _ in 0..2 {
        let (status, _) = life.github("r", "d-1", "{}").await;
        assert_eq!(status, 503);
    }
}

#[tokio::test]
async fn who_cannot_sign_is_told_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut extra = routes(&json!({}));
    extra["routes"]["off"] = json!({"enabled": false});
    extra["max_body_bytes"] = json!(1000);
    let life = WebhookHarness::new(home.path(), extra).await;
    for (route, headers, body, expected) in [
        ("r", &[][..], "{}", 401),
        ("r", &[("X-Hub-Signature-256", "sha256=00")], "{}", 401),
        ("r", &[("X-Gitlab-Token", "wrong")], "{}", 401),
        ("r", &[("X-Gitlab-Token", "s3cret")], "no form", 400),
        ("none", &[("X-Gitlab-Token", "s3cret")], "{}", 404),
        ("off", &[("X-Gitlab-Token", "s3cret")], "{}", 403),
    ] {
        let (status, answer) = life.call(route, headers, body).await;
        assert_eq!(status, expected, "{route} {headers:?} {answer}");
    }
    let large = "x".repeat(1001);
    assert_eq!(
        life.call("r", &[("X-Gitlab-Token", "s3cret")], &large)
            .await
            .0,
        413
    );
    let (status, answer) = life
        .call("r", &[("X-Gitlab-Token", "s3cret")], "a=1&b=2")
        .await;
    assert_eq!((status, &answer["event"]), (202, &json!("unknown")));
    assert!(life.waiting().await[0].text.contains("\"a\": \"1\""));
}

#[tokio::test]
async fn repetitions_do_not_count_against_the_rate() {
    let home = tempfile::tempdir().unwrap();
    let mut extra = routes(&json!({}));
    extra["rate_limit"] = json!(2);
    let life = WebhookHarness::new(home.path(), extra).await;
    assert_eq!(life.github("r", "1", "{}").await.0, 202);
    for _ in 0..5 {
        assert_eq!(life.github("r", "1", "{}").await.0, 200);
    }
    assert_eq!(life.github("r", "2", "{}").await.0, 202);
    assert_eq!(life.github("r", "3", "{}").await.0, 429);
    assert_eq!(life.github("r", "2", "{}").await.0, 200);
}

#[tokio::test]
async fn events_filters_and_scripts_decide_what_matters() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("scripts")).unwrap();
    let script = "grep -q drop && exit 1; echo '{\"said\": \"by script\"}'";
    std::fs::write(home.path().join("scripts/s.sh"), script).unwrap();
    let route = json!({"events": ["issues"], "filters": [{"field": "n", "equals": 1}],
        "script": "s.sh", "prompt": "{said}"});
    let life = WebhookHarness::new(home.path(), routes(&route)).await;
    let push = [("X-Gitlab-Token", "s3cret"), ("X-Gitlab-Event", "push")];
    let (status, answer) = life.call("r", &push, r#"{"n": 1}"#).await;
    assert_eq!(
        (status, answer),
        (200, json!({"status": "ignored", "event": "push"}))
    );
    assert_eq!(
        life.github("r", "1", r#"{"n": 2}"#).await.1["reason"],
        "filter"
    );
    assert_eq!(
        life.github("r", "2", r#"{"n": 1, "x": "drop"}"#).await.1["reason"],
        "script"
    );
    assert_eq!(life.github("r", "3", r#"{"n": 1}"#).await.0, 202);
    assert_eq!(life.waiting().await[0].text, "by script");
}

#[tokio::test]
async fn some_routes_only_deliver() {
    let home = tempfile::tempdir().unwrap();
    let mut extra =
        routes(&json!({"deliver_only": true, "deliver": "telegram", "prompt": "Down: {host}"}));
    extra["routes"]["lost"] = json!({"deliver": "nowhere"});
    extra["routes"]["gh"] = json!({"deliver": "github_comment", "deliver_extra": {"repo": "{repo}", "pr_number": "{n}"}});
    let life = WebhookHarness::new(home.path(), extra).await;
    assert_eq!(life.github("r", "1", r#"{"host": "a"}"#).await.0, 202);
    assert_eq!(life.github("r", "1", r#"{"host": "a"}"#).await.0, 200);
    let posted = life.notes.posted.lock().unwrap().clone();
    assert_eq!(posted.len(), 1);
    assert_eq!(
        (posted[0].text.as_str(), posted[0].target.chat_id.as_str()),
        ("Down: a", "home")
    );
    assert!(
        !posted[0].files,
        "a caller could name any file of this machine"
    );
    assert_eq!(life.github("lost", "2", "{}").await.0, 502);
    assert_eq!(
        life.github("gh", "3", r#"{"repo": "a/b; rm", "n": 1}"#)
            .await
            .0,
        502
    );
    assert_eq!(
        life.github("gh", "3", r#"{"repo": "a/b", "n": 1}"#).await.0,
        202
    );
    let waiting = life.waiting().await;
    assert_eq!(waiting[0].native["answer_to"]["chat_id"], "github:a/b#1");
}

#[tokio::test]
async fn words_of_others_are_never_commands() {
    let home = tempfile::tempdir().unwrap();
    let life = WebhookHarness::new(home.path(), routes(&json!({"prompt": "{title}"}))).await;
    life.github("r", "1", r#"{"title": " /yolo"}"#).await;
    assert_eq!(life.waiting().await[0].text, "[webhook r]\n /yolo");
}

#[tokio::test]
async fn subscriptions_take_effect_while_it_runs() {
    let home = tempfile::tempdir().unwrap();
    let life = WebhookHarness::new(home.path(), routes(&json!({}))).await;
    assert_eq!(life.github("new", "1", "{}").await.0, 404);
    let file = json!({"new": {"secret": "other", "prompt": "hi", "deliver": "log", "events": [], "skills": []}});
    std::fs::write(
        home.path().join("webhook_subscriptions.json"),
        file.to_string(),
    )
    .unwrap();
    assert_eq!(life.github("new", "1", "{}").await.0, 401);
    let signature = sign_github("other", b"{}");
    let (status, _) = life
        .call("new", &[("X-Hub-Signature-256", &signature)], "{}")
        .await;
    assert_eq!(status, 202);
}

/// A script that waits until it is told to go on.
const WAITING: &str = "touch started; while [ ! -e go ]; do sleep 0.01; done; cat";

#[tokio::test]
async fn a_caller_that_hangs_up_has_called_all_the_same() {
    use tokio::io::AsyncWriteExt as _;
    let home = tempfile::tempdir().unwrap();
    let scripts = home.path().join("scripts");
    std::fs::create_dir(&scripts).unwrap();
    std::fs::write(scripts.join("s.sh"), WAITING).unwrap();
    let mut life = WebhookHarness::new(home.path(), routes(&json!({"script": "s.sh"}))).await;
    let address = life.url.strip_prefix("http://").unwrap().to_owned();
    let mut caller = tokio::net::TcpStream::connect(&address).await.unwrap();
    let request = format!(
        "POST /webhooks/r HTTP/1.1\r\nHost: {address}\r\nX-Gitlab-Token: s3cret\r\n\
         X-Request-ID: d-1\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    caller.write_all(request.as_bytes()).await.unwrap();
    let started = async {
        while !scripts.join("started").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), started)
        .await
        .unwrap();
    drop(caller);
    // The server has seen the end of the connection when it has answered another.
    life.healthy().await;
    std::fs::write(scripts.join("go"), "").unwrap();
    let stored = tokio::time::timeout(Duration::from_secs(20), life.stored.recv()).await;
    assert!(stored.expect("the call is not lost").is_some());
    let again = [("X-Gitlab-Token", "s3cret"), ("X-Request-ID", "d-1")];
    let (status, answer) = life.call("r", &again, "{}").await;
    assert_eq!((status, &answer["status"]), (200, &json!("duplicate")));
    assert_eq!(life.waiting().await.len(), 1);
}

/// A service repeats a call of which it heard nothing. It must not be told that it was taken before it
/// is stored: a crash in between would lose it.
#[tokio::test]
async fn a_call_that_is_repeated_while_it_is_dealt_with_waits_for_its_end() {
    let home = tempfile::tempdir().unwrap();
    let scripts = home.path().join("scripts");
    std::fs::create_dir(&scripts).unwrap();
    std::fs::write(scripts.join("s.sh"), WAITING).unwrap();
    let life = WebhookHarness::new(home.path(), routes(&json!({"script": "s.sh"}))).await;
    let headers = [("X-Gitlab-Token", "s3cret"), ("X-Request-ID", "d-1")];
    let first = life.call("r", &headers, "{}");
    let second = async {
        while !scripts.join("started").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let again = life.call("r", &headers, "{}");
        tokio::pin!(again);
        tokio::select! {
            (status, answer) = &mut again => panic!("{status} before it is stored: {answer}"),
            // Another connection was served meanwhile, twice.
            () = async { life.healthy().await; life.healthy().await } => {}
        }
        std::fs::write(scripts.join("go"), "").unwrap();
        again.await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.0, 202);
    assert_eq!((second.0, &second.1["status"]), (200, &json!("duplicate")));
    assert_eq!(life.waiting().await.len(), 1);
}

#[tokio::test]
async fn a_script_that_breaks_or_takes_too_long_loses_no_call() {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("scripts/s.sh");
    std::fs::create_dir(home.path().join("scripts")).unwrap();
    let mut extra = routes(&json!({"script": "s.sh"}));
    extra["script_timeout_seconds"] = json!(1);
    let life = WebhookHarness::new(home.path(), extra).await;
    for broken in [None, Some("kill -9 $$"), Some("exec sleep 600")] {
        if let Some(text) = broken {
            std::fs::write(&script, text).unwrap();
        }
        let (status, answer) = life.github("r", "d-1", "{}").await;
        assert_eq!(status, 500, "{broken:?} {answer}");
    }
    std::fs::write(&script, "cat").unwrap();
    assert_eq!(life.github("r", "d-1", "{}").await.0, 202);
}

#[tokio::test]
async fn whoever_connects_and_says_nothing_is_let_go() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let home = tempfile::tempdir().unwrap();
    let life = WebhookHarness::new(home.path(), routes(&json!({}))).await;
    let address = life.url.strip_prefix("http://").unwrap();
    let mut caller = tokio::net::TcpStream::connect(address).await.unwrap();
    caller
        .write_all(b"POST /webhooks/r HTTP/1.1\r\nX: ")
        .await
        .unwrap();
    tokio::time::pause();
    let mut answer = Vec::new();
    let ended = caller.read_to_end(&mut answer);
    let ended = tokio::time::timeout(Duration::from_mins(2), ended).await;
    assert!(ended.is_ok(), "the connection stays open");
}

/// As V2 has it, at this second.
fn signed_v2(body: &str) -> (String, String) {
    let at = SystemClock.now().timestamp().to_string();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"s3cret");
    let tag = ring::hmac::sign(&key, format!("{at}.{body}").as_bytes());
    let hex = tag.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    (at, hex)
}

#[tokio::test]
async fn a_signed_call_is_taken_once_whatever_its_id_also_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let body = r#"{"n": 1}"#;
    let (at, signature) = signed_v2(body);
    let shouted = signature.to_ascii_uppercase();
    let call = async |life: &WebhookHarness, id: &str, signature: &str, body: &str| {
        let headers = [
            ("x-webhook-timestamp", at.as_str()),
            ("x-webhook-signature-v2", signature),
            ("x-request-id", id),
        ];
        life.call("r", &headers, body).await
    };
    {
        let life = WebhookHarness::new(home.path(), routes(&json!({}))).await;
        assert_eq!(call(&life, "a", &signature, body).await.0, 202);
        // The sender did not hear the answer and asks again: no harm in that.
        assert_eq!(call(&life, "a", &signature, body).await.0, 200);
        for (id, signature) in [("b", &signature), ("c", &shouted)] {
            let (status, answer) = call(&life, id, signature, body).await;
            assert_eq!(status, 409, "{answer}");
        }
        assert_eq!(life.waiting().await.len(), 1);
    }
    let life = WebhookHarness::new(home.path(), routes(&json!({}))).await;
    assert_eq!(call(&life, "d", &signature, body).await.0, 409);
    let (at, signature) = signed_v2(r#"{"n": 2}"#);
    let headers = [
        ("x-webhook-timestamp", at.as_str()),
        ("x-webhook-signature-v2", signature.as_str()),
    ];
    assert_eq!(life.call("r", &headers, r#"{"n": 2}"#).await.0, 202);
}

/// Whoever was turned away for a reason that passes may come again with the same signature.
#[tokio::test]
async fn a_signed_call_that_was_not_taken_may_come_again() {
    let home = tempfile::tempdir().unwrap();
    let life = WebhookHarness::new(home.path(), routes(&json!({"deliver": "nowhere"}))).await;
    let (at, signature) = signed_v2("{}");
    let headers = [
        ("x-webhook-timestamp", at.as_str()),
        ("x-webhook-signature-v2", signature.as_str()),
    ];
    for _ in 0..2 {
        assert_eq!(life.call("r", &headers, "{}").await.0, 502);
    }
}

#[tokio::test]
async fn pages_in_browsers_do_not_reach_a_route_without_a_secret() {
    let home = tempfile::tempdir().unwrap();
    let extra = json!({"routes": {"r": {"secret": "INSECURE_NO_AUTH"}}});
    let life = WebhookHarness::new(home.path(), extra).await;
    let strangers: [&[(&str, &str)]; 8] = [
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:8644")],
        &[("sec-fetch-site", "cross-site")],
        &[("referer", "https://evil.example/page")],
        &[("host", "evil.example")],
        &[("host", "evil.example:8644")],
        &[("host", "127.0.0.1.evil.example")],
    ];
    for headers in strangers {
        let (status, answer) = life.call("r", headers, "{}").await;
        assert_eq!(status, 403, "{headers:?}: {answer}");
    }
    assert!(life.waiting().await.is_empty());
    let own: [&[(&str, &str)]; 4] = [
        &[],
        &[("host", "localhost:8644")],
        &[("host", "[::1]:8644")],
        &[("sec-fetch-site", "none")],
    ];
    for headers in own {
        assert_eq!(life.call("r", headers, "{}").await.0, 202, "{headers:?}");
    }
    // A signature is proof enough, whatever stands between us and the sender.
    let home = tempfile::tempdir().unwrap();
    let life = WebhookHarness::new(home.path(), routes(&json!({}))).await;
    let signature = sign_github("s3cret", b"{}");
    let headers = [
        ("x-hub-signature-256", signature.as_str()),
        ("host", "hooks.example.org"),
    ];
    assert_eq!(life.call("r", &headers, "{}").await.0, 202);
}

/// Where a port is listened on, as the kernel says it.
fn listening(port: u16) -> Vec<String> {
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let mut words = line.split_whitespace().skip(1);
            let (Some(local), Some(state)) = (words.next(), words.nth(1)) else {
                continue;
            };
            if let Some((address, number)) = local.split_once(':')
                && state == "0A"
                && u16::from_str_radix(number, 16) == Ok(port)
            {
                found.push(address.to_owned());
            }
        }
    }
    found
}

#[tokio::test]
async fn only_this_machine_can_call_unless_the_person_says_otherwise() {
    let home = tempfile::tempdir().unwrap();
    let mut extra = routes(&json!({}));
    extra["host"] = Value::Null;
    let life = WebhookHarness::new(home.path(), extra).await;
    let port = life.url.rsplit(':').next().unwrap().parse().unwrap();
    let addresses = listening(port);
    assert!(
        addresses.iter().any(|address| address == "0100007F"),
        "{addresses:?}"
    );
    let loopback = ["0100007F", "00000000000000000000000001000000"];
    for address in addresses {
        assert!(loopback.contains(&address.as_str()), "{address}");
    }
}
