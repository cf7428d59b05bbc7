//! What a session needs of a model: the engine has it, and so have models made for tests.

use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::engine::{
    Constraint, Engine, EngineError, EngineOptions, GenerationStats, ModelFacts, OpenError,
    SamplingOptions,
};

pub trait GenerationModel {
    fn facts(&self) -> &ModelFacts;
    /// With `special`, control texts become their tokens.
    fn encode(&self, text: &str, special: bool) -> Vec<u32>;
    fn piece(&self, token: u32) -> &[u8];
    fn is_special(&self, token: u32) -> bool;
    fn generate(
        &mut self,
        prompt: &[u32],
        how: &SamplingOptions,
        constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<GenerationStats, EngineError>;
}

impl GenerationModel for Engine {
    fn facts(&self) -> &ModelFacts {
        self.facts()
    }

    fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        self.tokenizer().encode(text, special)
    }

    fn piece(&self, token: u32) -> &[u8] {
        self.tokenizer().piece(token)
    }

    fn is_special(&self, token: u32) -> bool {
        self.tokenizer().is_special(token)
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        how: &SamplingOptions,
        constraint: Option<&mut dyn Constraint>,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<GenerationStats, EngineError> {
        self.generate(prompt, how, constraint, on_token, stop)
    }
}

/// Opens the model, again after a failure.
pub type ModelOpener = Box<dyn FnMut() -> Result<Box<dyn GenerationModel>, OpenError> + Send>;

/// Opens a file.
pub fn file(path: PathBuf, options: EngineOptions) -> ModelOpener {
    Box::new(move || Ok(Box::new(Engine::open(&path, &options)?)))
}
