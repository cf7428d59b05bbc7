//! One question, one answer: from messages to tokens, through the model, to text and calls.

mod answer;
mod ask;
mod model;
mod session;

pub use answer::Delta;
pub use ask::{Ask, Shape};
pub use model::{Model, Open, file};
pub use session::{Failure, Finish, Outcome, Session, Used};
