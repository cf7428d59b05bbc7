//! What a command may do.
