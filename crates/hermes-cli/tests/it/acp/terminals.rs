//! Commands in the editor's terminals: they run there, with the limits that they have everywhere.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use agent_client_protocol::Agent;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ClientSessionCapabilities, CreateTerminalRequest,
    NewSessionRequest, SessionUpdate, StopReason, TerminalExitStatus, TerminalOutputResponse,
    ToolCallContent, ToolCallStatus,
};
use hermes_testkit::directories::beyond_temporary;
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::editor::{EditorHarness, initialize_as, prompt};
use crate::CliHarness;

/// The terminals of the editor of the tests. They really run what they are asked to.
#[derive(Default)]
pub(super) struct TerminalBench {
    all: Mutex<HashMap<String, Arc<BenchTerminal>>>,
    pub(super) created: Mutex<Vec<CreateTerminalRequest>>,
    pub(super) released: Mutex<Vec<String>>,
}

pub(super) struct BenchTerminal {
    output: tempfile::NamedTempFile,
    exit: watch::Sender<Option<TerminalExitStatus>>,
    kill: Notify,
}

impl TerminalBench {
    pub(super) fn create(&self, request: CreateTerminalRequest) -> String {
        let output = tempfile::NamedTempFile::new().unwrap();
        let file = || File::options().append(true).open(output.path()).unwrap();
        let mut child = tokio::process::Command::new(&request.command)
            .args(&request.args)
            .current_dir(request.cwd.as_ref().unwrap())
            .env("EDITORS_SECRET", "sk-editor-0123456789")
            .stdin(Stdio::null())
            .stdout(file())
            .stderr(file())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let terminal = Arc::new(BenchTerminal {
            output,
            exit: watch::Sender::new(None),
            kill: Notify::new(),
        });
        let mut created = self.created.lock().unwrap();
        let id = format!("term{}", created.len());
        created.push(request);
        let all = &mut self.all.lock().unwrap();
        all.insert(id.clone(), Arc::clone(&terminal));
        hermes_core::task::spawn("terminal of an editor", async move {
            let status = tokio::select! {
                status = child.wait() => status.unwrap(),
                () = terminal.kill.notified() => {
                    child.start_kill().unwrap();
                    child.wait().await.unwrap()
                }
            };
            let mut exit = TerminalExitStatus::new();
            exit.exit_code = status.code().map(i32::cast_unsigned);
            exit.signal = status.signal().map(|signal| signal.to_string());
            terminal.exit.send_replace(Some(exit));
        });
        id
    }

    fn of(&self, id: &str) -> Arc<BenchTerminal> {
        Arc::clone(&self.all.lock().unwrap()[id])
    }

    pub(super) async fn wait(&self, id: &str) -> TerminalExitStatus {
        let mut exit = self.of(id).exit.subscribe();
        let exit = exit.wait_for(Option::is_some).await.unwrap();
        exit.clone().unwrap()
    }

    pub(super) fn kill(&self, id: &str) {
        self.of(id).kill.notify_one();
    }

    pub(super) fn output(&self, id: &str) -> TerminalOutputResponse {
        let text = std::fs::read_to_string(self.of(id).output.path()).unwrap();
        TerminalOutputResponse::new(text, false)
    }
}

async fn open(cx: &ConnectionTo<Agent>, setup: &CliHarness) -> String {
    let client = ClientCapabilities::new()
        .session(ClientSessionCapabilities::new())
        .terminal(true);
    initialize_as(cx, client).await;
    let session = NewSessionRequest::new(setup.home.work());
    let session = cx.send_request(session).block_task().await.unwrap();
    session.session_id.0.to_string()
}

/// The results of the calls, as the model received them.
fn results(setup: &CliHarness) -> Vec<Value> {
    let last = setup.server.last_request();
    let results = last.tool_results();
    let parsed = results
        .iter()
        .map(|result| serde_json::from_str(&result.text));
    parsed.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn commands_run_in_the_editors_terminals() {
    let setup = CliHarness::new();
    let command =
        "echo out; echo err >&2; echo \"secret:$EDITORS_SECRET\"; export KEPT=yes; exit 3";
    setup.server.push_all([
        Reply::tool_call("c1", "terminal", &json!({"command": command})),
        Reply::tool_call(
            "c2",
            "terminal",
            &json!({"command": "echo \"kept:$KEPT\"; tty"}),
        ),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            let id = open(&cx, &setup).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            let created = seen.terminals.created.lock().unwrap().clone();
            assert_eq!(created.len(), 2);
            assert_eq!(created[0].cwd, Some(setup.home.work()));
            assert_eq!(created[0].args.last().unwrap(), command);
            let released = seen.terminals.released.lock().unwrap().clone();
            assert_eq!(released, ["term0", "term1"]);
            let shows = |content: &[ToolCallContent]| {
                matches!(content, [ToolCallContent::Terminal(t)] if &*t.terminal_id.0 == "term0")
            };
            assert!(shows(&seen.ended("c1").content.unwrap()));
            let during = seen.find(|update| match update {
                SessionUpdate::ToolCallUpdate(update) if &*update.tool_call_id.0 == "c1" => {
                    Some(update.fields.clone())
                }
                _ => None,
            });
            assert!(shows(&during.unwrap().content.unwrap()));
        })
        .await;
    let [first, second] = &results(&setup)[..] else {
        panic!("two results");
    };
    // The editor's own variables do not reach the command.
    assert_eq!(first["output"], "out\nerr\nsecret:");
    assert_eq!(first["exit_code"], 3);
    let output = second["output"].as_str().unwrap();
    assert!(output.contains("kept:yes"), "{output}");
    assert!(output.contains("not a tty"), "{output}");
}

/// The limits of a command do not depend on who starts it.
#[tokio::test]
async fn the_sandbox_holds_in_the_editors_terminals() {
    let setup = CliHarness::new();
    // Temporary directories can be written.
    let elsewhere = beyond_temporary(env!("CARGO_TARGET_TMPDIR"));
    let outside = elsewhere.path().join("outside.txt");
    let script = format!("echo x > {}", outside.display());
    std::fs::write(setup.home.work().join("write.sh"), script).unwrap();
    setup.server.push_all([
        Reply::tool_call("c1", "terminal", &json!({"command": "bash write.sh"})),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            let id = open(&cx, &setup).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert_eq!(seen.terminals.created.lock().unwrap().len(), 1);
        })
        .await;
    assert!(!outside.exists());
}

#[tokio::test]
async fn a_cancelled_command_is_killed_there() {
    let setup = CliHarness::new();
    let begun = setup.home.work().join("begun");
    let command = format!("touch {}; sleep 600", begun.display());
    setup.server.push_all([
        Reply::tool_call("c1", "terminal", &json!({"command": command})),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            let id = open(&cx, &setup).await;
            let turn = prompt(&cx, &id, "go");
            let stop = async {
                while !begun.exists() {
                    tokio::task::yield_now().await;
                }
                cx.send_notification(CancelNotification::new(id.clone()))
                    .unwrap();
            };
            let (ended, ()) = tokio::join!(turn, stop);
            assert_eq!(ended, Ok(StopReason::Cancelled));
            assert_eq!(seen.ended("c1").status, Some(ToolCallStatus::Failed));
            let exit = seen.terminals.wait("term0").await;
            assert!(exit.exit_code != Some(0), "{exit:?}");
        })
        .await;
}
