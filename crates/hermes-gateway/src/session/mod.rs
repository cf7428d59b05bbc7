//! Which conversation a message belongs to, and when a new one starts.
//!
//! Keys, entries and policies are those of the original, so that a chat stays in the same
//! conversation whichever program serves it.

mod entry;
mod index;
mod key;
mod reset;
mod whatsapp;

pub use entry::SessionEntry;
pub use index::SessionIndex;
pub(crate) use index::SessionIndexError;
pub use key::{SessionKey, SessionSharing};
pub(crate) use reset::{ResetMode, ResetPolicies, ResetPolicy, ResetReason};
pub(crate) use whatsapp::canonical as canonical_whatsapp_id;
