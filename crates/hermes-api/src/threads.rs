//! Finds the session for clients that store the conversation themselves.
//!
//! Such a client sends the whole conversation with every request. A request continues a session
//! exactly if it repeats that session's history: each answer leaves a digest of all messages, and a
//! request that matches a digest takes over the session (and the digest). Otherwise (an edited or
//! repeated message, or a conversation with the same beginning) it gets a new session with the sent
//! history.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_core::message::{Content, Message, Part};
use sha2::{Digest as _, Sha256};

/// Maximum number of continuable sessions. The least recently used are forgotten and continue in a
/// new session.
const MAX_THREADS: usize = 4096;

/// A digest of all messages so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HistoryDigest([u8; 32]);

impl HistoryDigest {
    /// The digest of an empty conversation.
    pub(super) fn start(model: &str, system: Option<&str>) -> Self {
        let mut hash = Sha256::new();
        hash.update(model.as_bytes());
        hash.update([0]);
        hash.update(system.unwrap_or_default().trim().as_bytes());
        Self(hash.finalize().into())
    }

    #[must_use]
    pub(super) fn after(self, role: &str, content: &Content) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(role.as_bytes());
        hash.update([0]);
        // Clients trim displayed text.
        hash.update(content.text().trim().as_bytes());
        if let Content::Parts(parts) = content {
            for part in parts {
                if let Part::Image { image_url, .. } = part {
                    hash.update([0]);
                    hash.update(image_url.url.as_bytes());
                }
            }
        }
        Self(hash.finalize().into())
    }

    #[must_use]
    pub(super) fn after_all(self, messages: &[Message]) -> Self {
        messages.iter().fold(self, |mark, message| match message {
            Message::User(user) => mark.after("user", &user.content),
            Message::Assistant(assistant) => mark.after_text("assistant", &assistant.text),
            Message::Tool(result) => mark.after("tool", &result.content),
        })
    }

    #[must_use]
    pub(super) fn after_text(self, role: &str, text: &str) -> Self {
        // The same bytes as `after` of that text, without a copy of it.
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(role.as_bytes());
        hash.update([0]);
        hash.update(text.trim().as_bytes());
        Self(hash.finalize().into())
    }

    pub(super) fn hex(self, digits: usize) -> String {
        let mut text = hermes_core::bytes::hex(&self.0);
        text.truncate(digits);
        text
    }
}

/// Sessions by the digest of their history.
#[derive(Default)]
pub(super) struct Threads(Mutex<ThreadTable>);

#[derive(Default)]
struct ThreadTable {
    sessions: HashMap<HistoryDigest, String>,
    marks: HashMap<String, HistoryDigest>,
    /// Oldest first; entries taken since are skipped.
    order: VecDeque<HistoryDigest>,
    /// The last instructions of a session's client.
    noted_instructions: HashMap<String, HistoryDigest>,
    told_order: VecDeque<String>,
}

impl Threads {
    fn inner(&self) -> MutexGuard<'_, ThreadTable> {
        // A panic while holding this lock leaves at worst an unreachable digest.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session with exactly this history, if it was not continued yet.
    pub(super) fn take(&self, mark: HistoryDigest) -> Option<String> {
        let mut inner = self.inner();
        let session = inner.sessions.remove(&mark)?;
        inner.marks.remove(&session);
        Some(session)
    }

    /// Registers the history of a session.
    pub(super) fn register(&self, mark: HistoryDigest, session: &str) {
        let mut inner = self.inner();
        if let Some(old) = inner.marks.insert(session.to_owned(), mark) {
            inner.sessions.remove(&old);
        }
        if let Some(other) = inner.sessions.insert(mark, session.to_owned())
            && other != session
        {
            inner.marks.remove(&other);
        }
        inner.order.push_back(mark);
        while inner.sessions.len() > MAX_THREADS {
            let Some(oldest) = inner.order.pop_front() else {
                break;
            };
            if let Some(session) = inner.sessions.remove(&oldest) {
                inner.marks.remove(&session);
            }
        }
        if inner.order.len() > 2 * MAX_THREADS {
            let ThreadTable {
                order, sessions, ..
            } = &mut *inner;
            order.retain(|mark| sessions.contains_key(mark));
        }
    }

    /// The session is used by its id: the history known to its client is no longer complete.
    pub(super) fn forget(&self, session: &str) {
        let mut inner = self.inner();
        if let Some(mark) = inner.marks.remove(session) {
            inner.sessions.remove(&mark);
        }
    }

    /// Whether these were the last instructions of a session.
    pub(super) fn knows(&self, session: &str, instructions: HistoryDigest) -> bool {
        self.inner().noted_instructions.get(session) == Some(&instructions)
    }

    pub(super) fn note_instructions(&self, session: &str, instructions: HistoryDigest) {
        let mut inner = self.inner();
        if inner
            .noted_instructions
            .insert(session.to_owned(), instructions)
            .is_none()
        {
            inner.told_order.push_back(session.to_owned());
        }
        if inner.noted_instructions.len() > MAX_THREADS
            && let Some(oldest) = inner.told_order.pop_front()
        {
            inner.noted_instructions.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(texts: &[&str]) -> HistoryDigest {
        let start = HistoryDigest::start("m", None);
        texts
            .iter()
            .fold(start, |mark, text| mark.after_text("user", text))
    }

    #[test]
    fn a_session_goes_on_once_for_whoever_says_the_same() {
        let threads = Threads::default();
        threads.register(mark(&["a", "b"]), "one");
        assert_eq!(threads.take(mark(&["a", "c"])), None);
        assert_eq!(threads.take(mark(&["a", "b"])).as_deref(), Some("one"));
        assert_eq!(
            threads.take(mark(&["a", "b"])),
            None,
            "the session has moved on"
        );
        threads.register(mark(&["a"]), "one");
        threads.register(mark(&["a", "b"]), "one");
        assert_eq!(threads.take(mark(&["a"])), None, "one mark per session");
        threads.forget("one");
        assert_eq!(threads.take(mark(&["a", "b"])), None);
    }

    #[test]
    fn both_ways_to_write_a_text_are_one() {
        let start = HistoryDigest::start("m", Some(" s "));
        assert_eq!(start, HistoryDigest::start("m", Some("s")));
        assert_ne!(start, HistoryDigest::start("n", Some("s")));
        let content = Content::Text(" hello\n".to_owned());
        assert_eq!(
            start.after("user", &content),
            start.after_text("user", "hello")
        );
        assert_ne!(
            start.after_text("user", "x"),
            start.after_text("assistant", "x")
        );
        let picture = |url: &str| Content::Parts(vec![Part::text("x"), Part::image(url)]);
        assert_ne!(
            start.after("user", &picture("http://a/1")),
            start.after("user", &picture("http://a/2"))
        );
    }

    #[test]
    fn marks_are_bounded() {
        let threads = Threads::default();
        for number in 0..3 * MAX_THREADS {
            let text = number.to_string();
            threads.register(mark(&[&text]), &text);
            threads.note_instructions(&text, mark(&[]));
        }
        let inner = threads.inner();
        assert_eq!(
            (inner.sessions.len(), inner.marks.len()),
            (MAX_THREADS, MAX_THREADS)
        );
        assert!(inner.order.len() <= 2 * MAX_THREADS);
        assert_eq!(
            (inner.noted_instructions.len(), inner.told_order.len()),
            (MAX_THREADS, MAX_THREADS)
        );
    }
}
