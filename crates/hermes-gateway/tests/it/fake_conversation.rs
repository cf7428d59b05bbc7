//! Conversations of fake hosts: a test reads the requests and sends the updates. Tests of
//! hermes-api include this file too.

use std::task::{Context, Poll};

use hermes_agent::ConversationMemory;
use hermes_app::{
    ConversationDriver, ConversationRequest, ConversationUpdate, LiveConversation,
    OpenedConversation,
};
use hermes_core::BoxFuture;
use hermes_core::event::{TurnExit, TurnSummary};
use hermes_core::model::{Route, WireFormat};
use hermes_core::usage::{Cost, Usage};
use tokio::sync::mpsc;

const CAPACITY: usize = 256;

/// The side of the test.
pub(crate) struct FakeSide {
    pub requests: mpsc::Receiver<ConversationRequest>,
    pub updates: mpsc::Sender<ConversationUpdate>,
}

struct FakeDriver {
    requests: mpsc::Sender<ConversationRequest>,
    updates: mpsc::Receiver<ConversationUpdate>,
    weight: ConversationMemory,
}

impl ConversationDriver for FakeDriver {
    fn request(&mut self, request: ConversationRequest) -> bool {
        match self.requests.try_send(request) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(request)) => panic!("nobody reads {request:?}"),
        }
    }

    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConversationUpdate>> {
        self.updates.poll_recv(cx)
    }

    fn has_ended(&self) -> bool {
        self.requests.is_closed()
    }

    fn bytes(&self) -> usize {
        self.weight.bytes()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self {
            requests,
            mut updates,
            ..
        } = *self;
        drop(requests);
        Box::pin(async move { while updates.recv().await.is_some() {} })
    }
}

/// A conversation that ends when the test's side is dropped.
pub(crate) fn open(id: &str) -> (OpenedConversation, FakeSide) {
    open_with_weight(id, ConversationMemory::default())
}

pub(crate) fn open_with_weight(
    id: &str,
    weight: ConversationMemory,
) -> (OpenedConversation, FakeSide) {
    let (requests, received) = mpsc::channel(CAPACITY);
    let (sender, updates) = mpsc::channel(CAPACITY);
    let driver = FakeDriver {
        requests,
        updates,
        weight: weight.clone(),
    };
    let opened = OpenedConversation {
        id: id.to_owned(),
        title: None,
        cost: None,
        past: Vec::new(),
        remarks: Vec::new(),
        approvals_off: false,
        weight,
        conversation: LiveConversation::new(driver),
    };
    let side = FakeSide {
        requests: received,
        updates: sender,
    };
    (opened, side)
}

pub(crate) fn route() -> Route {
    Route {
        provider: "test".to_owned(),
        model: "test-model".to_owned(),
        base_url: String::new(),
        format: WireFormat::ChatCompletions,
        credential: None,
    }
}

/// The end of a turn with one model call.
pub(crate) fn summary(exit: TurnExit, text: impl Into<String>) -> TurnSummary {
    TurnSummary {
        exit,
        text: text.into(),
        usage: Usage::default(),
        cost: Cost::Unknown,
        calls: 1,
        tool_calls: 0,
        millis: 1,
        pending_steer: None,
    }
}
