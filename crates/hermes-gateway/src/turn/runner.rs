//! Wakes the chats that have something to do.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::hub::Hub;
use crate::spine::Ledger;

pub(crate) async fn run<L: Ledger + Clone + 'static>(hub: Arc<Hub<L>>, cancel: CancellationToken) {
    let _ = hub;
    cancel.cancelled().await;
}
