//! An editor of the tests: the protocol's own client at the built binary.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ClientSessionCapabilities, ContentBlock, ContentChunk,
    CreateTerminalRequest, CreateTerminalResponse, InitializeRequest, InitializeResponse,
    KillTerminalRequest, KillTerminalResponse, NewSessionRequest, PermissionOptionId,
    PromptRequest, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionNotification, SessionUpdate,
    StopReason, TerminalOutputRequest, TextContent, ToolCall, ToolCallUpdateFields,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest,
    WriteTextFileResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, Lines};
use futures_util::{sink, stream};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use super::terminals::TerminalBench;
use crate::CliHarness;

/// What the editor was told.
#[derive(Default)]
pub(super) struct SeenUpdates {
    pub(super) updates: Mutex<Vec<SessionNotification>>,
    pub(super) asked: Mutex<Vec<RequestPermissionRequest>>,
    /// Questions that nobody answers.
    held: Mutex<Vec<Responder<RequestPermissionResponse>>>,
    changed: Notify,
    /// Files that the editor has open, with what is in them.
    pub(super) buffers: Mutex<HashMap<PathBuf, String>>,
    /// Files that it was asked to save.
    pub(super) saved: Mutex<Vec<PathBuf>>,
    /// It creates files, too.
    pub(super) creates: AtomicBool,
    pub(super) terminals: TerminalBench,
}

fn text(chunk: &ContentChunk) -> String {
    match &chunk.content {
        ContentBlock::Text(text) => text.text.clone(),
        other => format!("{other:?}"),
    }
}

impl SeenUpdates {
    fn of<T>(&self, session: &str, take: impl Fn(&SessionUpdate) -> Option<T>) -> Vec<T> {
        let updates = self.updates.lock().unwrap();
        let own = updates.iter().filter(|u| &*u.session_id.0 == session);
        own.filter_map(|update| take(&update.update)).collect()
    }

    /// What the agent said.
    pub(super) fn text(&self, session: &str) -> String {
        let said = self.of(session, |update| match update {
            SessionUpdate::AgentMessageChunk(chunk) => Some(text(chunk)),
            _ => None,
        });
        said.concat()
    }

    /// The same, once.
    pub(super) fn take_text(&self, session: &str) -> String {
        let said = self.text(session);
        self.updates.lock().unwrap().clear();
        said
    }

    pub(super) fn thoughts(&self, session: &str) -> String {
        let said = self.of(session, |update| match update {
            SessionUpdate::AgentThoughtChunk(chunk) => Some(text(chunk)),
            _ => None,
        });
        said.concat()
    }

    pub(super) fn kinds(&self, session: &str) -> Vec<&'static str> {
        self.of(session, |update| {
            Some(match update {
                SessionUpdate::UserMessageChunk(_) => "user",
                SessionUpdate::AgentMessageChunk(_) => "agent",
                SessionUpdate::ToolCall(_) => "call",
                _ => "other",
            })
        })
    }

    pub(super) fn find<T>(&self, take: impl Fn(&SessionUpdate) -> Option<T>) -> Option<T> {
        let updates = self.updates.lock().unwrap();
        updates.iter().find_map(|update| take(&update.update))
    }

    pub(super) fn call(&self, id: &str) -> ToolCall {
        self.find(|update| match update {
            SessionUpdate::ToolCall(call) if &*call.tool_call_id.0 == id => Some(call.clone()),
            _ => None,
        })
        .expect("the call was told")
    }

    /// The last update of a call.
    pub(super) fn ended(&self, id: &str) -> ToolCallUpdateFields {
        let updates = self.updates.lock().unwrap();
        let found = updates
            .iter()
            .rev()
            .find_map(|update| match &update.update {
                SessionUpdate::ToolCallUpdate(update) if &*update.tool_call_id.0 == id => {
                    Some(update.fields.clone())
                }
                _ => None,
            });
        found.expect("the call was told of")
    }

    fn read(&self, path: &Path) -> Result<ReadTextFileResponse, Error> {
        let text = self.buffers.lock().unwrap().get(path).cloned();
        text.map(ReadTextFileResponse::new)
            .ok_or_else(Error::internal_error)
    }

    /// Saves what it has open, and nothing else.
    fn write(&self, request: WriteTextFileRequest) -> Result<WriteTextFileResponse, Error> {
        let mut buffers = self.buffers.lock().unwrap();
        if !buffers.contains_key(&request.path) && !self.creates.load(Ordering::Relaxed) {
            return Err(Error::internal_error());
        }
        std::fs::write(&request.path, &request.content).unwrap();
        buffers.insert(request.path.clone(), request.content);
        self.saved.lock().unwrap().push(request.path);
        Ok(WriteTextFileResponse::new())
    }

    pub(super) async fn until(&self, enough: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if enough(self) {
                return;
            }
            changed.await;
        }
    }
}

/// An editor that always presses the same button.
pub(super) struct EditorHarness<'a> {
    setup: &'a CliHarness,
    option: Option<&'static str>,
    silent: bool,
}

impl<'a> EditorHarness<'a> {
    pub(super) fn new(setup: &'a CliHarness) -> Self {
        Self {
            setup,
            option: None,
            silent: false,
        }
    }

    /// Questions stay open.
    pub(super) fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// What is answered to questions for permission; without it they are dismissed.
    pub(super) fn pressing(mut self, option: &'static str) -> Self {
        self.option = Some(option);
        self
    }

    /// Holds a connection as long as `work` takes; the program has ended then.
    #[expect(
        clippy::too_many_lines,
        reason = "one handler for each method; each changes the type of the connection"
    )]
    pub(super) async fn run<T>(
        &self,
        work: impl AsyncFnOnce(ConnectionTo<Agent>, Arc<SeenUpdates>) -> T,
    ) -> T {
        let mut child = start(self.setup);
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let outgoing = sink::unfold(input, async |mut input, line: String| {
            input.write_all(format!("{line}\n").as_bytes()).await?;
            Ok::<_, std::io::Error>(input)
        });
        let lines = BufReader::new(output).lines();
        let incoming = stream::unfold(lines, async |mut lines| {
            let line = lines.next_line().await.transpose()?;
            if let Ok(line) = &line {
                let value = serde_json::from_str::<serde_json::Value>(line);
                assert!(value.is_ok(), "stdout is for JSON-RPC only: {line}");
            }
            Some((line, lines))
        });
        let seen = Arc::new(SeenUpdates::default());
        let (told, asked, shown) = (seen.clone(), seen.clone(), seen.clone());
        let (reading, writing) = (seen.clone(), seen.clone());
        let [creating, waiting, ending, showing, releasing] = std::array::from_fn(|_| seen.clone());
        let (option, silent) = (self.option, self.silent);
        let done = Client
            .v1()
            .on_receive_notification(
                async move |update: SessionNotification, _: ConnectionTo<Agent>| {
                    told.updates.lock().unwrap().push(update);
                    told.changed.notify_waiters();
                    Ok(())
                },
                agent_client_protocol::on_receive_notification!(),
            )
            .on_receive_request(
                async move |request: RequestPermissionRequest,
                            responder,
                            _: ConnectionTo<Agent>| {
                    asked.asked.lock().unwrap().push(request);
                    asked.changed.notify_waiters();
                    if silent {
                        asked.held.lock().unwrap().push(responder);
                        return Ok(());
                    }
                    let outcome = match option {
                        Some(id) => RequestPermissionOutcome::Selected(
                            SelectedPermissionOutcome::new(PermissionOptionId::new(id)),
                        ),
                        None => RequestPermissionOutcome::Cancelled,
                    };
                    responder.respond(RequestPermissionResponse::new(outcome))
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReadTextFileRequest, responder, _: ConnectionTo<Agent>| {
                    responder.respond_with_result(reading.read(&request.path))
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WriteTextFileRequest, responder, _: ConnectionTo<Agent>| {
                    responder.respond_with_result(writing.write(request))
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: CreateTerminalRequest, responder, _: ConnectionTo<Agent>| {
                    let id = creating.terminals.create(request);
                    responder.respond(CreateTerminalResponse::new(id))
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WaitForTerminalExitRequest,
                            responder,
                            _: ConnectionTo<Agent>| {
                    let waiting = waiting.clone();
                    hermes_core::task::spawn("exit of a terminal", async move {
                        let exit = waiting.terminals.wait(&request.terminal_id.0).await;
                        responder.respond(WaitForTerminalExitResponse::new(exit))
                    });
                    Ok(())
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: KillTerminalRequest, responder, _: ConnectionTo<Agent>| {
                    ending.terminals.kill(&request.terminal_id.0);
                    responder.respond(KillTerminalResponse::new())
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: TerminalOutputRequest, responder, _: ConnectionTo<Agent>| {
                    responder.respond(showing.terminals.output(&request.terminal_id.0))
                },
                agent_client_protocol::on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReleaseTerminalRequest, responder, _: ConnectionTo<Agent>| {
                    let id = request.terminal_id.0.to_string();
                    releasing.terminals.released.lock().unwrap().push(id);
                    responder.respond(ReleaseTerminalResponse::new())
                },
                agent_client_protocol::on_receive_request!(),
            )
            .connect_with(
                Lines::new(Box::pin(outgoing), Box::pin(incoming)),
                async |cx: ConnectionTo<Agent>| Ok(work(cx, shown).await),
            )
            .await
            .unwrap();
        let status = child.wait().await.unwrap();
        assert_eq!(status.code(), Some(0), "it ends with its editor");
        done
    }
}

pub(super) fn start(setup: &CliHarness) -> Child {
    Command::new(env!("CARGO_BIN_EXE_hermes"))
        .arg("acp")
        .env_clear()
        .envs(setup.home.vars())
        // Elsewhere than the project: the editor says where that is.
        .current_dir(setup.home.user())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// As an editor of these days.
pub(super) async fn initialize(cx: &ConnectionTo<Agent>) -> InitializeResponse {
    let session = ClientSessionCapabilities::new();
    let capabilities = ClientCapabilities::new().session(session);
    initialize_as(cx, capabilities).await
}

pub(super) async fn initialize_as(
    cx: &ConnectionTo<Agent>,
    capabilities: ClientCapabilities,
) -> InitializeResponse {
    let request = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities);
    cx.send_request(request).block_task().await.unwrap()
}

/// A new session in `cwd`.
pub(super) async fn begin(cx: &ConnectionTo<Agent>, cwd: &Path) -> String {
    initialize(cx).await;
    let session = cx
        .send_request(NewSessionRequest::new(cwd))
        .block_task()
        .await
        .unwrap();
    session.session_id.0.to_string()
}

pub(super) async fn prompt(
    cx: &ConnectionTo<Agent>,
    session: &str,
    text: &str,
) -> Result<StopReason, Error> {
    let blocks = vec![ContentBlock::Text(TextContent::new(text))];
    let request = PromptRequest::new(session.to_owned(), blocks);
    let response = cx.send_request(request).block_task().await?;
    Ok(response.stop_reason)
}
