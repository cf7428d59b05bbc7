//! The heartbeat that keeps the ownership of delivery.

use std::time::Duration;

use hermes_core::store::StoreError;
use hermes_store::delivery::Delivery;
use tokio_util::sync::CancellationToken;

/// Renews the lease three times per period until cancelled. `Err`: another process owns delivery,
/// or the database is damaged, and all sending must stop. Other failures are temporary or lead to
/// one of these.
pub async fn keep_ownership(
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
