//! The interface over a terminal of bytes.

mod screen;
