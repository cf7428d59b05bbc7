//! Connects to a target and performs the handshake.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientCacheConfig;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RoleClient, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{McpConnector, Protocol, ServerTarget};
use crate::failure::classify::{self, TransportBreak};
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::http::RmcpFault;
use crate::transport::link::{ConnectRequest, Era, Link, LinkFacts, TransportKind};
use crate::transport::peer::{
    ConnectionShared, Handler, LinkParts, ReadOptions, RmcpLink, client_info, era_of, subscribe,
};
use crate::transport::stdio::Child;
use crate::transport::{http, sse, stdio};

/// The reason for a closed stream follows immediately after its end.
const CLOSE_REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// The first request of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// `initialize`.
    Legacy,
    /// `server/discover`.
    Modern,
    /// `server/discover`, then `initialize` if the server does not support it.
    Probe,
}

pub(super) async fn connect(
    connector: &McpConnector,
    request: ConnectRequest,
) -> Result<Arc<dyn Link>, McpFailure> {
    check_malware(connector, &request).await?;
    let kind = connector.target.kind();
    let known = match connector.protocol {
        Protocol::Auto => connector.eras.get(&connector.fingerprint),
        _ => None,
    };
    let opening = first_opening(connector.protocol, kind, known);
    let mut outcome = attempt(connector, &request, opening).await;
    if let Err(failure) = &outcome
        && let Some(other) = other_opening(connector.protocol, kind, opening, failure)
    {
        tracing::debug!(
            server = connector.server,
            "asking in the other era: {failure}"
        );
        // The first refusal is more informative than that of a server which does not know the
        // method.
        if let Ok(link) = attempt(connector, &request, other).await {
            outcome = Ok(link);
        }
    }
    let link = outcome?;
    if connector.protocol == Protocol::Auto {
        let era = Some(link.facts().era);
        connector.eras.put(&connector.fingerprint, era);
    }
    Ok(link)
}

/// A package that is known malware is not even fetched.
async fn check_malware(
    connector: &McpConnector,
    request: &ConnectRequest,
) -> Result<(), McpFailure> {
    let (ServerTarget::Stdio(target), Some(malware)) = (&connector.target, &connector.malware)
    else {
        return Ok(());
    };
    let objection = tokio::select! {
        biased;
        () = request.cancel.cancelled() => return Err(McpFailure::new(
            FailureClass::Cancelled,
            Certainty::NotSent,
            "the attempt was given up",
        )),
        objection = malware.objection(&target.command, &target.args) => objection,
    };
    match objection {
        None => Ok(()),
        Some(why) => Err(McpFailure::new(
            FailureClass::Permanent,
            Certainty::NotSent,
            why,
        )),
    }
}

/// Over HTTP a probe costs one refused request. Over stdio it may cost ten seconds, because some
/// servers do not answer unknown methods: there it is used only for servers known to be modern.
fn first_opening(protocol: Protocol, kind: TransportKind, known: Option<Era>) -> Opening {
    match (protocol, kind, known) {
        (_, TransportKind::Sse, _)
        | (Protocol::Legacy, ..)
        | (Protocol::Auto, _, Some(Era::Legacy))
        | (Protocol::Auto, TransportKind::Stdio, None) => Opening::Legacy,
        (Protocol::Modern, ..) => Opening::Modern,
        (Protocol::Auto, ..) => Opening::Probe,
    }
}

/// A server that refuses `initialize` may have become modern since the last connection, and one
/// that fails on `server/discover` may support `initialize`.
fn other_opening(
    protocol: Protocol,
    kind: TransportKind,
    opening: Opening,
    failure: &McpFailure,
) -> Option<Opening> {
    if protocol != Protocol::Auto || kind == TransportKind::Sse {
        return None;
    }
    let status = failure.http_status;
    match opening {
        Opening::Legacy => {
            let refused = failure.rpc_code.is_some()
                || matches!(status, Some(400 | 404..=406 | 410 | 415 | 422));
            refused.then_some(Opening::Modern)
        }
        Opening::Probe => {
            let unreadable = failure.class == FailureClass::Permanent
                && status.is_none_or(|status| status < 300);
            (unreadable || matches!(status, Some(500 | 501))).then_some(Opening::Legacy)
        }
        Opening::Modern => None,
    }
}

async fn attempt(
    connector: &McpConnector,
    request: &ConnectRequest,
    opening: Opening,
) -> Result<Arc<dyn Link>, McpFailure> {
    let shared = ConnectionShared::new(
        &connector.server,
        request.epoch,
        connector.target.kind(),
        connector.markers.clone(),
        request.events.clone(),
    );
    shared.stream.set_options(ReadOptions {
        silence: connector.allowed_silence(),
        any_content_type: connector.any_content_type,
        late_answer: connector.late_answer,
    });
    // Stops all tasks if this future is dropped or returns an error.
    let guard = shared.stop.clone().drop_guard();
    let link = tokio::select! {
        biased;
        () = request.cancel.cancelled() => Err(shared.transport_failure(TransportBreak::Cancelled, "")),
        () = tokio::time::sleep_until(request.deadline) => Err(timed_out(connector, &shared)),
        link = open(connector, &shared, opening) => link,
    }?;
    guard.disarm();
    Ok(link)
}

fn timed_out(connector: &McpConnector, shared: &ConnectionShared) -> McpFailure {
    let last_output = match connector.target.kind() {
        TransportKind::Stdio => connector.stderr.last_line(),
        _ => None,
    };
    let text = last_output
        .map(|line| format!("no answer to the handshake in time; it last wrote: {line}"));
    shared.transport_failure(
        TransportBreak::Deadline,
        text.as_deref().unwrap_or_default(),
    )
}

async fn open(
    connector: &McpConnector,
    shared: &Arc<ConnectionShared>,
    opening: Opening,
) -> Result<Arc<dyn Link>, McpFailure> {
    let started = Instant::now();
    let (name, version) = &connector.client;
    let handler = Handler {
        shared: Arc::clone(shared),
        requests: connector.requests.clone(),
        info: client_info(name, version, connector.requests.as_ref()),
    };
    let (running, child) = match &connector.target {
        ServerTarget::Http(target) => {
            let transport = http::transport(target, shared, &connector.rng);
            (serve(handler.clone(), transport, opening).await?, None)
        }
        ServerTarget::Sse(target) => {
            let transport = sse::transport(target, shared).await?;
            (serve(handler.clone(), transport, opening).await?, None)
        }
        ServerTarget::Stdio(target) => {
            let (transport, child) = stdio::spawn(target, shared, &connector.stderr).await?;
            let running = serve(handler.clone(), transport, opening).await?;
            (running, Some(child))
        }
    };
    let peer = running.peer().clone();
    // Otherwise a failed server would appear to answer from the cache.
    peer.set_response_cache_config(ClientCacheConfig::disabled())
        .await;
    let facts = facts(&peer, shared, child.as_deref(), started);
    shared.mark_ready(facts.era);
    let finished = watch(running, Arc::clone(shared));
    if facts.era == Era::Modern {
        let listening = subscribe(
            peer.clone(),
            facts.capabilities.clone(),
            Arc::clone(shared),
            Arc::clone(&connector.rng),
        );
        drop(hermes_core::task::spawn("mcp-subscribe", listening));
    }
    Ok(Arc::new(RmcpLink::new(LinkParts {
        shared: Arc::clone(shared),
        peer,
        handler,
        facts,
        child,
        clients: connector.target.clients(),
        finished,
    })))
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    transport: T,
    opening: Opening,
) -> Result<RunningService<RoleClient, Handler>, McpFailure> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match opening {
        Opening::Legacy => ClientLifecycleMode::Initialize,
        Opening::Modern => ClientLifecycleMode::Discover { preferred_versions },
        Opening::Probe => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
    };
    let shared = Arc::clone(&handler.shared);
    let stop = shared.stop.clone();
    match serve_client_with_lifecycle_and_ct(handler, transport, lifecycle, stop).await {
        Ok(running) => Ok(running),
        Err(error) => {
            let unexplained = matches!(error, ClientInitializeError::ConnectionClosed(_))
                && shared.refusal().is_none();
            if unexplained {
                let _ = tokio::time::timeout(CLOSE_REASON_TIMEOUT, shared.failed()).await;
            }
            Err(failure(&error, &shared))
        }
    }
}

fn failure(error: &ClientInitializeError, shared: &ConnectionShared) -> McpFailure {
    use ClientInitializeError as E;
    match error {
        E::TransportError { error, .. } => RmcpFault::find(error.error.as_ref())
            .or_else(|| shared.refusal())
            .unwrap_or_else(|| {
                shared.transport_failure(TransportBreak::AfterSend, &error.to_string())
            }),
        E::JsonRpcError(error) => {
            // The transport turned an unreadable answer into an error.
            let broken = shared.refusal().filter(|why| why.text == error.message);
            let code = i64::from(error.code.0);
            broken.unwrap_or_else(|| classify::rpc(code, &error.message, &shared.situation(false)))
        }
        E::ConnectionClosed(_) => shared
            .refusal()
            .unwrap_or_else(|| shared.transport_failure(TransportBreak::AfterSend, "")),
        E::LegacyFallbackFailed { fallback, .. } => failure(fallback, shared),
        E::NoCompatibleProtocolVersion {
            server_supported, ..
        } => {
            let versions: Vec<&str> = server_supported
                .iter()
                .map(ProtocolVersion::as_str)
                .collect();
            let text = format!(
                "the server speaks only protocol versions that we do not: {}",
                versions.join(", ")
            );
            shared.transport_failure(TransportBreak::Permanent, &text)
        }
        E::Cancelled => shared.transport_failure(TransportBreak::Cancelled, ""),
        other => shared.transport_failure(TransportBreak::NotMcp, &other.to_string()),
    }
}

fn facts(
    peer: &Peer<RoleClient>,
    shared: &ConnectionShared,
    child: Option<&Child>,
    started: Instant,
) -> LinkFacts {
    let info = peer.peer_info();
    let info = info.as_deref();
    let version = info.map_or("", |info| info.protocol_version.as_str());
    let server = info.and_then(|info| info.server_info.as_ref());
    LinkFacts {
        era: era_of(version),
        protocol_version: version.to_owned(),
        server_name: server.map_or_else(String::new, |server| server.name.clone()),
        server_version: server.map_or_else(String::new, |server| server.version.clone()),
        capabilities: info
            .and_then(|info| serde_json::to_value(&info.capabilities).ok())
            .unwrap_or_default(),
        instructions: info.and_then(|info| info.instructions.clone()),
        session: shared.has_session(),
        child_pid: child.map(Child::pid),
        handshake: started.elapsed(),
    }
}

/// Runs rmcp's loop, whose end is the end of the link.
fn watch(
    running: RunningService<RoleClient, Handler>,
    shared: Arc<ConnectionShared>,
) -> CancellationToken {
    let finished = CancellationToken::new();
    let guard = finished.clone().drop_guard();
    drop(hermes_core::task::spawn("mcp-link", async move {
        let why = match running.waiting().await {
            Ok(reason) => format!("the connection ended: {reason:?}"),
            Err(error) => format!("the connection ended: {error}"),
        };
        shared.fail(shared.transport_failure(TransportBreak::AfterSend, &why));
        shared.stop.cancel();
        drop(guard);
    }));
    finished
}
