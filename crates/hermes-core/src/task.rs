//! Starts background tasks: named, with panics reported instead of lost.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tracing::Instrument;

/// A task ended by a panic. The text is the panic message.
#[derive(Debug, thiserror::Error)]
#[error("task {task} panicked: {message}")]
pub struct Panicked {
    pub task: String,
    pub message: String,
}

/// Starts `future` as a task called `name`. The handle yields [`Panicked`] if it panicked.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the wrapper that the lint points to"
)]
pub fn spawn<F>(name: &str, future: F) -> JoinHandle<Result<F::Output, Panicked>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let span = tracing::info_span!("task", name);
    // Boxed: the runtime's task code is compiled once per future type, and there are more than a
    // hundred.
    let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
    tokio::spawn(caught(Cow::Owned(name.to_owned()), future).instrument(span))
}

/// Runs `future` here, turning a panic into an error.
pub fn catch<F: Future>(
    name: &str,
    future: F,
) -> impl Future<Output = Result<F::Output, Panicked>> {
    caught(Cow::Borrowed(name), future)
}

/// Not `async`: that would store the future twice, as given and as awaited, and the long-lived ones
/// are large.
fn caught<F: Future>(
    name: Cow<'_, str>,
    future: F,
) -> impl Future<Output = Result<F::Output, Panicked>> {
    let caught = AssertUnwindSafe(future).catch_unwind();
    caught.map(move |ended| ended.map_err(|panic| reported(&name, panic.as_ref())))
}

fn reported(name: &str, panic: &(dyn Any + Send)) -> Panicked {
    let error = Panicked {
        task: name.to_owned(),
        message: panic_text(panic),
    };
    tracing::error!(task = name, "{error}");
    error
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_message() {
        let error = spawn("doomed", async { panic!("boom {}", 1) })
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(error.to_string(), "task doomed panicked: boom 1");
    }

    #[test]
    fn what_is_caught_is_held_once() {
        let large = async {
            let room = [0u8; 10_000];
            std::future::pending::<()>().await;
            std::hint::black_box(&room);
        };
        let size = size_of_val(&large);
        let held = size_of_val(&caught("large".into(), large));
        assert!((size..size + 100).contains(&held), "{held} for {size}");
    }
}
