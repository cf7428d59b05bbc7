//! Errors, worded for the user who chose the file.

use std::path::PathBuf;

/// Why a file cannot be used as a model.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no model file at {}", .0.display())]
    Missing(PathBuf),
    #[error("cannot read {}: {error}", .file.display())]
    Read {
        file: PathBuf,
        error: std::io::Error,
    },
    #[error("{} is not a GGUF file (it starts with {start:?}); local models are GGUF files", .file.display())]
    NotGguf { file: PathBuf, start: String },
    #[error("{} is damaged: {what}; fetch it again", .file.display())]
    Damaged { file: PathBuf, what: String },
    #[error("{} cannot be used: {what}", .file.display())]
    Unsupported { file: PathBuf, what: String },
    #[error("threads for the arithmetic cannot be started: {0}")]
    Threads(std::io::Error),
}

/// Why a prompt was not continued.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("token {token} is not in the vocabulary of {vocabulary} tokens")]
    UnknownToken { token: u32, vocabulary: usize },
    #[error("the prompt has {prompt} tokens, but the model's context is {context}")]
    TooLong { prompt: usize, context: usize },
    #[error("the constraint allows no token at all")]
    NothingAllowed,
}
