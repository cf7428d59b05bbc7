//! Limits the concurrent calls of a server and shares the slots fairly between conversations.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The concurrent calls of one server. Cheap to clone.
///
/// A free slot is given to the waiting conversation with the fewest running calls, so one with a
/// hundred calls delays the first call of another by at most one call. When the server throttles,
/// the limit is halved, and raised by one after each full round of successes.
#[derive(Clone)]
pub(crate) struct CallQueue(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The configured maximum.
    configured_limit: usize,
    /// The current limit, from 1 to `configured_limit`.
    limit: usize,
    running: usize,
    /// Running calls by conversation, without zero entries.
    by_conversation: HashMap<String, usize>,
    /// Conversations with waiting calls, least recently served first.
    waiting: VecDeque<(String, VecDeque<oneshot::Sender<CallPermit>>)>,
    /// Successful calls since the limit changed.
    successes: usize,
    /// How often the limit was reduced.
    reductions: u64,
    /// Run the calls of only one conversation at a time.
    isolate_conversations: bool,
}

impl State {
    /// The index of the conversation whose call is next.
    fn next(&self) -> Option<usize> {
        let running_calls = |name: &String| self.by_conversation.get(name).copied().unwrap_or(0);
        let mut best: Option<(usize, usize)> = None;
        for (at, (name, _)) in self.waiting.iter().enumerate() {
            let count = running_calls(name);
            if self.isolate_conversations && self.running > 0 && count == 0 {
                continue;
            }
            if best.is_none_or(|(_, fewest)| count < fewest) {
                best = Some((at, count));
            }
        }
        best.map(|(at, _)| at)
    }

    fn can_start(&self, conversation: &str) -> bool {
        let alone = self.running == 0 || self.by_conversation.contains_key(conversation);
        self.running < self.limit && (!self.isolate_conversations || alone)
    }

    fn begin(&mut self, conversation: &str) {
        self.running += 1;
        *self
            .by_conversation
            .entry(conversation.to_owned())
            .or_default() += 1;
    }

    fn end(&mut self, conversation: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(count) = self.by_conversation.get_mut(conversation) {
            *count -= 1;
            if *count == 0 {
                self.by_conversation.remove(conversation);
            }
        }
    }

    /// Removes waiting calls for which there are free slots.
    fn admit(&mut self) -> Vec<(String, oneshot::Sender<CallPermit>)> {
        let mut admitted = Vec::new();
        while self.running < self.limit
            && let Some(at) = self.next()
            && let Some((name, mut calls)) = self.waiting.remove(at)
        {
            let call = calls.pop_front();
            if !calls.is_empty() {
                // It was just served, so it is queued behind the others.
                self.waiting.push_back((name.clone(), calls));
            }
            // A caller that left needs no slot.
            if let Some(call) = call.filter(|call| !call.is_closed()) {
                self.begin(&name);
                admitted.push((name, call));
            }
        }
        admitted
    }
}

impl CallQueue {
    pub(crate) fn new(configured_limit: usize) -> Self {
        let configured_limit = configured_limit.max(1);
        Self(Arc::new(Mutex::new(State {
            configured_limit,
            limit: configured_limit,
            ..State::default()
        })))
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    pub(crate) async fn acquire(&self, conversation: &str) -> CallPermit {
        let receiver = {
            let mut state = self.lock();
            if state.waiting.is_empty() && state.can_start(conversation) {
                state.begin(conversation);
                return self.permit(&state, conversation);
            }
            let (sender, receiver) = oneshot::channel();
            match state
                .waiting
                .iter_mut()
                .find(|(name, _)| name == conversation)
            {
                Some((_, calls)) => {
                    calls.retain(|call| !call.is_closed());
                    calls.push_back(sender);
                }
                None => state
                    .waiting
                    .push_back((conversation.to_owned(), VecDeque::from([sender]))),
            }
            receiver
        };
        self.admit_waiting();
        match receiver.await {
            Ok(permit) => permit,
            // The sender is in the queue as long as the queue exists.
            Err(_) => std::future::pending().await,
        }
    }

    /// A permit, if one is available now.
    pub(crate) fn try_acquire(&self, conversation: &str) -> Option<CallPermit> {
        let mut state = self.lock();
        if !state.can_start(conversation) {
            return None;
        }
        state.begin(conversation);
        Some(self.permit(&state, conversation))
    }

    /// Applies a changed configuration.
    pub(crate) fn resize(&self, configured_limit: usize) {
        let configured_limit = configured_limit.max(1);
        let changed = {
            let mut state = self.lock();
            let changed = state.configured_limit != configured_limit;
            if changed {
                (state.configured_limit, state.limit, state.successes) =
                    (configured_limit, configured_limit, 0);
            }
            changed
        };
        if changed {
            self.admit_waiting();
        }
    }

    /// The server throttled a call of this `round`: the limit is halved. Calls that ran at the same
    /// time count as one throttling.
    pub(crate) fn record_throttled(&self, round: u64) {
        let mut state = self.lock();
        if round < state.reductions {
            return;
        }
        // The throttled call has already returned its permit.
        let had = (state.running + 1).min(state.limit);
        state.limit = (had / 2).max(1);
        state.reductions += 1;
        state.successes = 0;
    }

    /// A call succeeded: after a full round of them the limit is raised by one.
    pub(crate) fn record_success(&self) {
        let widened = {
            let mut state = self.lock();
            if state.limit >= state.configured_limit {
                return;
            }
            state.successes += 1;
            let widened = state.successes >= state.limit;
            if widened {
                state.successes = 0;
                state.limit += 1;
            }
            widened
        };
        if widened {
            self.admit_waiting();
        }
    }

    /// The server's questions name no call. From now on only one conversation runs at a time;
    /// otherwise no user could be asked.
    pub(crate) fn isolate_conversations(&self) {
        self.lock().isolate_conversations = true;
    }

    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.lock().running
    }

    fn permit(&self, state: &State, conversation: &str) -> CallPermit {
        CallPermit {
            queue: self.clone(),
            conversation: conversation.to_owned(),
            round: state.reductions,
        }
    }

    fn admit_waiting(&self) {
        let admitted: Vec<_> = {
            let mut state = self.lock();
            let calls = state.admit();
            let with_permit = calls.into_iter().map(|(conversation, call)| {
                let permit = self.permit(&state, &conversation);
                (permit, call)
            });
            with_permit.collect()
        };
        for (permit, call) in admitted {
            // If the caller has left, dropping the permit releases the slot.
            drop(call.send(permit));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CallQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("CallQueue")
            .field("limit", &state.limit)
            .field("running", &state.running)
            .finish_non_exhaustive()
    }
}

/// Permission to run a call; released on drop.
#[derive(Debug)]
pub(crate) struct CallPermit {
    queue: CallQueue,
    conversation: String,
    round: u64,
}

impl CallPermit {
    pub(crate) fn conversation(&self) -> &str {
        &self.conversation
    }

    /// For [`CallQueue::record_throttled`].
    pub(crate) fn round(&self) -> u64 {
        self.round
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.queue.lock().end(&self.conversation);
        self.queue.admit_waiting();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn a_new_conversation_is_next_however_many_calls_another_has() {
        let queue = CallQueue::new(2);
        let held: Vec<CallPermit> = vec![queue.acquire("busy").await, queue.acquire("busy").await];
        let mut busy: Vec<_> = (0..50).map(|_| Box::pin(queue.acquire("busy"))).collect();
        for call in &mut busy {
            assert!(call.as_mut().now_or_never().is_none());
        }
        let mut fresh = Box::pin(queue.acquire("fresh"));
        assert!(fresh.as_mut().now_or_never().is_none());
        drop(held.into_iter().next());
        assert!(
            fresh.now_or_never().is_some(),
            "it waits behind the other's"
        );
    }

    #[tokio::test]
    async fn refusals_narrow_it_and_success_widens_it_again() {
        let queue = CallQueue::new(32);
        let mut held: Vec<CallPermit> = join(&queue, 16).await;
        while let Some(refused) = held.pop() {
            let round = refused.round();
            drop(refused);
            queue.record_throttled(round);
        }
        assert_eq!(queue.lock().limit, 8, "sixteen refusals of one round");
        let alone = queue.acquire("a").await;
        let round = alone.round();
        drop(alone);
        queue.record_throttled(round);
        assert_eq!(queue.lock().limit, 1, "alone and refused all the same");
        for _ in 0..2000 {
            queue.record_success();
        }
        assert_eq!(queue.lock().limit, 32, "never wider than configured");
        queue.resize(3);
        assert_eq!(queue.lock().limit, 3);
    }

    async fn join(queue: &CallQueue, count: usize) -> Vec<CallPermit> {
        let mut held = Vec::new();
        for n in 0..count {
            held.push(queue.acquire(&n.to_string()).await);
        }
        held
    }

    #[tokio::test]
    async fn conversations_can_be_kept_apart() {
        let queue = CallQueue::new(8);
        queue.isolate_conversations();
        let first = queue.acquire("a").await;
        let second = queue.acquire("a").now_or_never();
        assert!(second.is_some());
        let mut other = Box::pin(queue.acquire("b"));
        assert!(other.as_mut().now_or_never().is_none());
        drop(first);
        assert!(other.as_mut().now_or_never().is_none());
        drop(second);
        assert!(other.as_mut().now_or_never().is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// For any sequence of arrivals, departures and completions, the limit holds and no call is
        /// forgotten.
        #[test]
        fn places_are_neither_lost_nor_doubled(
            configured_limit in 1_usize..6,
            steps in prop::collection::vec((0_u8..5, 0_u8..4), 0..120),
        ) {
            let queue = CallQueue::new(configured_limit);
            let mut waiting = Vec::new();
            let mut held = Vec::new();
            for (step, who) in steps {
                match step {
                    0 | 1 => {
                        let queue = queue.clone();
                        waiting.push(Box::pin(async move { queue.acquire(&who.to_string()).await }));
                    }
                    2 => drop((!held.is_empty()).then(|| held.remove(usize::from(who) % held.len()))),
                    3 => drop((!waiting.is_empty()).then(|| waiting.remove(usize::from(who) % waiting.len()))),
                    _ => queue.record_success(),
                }
                waiting.retain_mut(|call| match call.as_mut().now_or_never() {
                    Some(permit) => {
                        held.push(permit);
                        false
                    }
                    None => true,
                });
                prop_assert!(held.len() <= configured_limit);
                prop_assert_eq!(queue.lock().running, held.len());
                prop_assert!(waiting.is_empty() || held.len() == configured_limit);
            }
            let names: HashSet<String> = held.iter().map(|permit| permit.conversation().to_owned()).collect();
            prop_assert_eq!(queue.lock().by_conversation.len(), names.len());
        }
    }
}
