//! Speech: heard and spoken.
