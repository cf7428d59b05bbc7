//! Email: receives by IMAP, sends by SMTP.
//!
//! - A mail is dealt with once, in the order of the mailbox. How far we are is kept in the home
//!   (`gateway/email.json`) and moves on only after a mail is stored; what came while we were away
//!   is found at the next start. What lay there before the very first start is not answered.
//! - Nothing is marked as read but what was taken in, and that only after it is stored.
//! - Who wrote is believed only when our own mail server confirms it.
//! - An answer has an id made from its key in the outbox: sent again, it is the same mail.

mod account;
mod automated;
mod compose;
mod definition;
mod imap;
mod inbound;
mod message;
mod outbound;
mod proof;
mod quote;
mod smtp;
mod state;
mod wire;

use std::path::Path;
use std::sync::Arc;

use hermes_core::clock::{Clock, Rng};

use crate::platform::Platform;
use crate::settings::PlatformSettings;

pub(crate) use account::EmailAccount;
pub(crate) use definition::DEFINITION;

/// The name in sessions, settings and files.
pub(crate) const NAME: &str = "email";
/// Prefix of the ids of our own mails.
const OWN_ID: &str = "hermes.";

/// The configured account. `Err`: what is wrong, for display.
pub fn platform(
    settings: &PlatformSettings,
    home: &Path,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
) -> Result<Platform, String> {
    let account = EmailAccount::new(settings)?;
    let state = state::EmailState::open(home.join("gateway/email.json"), &account.key())?;
    let exclusive = Some(account.key());
    let account = Arc::new(account);
    Ok(Platform {
        name: NAME,
        account: String::new(),
        exclusive,
        inbound: Box::new(inbound::EmailInbox::new(
            Arc::clone(&account),
            state.clone(),
            Arc::clone(&clock),
            rng,
        )),
        outbound: Arc::new(outbound::EmailSender::new(account, state, clock)),
    })
}
