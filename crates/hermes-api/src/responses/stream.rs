//! An answer in the responses format as it is written.

use std::sync::Arc;

use hermes_core::task;
use serde_json::{Map, Value, json};

use super::items::{ItemChange, ResponseItems, part};
use super::{OutcomeReport, ResponseHead};
use crate::error::ApiError;
use crate::recording::{HeaderList, RecordedSource, StreamEnding};
use crate::sse::{self, SseFrames};
use crate::turn::{ApiTurn, TurnResult, TurnStep};
use crate::{ApiState, reply};

/// Maximum number of events per write.
const WRITE_BYTES: usize = 32 * 1024;

pub(super) async fn begin(
    state: Arc<ApiState>,
    answer: ResponseHead,
    turn: ApiTurn,
) -> Result<(ResponseStream, HeaderList), ApiError> {
    let items = ResponseItems::default();
    let session = turn.session().to_owned();
    let started = answer.body("in_progress", &[]);
    answer.keep(&state, &started, &items, &session).await?;
    let headers = reply::session_headers(&session, answer.key.as_deref());
    let stream = ResponseStream {
        session,
        state,
        answer: Some(Arc::new(answer)),
        items,
        turn: Some(turn),
        started: false,
        sequence: 0,
        ending: StreamEnding::default(),
    };
    Ok((stream, headers))
}

pub(super) struct ResponseStream {
    state: Arc<ApiState>,
    /// `None`: completely sent and stored.
    answer: Option<Arc<ResponseHead>>,
    items: ResponseItems,
    turn: Option<ApiTurn>,
    session: String,
    started: bool,
    sequence: u64,
    ending: StreamEnding,
}

impl RecordedSource for ResponseStream {
    fn ending(&self) -> StreamEnding {
        self.ending
    }
}

impl sse::EventSource for ResponseStream {
    async fn fill(&mut self, frames: &mut SseFrames) -> bool {
        let Some(answer) = self.answer.clone() else {
            return false;
        };
        if !self.started {
            self.started = true;
            let body = answer.body("in_progress", &[]);
            self.event(frames, "response.created", json!({"response": body}));
            self.event(frames, "response.in_progress", json!({"response": body}));
            return true;
        }
        let mut next = match &mut self.turn {
            Some(turn) => turn.next().await,
            None => None,
        };
        if next.is_none() {
            return false;
        }
        // Available steps are sent in the same write.
        while let Some(step) = next {
            if let TurnStep::Done(outcome) = step {
                self.done(frames, &answer, &outcome).await;
                return false;
            }
            let changes = self.items.take(&step);
            self.write_changes(frames, changes);
            next = match &mut self.turn {
                Some(turn) if frames.len() < WRITE_BYTES => turn.ready(),
                _ => None,
            };
        }
        true
    }
}

impl ResponseStream {
    async fn done(&mut self, frames: &mut SseFrames, answer: &ResponseHead, outcome: &TurnResult) {
        self.turn = None;
        if !outcome.remaining_text.is_empty() {
            let changes = self.items.text(&outcome.remaining_text);
            self.write_changes(frames, changes);
        }
        let changes = self.items.close();
        self.write_changes(frames, changes);
        let verdict = OutcomeReport::new(outcome);
        self.ending = StreamEnding::of(&verdict, !outcome.text.trim().is_empty());
        let mut body = answer.finished(&self.items, outcome, &verdict);
        let stored = answer.keep(&self.state, &body, &self.items, &outcome.session);
        if let Err(error) = stored.await {
            // The client has the answer and cannot resume it.
            tracing::warn!("response {}: {}", answer.id, error.to_json());
            body["store"] = Value::Bool(false);
        }
        self.answer = None;
        let name = match body["status"].as_str() {
            Some("failed") => "response.failed",
            Some("incomplete") => "response.incomplete",
            _ => "response.completed",
        };
        self.event(frames, name, json!({"response": body}));
    }

    fn write_changes(&mut self, frames: &mut SseFrames, changes: Vec<ItemChange>) {
        for change in changes {
            self.change(frames, change);
        }
    }

    fn change(&mut self, frames: &mut SseFrames, change: ItemChange) {
        match change {
            ItemChange::Opened(at) => {
                let item = self.items.done[at].clone();
                let id = item["id"].clone();
                let added = json!({"output_index": at, "item": item});
                self.event(frames, "response.output_item.added", added);
                let position = json!({"item_id": id, "output_index": at, "content_index": 0,
                                   "part": part("")});
                self.event(frames, "response.content_part.added", position);
            }
            ItemChange::Delta(text) => {
                // Text deltas are sent only while the item is open.
                let Some(open) = &self.items.open else { return };
                let delta = json!({"item_id": open.id, "output_index": open.at,
                                   "content_index": 0, "delta": text, "logprobs": []});
                self.event(frames, "response.output_text.delta", delta);
            }
            ItemChange::Closed(at) => {
                let item = self.items.done[at].clone();
                let (id, part) = (item["id"].clone(), item["content"][0].clone());
                let text = json!({"item_id": id, "output_index": at, "content_index": 0,
                                  "text": part["text"], "logprobs": []});
                self.event(frames, "response.output_text.done", text);
                let position = json!({"item_id": id, "output_index": at, "content_index": 0,
                                   "part": part});
                self.event(frames, "response.content_part.done", position);
                self.item_done(frames, at);
            }
            ItemChange::Added(at) => {
                let item = self.items.done[at].clone();
                let added = json!({"output_index": at, "item": item});
                self.event(frames, "response.output_item.added", added);
            }
            ItemChange::Done(at) => {
                let item = &self.items.done[at];
                if item["type"] == "function_call" {
                    let done = json!({"item_id": item["id"], "output_index": at,
                                      "name": item["name"], "arguments": item["arguments"]});
                    self.event(frames, "response.function_call_arguments.done", done);
                }
                self.item_done(frames, at);
            }
        }
    }

    fn item_done(&mut self, frames: &mut SseFrames, at: usize) {
        let done = json!({"output_index": at, "item": self.items.done[at]});
        self.event(frames, "response.output_item.done", done);
    }

    fn event(&mut self, frames: &mut SseFrames, name: &str, data: Value) {
        let mut event = Map::new();
        event.insert("type".to_owned(), json!(name));
        event.insert("sequence_number".to_owned(), json!(self.sequence));
        if let Value::Object(data) = data {
            event.extend(data);
        }
        self.sequence += 1;
        frames.event(name, &event);
    }
}

impl Drop for ResponseStream {
    /// The client has disconnected: the partial answer can be requested later.
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        let state = Arc::clone(&self.state);
        let items = std::mem::take(&mut self.items);
        let session = std::mem::take(&mut self.session);
        task::spawn("an answer whose client left", async move {
            let mut body = answer.body("incomplete", &items.snapshot());
            body["incomplete_details"] = json!({"reason": "client_disconnected"});
            if let Err(error) = answer.keep(&state, &body, &items, &session).await {
                tracing::warn!("response {}: {}", answer.id, error.to_json());
            }
        });
    }
}
