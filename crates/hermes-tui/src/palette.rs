//! Everything that can be done, with its key.
