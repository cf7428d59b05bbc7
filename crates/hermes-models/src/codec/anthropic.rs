//! Anthropic messages.

mod assistant;
mod decode;
mod encode;
mod wire;

#[cfg(test)]
mod tests;

pub(super) use decode::AnthropicDecoder;
pub(super) use encode::encode;
