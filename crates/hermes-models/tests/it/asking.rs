//! Lists of models and the window of local models, asked of a server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use hermes_core::model::{ModelRouter, RouteError};
use hermes_models::LiveError;
use hermes_models::live::{LIST_TIMEOUT, ListError};
use hermes_testkit::model_server::{ModelServer, Reply, ServedModel};
use serde_json::{Value, json};

use crate::routing::Rig;

fn window(rig: &Rig) -> (u32, &'static str) {
    let client = rig.router().primary().unwrap();
    (client.info().context_length, client.info().context_source)
}

/// A server that is nothing but these answers.
fn server(routes: &[(&str, &str, serde_json::Value)]) -> ModelServer {
    let server = ModelServer::start();
    for (method, path, body) in routes {
        server.route(method, path, Reply::json(200, body));
    }
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_local_model_is_asked_for_once() {
    let models = json!({"data": [{"id": "scripted", "max_model_len": 16_384}]});
    let server = server(&[("GET", "/v1/models", models)]);
    let rig = Rig::custom(&server);
    let router = rig.router();
    let client = router.primary().unwrap();
    assert_eq!(
        (client.info().context_length, client.info().context_source),
        (16_384, "endpoint")
    );
    router.primary().unwrap();
    assert_eq!(server.requests().len(), 1);
    // The next process finds it on disk.
    assert_eq!(window(&rig), (16_384, "cache"));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].api_key(), Some("test-key"));
}

#[tokio::test]
async fn each_kind_of_server_is_asked_in_its_own_way() {
    let list = json!({"data": [{"id": "scripted", "owned_by": "library"}]});
    let show =
        json!({"model_info": {"x.context_length": 40_960}, "capabilities": ["tools", "vision"]});
    let ollama = server(&[
        ("GET", "/v1/models", list),
        ("POST", "/api/show", show.clone()),
    ]);
    let client = Rig::custom(&ollama).router().primary().unwrap();
    assert_eq!(client.info().context_length, 40_960);
    assert!(client.info().tools && client.info().images);

    let named = server(&[("POST", "/api/show", show)]);
    let mut rig = Rig::custom(&named);
    rig.config.model.provider = "ollama".into();
    assert_eq!(window(&rig), (40_960, "endpoint"));

    let props = json!({"default_generation_settings": {"n_ctx": 4096}});
    let llama = server(&[("GET", "/props", props)]);
    let mut rig = Rig::custom(&llama);
    rig.config.model.provider = "llama.cpp".into();
    assert_eq!(window(&rig), (4096, "endpoint"));

    let loaded = json!({"models": [{"key": "pub/scripted", "max_context_length": 99_000,
        "loaded_instances": [{"config": {"context_length": 8192}}]}]});
    let lmstudio = server(&[("GET", "/api/v1/models", loaded)]);
    let mut rig = Rig::custom(&lmstudio);
    rig.config.model.provider = "lmstudio".into();
    assert_eq!(window(&rig), (8192, "endpoint"));
}

#[tokio::test]
async fn nobody_is_asked_when_the_answer_is_known() {
    let server = server(&[("GET", "/v1/models", json!({"data": []}))]);
    let mut rig = Rig::custom(&server);
    rig.config.model.context_length = Some(50_000);
    assert_eq!(window(&rig), (50_000, "config"));
    let text = format!("context_lengths:\n  scripted@{}: 7000\n", server.base_url());
    rig.config.model.context_length = None;
    std::fs::write(rig.home.path().join("context_length_cache.yaml"), text).unwrap();
    assert_eq!(window(&rig), (7000, "cache"));
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_server_without_an_answer_leaves_the_guess() {
    let silent = ModelServer::start();
    silent.route("GET", "/v1/models", Reply::hangup());
    assert_eq!(window(&Rig::custom(&silent)), (256_000, "default"));
}

#[tokio::test]
async fn a_provider_lists_its_models() {
    let server = ModelServer::start();
    server.serve_models([
        ServedModel::new("one").context_length(9000),
        ServedModel::new("two"),
    ]);
    let rig = Rig::custom(&server);
    let list = rig.router().live_models(None, LIST_TIMEOUT).await.unwrap();
    let ids: Vec<&str> = list.iter().map(|model| model.id.as_str()).collect();
    assert_eq!(ids, ["one", "two"]);
    assert_eq!(list[0].context_length, Some(9000));
}

#[tokio::test]
async fn a_list_that_cannot_be_had_says_why() {
    let server = ModelServer::start();
    server.route("GET", "/v1/models", Reply::error(401, "wrong key"));
    let error = Rig::custom(&server)
        .router()
        .live_models(None, LIST_TIMEOUT)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("401: wrong key"), "{error}");
    let gone = Rig::custom(&server);
    drop(server);
    let error = gone
        .router()
        .live_models(None, LIST_TIMEOUT)
        .await
        .unwrap_err();
    assert!(
        matches!(error, LiveError::List(ListError::Unreachable { .. })),
        "{error}"
    );
    let error = Rig::new()
        .router()
        .live_models(None, LIST_TIMEOUT)
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        LiveError::Route(RouteError::NothingConfigured)
    ));
    let mimo = Rig::new().var("XIAOMI_API_KEY", "mimo-key");
    let error = mimo.router().live_models(None, LIST_TIMEOUT).await;
    assert!(matches!(error, Err(LiveError::NotListed { .. })));
}

#[tokio::test]
async fn a_local_ollama_is_found() {
    let tags = json!({"models": [{"name": "qwen3:8b", "size": 5_000_000_000_u64}]});
    let server = server(&[("GET", "/api/tags", tags)]);
    let rig = Rig::new().var("OLLAMA_HOST", &server.root_url());
    let found = rig.router().local_servers().await;
    let ollama = found
        .iter()
        .find(|found| found.base_url == server.base_url())
        .unwrap();
    assert_eq!(ollama.models[0].id, "qwen3:8b");
}

/// Ollama with one model that nobody has used yet. Returns its address and the paths asked for.
fn unloaded_ollama(allocates: u32) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut loaded = false;
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let answer = match path.as_str() {
                "/api/show" => json!({"model_info": {"x.context_length": 40_960}}),
                "/api/generate" => {
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    assert_eq!(body, json!({"model": "scripted", "stream": false}));
                    loaded = true;
                    json!({"model": "scripted", "response": "", "done": true, "done_reason": "load"})
                }
                "/api/ps" if loaded => {
                    json!({"models": [{"name": "scripted", "context_length": allocates}]})
                }
                "/api/ps" => json!({"models": []}),
                _ => json!({"data": [{"id": "scripted", "owned_by": "library"}]}),
            };
            seen.lock().unwrap().push(path);
            let answer = answer.to_string();
            write!(
                stream.get_mut(),
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
        }
    });
    (address, asked)
}

#[tokio::test]
async fn what_ollama_will_allocate_is_known_before_the_first_call() {
    for provider in ["ollama", "custom"] {
        let (address, asked) = unloaded_ollama(4096);
        let server = server(&[]);
        let mut rig = Rig::custom(&server);
        rig.config.model.provider = provider.into();
        rig.config.model.base_url = address.clone();
        assert_eq!(window(&rig), (4096, "endpoint"), "{provider}");
        let loads = |asked: &Mutex<Vec<String>>| {
            let asked = asked.lock().unwrap();
            asked.iter().filter(|path| *path == "/api/generate").count()
        };
        assert_eq!(loads(&asked), 1);
        // A window that was set to another size since is found, without loading anything.
        let text = format!("context_lengths:\n  scripted@{address}: 7000\n");
        std::fs::write(rig.home.path().join("context_length_cache.yaml"), text).unwrap();
        let expected = match provider {
            "ollama" => (4096, "endpoint"),
            _ => (7000, "cache"),
        };
        assert_eq!(window(&rig), expected, "{provider}");
        assert_eq!(loads(&asked), 1);
    }
}
