//! Servers that ask back: the person, or the person's model.

use hermes_testkit::mcp_server::peers;
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::CliHarness;
use crate::line_chat::Terminal;

const FORM: &str = "mcp__everything__trigger_elicitation_request";
const SAMPLE: &str = "mcp__everything__trigger_sampling_request";

/// A home with the real server over stdio.
fn everything(test: &str, more: &str) -> Option<CliHarness> {
    let (program, args) = peers::require(test)?.everything_stdio();
    Some(CliHarness::with_config(&format!(
        "mcp_discovery_timeout: 30\nmcp_servers:\n  everything:\n    command: {}\n    args: {}\n{more}",
        program.display(),
        json!(args)
    )))
}

fn result(setup: &CliHarness) -> String {
    let results = setup.server.last_request().tool_results();
    results.last().unwrap().text.clone()
}

#[test]
fn without_a_person_a_question_is_declined_and_the_model_hears_why() {
    let Some(setup) = everything("mcp::asking::without_a_person", "") else {
        return;
    };
    setup.server.push(Reply::tool_call("c", FORM, &json!({})));
    setup.server.push(Reply::text("done"));
    let done = setup.run(["-z", "ask"]).ok();
    assert_eq!(done.stdout, "done\n", "{}", done.stderr);
    let text = result(&setup);
    assert!(text.contains("nobody is here to answer"), "{text}");
    assert!(text.contains("declined"), "{text}");
}

#[test]
fn the_person_fills_in_the_form_of_a_real_server() {
    let test = "mcp::asking::the_person_fills_in";
    let Some(setup) = everything(test, "") else {
        return;
    };
    setup.server.answer_with(|request| {
        if request.ends_with_tool_result() {
            Reply::text("heard it")
        } else {
            Reply::tool_call("c", FORM, &json!({}))
        }
    });
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    terminal.type_line("go");
    terminal.wait_for("MCP server everything asks:", 1);
    terminal.wait_for("String: Your full, legal name", 1);
    terminal.press("Ada Lovelace\r");
    terminal.wait_for("Agree to the terms", 1);
    terminal.press("maybe\r");
    terminal.wait_for("y or n is needed", 1);
    // Only when it asks again: what is typed before would count as an answer to the next field.
    terminal.wait_for("Agree to the terms", 2);
    terminal.press("y\r");
    // Defaults from here on, each once it is asked for.
    for field in [
        "String with default:",
        "String with email format:",
        "String with uri format:",
        "String with date format:",
        "Integer:",
        "Number in range",
        "Untitled Single Select Enum:",
        "Untitled Multiple Select Enum:",
        "  Titled Single Select Enum:",
        "  Titled Multiple Select Enum:",
        "Legacy Titled Single Select Enum:",
    ] {
        terminal.wait_for(field, 1);
        terminal.press("\r");
    }
    terminal.wait_for("heard it", 1);
    terminal.type_line("/mcp everything");
    terminal.wait_for("1x elicitation/form/accept", 1);
    terminal.type_line("/quit");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    let text = result(&setup);
    assert!(text.contains("Ada Lovelace"), "{text}");
    assert!(text.contains("hero-1"), "defaults are sent: {text}");
}

#[test]
fn an_interrupt_ends_an_open_question() {
    let test = "mcp::asking::an_interrupt";
    let Some(setup) = everything(test, "") else {
        return;
    };
    setup.server.answer_with(|request| {
        if request.last_user_text().contains("again") {
            Reply::text("here I am")
        } else {
            Reply::tool_call("c", FORM, &json!({}))
        }
    });
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    terminal.type_line("go");
    terminal.wait_for("String: Your full, legal name", 1);
    terminal.press("\x03");
    terminal.type_line("again");
    terminal.wait_for("here I am", 1);
    terminal.type_line("/quit");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
}

#[test]
fn a_server_borrows_the_model_only_where_that_is_allowed() {
    let test = "mcp::asking::a_server_borrows_the_model";
    let Some(setup) = everything(test, "") else {
        return;
    };
    setup.server.push(Reply::text("done"));
    let looked = setup.run(["-z", "look"]).ok();
    assert_eq!(looked.stdout, "done\n");
    let offered = setup.server.last_request();
    assert!(offered.tool_names().contains(&FORM));
    assert!(!offered.tool_names().contains(&SAMPLE), "off by default");

    let more = "    sampling:\n      enabled: true\n      max_tokens_cap: 77\n";
    let Some(setup) = everything(test, more) else {
        return;
    };
    setup.server.answer_with(|request| {
        if request.last_user_text().contains("context: what is up") {
            Reply::text("words of the model")
        } else if request.ends_with_tool_result() {
            Reply::text("done")
        } else {
            Reply::tool_call(
                "c",
                SAMPLE,
                &json!({"prompt": "what is up", "maxTokens": 9000}),
            )
        }
    });
    let done = setup.run(["-z", "sample"]).ok();
    assert_eq!(done.stdout, "done\n", "{}", done.stderr);
    let text = result(&setup);
    assert!(text.contains("words of the model"), "{text}");
    let requests = setup.server.requests();
    let sampled = requests
        .iter()
        .find(|request| request.last_user_text().contains("context: what is up"))
        .unwrap();
    assert!(
        sampled.body_text().contains("77"),
        "{}",
        sampled.body_text()
    );
    assert!(sampled.tool_names().is_empty());
}
