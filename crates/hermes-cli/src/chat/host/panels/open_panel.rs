//! What belongs to the open panel: notes, and work that goes on beside it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::task;
use hermes_models::live::LocalServerInfo;
use hermes_tui::port::Panel;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How often a panel is shown anew while something goes on.
const SOON: Duration = Duration::from_millis(250);

/// One open panel at a time; what an earlier one was doing stops.
#[derive(Default)]
pub(crate) struct OpenPanel {
    stop: CancellationToken,
    shared: Arc<Mutex<PanelResults>>,
    /// What was looked for in conversations.
    pub(super) query: String,
    /// The theme that is put back when the person changes their mind.
    pub(super) theme: Option<String>,
    /// Where the address goes that a browser ended up at.
    pub(super) login: Option<mpsc::Sender<String>>,
}

/// What work beside the panel leaves for it.
#[derive(Default)]
pub(super) struct PanelResults {
    busy: Option<String>,
    note: Option<String>,
    /// Model servers of this machine; `None`: not asked yet.
    pub(super) found: Option<Vec<LocalServerInfo>>,
    /// The models of a server that only the config names.
    pub(super) served: Vec<String>,
    /// What a test of a row said.
    pub(super) tried: BTreeMap<String, String>,
    /// A model server that the person has named.
    pub(super) endpoint: Option<super::own::OwnEndpoint>,
    /// It was just named: the list goes there.
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

    /// A way to leave something from work that goes on beside the panel.
    pub(super) fn tray(&self) -> PanelResultsHandle {
        PanelResultsHandle(Arc::clone(&self.shared))
    }

    /// Does something beside the panel, which says so. What comes of it is noted below the list.
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

    /// Puts what is noted and what goes on into a panel.
    pub(super) fn dress(&self, panel: &mut Panel) {
        let shared = self.shared();
        if let Some(note) = &shared.note {
            for line in note.lines().rev() {
                panel.footer.insert(0, line.to_owned());
            }
        }
        if let Some(busy) = &shared.busy {
            panel.busy = Some(busy.clone());
            panel.refresh = Some(panel.refresh.map_or(SOON, |every| every.min(SOON)));
        }
    }
}

impl Drop for OpenPanel {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Where work beside a panel leaves what it found.
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
        assert_eq!(panel.refresh, Some(SOON));
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
