//! The editor's terminals: commands of the agent run there, where the person sees and can stop them.
//!
//! What the editor starts is our own program, which sets the environment and the limits of the
//! command; the editor shows its output and reports its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, CreateTerminalRequest, KillTerminalRequest, ReleaseTerminalRequest,
    Terminal, TerminalExitStatus, TerminalId, TerminalOutputRequest, ToolCallContent,
    ToolCallUpdate, ToolCallUpdateFields, WaitForTerminalExitRequest,
};
use hermes_core::BoxFuture;
use hermes_core::command_host::{CommandHost, CommandHostError, HostedCommand, HostedEnd};
use tokio_util::sync::CancellationToken;

use crate::session::UpdateSink;

/// Timeout for everything but the end of the command.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The editor's side of a conversation's commands.
pub(crate) struct EditorTerminals {
    connection: ConnectionTo<Client>,
    /// Set once the conversation is open.
    outlet: OnceLock<UpdateSink>,
    /// Calls that the editor knows and that have not ended, with their terminal.
    calls: Mutex<HashMap<String, Option<TerminalId>>>,
}

impl EditorTerminals {
    /// `None`: the editor offers none.
    pub(crate) fn new(
        connection: ConnectionTo<Client>,
        client: &ClientCapabilities,
    ) -> Option<Arc<Self>> {
        client.terminal.then(|| {
            Arc::new(Self {
                connection,
                outlet: OnceLock::new(),
                calls: Mutex::default(),
            })
        })
    }

    pub(crate) fn opened(&self, outlet: UpdateSink) {
        // Set once: a conversation keeps the id known to its editor.
        let _ = self.outlet.set(outlet);
    }

    /// The editor was told of the call.
    pub(crate) fn started(&self, call: &str) {
        self.calls().entry(call.to_owned()).or_default();
    }

    /// The call ended: the content that shows its terminal, if it had one.
    pub(crate) fn ended(&self, call: &str) -> Option<Vec<ToolCallContent>> {
        self.calls().remove(call).flatten().map(content)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<String, Option<TerminalId>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(
        &self,
        command: HostedCommand,
    ) -> Result<(&UpdateSink, TerminalId), CommandHostError> {
        let refused = |why: String| CommandHostError::Refused(why);
        let outlet = self.outlet.get();
        let outlet = outlet.ok_or_else(|| refused("the conversation is not open".to_owned()))?;
        let Some(program) = command.program.to_str() else {
            return Err(refused("the path of hermes is not text".to_owned()));
        };
        outlet.gauge.room().await;
        let request = CreateTerminalRequest::new(outlet.session.clone(), program)
            .args(command.args)
            .cwd(command.cwd)
            .output_byte_limit(command.output_limit);
        let asked = self.connection.send_request(request).block_task();
        let created = match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(created)) => created,
            Ok(Err(error)) => return Err(refused(error.to_string())),
            // It may have started it.
            Err(_) => return Err(CommandHostError::Lost("it does not answer".to_owned())),
        };
        let id = created.terminal_id;
        let known = match self.calls().get_mut(&command.call_id) {
            Some(terminal) => terminal.replace(id.clone()).is_none(),
            None => false,
        };
        if known {
            let fields = ToolCallUpdateFields::new().content(content(id.clone()));
            outlet
                .call(ToolCallUpdate::new(command.call_id, fields))
                .await;
        }
        Ok((outlet, id))
    }

    async fn follow(
        &self,
        command: HostedCommand,
        stop: CancellationToken,
    ) -> Result<HostedEnd, CommandHostError> {
        let (outlet, id) = self.start(command).await?;
        let session = outlet.session.clone();
        let waiting = WaitForTerminalExitRequest::new(session.clone(), id.clone());
        let waiting = self.connection.send_request(waiting).block_task();
        tokio::pin!(waiting);
        let ended = tokio::select! {
            ended = &mut waiting => ended.map_err(|error| error.to_string()),
            () = stop.cancelled() => {
                let kill = KillTerminalRequest::new(session.clone(), id.clone());
                let killing = self.connection.send_request(kill).block_task();
                // If it cannot, the command is ended on our side.
                let _ = tokio::time::timeout(REQUEST_TIMEOUT, killing).await;
                match tokio::time::timeout(REQUEST_TIMEOUT, &mut waiting).await {
                    Ok(ended) => ended.map_err(|error| error.to_string()),
                    Err(_) => Err("it does not answer".to_owned()),
                }
            }
        };
        outlet.gauge.room().await;
        let output = TerminalOutputRequest::new(session.clone(), id.clone());
        let output = self.connection.send_request(output).block_task();
        let output = tokio::time::timeout(REQUEST_TIMEOUT, output).await;
        let release = ReleaseTerminalRequest::new(session, id);
        let release = self.connection.send_request(release).block_task();
        // It shows the terminal for as long as it likes.
        let _ = tokio::time::timeout(REQUEST_TIMEOUT, release).await;
        let output = match output {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(CommandHostError::Lost(error.to_string())),
            Err(_) => return Err(CommandHostError::Lost("it does not answer".to_owned())),
        };
        let status = match (ended, output.exit_status) {
            (Ok(ended), _) => ended.exit_status,
            (Err(_), Some(status)) => status,
            (Err(_), None) if stop.is_cancelled() => TerminalExitStatus::new(),
            (Err(why), None) => return Err(CommandHostError::Lost(why)),
        };
        Ok(HostedEnd {
            output: output.output,
            truncated: output.truncated,
            exit_code: status.exit_code.and_then(|code| i32::try_from(code).ok()),
            signal: status.signal,
        })
    }
}

fn content(id: TerminalId) -> Vec<ToolCallContent> {
    vec![ToolCallContent::Terminal(Terminal::new(id))]
}

impl CommandHost for EditorTerminals {
    fn run(
        &self,
        command: HostedCommand,
        stop: CancellationToken,
    ) -> BoxFuture<'_, Result<HostedEnd, CommandHostError>> {
        Box::pin(self.follow(command, stop))
    }
}
