//! From messages to turns to replies.
