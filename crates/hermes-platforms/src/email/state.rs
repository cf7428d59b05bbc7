//! The read position and the last mail of each person, stored in the home, so that a restart
//! neither misses nor repeats a mail and replies find their thread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// People whose last mail is remembered.
const MAX_PEOPLE: usize = 500;
/// Message ids of a thread that an answer refers to.
pub(super) const MAX_REFERENCES: usize = 20;

/// The read position in a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MailboxCursor {
    /// As long as this stays, the numbers of mails do.
    pub validity: u32,
    /// The last mail that is dealt with.
    pub uid: u32,
    /// Mails that arrived before this are ignored (seconds since the epoch).
    pub not_before: f64,
    /// When the mailbox was last checked.
    pub looked_at: f64,
}

/// A mail to reply to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MailThread {
    pub message_id: String,
    pub subject: String,
    /// Earlier mails of the thread, oldest first.
    #[serde(default)]
    pub references: Vec<String>,
    /// Counts up with every mail, so that the oldest can be forgotten.
    #[serde(default)]
    pub order: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct MailboxState {
    #[serde(default)]
    cursor: Option<MailboxCursor>,
    #[serde(default)]
    threads: BTreeMap<String, MailThread>,
}

/// Shared between receiving and sending.
#[derive(Clone, Debug)]
pub(super) struct EmailState {
    inner: Arc<EmailStateInner>,
}

#[derive(Debug)]
struct EmailStateInner {
    path: PathBuf,
    account: String,
    /// All accounts that were ever used in this home.
    accounts: Mutex<BTreeMap<String, MailboxState>>,
}

impl EmailState {
    /// Loads the state. An unreadable file is an error: starting over would lose mail.
    pub(super) fn open(path: PathBuf, account: &str) -> Result<Self, String> {
        let accounts = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                format!(
                    "{}: {error}; move it away to start with new mail only",
                    path.display()
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        Ok(Self {
            inner: Arc::new(EmailStateInner {
                path,
                account: account.to_owned(),
                accounts: Mutex::new(accounts),
            }),
        })
    }

    pub(super) fn cursor(&self) -> Option<MailboxCursor> {
        self.accounts().get(&self.inner.account)?.cursor
    }

    pub(super) async fn set_cursor(&self, cursor: MailboxCursor) -> Result<(), String> {
        self.change(|mailbox| mailbox.cursor = Some(cursor)).await
    }

    /// The last mail of a person.
    pub(super) fn thread(&self, person: &str) -> Option<MailThread> {
        let person = person.to_lowercase();
        self.accounts()
            .get(&self.inner.account)?
            .threads
            .get(&person)
            .cloned()
    }

    pub(super) async fn set_thread(
        &self,
        person: &str,
        mut thread: MailThread,
    ) -> Result<(), String> {
        let person = person.to_lowercase();
        self.change(|mailbox| {
            let threads = &mut mailbox.threads;
            thread.order = threads
                .values()
                .map(|thread| thread.order)
                .max()
                .unwrap_or(0)
                + 1;
            threads.insert(person, thread);
            while threads.len() > MAX_PEOPLE {
                let oldest = threads.iter().min_by_key(|(_, thread)| thread.order);
                let Some(oldest) = oldest.map(|(person, _)| person.clone()) else {
                    break;
                };
                threads.remove(&oldest);
            }
        })
        .await
    }

    /// Changes and writes the state. Receiving is one task, so writes do not overtake each other.
    async fn change(&self, change: impl FnOnce(&mut MailboxState)) -> Result<(), String> {
        let text = {
            let mut accounts = self.accounts();
            change(accounts.entry(self.inner.account.clone()).or_default());
            serde_json::to_vec_pretty(&*accounts).map_err(|error| error.to_string())?
        };
        let path = self.inner.path.clone();
        let written = tokio::task::spawn_blocking(move || write(&path, &text)).await;
        let path = self.inner.path.display();
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("{path}: {error}")),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }

    fn accounts(&self) -> MutexGuard<'_, BTreeMap<String, MailboxState>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.inner
            .accounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    hermes_config::fs::write_atomic(path, text, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_outlives_the_process_and_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway/email.json");
        let cursor = MailboxCursor {
            validity: 7,
            uid: 9,
            not_before: 0.0,
            looked_at: 5.5,
        };
        let state = EmailState::open(path.clone(), "a@h").unwrap();
        assert_eq!(state.cursor(), None);
        state.set_cursor(cursor).await.unwrap();
        for number in 0..MAX_PEOPLE + 2 {
            let thread = MailThread {
                message_id: number.to_string(),
                ..MailThread::default()
            };
            state.accounts().get_mut("a@h").unwrap().threads.insert(
                format!("{number}@x"),
                MailThread {
                    order: number as u64,
                    ..thread
                },
            );
        }
        state
            .set_thread("Last@X", MailThread::default())
            .await
            .unwrap();
        let again = EmailState::open(path.clone(), "a@h").unwrap();
        assert_eq!(again.cursor(), Some(cursor));
        assert_eq!(again.accounts()["a@h"].threads.len(), MAX_PEOPLE);
        assert_eq!(
            (again.thread("0@x"), again.thread("last@x").is_some()),
            (None, true)
        );
        assert_eq!(
            EmailState::open(path.clone(), "b@h").unwrap().cursor(),
            None
        );
        std::fs::write(&path, "{").unwrap();
        assert!(
            EmailState::open(path, "a@h")
                .unwrap_err()
                .contains("move it away")
        );
    }
}
