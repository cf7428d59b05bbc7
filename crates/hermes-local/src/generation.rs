//! One request: from messages to tokens, through the model, to text and tool calls.

mod answer;
mod ask;
mod model;
mod session;

pub use answer::AnswerDelta;
pub use ask::{AnswerShape, GenerationRequest};
pub use model::{GenerationModel, ModelOpener, file};
pub use session::{
    AnswerFinish, GenerationError, GenerationOutcome, GenerationUsage, ModelSession,
};
