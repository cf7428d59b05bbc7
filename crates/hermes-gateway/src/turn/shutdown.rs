//! Notifies chats that the gateway stops.

use std::collections::HashSet;
use std::time::Duration;

use hermes_platforms::{PlatformState, is_for_programs};
use hermes_store::delivery::{Final, NewReply, Target};

use super::shared::GatewayShared;
use crate::gateway::ShutdownNotice;

/// How long sending the notices may delay the shutdown.
const SEND_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Notifies chats with running turns and the home channels, each once. Only if it can be delivered
/// now: the next process has other notices.
pub(crate) async fn announce(shared: &GatewayShared, leaving: &ShutdownNotice) {
    let mut notified: HashSet<Target> = leaving.requested_by.iter().cloned().collect();
    let mut ids = Vec::new();
    let homes = if leaving.requested_by.is_none() && leaving.homes {
        homes(shared)
    } else {
        Vec::new()
    };
    let working = shared
        .working()
        .into_iter()
        .map(|target| (target, ChatWork::Running));
    for (target, work) in working.chain(homes.into_iter().map(|target| (target, ChatWork::None))) {
        if wants_notice(shared, &target) && notified.insert(target.clone()) {
            ids.extend(send(shared, target, notice_text(leaving.restart, work)).await);
        }
    }
    let left = async {
        for id in &ids {
            while matches!(shared.delivery.sent(id).await, Ok(sent) if sent.is_empty()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    };
    if tokio::time::timeout(SEND_TIMEOUT, left).await.is_err() {
        tracing::info!("some chats hear late that the gateway goes down");
    }
}

fn homes(shared: &GatewayShared) -> Vec<Target> {
    let platforms = shared.status().platforms.into_iter();
    let homes = platforms.filter_map(|one| {
        let (chat_id, thread_id) = shared.home_channel(&one.name)?;
        let account = shared.account(&one.name, &chat_id);
        Some(Target {
            platform: one.name,
            account,
            chat_id,
            thread_id,
        })
    });
    homes.collect()
}

/// Whether a chat gets such notices and can be reached now.
fn wants_notice(shared: &GatewayShared, target: &Target) -> bool {
    let settings = shared.platform(&target.platform);
    let off = settings.and_then(|one| one.flag("gateway_restart_notification")) == Some(false);
    let connected = shared.status().platforms.into_iter().any(|one| {
        one.name == target.platform
            && one.account == target.account
            && one.condition.state == PlatformState::Connected
    });
    !off && connected && !is_for_programs(&target.platform)
}

/// Whether a chat has a turn that the shutdown interrupts.
#[derive(Clone, Copy)]
enum ChatWork {
    Running,
    None,
}

fn notice_text(restart: bool, work: ChatWork) -> &'static str {
    match (restart, work) {
        (true, ChatWork::Running) => {
            "♻️ The gateway is restarting. I will continue with my work afterwards."
        }
        (true, ChatWork::None) => "♻️ The gateway is restarting.",
        (false, ChatWork::Running) => {
            "⏸️ The gateway is shutting down. I will continue with my work when it is back."
        }
        (false, ChatWork::None) => "⏸️ The gateway is shutting down.",
    }
}

async fn send(shared: &GatewayShared, target: Target, text: &str) -> Option<String> {
    let id = format!("leaving-{}", super::preview::key(&*shared.rng));
    let chunks = shared.chunks(&target, text);
    let end = Final {
        turn: id.clone(),
        replies: vec![NewReply {
            session_key: id.clone(),
            target,
            chunks,
        }],
        ..Final::default()
    };
    match shared.delivery.finish(end).await {
        Ok(_) => {
            shared.wake.notify_one();
            Some(id)
        }
        Err(error) => {
            tracing::warn!("a chat was not notified that the gateway is shutting down: {error}");
            None
        }
    }
}
