//! Handles notifications and requests from the server.
#![expect(
    deprecated,
    reason = "sampling and logging are deprecated in 2026-07-28, but older servers use them"
)]

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    CustomRequest, CustomResult, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorCode,
    ErrorData, Implementation, LoggingMessageNotificationParam, ProgressNotificationParam,
    ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ConnectionShared;
use crate::actor::call_origin::{CallOrigin, Slot};
use crate::transport::connect::ServerRequests;
use crate::transport::link::LinkEvent;

/// Longer log messages of a server are truncated.
const LOG_CHARS: usize = 2000;

#[derive(Clone)]
pub(crate) struct Handler {
    pub(crate) shared: Arc<ConnectionShared>,
    pub(crate) requests: Option<Arc<dyn ServerRequests>>,
    pub(crate) info: ClientConfig,
}

/// Our announcement in the handshake. The version is the newest one that has a handshake: servers
/// refuse 2026-07-28 in `initialize`.
pub(crate) fn client_info(
    name: &str,
    version: &str,
    requests: Option<&Arc<dyn ServerRequests>>,
) -> ClientConfig {
    let capabilities = requests
        .map(|requests| requests.capabilities())
        .and_then(|declared| serde_json::from_value::<ClientCapabilities>(declared).ok())
        .unwrap_or_default();
    let mut info = ClientConfig::new(capabilities, Implementation::new(name, version));
    info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    info
}

impl Handler {
    /// Answers one request of the server, as JSON.
    pub(crate) async fn answer(
        &self,
        method: &str,
        params: Value,
        caller: Result<(CallOrigin, Option<Slot>), String>,
    ) -> Result<Value, ErrorData> {
        if method == "roots/list" {
            return Ok(serde_json::json!({ "roots": [] }));
        }
        let Some(requests) = &self.requests else {
            if method == "elicitation/create" {
                return Ok(serde_json::json!({ "action": "decline" }));
            }
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                format!("this client does not offer {method}"),
                None,
            ));
        };
        // While the user decides, the timeout of the call pauses and its slot is free.
        let asks = method == "elicitation/create";
        let _asking = asks.then(|| self.shared.user_wait.ask());
        let slot = caller.as_ref().ok().and_then(|(_, slot)| slot.as_ref());
        let _paused = slot.filter(|_| asks).map(Slot::pause);
        let asker = caller.map(|(origin, _)| origin.asker);
        let answer = tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => {
                return Err(ErrorData::internal_error("the connection is closed", None));
            }
            answer = requests.answer(method, params, asker) => answer,
        };
        answer.map_err(|declined| {
            let code = ErrorCode(declined.code);
            ErrorData::new(code, declined.message, None)
        })
    }

    /// Answers a request that the server makes during a call, unless the server cancels it.
    async fn answer_in_call(
        &self,
        method: &str,
        params: Value,
        context: &RequestContext<RoleClient>,
    ) -> Result<Value, ErrorData> {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                Err(ErrorData::internal_error("the question was withdrawn", None))
            }
            answer = self.answer(method, params, self.shared.active_calls.only_conversation()) => answer,
        }
    }

    async fn typed<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: P,
        context: &RequestContext<RoleClient>,
    ) -> Result<R, ErrorData> {
        let broken = |error| ErrorData::internal_error(format!("{method}: {error}"), None);
        let params = serde_json::to_value(params).map_err(broken)?;
        let answer = self.answer_in_call(method, params, context).await?;
        serde_json::from_value(answer).map_err(broken)
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.typed("sampling/createMessage", params, &context).await
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if self.requests.is_none() {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        self.typed("elicitation/create", request, &context).await
    }

    /// Requests that rmcp's types do not accept, e.g. a form with a field of an unknown kind: the
    /// server gets our reason instead of "no such method".
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.unwrap_or(Value::Null);
        let answer = self
            .answer_in_call(&request.method, params, &context)
            .await?;
        Ok(CustomResult(answer))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let text = match (&params.message, params.total) {
            (Some(message), _) => message.clone(),
            (None, Some(total)) => format!("{} of {total}", params.progress),
            (None, None) => params.progress.to_string(),
        };
        self.shared.progress.report(&params.progress_token, text);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let text = match params.data {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let level = serde_json::to_value(params.level)
            .ok()
            .and_then(|level| level.as_str().map(str::to_owned))
            .unwrap_or_default();
        self.shared.send_event(LinkEvent::Log {
            level,
            text: text.chars().take(LOG_CHARS).collect(),
        });
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.shared.list_changed(&LinkEvent::ResourcesChanged);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.shared.list_changed(&LinkEvent::ToolsChanged);
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.shared.list_changed(&LinkEvent::PromptsChanged);
    }
}
