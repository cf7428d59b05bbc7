//! The platforms, one module each. None knows another.

pub mod discord;
pub mod email;
pub mod form;
pub mod http;
pub mod slack;
pub mod telegram;
pub mod webhook;
