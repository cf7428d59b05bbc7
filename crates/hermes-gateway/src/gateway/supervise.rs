//! Supervises one platform: starts it, watches it, restarts it.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use hermes_platforms::{
    AdapterLink, Arrival, HealthReporter, Platform, PlatformCondition, PlatformState,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::turn::GatewayShared;

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_mins(5);
/// After running this long, earlier failures no longer count.
const STABLE_AFTER: Duration = Duration::from_mins(10);

/// How one run of a platform ended.
enum PlatformRunEnd {
    Stopped,
    /// The platform was paused.
    Paused,
    /// Retrying is pointless until the configuration changes.
    Hopeless(String),
    Broken(String),
}

pub(super) async fn run(
    shared: Arc<GatewayShared>,
    platform: Platform,
    arrivals: mpsc::Sender<Arrival>,
    cancel: CancellationToken,
) {
    let (name, account) = (platform.name, platform.account.clone());
    let (health, condition) = HealthReporter::new();
    let mut paused = shared.register(name, &account, condition.clone());
    let mut next = Some(platform);
    let mut failures = 0;
    loop {
        let made = next
            .take()
            .or_else(|| (shared.callbacks.rebuild)(name, &account));
        let Some(platform) = made else {
            let why = "it ended, and cannot be started again without restarting the gateway";
            health.is(PlatformState::Fatal, Some(why.to_owned()));
            return;
        };
        shared
            .outbox
            .connect(name, &account, Arc::clone(&platform.outbound));
        shared.wake.notify_one();
        drop(task::spawn(
            "menu",
            offer(Arc::clone(&shared), &platform, condition.clone()),
        ));
        let began = Instant::now();
        let token = cancel.child_token();
        let link = AdapterLink {
            arrivals: arrivals.clone(),
            health: health.clone(),
            cancel: token.clone(),
        };
        let working = task::spawn(name, platform.inbound.run(link));
        let end = tokio::select! {
            () = cancel.cancelled() => PlatformRunEnd::Stopped,
            () = until(&mut paused, true) => PlatformRunEnd::Paused,
            ended = working => match ended {
                Ok(Ok(Ok(()))) => PlatformRunEnd::Broken("it ended by itself".to_owned()),
                Ok(Ok(Err(hopeless))) => PlatformRunEnd::Hopeless(hopeless.0),
                Ok(Err(panicked)) => PlatformRunEnd::Broken(panicked.to_string()),
                Err(error) => PlatformRunEnd::Broken(error.to_string()),
            },
        };
        token.cancel();
        match end {
            PlatformRunEnd::Stopped => return,
            PlatformRunEnd::Paused => {
                shared.outbox.disconnect(name, &account);
                health.is(PlatformState::Paused, None);
                failures = 0;
            }
            PlatformRunEnd::Hopeless(why) => {
                tracing::error!("{name}: {why}");
                shared.outbox.disconnect(name, &account);
                health.is(PlatformState::Fatal, Some(why));
                shared.pause_account(name, &account);
                failures = 0;
            }
            PlatformRunEnd::Broken(why) => {
                tracing::error!("{name}: {why}; it is restarted");
                health.is(PlatformState::Retrying, Some(why));
                failures = if began.elapsed() > STABLE_AFTER {
                    1
                } else {
                    failures + 1
                };
                let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(6));
                let pause = pause.min(MAX_PAUSE).mul_f64(0.5 + shared.rng.unit() / 2.0);
                tokio::select! {
                    () = cancel.cancelled() => return,
                    () = tokio::time::sleep(pause) => continue,
                }
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = until(&mut paused, false) => health.is(PlatformState::Connecting, None),
        }
    }
}

/// Waits until the switch has this position. A switch without a sender never changes.
async fn until(switch: &mut tokio::sync::watch::Receiver<bool>, position: bool) {
    if switch.wait_for(|now| *now == position).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Offers the commands in the platform's menu once it is connected.
fn offer(
    shared: Arc<GatewayShared>,
    platform: &Platform,
    mut condition: tokio::sync::watch::Receiver<PlatformCondition>,
) -> impl Future<Output = ()> + Send + 'static {
    let (name, outbound) = (platform.name, Arc::clone(&platform.outbound));
    async move {
        let connected = condition.wait_for(|now| now.state == PlatformState::Connected);
        if connected.await.map(drop).is_err() {
            return;
        }
        let commands = shared.commands();
        let offered = tokio::time::timeout(Duration::from_secs(30), outbound.offer(&commands));
        match offered.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("{name}: the menu of commands: {error}"),
            Err(_) => tracing::warn!("{name}: the menu of commands: no answer"),
        }
    }
}
