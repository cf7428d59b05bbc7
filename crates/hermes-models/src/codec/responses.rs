//! OpenAI responses. Nothing is stored at the provider: every request carries the whole log.

mod decode;
mod encode;
mod wire;

#[cfg(test)]
mod tests;

pub(super) use decode::ResponsesDecoder;
pub(super) use encode::encode;
