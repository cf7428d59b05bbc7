//! The program: state, event loop, frames. See `port` for the seam.

mod options;

pub use options::{AppError, Explanation, Farewell, Options};

use crate::port::Port;

/// Shows a conversation until the person leaves.
pub async fn run(mut port: Port, _options: Options) -> Result<Farewell, AppError> {
    while port.news.recv().await.is_some() {}
    Ok(Farewell::Ended)
}
