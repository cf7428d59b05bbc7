//! The engine: opens a GGUF file and continues a prompt, one token at a time.
//!
//! An [`Engine`] is used by one thread; matrix products use a small thread pool below it. Nothing here is
//! asynchronous.

mod cache;
#[expect(
    unsafe_code,
    reason = "instructions of the processor and threads that share a product; see there"
)]
mod compute;
mod dequantise;
mod error;
mod facts;
mod gguf;
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

use compute::{SimdLevel, ThreadPool};
pub use error::{EngineError, OpenError};
use model::{CHUNK, TransformerModel};
use sample::{SeededRng, choose};
use shape::ModelShape;
use source::GgufSource;
pub use text::TextStream;
pub use tokenizer::Tokenizer;
use weights::WeightPlan;

/// Options for opening a model.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Threads for the computation; 0 means one per core.
    pub threads: usize,
    /// Where the requantised weights are cached; without it they are computed at each start.
    pub cache: Option<PathBuf>,
    /// Maximum context length; without it, or if it exceeds the model's own limit, the model's limit.
    pub context: Option<usize>,
}

/// A token with a role, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialToken {
    pub id: u32,
    pub text: String,
}

/// Metadata of an open model.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    pub name: String,
    pub architecture: String,
    pub parameters: u64,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// The chat template (Jinja) of the file.
    pub template: Option<String>,
    pub bos: Option<SpecialToken>,
    pub eos: Option<SpecialToken>,
    /// Whether a prompt starts with `bos` when the template does not write it.
    pub add_bos: bool,
    /// Every token that ends an answer, `eos` among them.
    pub ends: Vec<u32>,
    pub vocabulary: usize,
    /// The storage format of most weights in the file, for example `Q4_1`.
    pub quantisation: String,
}

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// Restricts the choice to the most likely tokens with this total probability.
    pub top_p: f32,
    pub seed: u64,
    /// Maximum number of generated tokens.
    pub max_tokens: usize,
}

/// Restricts the next token. Called for each token.
pub trait Constraint {
    /// Sets the logits of forbidden tokens to negative infinity.
    fn mask(&mut self, logits: &mut [f32]);
    fn accept(&mut self, token: u32);
    /// Nothing may follow: generation ends without another token.
    fn finished(&self) -> bool;
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationEnd {
    /// The model ended its answer.
    Eos,
    /// `max_tokens` or the context is used up.
    Length,
    /// The constraint is satisfied and nothing may follow.
    Constraint,
    /// `on_token` requested it.
    Break,
    /// `stop` returned true.
    Stopped,
}

/// Statistics of a generation.
#[derive(Clone, Copy, Debug)]
pub struct GenerationStats {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// How many of them were cached.
    pub reused: usize,
    /// Tokens passed to `on_token`.
    pub generated: usize,
    pub prefill: Duration,
    pub decode: Duration,
    pub end: GenerationEnd,
}

/// An open model.
pub struct Engine {
    facts: ModelFacts,
    tokenizer: Tokenizer,
    model: TransformerModel,
    /// The cached tokens.
    held: Vec<u32>,
}

/// Whether a prompt was processed completely.
enum Prefilled {
    /// This many tokens of it were cached.
    All {
        reused: usize,
    },
    Stopped {
        reused: usize,
    },
}

impl Engine {
    pub fn open(file: &Path, options: &EngineOptions) -> Result<Self, OpenError> {
        let source = GgufSource::open(file)?;
        let shape = ModelShape::read(&source)?;
        let plan = WeightPlan::new(&source, &shape)?;
        let tokenizer = Tokenizer::read(&source, shape.vocabulary)?;
        let facts = ModelFacts::read(&source, &shape, &tokenizer, options.context);
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let mut pool = ThreadPool::new(threads).map_err(OpenError::Threads)?;
        let blob = cache::weights(&source, &plan, options.cache.as_deref(), &mut pool)?;
        Ok(Self {
            facts,
            tokenizer,
            model: TransformerModel::new(shape, plan.weights, blob, pool, SimdLevel::detect()),
            held: Vec::new(),
        })
    }

    pub fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Continues `prompt`. Its cached prefix from the last call is not computed again.
    ///
    /// `on_token` gets each token except the one that ends the answer. `stop` is checked between tokens and, in
    /// a long prompt, between layers.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        how: &SamplingOptions,
        mut constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<GenerationStats, EngineError> {
        let started = Instant::now();
        let mut done = GenerationStats {
            prompt: prompt.len(),
            reused: 0,
            generated: 0,
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
            end: GenerationEnd::Stopped,
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
        let mut dice = SeededRng::new(how.seed);
        let mut count = last_run(prompt.len(), done.reused);
        done.end = loop {
            if done.generated >= how.max_tokens {
                break GenerationEnd::Length;
            }
            if constraint.as_ref().is_some_and(|c| c.finished()) {
                break GenerationEnd::Constraint;
            }
            let logits = self.model.logits(count);
            count = 1;
            if let Some(constraint) = constraint.as_mut() {
                constraint.mask(logits);
            }
            let token = choose(logits, how, &mut dice).ok_or(EngineError::NothingAllowed)?;
            if self.facts.ends.contains(&token) {
                break GenerationEnd::Eos;
            }
            if let Some(constraint) = constraint.as_mut() {
                constraint.accept(token);
            }
            done.generated += 1;
            if on_token(token).is_break() {
                break GenerationEnd::Break;
            }
            if self.held.len() >= self.facts.context {
                break GenerationEnd::Length;
            }
            // The last token is not processed: what follows it is not needed.
            if done.generated < how.max_tokens && self.run(&[token], stop).is_err() {
                break GenerationEnd::Stopped;
            }
        };
        done.decode = started.elapsed();
        Ok(done)
    }

    /// The logits of the token after `prompt`.
    pub fn logits(&mut self, prompt: &[u32]) -> Result<Vec<f32>, EngineError> {
        let reused = match self.prefill(prompt, &|| false)? {
            Prefilled::All { reused } | Prefilled::Stopped { reused } => reused,
        };
        let count = last_run(prompt.len(), reused);
        Ok(self.model.logits(count).to_vec())
    }

    /// Clears the cache of earlier prompts.
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
        // The last token is always processed: what follows it is needed.
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

    /// Processes tokens after the cached ones.
    fn run(&mut self, tokens: &[u32], stop: &dyn Fn() -> bool) -> Result<(), model::Stopped> {
        self.model.forward(tokens, self.held.len(), stop)?;
        self.held.extend_from_slice(tokens);
        Ok(())
    }
}

/// Tokens processed together at the end of a prompt.
fn last_run(prompt: usize, reused: usize) -> usize {
    (prompt - reused - 1) % CHUNK + 1
}
