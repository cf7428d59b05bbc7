//! `subscriptions/listen`: how a server of 2026-07-28 announces changed lists.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::Rng;
use rmcp::model::{ServerNotification, SubscriptionFilter};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::Value;

use super::ConnectionShared;
use crate::failure::classify::METHOD_NOT_FOUND;
use crate::transport::http::RmcpFault;
use crate::transport::link::LinkEvent;

const INITIAL_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(30);
/// How long to wait after a refusal.
const REFUSED_WAIT: Duration = Duration::from_mins(5);

/// Listens until the link ends. Does nothing if the server announces no changes.
pub(crate) async fn subscribe(
    peer: Peer<RoleClient>,
    capabilities: Value,
    shared: Arc<ConnectionShared>,
    rng: Arc<dyn Rng>,
) {
    let announces = |what: &str| {
        let flag = capabilities
            .get(what)
            .and_then(|one| one.get("listChanged"));
        (flag == Some(&Value::Bool(true))).then_some(true)
    };
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = announces("tools");
    filter.resources_list_changed = announces("resources");
    filter.prompts_list_changed = announces("prompts");
    if filter == SubscriptionFilter::new() {
        return;
    }
    tokio::select! {
        () = shared.stop.cancelled() => {}
        () = keep_listening(&peer, &filter, &shared, rng.as_ref()) => {}
    }
}

async fn keep_listening(
    peer: &Peer<RoleClient>,
    filter: &SubscriptionFilter,
    shared: &ConnectionShared,
    rng: &dyn Rng,
) {
    let mut attempt = 0_u32;
    let mut first = true;
    let mut resumes = shared.resumes();
    while !peer.is_transport_closed() {
        match peer.listen(filter.clone()).await {
            Ok(mut subscription) => {
                // Changes made while the stream was closed are not announced again.
                if !first {
                    mark_all_changed(filter, shared);
                }
                first = false;
                attempt = 0;
                let mut resumed = false;
                while !resumed {
                    let next = tokio::select! {
                        next = subscription.next() => next,
                        _ = resumes.changed() => {
                            resumed = true;
                            continue;
                        }
                    };
                    match next {
                        Ok(Some(notification)) => forward_notification(&notification, shared),
                        _ => break,
                    }
                }
                // The socket may be dead without notice; a new one is cheap.
                if resumed {
                    continue;
                }
            }
            Err(error) if refused(&error) => {
                tracing::debug!(server = shared.server(), "no subscription: {error}");
                tokio::time::sleep(REFUSED_WAIT).await;
                continue;
            }
            Err(error) => tracing::debug!(server = shared.server(), "subscription: {error}"),
        }
        let wait = INITIAL_WAIT.saturating_mul(1 << attempt.min(5));
        attempt = attempt.saturating_add(1);
        let wait = wait.min(MAX_WAIT).mul_f64(0.8 + 0.4 * rng.unit());
        tokio::time::sleep(wait).await;
    }
}

fn forward_notification(notification: &ServerNotification, shared: &ConnectionShared) {
    match notification {
        ServerNotification::ToolListChangedNotification(_) => {
            shared.list_changed(&LinkEvent::ToolsChanged);
        }
        ServerNotification::ResourceListChangedNotification(_) => {
            shared.list_changed(&LinkEvent::ResourcesChanged);
        }
        ServerNotification::PromptListChangedNotification(_) => {
            shared.list_changed(&LinkEvent::PromptsChanged);
        }
        _ => {}
    }
}

fn mark_all_changed(filter: &SubscriptionFilter, shared: &ConnectionShared) {
    if filter.tools_list_changed.is_some() {
        shared.list_changed(&LinkEvent::ToolsChanged);
    }
    if filter.resources_list_changed.is_some() {
        shared.list_changed(&LinkEvent::ResourcesChanged);
    }
    if filter.prompts_list_changed.is_some() {
        shared.list_changed(&LinkEvent::PromptsChanged);
    }
}

/// Whether the server refused the request, as opposed to a broken connection.
fn refused(error: &ServiceError) -> bool {
    match error {
        ServiceError::McpError(_) | ServiceError::UnexpectedResponse => true,
        ServiceError::TransportSend(error) => {
            RmcpFault::find(error.error.as_ref()).is_some_and(|failure| {
                failure.rpc_code == Some(METHOD_NOT_FOUND)
                    // Accepting without a stream also counts as a refusal.
                    || failure
                        .http_status
                        .is_some_and(|status| matches!(status, 200..300 | 400..500))
            })
        }
        _ => false,
    }
}
