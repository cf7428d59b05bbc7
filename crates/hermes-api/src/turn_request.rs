//! The session of a request and the options to open it.

use hermes_app::{FrontEndKind, OpeningRequest};
use hermes_core::event::UserInput;
use hermes_core::message::Message;
use hermes_platforms::definition;

use super::error::ApiError;
use super::input::{self, ClientConversation};
use super::names::{self, RequestedSession};
use super::threads::HistoryDigest;
use super::{ApiState, SOURCE};

/// The session of a turn.
#[derive(Clone, Copy)]
pub(super) enum SessionChoice<'a> {
    /// With an id that was made for it.
    New(&'a str),
    /// With an id that the client named; it may be stored.
    Existing(&'a str),
}

/// A conversation to open, and the message for it.
pub(super) struct TurnRequest {
    pub(super) opening: OpeningRequest,
    pub(super) input: UserInput,
    /// The digest of the history, if the client stores the conversation itself.
    pub(super) mark: Option<HistoryDigest>,
}

impl TurnRequest {
    /// For a client that names a session or stores the conversation itself.
    pub(super) async fn find(
        state: &ApiState,
        named: &RequestedSession,
        model: Option<&str>,
        conversation: ClientConversation,
    ) -> Result<Self, ApiError> {
        let ClientConversation {
            system,
            history,
            now,
        } = conversation;
        if let Some(id) = &named.session {
            let content = input::user_input(now);
            return Self::named(
                state,
                SessionChoice::Existing(id),
                model,
                (system, history),
                content,
            )
            .await;
        }
        let route = state.settings.route(model);
        let start = HistoryDigest::start(route.map_or("", |route| &route.model), system.as_deref());
        let before = start.after_all(&history);
        let known = if history.is_empty() {
            None
        } else {
            state.threads.take(before)
        };
        let fresh = known.is_none();
        let id = known.unwrap_or_else(|| {
            let first = history.iter().find_map(|message| match message {
                Message::User(user) => Some(&user.content),
                _ => None,
            });
            let stem = start.after("user", first.unwrap_or(&now)).hex(16);
            names::fresh(&format!("api-{stem}-"), 16)
        });
        let mark = Some(before.after("user", &now));
        let mut opening = opening(state, id, model);
        opening.fresh = fresh;
        opening.system = system;
        opening.history = history;
        Ok(Self {
            opening,
            input: input::user_input(now),
            mark,
        })
    }

    /// In a session of this id. `past` is used if the session starts here.
    pub(super) async fn named(
        state: &ApiState,
        session: SessionChoice<'_>,
        model: Option<&str>,
        past: (Option<String>, Vec<Message>),
        mut input: UserInput,
    ) -> Result<Self, ApiError> {
        let (SessionChoice::New(id) | SessionChoice::Existing(id)) = session;
        state.threads.forget(id);
        let mut opening = opening(state, id.to_owned(), model);
        let (system, history) = past;
        opening.history = history;
        if let Some(system) = system.filter(|system| !system.trim().is_empty()) {
            let mark = HistoryDigest::start("", Some(&system));
            if !state.threads.knows(id, mark) {
                if matches!(session, SessionChoice::Existing(_)) && stored(state, id).await? {
                    // Its system prompt is fixed; new instructions are added to the message.
                    input.context = Some(format!(
                        "[Instructions of the client for this conversation]\n{system}"
                    ));
                }
                state.threads.note_instructions(id, mark);
            }
            opening.system = Some(system);
        }
        Ok(Self {
            opening,
            input,
            mark: None,
        })
    }
}

pub(super) fn opening(state: &ApiState, id: String, model: Option<&str>) -> OpeningRequest {
    let route = state.settings.route(model).cloned();
    let (model, provider) = match route {
        Some(route) => (Some(route.model), route.provider),
        None => (None, None),
    };
    OpeningRequest {
        id,
        source: SOURCE.to_owned(),
        kind: FrontEndKind::Service,
        prompt_hint: definition(SOURCE).and_then(|platform| platform.prompt_hint),
        model,
        provider,
        unattended: true,
        keep_open: true,
        ..OpeningRequest::default()
    }
}

/// Whether a session of exactly this id is stored.
pub(super) async fn stored(state: &ApiState, id: &str) -> Result<bool, ApiError> {
    match state.deps.store.get(id).await {
        Ok(record) => Ok(record.id() == id),
        Err(
            hermes_core::store::StoreError::NotFound(_)
            | hermes_core::store::StoreError::Ambiguous { .. },
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
