//! Anthropic messages.

mod assistant;
mod decode;
mod encode;
mod wire;

pub(super) use decode::Decoder;
pub(super) use encode::encode;
