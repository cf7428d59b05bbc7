//! Which calls of a server run at once: as many as it takes, shared fairly between conversations.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The places of one server. Cheap to clone.
///
/// A free place goes to the waiting conversation that has the fewest calls under way, so that one
/// with a hundred calls delays the first call of another by one call at most. A server that says that
/// it is asked too often gets half as many at once, and one more for every round that goes well.
#[derive(Clone)]
pub(crate) struct CallQueue(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// As configured.
    widest: usize,
    /// What the server takes at the moment; from 1 to `widest`.
    limit: usize,
    running: usize,
    /// Calls under way, by conversation; none that has none.
    by_conversation: HashMap<String, usize>,
    /// Conversations with calls that wait, the one served longest ago first.
    waiting: VecDeque<(String, VecDeque<oneshot::Sender<CallPermit>>)>,
    /// Calls that went well since the limit was changed.
    good: usize,
    /// How often the limit was lowered.
    lowered: u64,
    /// The calls of one conversation at a time.
    separate: bool,
}

impl State {
    /// The conversation whose call is next, by its place in the line.
    fn next(&self) -> Option<usize> {
        let under_way = |name: &String| self.by_conversation.get(name).copied().unwrap_or(0);
        let mut best: Option<(usize, usize)> = None;
        for (at, (name, _)) in self.waiting.iter().enumerate() {
            let count = under_way(name);
            if self.separate && self.running > 0 && count == 0 {
                continue;
            }
            if best.is_none_or(|(_, least)| count < least) {
                best = Some((at, count));
            }
        }
        best.map(|(at, _)| at)
    }

    fn has_room_for(&self, conversation: &str) -> bool {
        let alone = self.running == 0 || self.by_conversation.contains_key(conversation);
        self.running < self.limit && (!self.separate || alone)
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

    /// Takes calls out of the line for the places that are free.
    fn admit(&mut self) -> Vec<(String, oneshot::Sender<CallPermit>)> {
        let mut admitted = Vec::new();
        while self.running < self.limit
            && let Some(at) = self.next()
            && let Some((name, mut calls)) = self.waiting.remove(at)
        {
            let call = calls.pop_front();
            if !calls.is_empty() {
                // Behind the others: it was just served.
                self.waiting.push_back((name.clone(), calls));
            }
            // Whoever left the line needs no place.
            if let Some(call) = call.filter(|call| !call.is_closed()) {
                self.begin(&name);
                admitted.push((name, call));
            }
        }
        admitted
    }
}

impl CallQueue {
    pub(crate) fn new(widest: usize) -> Self {
        let widest = widest.max(1);
        Self(Arc::new(Mutex::new(State {
            widest,
            limit: widest,
            ..State::default()
        })))
    }

    /// Waits for a place. Dropping the future leaves the line.
    pub(crate) async fn acquire(&self, conversation: &str) -> CallPermit {
        let receiver = {
            let mut state = self.lock();
            if state.waiting.is_empty() && state.has_room_for(conversation) {
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
        self.serve();
        match receiver.await {
            Ok(permit) => permit,
            // The other end lives in the line for as long as this queue does.
            Err(_) => std::future::pending().await,
        }
    }

    /// A place, if one is free now.
    pub(crate) fn try_acquire(&self, conversation: &str) -> Option<CallPermit> {
        let mut state = self.lock();
        if !state.has_room_for(conversation) {
            return None;
        }
        state.begin(conversation);
        Some(self.permit(&state, conversation))
    }

    /// The configuration says so from now on.
    pub(crate) fn resize(&self, widest: usize) {
        let widest = widest.max(1);
        let changed = {
            let mut state = self.lock();
            let changed = state.widest != widest;
            if changed {
                (state.widest, state.limit, state.good) = (widest, widest, 0);
            }
            changed
        };
        if changed {
            self.serve();
        }
    }

    /// The server refused a call of this `round` because it is asked too often: half of what it had at once
    /// is tried next. Refusals of calls that were under way together are one sign, not many.
    pub(crate) fn throttled(&self, round: u64) {
        let mut state = self.lock();
        if round < state.lowered {
            return;
        }
        // The refused call has given its place back.
        let had = (state.running + 1).min(state.limit);
        state.limit = (had / 2).max(1);
        state.lowered += 1;
        state.good = 0;
    }

    /// A call went well: after a whole round of them one more is tried.
    pub(crate) fn went_well(&self) {
        let widened = {
            let mut state = self.lock();
            if state.limit >= state.widest {
                return;
            }
            state.good += 1;
            let widened = state.good >= state.limit;
            if widened {
                state.good = 0;
                state.limit += 1;
            }
            widened
        };
        if widened {
            self.serve();
        }
    }

    /// The server asks people without saying about which call: from now on the calls of one conversation
    /// at a time, or nobody could be asked.
    pub(crate) fn separate(&self) {
        self.lock().separate = true;
    }

    /// Calls under way.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.lock().running
    }

    fn permit(&self, state: &State, conversation: &str) -> CallPermit {
        CallPermit {
            queue: self.clone(),
            conversation: conversation.to_owned(),
            round: state.lowered,
        }
    }

    fn serve(&self) {
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
            // One that left the line meanwhile gives its place back by dropping it.
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

/// A place among the calls that run; given back when it is dropped.
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

    /// For [`CallQueue::throttled`].
    pub(crate) fn round(&self) -> u64 {
        self.round
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.queue.lock().end(&self.conversation);
        self.queue.serve();
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
            queue.throttled(round);
        }
        assert_eq!(queue.lock().limit, 8, "sixteen refusals of one round");
        let alone = queue.acquire("a").await;
        let round = alone.round();
        drop(alone);
        queue.throttled(round);
        assert_eq!(queue.lock().limit, 1, "alone and refused all the same");
        for _ in 0..2000 {
            queue.went_well();
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
        queue.separate();
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

        /// Whatever comes, waits, leaves and ends: never more than the limit, nobody forgotten.
        #[test]
        fn places_are_neither_lost_nor_doubled(
            widest in 1_usize..6,
            steps in prop::collection::vec((0_u8..5, 0_u8..4), 0..120),
        ) {
            let queue = CallQueue::new(widest);
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
                    _ => queue.went_well(),
                }
                waiting.retain_mut(|call| match call.as_mut().now_or_never() {
                    Some(permit) => {
                        held.push(permit);
                        false
                    }
                    None => true,
                });
                prop_assert!(held.len() <= widest);
                prop_assert_eq!(queue.lock().running, held.len());
                prop_assert!(waiting.is_empty() || held.len() == widest);
            }
            let names: HashSet<String> = held.iter().map(|permit| permit.conversation().to_owned()).collect();
            prop_assert_eq!(queue.lock().by_conversation.len(), names.len());
        }
    }
}
