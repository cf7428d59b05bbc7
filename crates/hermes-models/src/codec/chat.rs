//! OpenAI chat completions, as spoken by most servers.

mod calls;
mod decode;
mod details;
mod encode;
mod wire;

#[cfg(test)]
mod tests;

pub(super) use decode::{ChatDecoder, is_event};
pub(super) use encode::encode;
