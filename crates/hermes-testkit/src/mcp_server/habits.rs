//! What the server offers, says unasked, and remembers.

use std::sync::PoisonError;

use serde_json::{Value, json};

use super::plan::{Counts, GetStream, Ping, Seen};
use super::{FaultyServer, Push, ReplyGate};

impl FaultyServer {
    /// How a GET for the listening stream is answered.
    pub fn get_stream(&self, get: GetStream) -> &Self {
        self.shared.state().get = get;
        self
    }

    pub fn ping(&self, ping: Ping) -> &Self {
        self.shared.state().ping = ping;
        self
    }

    /// Whether results come as event streams instead of JSON.
    pub fn answer_as_events(&self, streams: bool) -> &Self {
        self.shared.state().streams = streams;
        self
    }

    /// Whether a legacy server gives out session ids.
    pub fn give_sessions(&self, gives: bool) -> &Self {
        self.shared.state().gives_sessions = gives;
        self
    }

    /// Every session gets this id.
    pub fn give_same_session(&self, id: &str) -> &Self {
        self.shared.state().same_session = Some(id.to_owned());
        self
    }

    /// Tools per page of the list.
    pub fn page_size(&self, page: usize) -> &Self {
        self.shared.state().page = Some(page);
        self
    }

    /// Replaces the tools, saying nothing. Unknown names answer like `echo`.
    pub fn set_tools(&self, tools: Vec<Value>) -> &Self {
        self.shared.state().tools = tools;
        self
    }

    /// So many tools called `tool_0`, `tool_1` …
    pub fn set_tool_count(&self, count: usize) -> &Self {
        let tools = (0..count)
            .map(|number| {
                json!({
                    "name": format!("tool_{number}"),
                    "description": format!("Tool number {number}."),
                    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
                })
            })
            .collect();
        self.set_tools(tools)
    }

    pub fn set_resources(&self, resources: Vec<Value>) -> &Self {
        self.shared.state().resources = resources;
        self
    }

    pub fn set_prompts(&self, prompts: Vec<Value>) -> &Self {
        self.shared.state().prompts = prompts;
        self
    }

    pub fn set_capabilities(&self, capabilities: Value) -> &Self {
        self.shared.state().capabilities = capabilities;
        self
    }

    /// The gate of that name; the tool `slow` waits at `slow` unless told another.
    pub fn gate(&self, name: &str) -> ReplyGate {
        self.shared.gate(name)
    }

    /// Sends a notification on every listening stream and returns on how many.
    pub fn notify(&self, method: &str, params: &Value) -> usize {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.push(|| Push::Message(message.clone()))
    }

    /// `notifications/tools/list_changed`, so many times.
    pub fn flood(&self, times: usize) -> &Self {
        for _ in 0..times {
            self.notify("notifications/tools/list_changed", &json!({}));
        }
        self
    }

    /// Bytes as they are on every listening stream.
    pub fn push_raw(&self, text: &str) -> usize {
        self.push(|| Push::Raw(text.to_owned()))
    }

    /// Ends every listening stream in order.
    pub fn end_streams(&self) -> usize {
        self.push(|| Push::End)
    }

    /// Resets every listening stream.
    pub fn reset_streams(&self) -> usize {
        self.push(|| Push::Reset)
    }

    fn push(&self, make: impl Fn() -> Push) -> usize {
        let state = self.shared.state();
        state
            .listeners
            .iter()
            .filter(|listener| listener.send.try_send(make()).is_ok())
            .count()
    }

    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Whether a client can have a listening stream.
    pub fn opens_streams(&self) -> bool {
        self.shared.state().get == GetStream::Open
    }

    /// Sessions that are known now.
    pub fn live_sessions(&self) -> usize {
        self.shared.state().sessions.len()
    }

    /// Waits until the counts satisfy `enough`.
    pub async fn wait_for(&self, enough: impl Fn(&Counts) -> bool) -> Counts {
        let mut seen = self.shared.counts.subscribe();
        let counts = seen.wait_for(|counts| enough(counts)).await;
        *counts.expect("the server outlives its handle")
    }

    /// The same for a test without a runtime.
    pub fn block_until(&self, enough: impl Fn(&Counts) -> bool) -> Counts {
        self.handle.block_on(self.wait_for(enough))
    }

    /// Remembers no requests from now on: for runs that last.
    pub fn forget_requests(&self) -> &Self {
        self.shared.state().remembers = false;
        self
    }

    /// Tokens that `bump` was given, one per run.
    pub fn marks(&self) -> Vec<String> {
        self.shared.state().marks.clone()
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Requests so far with this JSON-RPC method.
    pub fn seen_of(&self, method: &str) -> Vec<Seen> {
        let mut seen = self.seen();
        seen.retain(|request| request.method() == method);
        seen
    }
}
