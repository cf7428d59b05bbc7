//! Lists that things can be done to, for the full interface.

mod desk;

use hermes_core::slash::Verb;
use hermes_tui::port::PanelAsk;

pub(crate) use self::desk::Desk;
use crate::chat::conversation::{Conversation, Told};
use crate::exit::Failure;

/// The panel of a command. `None`: it has none, or not with these arguments.
pub(crate) async fn open(
    _conversation: &mut Conversation,
    _verb: Verb,
    _rest: &str,
) -> Result<Option<Told>, Failure> {
    Ok(None)
}

/// A key of a panel.
pub(crate) async fn act(_conversation: &mut Conversation, _ask: PanelAsk) -> Result<Told, Failure> {
    Ok(Told::default())
}
