//! The web from the built binary: pages read and summarised, and what must not be reached.

use base64::Engine as _;
use hermes_testkit::model_server::{RecordedRequest, Reply};
use hermes_testkit::web_server::{Page, WebServer};
use serde_json::{Value, json};

use crate::CliHarness;

const ARTICLE: &str = "<!doctype html><html><head><title>Tides</title></head><body><nav>Home</nav><article><h1>Tides</h1>\
    <p>The tide rises and falls twice a day, because the earth turns below two bulges of water that the moon and the sun \
    draw up; sailors have known this for as long as there have been sailors.</p><p>In narrow bays the range grows to more \
    than ten metres, while in the open ocean it is barely one.</p></article><footer>Imprint</footer></body></html>";

fn site() -> WebServer {
    WebServer::start(|asked| match asked.path.as_str() {
        "/tides" => Page::html(ARTICLE),
        "/moved" => Page::redirect("/tides"),
        "/inside" => Page::redirect("http://169.254.169.254/latest/meta-data/"),
        "/long" => {
            let lines: Vec<String> = (1..=5_000).map(|n| format!("measurement {n}")).collect();
            Page::new("text/plain", lines.join("\n"))
        }
        path if path.starts_with("/search?") => Page::json(&json!({ "results": [
            { "title": "Tides", "url": "https://example.org/tides", "content": "About tides", "score": 1.0 },
        ] })),
        _ => Page::html("nothing").status(404),
    })
}

fn call(name: &str, arguments: &Value) -> Reply {
    Reply::tool_call(&format!("c_{name}"), name, arguments)
}

fn results(request: &RecordedRequest) -> Vec<String> {
    let results = request.tool_results();
    results
        .into_iter()
        .map(|result| result.text.clone())
        .collect()
}

const OPEN: &str = "security:\n  allow_private_urls: true\n";

#[test]
fn a_page_is_read_and_summarised() {
    let (site, setup) = (site(), CliHarness::with_config(OPEN));
    setup.server.push_all([
        call(
            "web_extract",
            &json!({ "urls": [site.url("/moved"), site.url("/gone")] }),
        ),
        Reply::text("Tides come twice a day."),
    ]);
    let finished = setup.run(["-z", "what do they say about tides?"]).ok();
    assert!(finished.stdout.contains("Tides come twice a day."));
    let requests = setup.server.requests();
    let result = &results(&requests[1])[0];
    assert!(
        result.contains("twice a day") && result.contains("there is no such page"),
        "{result}"
    );
    assert!(!result.contains("Imprint"), "{result}");
    assert!(
        result.contains(&site.url("/tides")),
        "where it was found: {result}"
    );
}

#[test]
fn what_the_web_says_is_marked_as_not_ours() {
    let (site, setup) = (site(), CliHarness::with_config(OPEN));
    setup.server.push_all([
        call("web_extract", &json!({ "urls": [site.url("/tides")] })),
        Reply::text("done"),
    ]);
    drop(setup.run(["-z", "read"]).ok());
    let requests = setup.server.requests();
    let result = &results(&requests[1])[0];
    assert!(result.contains("untrusted"), "{result}");
}

#[test]
fn the_inside_is_refused_by_default_and_metadata_always() {
    for (config, path) in [("", "/tides"), (OPEN, "/inside")] {
        let (site, setup) = (site(), CliHarness::with_config(config));
        setup.server.push_all([
            call("web_extract", &json!({ "urls": [site.url(path)] })),
            Reply::text("could not"),
        ]);
        drop(setup.run(["-z", "read it"]).ok());
        let requests = setup.server.requests();
        let result = &results(&requests[1])[0];
        assert!(result.contains("Blocked"), "{result}");
        assert_eq!(site.asked().len(), usize::from(path == "/inside"));
    }
}

#[test]
fn a_long_page_can_be_paged_through() {
    let (site, setup) = (site(), CliHarness::with_config(OPEN));
    setup.server.push_all([
        call("web_extract", &json!({ "urls": [site.url("/long")] })),
        Reply::text("long"),
    ]);
    drop(setup.run(["-z", "read it"]).ok());
    let requests = setup.server.requests();
    let result = &results(&requests[1])[0];
    assert!(result.contains("measurement 1") && result.contains("measurement 5000"));
    assert!(!result.contains("measurement 2500"));
    let kept: Vec<_> = std::fs::read_dir(setup.home.join("cache/web"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(kept.len(), 1);
    let text = std::fs::read_to_string(kept[0].path()).unwrap();
    assert!(text.contains("measurement 2500"));
    assert!(result.contains(&*kept[0].path().to_string_lossy()));
}

#[test]
fn the_persons_own_search_service_is_asked() {
    let (site, setup) = (site(), CliHarness::new());
    setup
        .home
        .env_file(&format!("SEARXNG_URL={}\n", site.url("")));
    setup.server.push_all([
        call("web_search", &json!({ "query": "tides" })),
        Reply::text("found"),
    ]);
    drop(setup.run(["-z", "search"]).ok());
    let requests = setup.server.requests();
    let result = &results(&requests[1])[0];
    assert!(result.contains("https://example.org/tides"), "{result}");
    assert!(site.asked()[0].path.contains("q=tides"));
}

#[test]
fn secrets_of_the_home_do_not_leave_in_addresses() {
    let (site, setup) = (site(), CliHarness::with_config(OPEN));
    setup
        .home
        .env_file("SOME_API_KEY=correct-horse-battery-staple\n");
    setup.server.push_all([
        call(
            "web_extract",
            &json!({ "urls": [site.url("/?x=correct-horse-battery-staple")] }),
        ),
        Reply::text("no"),
    ]);
    drop(setup.run(["-z", "send it"]).ok());
    let requests = setup.server.requests();
    assert!(results(&requests[1])[0].contains("Blocked"));
    assert!(site.asked().is_empty());
}

#[test]
fn the_blocklist_of_the_home_holds() {
    let more = "security:\n  allow_private_urls: true\n  website_blocklist:\n    enabled: true\n    shared_files: [lists/bad.txt]\n";
    let (site, setup) = (site(), CliHarness::with_config(more));
    setup
        .home
        .write("lists/bad.txt", "# not these\n127.0.0.1\n");
    setup.server.push_all([
        call("web_extract", &json!({ "urls": [site.url("/tides")] })),
        Reply::text("no"),
    ]);
    drop(setup.run(["-z", "read it"]).ok());
    let requests = setup.server.requests();
    let result = &results(&requests[1])[0];
    assert!(result.contains("blocked_by_policy"), "{result}");
    assert!(site.asked().is_empty());
}

/// A home whose model sees, with one pixel in the working directory.
fn seeing(format: &str) -> CliHarness {
    let setup = CliHarness::new();
    setup.home.config(&format!(
        "model:\n  default: scripted-model\n  provider: custom\n  base_url: {}\n  api_key: test-key\n  \
         context_length: 200000\n  supports_vision: true\n  api_mode: {format}\n\
         auxiliary:\n  title_generation:\n    enabled: false\n",
        setup.server.base_url()
    ));
    let pixel = base64::engine::general_purpose::STANDARD
        .decode(PIXEL)
        .unwrap();
    std::fs::write(setup.home.work().join("pixel.png"), pixel).unwrap();
    setup
}

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

fn ask(setup: &CliHarness) {
    let run = setup
        .program(["-z", "what is in the picture?"])
        .cwd(setup.home.work())
        .run();
    drop(run.ok());
}

#[test]
fn a_model_that_sees_is_shown_the_picture() {
    let setup = seeing("anthropic_messages");
    let look = json!({ "image_url": "pixel.png", "question": "Which colour?" });
    setup
        .server
        .push_all([call("vision_analyze", &look), Reply::text("red")]);
    ask(&setup);
    let requests = setup.server.requests();
    assert_eq!(requests.len(), 2);
    let sent = String::from_utf8_lossy(&requests[1].raw).into_owned();
    assert!(sent.contains(PIXEL), "{sent}");
}

#[test]
fn where_results_cannot_hold_pictures_a_helper_describes_them() {
    let setup = seeing("chat_completions");
    let look = json!({ "image_url": "pixel.png", "question": "Which colour?" });
    setup.server.push_all([
        call("vision_analyze", &look),
        Reply::text("It is one red pixel."),
        Reply::text("red"),
    ]);
    ask(&setup);
    let requests = setup.server.requests();
    assert_eq!(requests.len(), 3);
    let asked = String::from_utf8_lossy(&requests[1].raw).into_owned();
    assert!(asked.contains(PIXEL) && asked.contains("Which colour?"));
    let result = &results(&requests[2])[0];
    assert!(result.contains("It is one red pixel."), "{result}");
}

#[test]
fn pictures_are_no_way_around_the_rules_for_files() {
    let setup = seeing("anthropic_messages");
    setup
        .home
        .write("auth.json", "{\"key\": \"sk-very-secret\"}");
    std::os::unix::fs::symlink(
        setup.home.join("auth.json"),
        setup.home.work().join("cat.png"),
    )
    .unwrap();
    for path in [
        setup.home.join("auth.json").display().to_string(),
        "cat.png".to_owned(),
        "/proc/self/environ".to_owned(),
    ] {
        let before = setup.server.requests().len();
        setup.server.push_all([
            call(
                "vision_analyze",
                &json!({ "image_url": path, "question": "?" }),
            ),
            Reply::text("no"),
        ]);
        ask(&setup);
        let requests = setup.server.requests();
        let result = &results(&requests[before + 1])[0];
        assert!(result.contains("is not read"), "{path}: {result}");
    }
}
