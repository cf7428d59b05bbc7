//! The engine: opens a GGUF file and continues a prompt, one token at a time.
//!
//! An [`Engine`] lives on one thread of its own; the products with its weights use a small pool of
//! threads below it. Nothing here is asynchronous.

mod error;
mod tokenizer;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{EngineError, OpenError};
pub use tokenizer::{TextStream, Tokenizer};

/// How a model is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads for the arithmetic; 0 means one per core.
    pub threads: usize,
    /// Where the requantised weights are kept; without it they are made at each start.
    pub cache: Option<PathBuf>,
    /// At most so many tokens of context; without it, or when it is more than the model has, the
    /// model's own limit.
    pub context: Option<usize>,
}

/// A token that has a role, with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Special {
    pub id: u32,
    pub text: String,
}

/// What is known about an open model.
#[derive(Clone, Debug)]
pub struct Facts {
    pub name: String,
    pub architecture: String,
    pub parameters: u64,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// The chat template (Jinja) of the file.
    pub template: Option<String>,
    pub bos: Option<Special>,
    pub eos: Option<Special>,
    /// Whether a prompt starts with `bos` when the template does not write it.
    pub add_bos: bool,
    /// Every token that ends an answer, `eos` among them.
    pub ends: Vec<u32>,
    pub vocabulary: usize,
    /// What most of the weights in the file are stored as, for example `Q4_1`.
    pub quantisation: String,
}

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// Only the most likely tokens that together have this share.
    pub top_p: f32,
    pub seed: u64,
    /// At most so many tokens are generated.
    pub max_tokens: usize,
}

/// Restricts what comes next. Consulted for each token.
pub trait Constraint {
    /// Sets the logits of forbidden tokens to negative infinity.
    fn mask(&mut self, logits: &mut [f32]);
    fn accept(&mut self, token: u32);
    /// Nothing may follow: generation ends without another token.
    fn finished(&self) -> bool;
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model said that it is done.
    Eos,
    /// `max_tokens` or the context is used up.
    Length,
    /// The constraint is satisfied, nothing may follow.
    Constraint,
    /// `on_token` wanted no more.
    Break,
    /// `stop` said so.
    Stopped,
}

/// What a generation did.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// How many of them were in the cache already.
    pub reused: usize,
    /// Tokens that were handed to `on_token`.
    pub generated: usize,
    pub prefill: Duration,
    pub decode: Duration,
    pub end: End,
}

/// An open model.
pub struct Engine {
    facts: Facts,
    tokenizer: Tokenizer,
}

impl Engine {
    pub fn open(file: &Path, options: &Options) -> Result<Self, OpenError> {
        let _ = options;
        Err(OpenError::Missing(file.to_owned()))
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Continues `prompt`. What the cache holds of it from the last call is not computed again.
    ///
    /// `on_token` gets each token, but not the one that ends the answer. `stop` is asked between
    /// tokens and, in a long prompt, between layers.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        how: &Sampling,
        constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Done, EngineError> {
        let _ = (prompt, how, constraint, on_token, stop);
        Err(EngineError::EmptyPrompt)
    }
}
