//! Wakes chats that have work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hermes_core::task;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::chat::ChatTask;
use super::shared::GatewayShared;

const PAGE_SIZE: usize = 256;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Finds chats with open messages, at the start and after each arrival, and wakes them.
pub(crate) async fn run(shared: Arc<GatewayShared>, cancel: CancellationToken) {
    let chats = TaskTracker::new();
    let mut after = 0;
    while !cancel.is_cancelled() {
        if shared.again.swap(false, Ordering::SeqCst) {
            after = 0;
        }
        let page = match shared.delivery.open_after(after, PAGE_SIZE).await {
            Ok(page) => page,
            Err(error) => {
                tracing::error!("messages that wait: {error}");
                tokio::select! {
                    () = cancel.cancelled() => break,
                    () = tokio::time::sleep(RETRY_PAUSE) => continue,
                }
            }
        };
        let full = page.len() == PAGE_SIZE;
        for (id, key) in page {
            after = after.max(id);
            wake(&shared, &chats, key, &cancel);
        }
        if full {
            continue;
        }
        tokio::select! {
            () = cancel.cancelled() => {}
            () = shared.arrived.notified() => {}
        }
    }
    chats.close();
    chats.wait().await;
}

fn wake(
    shared: &Arc<GatewayShared>,
    running: &TaskTracker,
    key: String,
    cancel: &CancellationToken,
) {
    let mut chats = shared.chats();
    if let Some(chat) = chats.get(&key) {
        chat.dirty.store(true, Ordering::SeqCst);
        chat.notify.notify_one();
        return;
    }
    let handle = Arc::<super::shared::ChatHandle>::default();
    chats.insert(key.clone(), Arc::clone(&handle));
    drop(chats);
    let (shared, cancel) = (Arc::clone(shared), cancel.clone());
    let work = async move {
        // A panic ends the turn of one chat only; its messages are retried a few times.
        loop {
            let chat = ChatTask::new(
                Arc::clone(&shared),
                key.clone(),
                Arc::clone(&handle),
                cancel.clone(),
            );
            if task::catch("chat", Box::pin(chat.run())).await.is_ok() || cancel.is_cancelled() {
                return;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    };
    drop(task::spawn("chat", running.track_future(work)));
}
