//! A dead MCP server is seen, and seen again when it is back.

use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;

use super::{at, quit, ready, say};
use crate::CliHarness;

#[test]
fn a_dead_server_is_visible_and_recovers_without_a_restart() {
    let server = FaultyServer::start();
    server.go_down();
    let config = format!("mcp_servers:\n  srv:\n    url: {}\n", server.url());
    let setup = CliHarness::with_config(&config);
    setup.server.push_default(Reply::text("hello"));
    let mut terminal = at(&setup.home).size(100, 30).start();
    ready(&terminal);
    // In the banner or the line below: how many of how many.
    terminal.wait_for("mcp 0/1");
    // And by its name, with the reason.
    terminal.wait_for("MCP server srv is down");
    server.come_up();
    say(&mut terminal, "/reload-mcp");
    terminal.wait_for("reconnecting all servers");
    terminal.wait_for("mcp 1/1");
    terminal.wait_for("MCP server srv is connected again");
    server.go_down();
    say(&mut terminal, "/mcp reconnect srv");
    terminal.wait_for("reconnecting srv");
    terminal.wait_for("mcp 0/1");
    assert_eq!(quit(terminal).0, 0);
}
