//! Which conversation a message belongs to, and when a new one starts.
//!
//! Keys, entries and policies are those of the original, so that a chat stays in the same
//! conversation whichever program serves it.

mod entry;
mod index;
mod key;
mod reset;
mod whatsapp;

pub use entry::{SessionEntry, SessionEntryError};
pub use index::{SessionIndex, SessionIndexError};
pub use key::{KeyParts, SessionKey, SessionSharing};
pub use reset::{ResetMode, ResetPolicies, ResetPolicy, ResetReason};
pub use whatsapp::canonical as canonical_whatsapp_id;
