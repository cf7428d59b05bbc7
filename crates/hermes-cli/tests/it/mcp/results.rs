//! Everything a real server can answer with, as the model reads it.

use hermes_testkit::mcp_server::peers;
use hermes_testkit::model_server::Reply;
use serde_json::{Value, json};

use crate::CliHarness;

/// What the model read after calling a tool of the real server.
fn called(setup: &CliHarness, tool: &str, arguments: &Value) -> String {
    let name = format!("mcp__everything__{tool}");
    setup.server.push(Reply::tool_call("c", &name, arguments));
    setup.server.push(Reply::text("done"));
    let done = setup.run(["-z", "go"]).ok();
    assert_eq!(done.stdout, "done\n", "{}", done.stderr);
    let results = setup.server.last_request().tool_results();
    results.last().unwrap().text.clone()
}

fn everything(test: &str, more: &str) -> Option<CliHarness> {
    let (program, args) = peers::require(test)?.everything_stdio();
    Some(CliHarness::with_config(&format!(
        "mcp_discovery_timeout: 30\nmcp_servers:\n  everything:\n    command: {}\n    args: {}\n{more}",
        program.display(),
        json!(args)
    )))
}

#[test]
fn images_links_structure_and_resources_of_a_real_server() {
    let Some(setup) = everything("mcp::results::images_links", "") else {
        return;
    };
    let image = called(&setup, "get_tiny_image", &json!({}));
    let path = image
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/'))
        .find(|word| word.contains("/cache/mcp/"))
        .unwrap_or_else(|| panic!("no file in {image}"));
    let saved = std::fs::read(path).unwrap();
    assert!(saved.starts_with(b"\x89PNG"), "{path}");
    let structured = called(
        &setup,
        "get_structured_content",
        &json!({"location": "New York"}),
    );
    assert!(structured.contains("temperature"), "{structured}");
    let links = called(&setup, "get_resource_links", &json!({"count": 2}));
    assert!(links.contains("demo://resource/"), "{links}");
    let referenced = json!({"resourceType": "Text", "resourceId": 1});
    let resource = called(&setup, "get_resource_reference", &referenced);
    assert!(resource.contains("demo://resource/"), "{resource}");
}

#[test]
fn progress_keeps_a_long_call_alive() {
    let more = "    timeout: 1.5\n    max_timeout: 60\n";
    let Some(setup) = everything("mcp::results::progress_keeps", more) else {
        return;
    };
    let long = json!({"duration": 4, "steps": 8});
    let text = called(&setup, "trigger_long_running_operation", &long);
    assert!(text.contains("completed"), "{text}");
}

#[test]
fn a_long_answer_is_spilled_to_a_file() {
    let Some(setup) = everything("mcp::results::a_long_answer", "") else {
        return;
    };
    let message = "long ".repeat(60_000);
    let text = called(&setup, "echo", &json!({ "message": message }));
    assert!(text.len() < message.len() / 2, "{}", text.len());
    let named = text.split('"').find(|word| word.contains("/tool-results/"));
    let path = named.unwrap_or_else(|| panic!("no file in {text:.600}"));
    let whole = std::fs::read_to_string(path).unwrap();
    assert!(whole.contains(message.trim()), "{path}");
}
