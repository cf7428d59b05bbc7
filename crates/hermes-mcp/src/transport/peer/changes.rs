//! Coalesces "list changed" notifications of the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use crate::transport::link::LinkEvent;

/// A burst of "list changed" within this time is one event.
const COALESCE_DELAY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct ListChanges {
    tools: AtomicBool,
    resources: AtomicBool,
    prompts: AtomicBool,
    changed: Notify,
}

impl ListChanges {
    pub(super) fn record(&self, what: &LinkEvent) {
        let flag = match what {
            LinkEvent::ToolsChanged => &self.tools,
            LinkEvent::ResourcesChanged => &self.resources,
            LinkEvent::PromptsChanged => &self.prompts,
            _ => return,
        };
        flag.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Turns bursts of changes into one event each; unlike logs they are never dropped.
    pub(super) async fn forward(&self, events: &mpsc::Sender<LinkEvent>) {
        loop {
            self.changed.notified().await;
            tokio::time::sleep(COALESCE_DELAY).await;
            for (flag, event) in [
                (&self.tools, LinkEvent::ToolsChanged),
                (&self.resources, LinkEvent::ResourcesChanged),
                (&self.prompts, LinkEvent::PromptsChanged),
            ] {
                if flag.swap(false, Ordering::AcqRel) && events.send(event).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::classify::SessionMarkers;
    use crate::transport::link::TransportKind;
    use crate::transport::peer::ConnectionShared;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_changes_is_one_event_each() {
        let (sender, mut events) = mpsc::channel(4);
        let shared = ConnectionShared::new(
            "flood",
            1,
            TransportKind::Http,
            SessionMarkers::default(),
            sender,
        );
        for _ in 0..1000 {
            shared.list_changed(&LinkEvent::ToolsChanged);
            shared.list_changed(&LinkEvent::PromptsChanged);
        }
        assert_eq!(events.recv().await, Some(LinkEvent::ToolsChanged));
        assert_eq!(events.recv().await, Some(LinkEvent::PromptsChanged));
        tokio::time::sleep(COALESCE_DELAY * 3).await;
        assert!(events.try_recv().is_err());
        shared.list_changed(&LinkEvent::ToolsChanged);
        assert_eq!(events.recv().await, Some(LinkEvent::ToolsChanged));
        shared.stop.cancel();
    }
}
