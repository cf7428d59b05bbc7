//! The sign of life that keeps delivery ours.

use std::time::Duration;

use hermes_core::store::StoreError;
use hermes_store::db::delivery::Delivery;
use tokio_util::sync::CancellationToken;

/// Beats three times per lease until cancelled. `Err`: another process delivers now, or the database is
/// damaged, and everything that sends must stop. Other failures pass, or end in one of these.
pub async fn beat(
    delivery: &Delivery,
    lease: Duration,
    cancel: &CancellationToken,
) -> Result<(), StoreError> {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = tokio::time::sleep(lease / 3) => {}
        }
        match delivery.heartbeat().await {
            Ok(()) => {}
            Err(error @ (StoreError::NotOwner { .. } | StoreError::Corrupt { .. })) => {
                return Err(error);
            }
            Err(error) => tracing::warn!("heartbeat: {error}"),
        }
    }
}
