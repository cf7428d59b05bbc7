//! Selects the session of a conversation: a stored one, a new one, or one chosen by the caller.

use std::path::PathBuf;

use hermes_agent::SessionStart;
use hermes_core::clock::Clock;
use hermes_core::ids::SessionId;
use hermes_core::store::{NewItem, NewSession, SessionStore as _, StoredSession};
use hermes_store::{ListFilter, SessionOrder, Store};

use super::front_end::{FrontEndSettings, NamedSession};
use super::git;
use crate::context::AppContext;
use crate::failure::Failure;
use crate::options::TurnOptions;

pub(super) async fn find_session(
    options: &TurnOptions,
    store: &Store,
) -> Result<Option<StoredSession>, Failure> {
    let reference = match (&options.resume, options.resume_latest.as_deref()) {
        (Some(reference), _) => reference.clone(),
        (None, Some("")) => latest(options.source(), store).await?,
        (None, Some(title)) => title.to_owned(),
        (None, None) => return Ok(None),
    };
    let id = store.resolve_for_resume(&reference).await?;
    match store.load(&id).await? {
        Some(session) => Ok(Some(session)),
        None => Err(Failure::not_found(format!("no session {reference}"))),
    }
}

/// The session of this source with the latest message.
async fn latest(source: &str, store: &Store) -> Result<String, Failure> {
    let filter = ListFilter {
        source: Some(source.to_owned()),
        order: SessionOrder::LastActive,
        limit: 1,
        ..ListFilter::default()
    };
    match store.list(filter).await?.into_iter().next() {
        Some(session) => Ok(session.id),
        None => Err(Failure::not_found("no session to continue yet")),
    }
}

/// The recorded owner of a session.
#[derive(Clone, Copy)]
pub(super) struct SessionOwner<'a> {
    pub(super) source: &'a str,
    pub(super) user_id: Option<&'a str>,
}

impl<'a> SessionOwner<'a> {
    pub(super) fn new(source: &'a str, front_end: &'a FrontEndSettings) -> Self {
        Self {
            source,
            user_id: front_end.user_id.as_deref(),
        }
    }
}

/// The stored session to continue, if there is one, and the id of the session. `new_id`: the id of a new one.
pub(super) async fn stored_session(
    named: Option<NamedSession>,
    (options, cx, who): (&TurnOptions, &AppContext, SessionOwner<'_>),
    store: &Store,
    clock: &dyn Clock,
    new_id: SessionId,
) -> Result<(Option<StoredSession>, SessionId), Failure> {
    match named {
        None => Ok((find_session(options, store).await?, new_id)),
        Some(named) => stored_or_begun(named, (options, cx, who), store, clock).await,
    }
}

/// The session with this id. If missing, it starts with the given history.
async fn stored_or_begun(
    beginning: NamedSession,
    (options, cx, who): (&TurnOptions, &AppContext, SessionOwner<'_>),
    store: &Store,
    clock: &dyn Clock,
) -> Result<(Option<StoredSession>, SessionId), Failure> {
    let NamedSession { id, fresh, history } = beginning;
    let stored = if fresh { None } else { store.load(&id).await? };
    if stored.is_some() || history.is_empty() {
        return Ok((stored, id));
    }
    let SessionStart::New(new) = start(options, cx, None, who, (id.clone(), clock))? else {
        return Ok((None, id));
    };
    store.begin(*new).await?;
    let at = clock.epoch_seconds();
    let item = |message| NewItem {
        message,
        at,
        token_count: None,
        platform_message_id: None,
    };
    let items = history.into_iter().map(item).collect();
    store.append(&id, items).await?;
    Ok((store.load(&id).await?, id))
}

pub(super) fn start(
    options: &TurnOptions,
    cx: &AppContext,
    stored: Option<StoredSession>,
    who: SessionOwner<'_>,
    (id, clock): (SessionId, &dyn Clock),
) -> Result<SessionStart, Failure> {
    let start_dir = match &options.cwd {
        Some(named) => named.clone(),
        None => std::env::current_dir().map_err(|error| {
            Failure::failed(format!(
                "the working directory is gone ({error}); cd to another one"
            ))
        })?,
    };
    if let Some(session) = stored {
        let was = session
            .cwd
            .clone()
            .filter(|was| !options.no_restore_cwd && was.is_dir());
        return Ok(SessionStart::Resume {
            cwd: was.unwrap_or(start_dir),
            session: Box::new(session),
        });
    }
    let (git_repo_root, git_branch) = git(&start_dir);
    Ok(SessionStart::New(Box::new(NewSession {
        id: Some(id),
        source: who.source.to_owned(),
        user_id: who.user_id.map(str::to_owned),
        cwd: Some(start_dir),
        git_branch,
        git_repo_root,
        profile: cx.home.profile().map(str::to_owned),
        started_at: clock.epoch_seconds(),
        ..NewSession::default()
    })))
}

pub(super) fn cwd(start: &SessionStart) -> PathBuf {
    match start {
        SessionStart::New(new) => new.cwd.clone().unwrap_or_default(),
        SessionStart::Resume { cwd, .. } => cwd.clone(),
    }
}
