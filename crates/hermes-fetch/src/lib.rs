//! The web, guarded.
