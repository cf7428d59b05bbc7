//! A live connection over rmcp.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_core::BoxFuture;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientRequest, CustomRequest, ErrorData,
    ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::wire::{self, Pages};
use super::{ConnectionShared, Handler};
use crate::actor::call_origin::{CallOrigin, Slot};
use crate::actor::op::{Op, OpOutput};
use crate::failure::classify::{self, TransportBreak};
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::connect::HttpClients;
use crate::transport::http::RmcpFault;
use crate::transport::link::{Era, Link, LinkCall, LinkFacts, TransportKind};
use crate::transport::stdio::Child;

/// How often a list that is refused right after the handshake is requested again in the same
/// session. A lost session deserves no more requests, and a load balancer gets new sessions.
const MAX_LIST_RETRIES: usize = 3;

/// How often a server may request more input before its answer.
const MAX_ROUNDS: usize = 10;

/// An answer that was read just before the connection failed still counts.
const FINAL_READ_TIMEOUT: Duration = Duration::from_millis(250);

/// A cancellation is sent within this time or not at all; no caller waits for it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// JSON-RPC: the user must visit a page before this can be done.
const URL_ELICITATION_REQUIRED: i32 = -32042;

/// Interval at which the deadline is checked while the user is being asked.
const USER_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for deleting a session or draining requests in progress.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

pub(crate) struct LinkParts {
    pub(crate) shared: Arc<ConnectionShared>,
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) handler: Handler,
    pub(crate) facts: LinkFacts,
    pub(crate) child: Option<Arc<Child>>,
    pub(crate) clients: Option<Arc<HttpClients>>,
    /// Cancelled when rmcp's loop has ended.
    pub(crate) finished: tokio_util::sync::CancellationToken,
}

pub(crate) struct RmcpLink {
    parts: LinkParts,
    /// When the last request was made that got no answer in time.
    unanswered: Mutex<Option<Instant>>,
}

impl RmcpLink {
    pub(crate) fn new(parts: LinkParts) -> Self {
        Self {
            parts,
            unanswered: Mutex::default(),
        }
    }

    /// A request got no answer in time, and the server has sent nothing since it was made.
    fn is_silent(&self) -> bool {
        let asked_at = *self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        asked_at.is_some_and(|at| self.parts.shared.last_activity() < at)
    }

    /// A request right after the handshake may reach another process of the server, which does not
    /// know the session, or arrive before `notifications/initialized`. Lists are then requested
    /// again, at once.
    async fn run_after_handshake(&self, op: &Op, call: &LinkCall) -> Result<OpOutput, McpFailure> {
        let proven = &self.parts.shared.state.proven;
        if proven.load(Ordering::Relaxed) {
            return self.run(op, call).await;
        }
        let mut outcome = self.run(op, call).await;
        for _ in 0..MAX_LIST_RETRIES {
            match &outcome {
                Err(why) if is_list(op) && is_refused(why) => {
                    outcome = self.run(op, call).await;
                }
                _ => break,
            }
        }
        if *op == Op::ListTools {
            outcome = self.check_initialized(op, call, outcome).await;
        }
        if outcome.is_ok() {
            proven.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Judges the outcome of `notifications/initialized` together with the first list: a server
    /// that returns the list does not need the notification; one that does not, and refused the
    /// notification, is not connected.
    async fn check_initialized(
        &self,
        op: &Op,
        call: &LinkCall,
        outcome: Result<OpOutput, McpFailure>,
    ) -> Result<OpOutput, McpFailure> {
        let shared = &self.parts.shared;
        if shared.initialized.is_done() {
            return outcome;
        }
        let (outcome, taken) = if outcome.is_ok() {
            (outcome, shared.initialized.wait_accepted_briefly().await)
        } else {
            let taken = shared.initialized.wait_accepted().await;
            (self.run(op, call).await, taken)
        };
        match (outcome, taken) {
            (Err(_), Err(why)) => {
                shared.fail(why.clone());
                Err(why)
            }
            (Ok(output), Err(why)) => {
                tracing::debug!(
                    server = shared.server(),
                    "works without notifications/initialized: {why}"
                );
                shared.initialized.mark_done();
                Ok(output)
            }
            (outcome, Ok(())) => outcome,
        }
    }

    async fn run(&self, op: &Op, call: &LinkCall) -> Result<OpOutput, McpFailure> {
        let wire = wire::wire_request(op, self.parts.facts.era);
        let result = match wire.items {
            None => self.rounds(wire.method, wire.params, call).await?,
            Some(member) => {
                let mut pages = Pages::default();
                let mut cursor = None;
                loop {
                    let mut params = wire.params.clone();
                    if let Some(cursor) = cursor {
                        params.insert("cursor".to_owned(), Value::String(cursor));
                    }
                    let page = self.rounds(wire.method, params, call).await?;
                    cursor = pages.take(page, member);
                    if cursor.is_none() {
                        break pages.finish(member);
                    }
                }
            }
        };
        Ok(OpOutput { result })
    }

    /// One request, and the rounds in which a modern server asks for more input.
    async fn rounds(
        &self,
        method: &'static str,
        params: Map<String, Value>,
        call: &LinkCall,
    ) -> Result<Value, McpFailure> {
        let mut next = params.clone();
        for _ in 0..MAX_ROUNDS {
            let result = self.once(method, next, call).await?;
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(result);
            }
            next = params.clone();
            if let Some(state) = result.get("requestState") {
                next.insert("requestState".to_owned(), state.clone());
            }
            let answers = self.inputs(result.get("inputRequests"), call).await?;
            if !answers.is_empty() {
                next.insert("inputResponses".to_owned(), Value::Object(answers));
            }
        }
        Err(McpFailure::new(
            FailureClass::Rpc,
            Certainty::MaybeExecuted,
            format!("the server still asked for input after {MAX_ROUNDS} rounds"),
        ))
    }

    async fn inputs(
        &self,
        input_requests: Option<&Value>,
        call: &LinkCall,
    ) -> Result<Map<String, Value>, McpFailure> {
        let mut answers = Map::new();
        for (key, request) in input_requests
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let method = request.get("method").and_then(Value::as_str);
            let params = request.get("params").cloned().unwrap_or(Value::Null);
            let answer = self
                .parts
                .handler
                .answer(method.unwrap_or_default(), params, caller_of(call))
                .await
                .map_err(|error| {
                    McpFailure::new(
                        FailureClass::Rpc,
                        Certainty::Rejected,
                        format!(
                            "the server asks for input we cannot give: {}",
                            error.message
                        ),
                    )
                })?;
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    async fn once(
        &self,
        method: &'static str,
        params: Map<String, Value>,
        call: &LinkCall,
    ) -> Result<Value, McpFailure> {
        // An empty object for a list is legal, but some servers accept no params at all.
        let params = (!params.is_empty()).then_some(Value::Object(params));
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, params));
        let shared = &self.parts.shared;
        let handle = self
            .parts
            .peer
            .send_request_with_option(request, PeerRequestOptions::no_options())
            .await
            .map_err(|_| self.link_failure(TransportBreak::BeforeSend))?;
        let mut in_flight = InFlight::new(handle, shared, call);
        let outcome = in_flight.response().await;
        let fault = shared.outcomes.take_fault(&in_flight.id);
        let raw = shared.outcomes.take_result(&in_flight.id);
        match outcome {
            Ok(result) => raw.map_or_else(|| to_value(&result), Ok),
            Err(ServiceError::McpError(error)) if fault.is_none() && requires_visit(&error) => {
                Err(self.ask_for_visit(&error, call).await)
            }
            Err(ServiceError::McpError(error)) => Err(fault.unwrap_or_else(|| {
                let situation = shared.situation(shared.has_session());
                classify::rpc(i64::from(error.code.0), &error.message, &situation)
            })),
            Err(ServiceError::TransportSend(error)) => Err(RmcpFault::find(error.error.as_ref())
                .unwrap_or_else(|| self.link_failure(TransportBreak::BeforeSend))),
            Err(ServiceError::TransportClosed) => {
                Err(fault.unwrap_or_else(|| self.link_failure(TransportBreak::AfterSend)))
            }
            Err(other) => Err(fault.unwrap_or_else(|| {
                shared.transport_failure(TransportBreak::AfterSend, &other.to_string())
            })),
        }
    }

    /// The call was refused because the user must visit a page first. Only the user knows when that
    /// is done, so the model decides whether to call again.
    async fn ask_for_visit(&self, error: &ErrorData, call: &LinkCall) -> McpFailure {
        let pages = error.data.as_ref().map(|data| &data["elicitations"]);
        let mut outcomes = Vec::new();
        for page in pages.and_then(Value::as_array).into_iter().flatten() {
            let mut params = page.clone();
            params["mode"] = Value::from("url");
            let url = params["url"].as_str().unwrap_or_default().to_owned();
            let handler = &self.parts.handler;
            let answer = handler
                .answer("elicitation/create", params, caller_of(call))
                .await;
            outcomes.push(match answer {
                Ok(answer) if answer["action"] == "accept" => format!(
                    "the person agreed to visit {url}: call again when they say that it is done"
                ),
                Ok(_) => format!("the person did not agree to visit {url}"),
                Err(error) => error.message.into_owned(),
            });
        }
        let mut failure = McpFailure::new(
            FailureClass::Rpc,
            Certainty::MaybeExecuted,
            format!("{}; {}", error.message, outcomes.join("; ")),
        );
        failure.rpc_code = Some(i64::from(URL_ELICITATION_REQUIRED));
        failure
    }

    fn link_failure(&self, what: TransportBreak) -> McpFailure {
        let cause = self.parts.shared.failure().map(|failure| failure.text);
        self.parts
            .shared
            .transport_failure(what, cause.as_deref().unwrap_or_default())
    }
}

fn requires_visit(error: &ErrorData) -> bool {
    let pages = error.data.as_ref().map(|data| &data["elicitations"]);
    error.code.0 == URL_ELICITATION_REQUIRED && pages.is_some_and(Value::is_array)
}

/// Waits for a deadline that is paused while the user is being asked.
async fn deadline(shared: &ConnectionShared, mut at: Instant) {
    let mut waited = shared.user_wait.total();
    loop {
        tokio::time::sleep_until(at).await;
        let so_far = shared.user_wait.total();
        at += so_far.saturating_sub(waited);
        waited = so_far;
        if at > Instant::now() {
            continue;
        }
        if !shared.user_wait.is_open() {
            return;
        }
        tokio::time::sleep(USER_POLL_INTERVAL).await;
    }
}

fn is_list(op: &Op) -> bool {
    matches!(
        op,
        Op::ListTools | Op::ListResources | Op::ListResourceTemplates | Op::ListPrompts
    )
}

/// Whether the server refused the request as such. Repeating does not help against throttling, a
/// missing login or an unknown method.
fn is_refused(why: &McpFailure) -> bool {
    let status = why.http_status.unwrap_or_default();
    if why.class == FailureClass::SessionLost {
        return true;
    }
    (400..500).contains(&status)
        && status != 429
        && why.rpc_code != Some(classify::METHOD_NOT_FOUND)
        && !matches!(
            why.class,
            FailureClass::NeedsAuth | FailureClass::ScopeNeeded
        )
}

/// The origin of this call, and its slot in the queue.
fn caller_of(call: &LinkCall) -> Result<(CallOrigin, Option<Slot>), String> {
    match &call.origin {
        Some(origin) => Ok((origin.clone(), call.slot.clone())),
        None => Err("this call was not made for a person".to_owned()),
    }
}

fn to_value(result: &ServerResult) -> Result<Value, McpFailure> {
    serde_json::to_value(result).map_err(|error| {
        McpFailure::new(
            FailureClass::Rpc,
            Certainty::MaybeExecuted,
            format!("unreadable answer: {error}"),
        )
    })
}

impl Link for RmcpLink {
    fn facts(&self) -> &LinkFacts {
        &self.parts.facts
    }

    fn request<'a>(
        &'a self,
        op: &'a Op,
        call: LinkCall,
    ) -> BoxFuture<'a, Result<OpOutput, McpFailure>> {
        Box::pin(async move {
            let shared = &self.parts.shared;
            if shared.failure().is_some() {
                return Err(self.link_failure(TransportBreak::BeforeSend));
            }
            let started = Instant::now();
            let _calling = shared.active_calls.enter(&call);
            let mut work = std::pin::pin!(self.run_after_handshake(op, &call));
            tokio::select! {
                biased;
                done = &mut work => done,
                () = call.cancel.cancelled() => Err(shared.transport_failure(TransportBreak::Cancelled, "")),
                () = deadline(shared, call.deadline) => {
                    let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
                    *unanswered = Some(started);
                    Err(shared.transport_failure(TransportBreak::Deadline, ""))
                }
                _ = shared.failed() => tokio::time::timeout(FINAL_READ_TIMEOUT, work)
                    .await
                    .unwrap_or_else(|_| Err(self.link_failure(TransportBreak::AfterSend))),
            }
        })
    }

    fn closed(&self) -> BoxFuture<'_, McpFailure> {
        Box::pin(self.parts.shared.failed())
    }

    fn resumed(&self) {
        if let Some(clients) = &self.parts.clients {
            clients.renew();
        }
        self.parts.shared.notify_resumed();
    }

    fn waits_for_user(&self) -> bool {
        self.parts.shared.user_wait.is_open()
    }

    fn listening(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let listens = self.parts.shared.kind() == TransportKind::Http
                && self.parts.facts.era == Era::Legacy
                && self.parts.facts.session;
            if listens {
                self.parts.shared.stream.settled().await;
            }
        })
    }

    fn user_wait_time(&self) -> Duration {
        self.parts.shared.user_wait.total()
    }

    fn last_activity(&self) -> Instant {
        self.parts.shared.last_activity()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.parts.shared.fail(
                self.parts
                    .shared
                    .transport_failure(TransportBreak::BeforeSend, "closed"),
            );
            self.parts.shared.stop.cancel();
            let finished = tokio::time::timeout(CLOSE_TIMEOUT, self.parts.finished.cancelled());
            match &self.parts.child {
                // The child is stopped whether or not rmcp's loop has noticed the end.
                Some(child) => child.stop(self.is_silent()).await,
                None => drop(finished.await),
            }
        })
    }
}

impl Drop for RmcpLink {
    fn drop(&mut self) {
        self.parts.shared.stop.cancel();
    }
}

/// A request in progress. If dropped before its answer, it sends a cancellation in the background.
struct InFlight {
    handle: Option<RequestHandle<RoleClient>>,
    peer: Peer<RoleClient>,
    shared: Arc<ConnectionShared>,
    id: RequestId,
    token: ProgressToken,
}

impl InFlight {
    fn new(
        handle: RequestHandle<RoleClient>,
        shared: &Arc<ConnectionShared>,
        call: &LinkCall,
    ) -> Self {
        let token = handle.progress_token.clone();
        if let Some(progress) = &call.progress {
            shared.progress.watch(token.clone(), progress.clone());
        }
        Self {
            peer: handle.peer.clone(),
            id: handle.id.clone(),
            token,
            shared: Arc::clone(shared),
            handle: Some(handle),
        }
    }

    async fn response(&mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = &mut self.handle else {
            return Err(ServiceError::TransportClosed);
        };
        let outcome = (&mut handle.rx)
            .await
            .unwrap_or(Err(ServiceError::TransportClosed));
        self.handle = None;
        outcome
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.progress.forget(&self.token);
        if self.handle.take().is_none() || self.shared.failure().is_some() {
            return;
        }
        self.shared.outcomes.forget(&self.id);
        let params = CancelledNotificationParam::new(Some(self.id.clone()), None);
        let peer = self.peer.clone();
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        drop(hermes_core::task::spawn("mcp-cancel", async move {
            let notification = CancelledNotification::new(params);
            let sent = peer.send_notification(notification.into());
            if tokio::time::timeout(CANCEL_TIMEOUT, sent).await.is_err() {
                tracing::debug!("the server did not take the cancellation in time");
            }
        }));
    }
}

/// The era of a negotiated protocol version.
pub(crate) fn era_of(version: &str) -> Era {
    if version >= "2026-07-28" {
        Era::Modern
    } else {
        Era::Legacy
    }
}
