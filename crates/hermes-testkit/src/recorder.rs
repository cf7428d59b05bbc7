//! Collecting what happens and waiting for something in it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// A shared list that can be waited on. Cheap to clone.
#[derive(Debug)]
pub struct Recorder<T> {
    seen: Arc<Mutex<Vec<T>>>,
    count: watch::Sender<usize>,
}

impl<T> Clone for Recorder<T> {
    fn clone(&self) -> Self {
        Self {
            seen: self.seen.clone(),
            count: self.count.clone(),
        }
    }
}

impl<T> Default for Recorder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Recorder<T> {
    pub fn new() -> Self {
        Self {
            seen: Arc::default(),
            count: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn record(&self, item: T) {
        let mut seen = self.lock();
        seen.push(item);
        let count = seen.len();
        drop(seen);
        self.count.send_replace(count);
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whether anything recorded so far satisfies `matches`.
    pub fn any(&self, matches: impl Fn(&T) -> bool) -> bool {
        self.lock().iter().any(matches)
    }
}

impl<T: Clone> Recorder<T> {
    pub fn all(&self) -> Vec<T> {
        self.lock().clone()
    }

    /// What was recorded, leaving nothing.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.lock())
    }

    /// Waits for the first item that satisfies `matches`, recorded already or to come.
    pub async fn wait_for(&self, matches: impl Fn(&T) -> bool) -> T {
        let mut count = self.count.subscribe();
        loop {
            count.mark_unchanged();
            if let Some(item) = self.lock().iter().find(|item| matches(item)) {
                return item.clone();
            }
            count.changed().await.expect("self keeps the sender alive");
        }
    }
}

impl<T: Send + 'static> Recorder<T> {
    /// Records everything a stream yields, in a task of its own.
    pub fn drain<S>(&self, stream: S)
    where
        S: futures_util::Stream<Item = T> + Send + 'static,
    {
        let recorder = self.clone();
        drop(hermes_core::task::spawn("recorder", async move {
            let mut stream = std::pin::pin!(stream);
            while let Some(item) = futures_util::StreamExt::next(&mut stream).await {
                recorder.record(item);
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_what_is_still_to_come() {
        let recorder = Recorder::new();
        recorder.drain(futures_util::stream::iter(1..=5));
        assert_eq!(recorder.wait_for(|number| *number == 4).await, 4);
        assert_eq!(recorder.wait_for(|number| *number == 1).await, 1);
    }
}
