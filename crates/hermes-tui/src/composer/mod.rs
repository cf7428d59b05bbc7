//! The box a person writes in.
