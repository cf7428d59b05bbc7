//! A process that lives on while its servers do not.

use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::mcp_server::peers::{self, Peer};
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::with_server;
use crate::CliHarness;
use crate::line_chat::Terminal;

/// The model calls `tool` once per question and then says which question it was.
fn calls_each_time(setup: &CliHarness, tool: &'static str) {
    setup.server.answer_with(move |request| {
        if request.ends_with_tool_result() {
            Reply::text(&format!("heard {}", request.last_user_text()))
        } else {
            Reply::tool_call("c", tool, &json!({"message": "m", "text": "m"}))
        }
    });
}

fn errors(setup: &CliHarness) -> Vec<String> {
    let results = setup.server.last_request().tool_results();
    let texts = results.into_iter().map(|result| result.text);
    texts.filter(|text| text.contains("Error")).collect()
}

#[test]
fn a_server_restarted_between_two_turns() {
    let server = FaultyServer::start();
    let setup = with_server(&server, "");
    calls_each_time(&setup, "mcp__srv__echo");
    let Some(mut terminal) =
        Terminal::open(&setup.home, "mcp::a_server_restarted_between_two_turns")
    else {
        return;
    };
    terminal.type_line("one");
    terminal.wait_for("heard one", 1);
    server.restart();
    terminal.type_line("two");
    terminal.wait_for("heard two", 1);
    terminal.type_line("/mcp");
    terminal.wait_for("1 ok", 1);
    terminal.type_line("/mcp srv");
    terminal.wait_for("epoch         2", 1);
    terminal.type_line("/quit");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(errors(&setup), Vec::<String>::new());
}

#[test]
fn a_real_server_restarted_between_two_turns() {
    let test = "mcp::a_real_server_restarted_between_two_turns";
    let Some(peers) = peers::require(test) else {
        return;
    };
    let mut server = peers.start(Peer::Everything);
    let setup = CliHarness::with_config(&format!(
        "mcp_discovery_timeout: 30\nmcp_servers:\n  everything:\n    url: {}\n",
        server.url()
    ));
    calls_each_time(&setup, "mcp__everything__echo");
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    terminal.type_line("one");
    terminal.wait_for("heard one", 1);
    server.restart();
    terminal.type_line("two");
    terminal.wait_for("heard two", 1);
    terminal.type_line("/quit");
    terminal.leave();
    assert_eq!(errors(&setup), Vec::<String>::new());
}

#[test]
fn a_server_added_to_the_config_joins_at_the_next_turn() {
    let (first, second) = (FaultyServer::start(), FaultyServer::start());
    let setup = with_server(&first, "");
    setup.server.answer_with(|request| {
        let second = request.tool_names().contains(&"mcp__late__echo");
        Reply::text(&format!("{} late={second}", request.last_user_text()))
    });
    let Some(mut terminal) = Terminal::open(&setup.home, "mcp::a_server_added_to_the_config")
    else {
        return;
    };
    terminal.type_line("one");
    terminal.wait_for("one late=false", 1);
    let config = setup.home.read("config.yaml");
    setup
        .home
        .config(&format!("{config}  late:\n    url: {}\n", second.url()));
    // Read at a turn's beginning, connected in the background, there at a later turn.
    let joined = (0..50).any(|turn| {
        terminal.type_line(&format!("turn-{turn}"));
        terminal.wait_for(&format!("turn-{turn} late="), 1);
        second.block_until(|counts| counts.tool_lists >= 1);
        setup
            .server
            .last_request()
            .tool_names()
            .contains(&"mcp__late__echo")
    });
    assert!(joined);
    assert_eq!(
        first.counts().initializes,
        1,
        "the other server was not touched"
    );
    terminal.type_line("/quit");
    terminal.leave();
}
