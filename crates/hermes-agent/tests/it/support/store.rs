//! A store in memory that remembers the order of what was asked of it.

use std::sync::Mutex;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::ids::{RowId, SessionId};
use hermes_core::message::Message;
use hermes_core::store::{
    NewItem, NewSession, SessionStore, SessionUpdate, StoreError, StoredItem, StoredSession,
};

#[derive(Default)]
pub(crate) struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<NewSession>,
    items: Vec<StoredItem>,
    /// Rows that compaction hid.
    hidden: Vec<StoredItem>,
    /// What rewinds hid.
    undone: Vec<StoredItem>,
    next: i64,
    journal: Vec<String>,
    updates: Vec<SessionUpdate>,
    title: Option<String>,
    fail_after: Option<usize>,
}

impl MemoryStore {
    /// The store that fails from the nth write on.
    pub(crate) fn failing_after(writes: usize) -> Self {
        let store = Self::default();
        store.state.lock().unwrap().fail_after = Some(writes);
        store
    }

    /// What happened, in order. Tests add their own lines.
    pub(crate) fn journal(&self) -> Vec<String> {
        self.state.lock().unwrap().journal.clone()
    }

    pub(crate) fn note(&self, line: impl Into<String>) {
        self.state.lock().unwrap().journal.push(line.into());
    }

    pub(crate) fn updates(&self) -> Vec<SessionUpdate> {
        self.state.lock().unwrap().updates.clone()
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        let state = self.state.lock().unwrap();
        state
            .items
            .iter()
            .map(|item| item.message.clone())
            .collect()
    }

    pub(crate) fn hidden(&self) -> Vec<Message> {
        let state = self.state.lock().unwrap();
        state
            .hidden
            .iter()
            .map(|item| item.message.clone())
            .collect()
    }

    fn write<T>(&self, act: impl FnOnce(&mut State) -> T) -> Result<T, StoreError> {
        let mut state = self.state.lock().unwrap();
        if let Some(left) = &mut state.fail_after {
            if *left == 0 {
                return Err(StoreError::Busy {
                    waited: Duration::from_secs(1),
                });
            }
            *left -= 1;
        }
        Ok(act(&mut state))
    }
}

fn short(message: &Message) -> String {
    match message {
        Message::User(user) => format!("user {}", user.content.text()),
        Message::Assistant(answer) => {
            let names: Vec<&str> = answer
                .tool_calls
                .iter()
                .map(|call| call.name.as_str())
                .collect();
            format!("assistant {}[{}]", answer.text, names.join(" "))
        }
        Message::Tool(tool) => format!("tool {}", tool.name),
    }
}

impl State {
    fn add(&mut self, items: Vec<NewItem>) -> Vec<RowId> {
        items
            .into_iter()
            .map(|item| {
                self.next += 1;
                let id = RowId(self.next);
                self.journal.push(format!("store {}", short(&item.message)));
                self.items.push(StoredItem {
                    id,
                    message: item.message,
                    at: item.at,
                });
                id
            })
            .collect()
    }
}

impl SessionStore for MemoryStore {
    fn begin(&self, session: NewSession) -> BoxFuture<'_, Result<(), StoreError>> {
        let done = self.write(|state| {
            state.journal.push("begin".into());
            state.session = Some(session);
        });
        Box::pin(std::future::ready(done))
    }

    fn append<'a>(
        &'a self,
        _id: &'a SessionId,
        items: Vec<NewItem>,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        Box::pin(std::future::ready(self.write(|state| state.add(items))))
    }

    fn load<'a>(
        &'a self,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<StoredSession>, StoreError>> {
        let state = self.state.lock().unwrap();
        let loaded = state.session.as_ref().map(|session| StoredSession {
            id: id.clone(),
            source: session.source.clone(),
            model: session.model.clone(),
            billing_provider: Some("test".into()),
            model_config: None,
            system_prompt: session.system_prompt.clone(),
            title: state.title.clone(),
            cwd: session.cwd.clone(),
            parent: None,
            ended: false,
            compacted_before: !state.hidden.is_empty(),
            compaction_cooldown_until: None,
            items: state.items.clone(),
        });
        Box::pin(std::future::ready(Ok(loaded)))
    }

    fn compact<'a>(
        &'a self,
        _id: &'a SessionId,
        _upto: RowId,
        view: Vec<NewItem>,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        let done = self.write(|state| {
            state.journal.push("compact".into());
            let old = std::mem::take(&mut state.items);
            state.hidden.extend(old);
            state.add(view)
        });
        Box::pin(std::future::ready(done))
    }

    fn rewind<'a>(
        &'a self,
        _id: &'a SessionId,
        from: RowId,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        let done = self.write(|state| {
            let at = state.items.partition_point(|item| item.id < from);
            let undone = state.items.split_off(at);
            let count = undone.len();
            state.undone.extend(undone);
            count
        });
        Box::pin(std::future::ready(done))
    }

    fn update<'a>(
        &'a self,
        _id: &'a SessionId,
        update: SessionUpdate,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let done = self.write(|state| {
            if let SessionUpdate::Restore { rows } = &update {
                let mut back: Vec<StoredItem> = std::mem::take(&mut state.undone);
                state
                    .undone
                    .extend(back.extract_if(.., |item| !rows.contains(&item.id)));
                state.items.extend(back);
                state.items.sort_by_key(|item| item.id);
            }
            state.updates.push(update);
        });
        Box::pin(std::future::ready(done))
    }

    fn set_title<'a>(
        &'a self,
        _id: &'a SessionId,
        title: &'a str,
        _auto: bool,
    ) -> BoxFuture<'a, Result<String, StoreError>> {
        let done = self.write(|state| {
            state.title = Some(title.into());
            title.to_owned()
        });
        Box::pin(std::future::ready(done))
    }

    fn lock_compaction<'a>(
        &'a self,
        _id: &'a SessionId,
        _holder: &'a str,
        _ttl: Duration,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(true)))
    }
}
