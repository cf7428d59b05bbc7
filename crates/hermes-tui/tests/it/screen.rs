//! The screen over vt100.
