//! Bounds what happens when many servers come up at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Between two connects to one host.
const HOST_GAP: Duration = Duration::from_millis(50);

/// At most so many servers connect at once, and those of one host one after another.
#[derive(Debug)]
pub struct ConnectGate {
    permits: Arc<Semaphore>,
    /// When the next connect to a host may begin.
    hosts: Mutex<HashMap<String, Instant>>,
}

impl ConnectGate {
    pub fn new(at_once: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(at_once)),
            hosts: Mutex::default(),
        }
    }

    /// Waits for the turn. The gate is never closed, so `None` does not happen in practice.
    pub(super) async fn enter(&self, host: Option<&str>) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        if let Some(host) = host {
            tokio::time::sleep_until(self.slot(host)).await;
        }
        permit
    }

    fn slot(&self, host: &str) -> Instant {
        let now = Instant::now();
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, next| *next > now);
        let next = hosts.entry(host.to_owned()).or_insert(now);
        let slot = *next;
        *next = slot + HOST_GAP;
        slot
    }
}
