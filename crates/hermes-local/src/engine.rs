//! The engine: opens a GGUF file and continues a prompt, one token at a time.
//!
//! An [`Engine`] lives on one thread of its own; the products with its weights use a small pool of
//! threads below it. Nothing here is asynchronous.

mod cache;
#[expect(
    unsafe_code,
    reason = "instructions of the processor and threads that share a product; see there"
)]
mod compute;
mod error;
mod facts;
mod model;
mod rope;
mod sample;
mod shape;
mod source;
mod text;
mod tokenizer;
mod weights;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use compute::{Level, Pool};
pub use error::{EngineError, OpenError};
use model::{CHUNK, Model};
use sample::{Dice, choose};
use shape::Shape;
use source::Source;
pub use text::TextStream;
pub use tokenizer::Tokenizer;
use weights::Plan;

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
    model: Model,
    /// The tokens that the model remembers.
    held: Vec<u32>,
}

/// A prompt is in the model's memory, or not.
enum Prefilled {
    /// So many tokens of it were there before.
    All {
        reused: usize,
    },
    Stopped {
        reused: usize,
    },
}

impl Engine {
    pub fn open(file: &Path, options: &Options) -> Result<Self, OpenError> {
        let source = Source::open(file)?;
        let shape = Shape::read(&source)?;
        let plan = Plan::new(&source, &shape)?;
        let tokenizer = Tokenizer::read(&source, shape.vocabulary)?;
        let facts = Facts::read(&source, &shape, &tokenizer, options.context);
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let mut pool = Pool::new(threads).map_err(OpenError::Threads)?;
        let blob = cache::weights(&source, &plan, options.cache.as_deref(), &mut pool)?;
        Ok(Self {
            facts,
            tokenizer,
            model: Model::new(shape, plan.weights, blob, pool, Level::detect()),
            held: Vec::new(),
        })
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
        mut constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Done, EngineError> {
        let started = Instant::now();
        let mut done = Done {
            prompt: prompt.len(),
            reused: 0,
            generated: 0,
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
            end: End::Stopped,
        };
        let prefilled = self.prefill(prompt, stop)?;
        done.prefill = started.elapsed();
        match prefilled {
            Prefilled::All { reused } => done.reused = reused,
            Prefilled::Stopped { reused } => {
                done.reused = reused;
                return Ok(done);
            }
        }
        let started = Instant::now();
        let mut dice = Dice::new(how.seed);
        let mut count = last_run(prompt.len(), done.reused);
        done.end = loop {
            if done.generated >= how.max_tokens {
                break End::Length;
            }
            if constraint.as_ref().is_some_and(|c| c.finished()) {
                break End::Constraint;
            }
            let logits = self.model.logits(count);
            count = 1;
            if let Some(constraint) = constraint.as_mut() {
                constraint.mask(logits);
            }
            let token = choose(logits, how, &mut dice).ok_or(EngineError::NothingAllowed)?;
            if self.facts.ends.contains(&token) {
                break End::Eos;
            }
            if let Some(constraint) = constraint.as_mut() {
                constraint.accept(token);
            }
            done.generated += 1;
            if on_token(token).is_break() {
                break End::Break;
            }
            if self.held.len() >= self.facts.context {
                break End::Length;
            }
            // The last token is not run: nobody asks what follows it.
            if done.generated < how.max_tokens && self.run(&[token], stop).is_err() {
                break End::Stopped;
            }
        };
        done.decode = started.elapsed();
        Ok(done)
    }

    /// What the model thinks of each token as the next one after `prompt`.
    pub fn logits(&mut self, prompt: &[u32]) -> Result<Vec<f32>, EngineError> {
        let reused = match self.prefill(prompt, &|| false)? {
            Prefilled::All { reused } | Prefilled::Stopped { reused } => reused,
        };
        let count = last_run(prompt.len(), reused);
        Ok(self.model.logits(count).to_vec())
    }

    /// Forgets what is left of earlier prompts.
    pub fn forget(&mut self) {
        self.held.clear();
    }

    fn prefill(
        &mut self,
        prompt: &[u32],
        stop: &dyn Fn() -> bool,
    ) -> Result<Prefilled, EngineError> {
        self.check(prompt)?;
        let same = prompt.iter().zip(&self.held).take_while(|(a, b)| a == b);
        // The last token is run in any case: what follows it is wanted.
        let reused = same.count().min(prompt.len() - 1);
        self.held.truncate(reused);
        for chunk in prompt[reused..].chunks(CHUNK) {
            if self.run(chunk, stop).is_err() {
                return Ok(Prefilled::Stopped { reused });
            }
        }
        Ok(Prefilled::All { reused })
    }

    fn check(&self, prompt: &[u32]) -> Result<(), EngineError> {
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let vocabulary = self.facts.vocabulary;
        if let Some(token) = prompt.iter().find(|token| **token as usize >= vocabulary) {
            return Err(EngineError::UnknownToken {
                token: *token,
                vocabulary,
            });
        }
        if prompt.len() > self.facts.context {
            return Err(EngineError::TooLong {
                prompt: prompt.len(),
                context: self.facts.context,
            });
        }
        Ok(())
    }

    /// Runs tokens after those that are held.
    fn run(&mut self, tokens: &[u32], stop: &dyn Fn() -> bool) -> Result<(), model::Stopped> {
        self.model.forward(tokens, self.held.len(), stop)?;
        self.held.extend_from_slice(tokens);
        Ok(())
    }
}

/// Tokens of a prompt that were run together at its end.
fn last_run(prompt: usize, reused: usize) -> usize {
    (prompt - reused - 1) % CHUNK + 1
}
