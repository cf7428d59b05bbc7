//! From the platforms into the store.

use hermes_core::store::StoreError;
use hermes_platforms::{Arrival, IncomingMessage};
use hermes_store::delivery::{Accepted, Delivery, Inbound as Stored};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::session::{SessionKey, SessionSharing};

/// Stores incoming messages. Turns read them from the database, not from memory.
pub struct MessageInbox {
    delivery: Delivery,
    sharing: SessionSharing,
}

impl MessageInbox {
    pub fn new(delivery: Delivery, sharing: SessionSharing) -> Self {
        Self { delivery, sharing }
    }

    /// Stores arrivals until cancelled or until all platforms have ended, and calls `stored` for
    /// each new one. A message that cannot be stored is not acknowledged, so its platform delivers
    /// it again.
    pub async fn run(
        &self,
        mut arrivals: mpsc::Receiver<Arrival>,
        cancel: CancellationToken,
        stored: impl Fn(i64) + Send + Sync,
    ) {
        loop {
            let arrival = tokio::select! {
                () = cancel.cancelled() => return,
                arrival = arrivals.recv() => arrival,
            };
            let Some(arrival) = arrival else { return };
            match self.store(&arrival.message).await {
                Ok(accepted) => {
                    // The platform may have stopped waiting; it will deliver the message again, and
                    // the duplicate is detected.
                    let new = matches!(accepted, Accepted::New(_));
                    let _ = arrival.stored.send(new);
                    if let Accepted::New(id) = accepted {
                        stored(id);
                    }
                }
                Err(error) => tracing::error!(
                    platform = arrival.message.source.platform,
                    "a message was not stored and is not acknowledged: {error}"
                ),
            }
        }
    }

    /// Stores one message.
    pub async fn store(&self, message: &IncomingMessage) -> Result<Accepted, StoreError> {
        let payload = serde_json::to_value(message)
            .map_err(|error| StoreError::Invalid(format!("a message cannot be stored: {error}")))?;
        self.delivery
            .accept(Stored {
                platform: message.source.platform.clone(),
                account: message.account.clone(),
                chat_id: message.source.chat_id.clone(),
                message_id: message.message_id.clone(),
                session_key: SessionKey::new_for(&message.source, self.sharing).into_string(),
                payload,
            })
            .await
    }
}
