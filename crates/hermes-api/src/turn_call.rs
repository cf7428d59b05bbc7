//! Shared start and end of all requests that run a turn.

use std::future::Future;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;

use super::admit::TurnPermit;
use super::error::ApiError;
use super::fields::{ApiEndpoint, IgnoredFields};
use super::idempotency::{self, IdempotencyKey};
use super::input::JsonObjectBody;
use super::names::RequestedSession;
use super::recording::{self, HeaderList, RecordedSource};
use super::reply::StoredReply;
use super::{ApiState, sse};

/// A request that may start a turn.
pub(super) struct TurnCall {
    pub(super) permit: TurnPermit,
    pub(super) ignored: IgnoredFields,
    pub(super) named: RequestedSession,
    pub(super) model: Option<String>,
    /// `None`: a repetition would be another request.
    pub(super) repeat: Option<IdempotencyKey>,
}

impl TurnCall {
    /// Checks what does not depend on the endpoint's own fields.
    pub(super) fn admit(
        state: &ApiState,
        endpoint: ApiEndpoint,
        headers: &HeaderMap,
        body: &JsonObjectBody,
    ) -> Result<Self, ApiError> {
        let permit = state.work.admit(state.deps.facts.draining())?;
        let ignored = endpoint.check(body, &state.settings.ignore_fields)?;
        Ok(Self {
            permit,
            ignored,
            named: RequestedSession::read(headers, body)?,
            model: body.text("model")?.map(str::to_owned),
            repeat: match endpoint.idempotency_scope() {
                Some(scope) => IdempotencyKey::read(headers, scope, &body.0)?,
                None => None,
            },
        })
    }
}

/// Sends a whole answer, or the one that an equal request got.
pub(super) async fn answer_whole(
    state: &Arc<ApiState>,
    repeat: Option<IdempotencyKey>,
    session: &str,
    work: impl Future<Output = Result<StoredReply, ApiError>> + Send + 'static,
) -> Result<Response, ApiError> {
    match repeat {
        Some(key) => {
            let answer = idempotency::answer(state, key, session, work).await?;
            Ok(answer.response())
        }
        None => Ok(work.await?.response()),
    }
}

/// The same for a stream.
pub(super) async fn answer_stream<S: RecordedSource>(
    state: &Arc<ApiState>,
    repeat: Option<IdempotencyKey>,
    session: &str,
    begin: impl Future<Output = Result<(S, HeaderList), ApiError>> + Send + 'static,
) -> Result<Response, ApiError> {
    match repeat {
        Some(key) => recording::answer(state, key, session, begin).await,
        None => begin.await.map(sse::with_headers),
    }
}
