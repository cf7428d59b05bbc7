//! The state of the open panel: notes and background work.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::task;
use hermes_models::live::LocalServerInfo;
use hermes_tui::port::Panel;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Refresh interval while work is running.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// One open panel at a time; work of an earlier one is cancelled.
#[derive(Default)]
pub(crate) struct OpenPanel {
    stop: CancellationToken,
    shared: Arc<Mutex<PanelResults>>,
    /// The search text for conversations.
    pub(super) query: String,
    /// The theme to restore on cancel.
    pub(super) theme: Option<String>,
    /// Receives the final address of a browser login.
    pub(super) login: Option<mpsc::Sender<String>>,
}

/// Results of background work for the panel.
#[derive(Default)]
pub(super) struct PanelResults {
    busy: Option<String>,
    note: Option<String>,
    /// Model servers of this machine; `None`: not queried yet.
    pub(super) found: Option<Vec<LocalServerInfo>>,
    /// The models of a server that only the config names.
    pub(super) served: Vec<String>,
    /// Test results by row.
    pub(super) tried: BTreeMap<String, String>,
    /// A model server entered by the person.
    pub(super) endpoint: Option<super::custom_endpoint::CustomEndpoint>,
    /// It was just entered: the list scrolls there.
    pub(super) goes_to_endpoint: bool,
}

impl OpenPanel {
    /// A panel opens.
    pub(super) fn begin(&mut self) {
        self.end();
        *self = Self::default();
    }

    /// It is closed.
    pub(super) fn end(&mut self) {
        self.stop.cancel();
        self.login = None;
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, PanelResults> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, text: impl Into<String>) {
        self.shared().note = Some(text.into());
    }

    pub(super) fn forget_note(&self) {
        self.shared().note = None;
    }

    pub(super) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// A handle for background work to store results.
    pub(super) fn tray(&self) -> PanelResultsHandle {
        PanelResultsHandle(Arc::clone(&self.shared))
    }

    /// Runs work in the background, which the panel shows. The result is noted below the list.
    pub(super) fn start(
        &self,
        name: &'static str,
        label: impl Into<String>,
        work: impl Future<Output = Result<Option<String>, String>> + Send + 'static,
    ) {
        self.shared().busy = Some(label.into());
        let (stop, tray) = (self.stopped(), self.tray());
        task::spawn(name, async move {
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = work => done,
            };
            let mut shared = tray.lock();
            shared.busy = None;
            match done {
                Ok(Some(note)) => shared.note = Some(note),
                Ok(None) => {}
                Err(why) => shared.note = Some(format!("failed: {why}")),
            }
        });
    }

    /// Adds notes and the state of background work to a panel.
    pub(super) fn dress(&self, panel: &mut Panel) {
        let shared = self.shared();
        if let Some(note) = &shared.note {
            for line in note.lines().rev() {
                panel.footer.insert(0, line.to_owned());
            }
        }
        if let Some(busy) = &shared.busy {
            panel.busy = Some(busy.clone());
            panel.refresh = Some(
                panel
                    .refresh
                    .map_or(REFRESH_INTERVAL, |every| every.min(REFRESH_INTERVAL)),
            );
        }
    }
}

impl Drop for OpenPanel {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A handle for background work to store results.
#[derive(Clone)]
pub(super) struct PanelResultsHandle(Arc<Mutex<PanelResults>>);

impl PanelResultsHandle {
    pub(super) fn lock(&self) -> MutexGuard<'_, PanelResults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, text: impl Into<String>) {
        self.lock().note = Some(text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_said_and_its_end_is_noted() {
        let mut desk = OpenPanel::default();
        desk.begin();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        desk.start("test", "asking", async move {
            wait.await.map_err(|_| "gone".to_owned())?;
            Ok(Some("it works".to_owned()))
        });
        let mut panel = Panel::default();
        desk.dress(&mut panel);
        assert_eq!(panel.busy.as_deref(), Some("asking"));
        assert_eq!(panel.refresh, Some(REFRESH_INTERVAL));
        go.send(()).unwrap();
        while desk.shared().busy.is_some() {
            tokio::task::yield_now().await;
        }
        let mut panel = Panel::default();
        desk.dress(&mut panel);
        assert_eq!((panel.busy, panel.refresh), (None, None));
        assert_eq!(panel.footer, ["it works"]);
        desk.forget_note();
        let mut panel = Panel::default();
        desk.dress(&mut panel);
        assert!(panel.footer.is_empty());
    }

    #[tokio::test]
    async fn a_panel_that_closes_stops_its_work() {
        let mut desk = OpenPanel::default();
        desk.begin();
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        desk.start("test", "asking", async move {
            let _alive = alive;
            std::future::pending().await
        });
        desk.end();
        // The work was dropped, and with it the other end.
        assert!(gone.await.is_err());
    }
}
