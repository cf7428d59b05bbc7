//! What the home says about the gateway and its platforms.
//!
//! Environment, then config.yaml (top level, then under `gateway:`), then the old gateway.json,
//! then defaults.

mod platform;

pub use platform::{HomeChannel, PlatformSettings, ReplyTo};
