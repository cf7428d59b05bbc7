//! The terminal interface.
//!
//! It renders what a session reports and sends what a person types; it knows no model, no store and
//! no tool. Everything it needs comes and goes through a [`port::Port`], so that a test drives it
//! with two channels and a terminal of bytes.

pub mod ansi;
pub mod app;
pub mod cells;
pub mod composer;
pub mod diff;
pub mod figures;
pub mod highlight;
pub mod input;
pub mod keys;
pub mod markdown;
pub mod pager;
pub mod palette;
pub mod panel;
pub mod picker;
pub mod port;
pub mod prompt;
pub mod row;
pub mod screen;
pub mod theme;
pub mod width;
