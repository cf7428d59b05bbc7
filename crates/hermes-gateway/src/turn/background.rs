//! `/background`: a question in a conversation of its own, answered in the same chat when it is
//! done.

use std::sync::Arc;

use hermes_app::{ConversationRequest, ConversationUpdate, OpeningRequest};
use hermes_core::event::{AgentCommand, AgentEvent, UserInput};
use hermes_core::task;
use hermes_store::delivery::{Final, NewChunk, NewReply, Target};
use tokio_util::sync::CancellationToken;

use super::message::InboxMessage;
use super::messages;
use super::shared::GatewayShared;
use super::side_work::SideWorkGuard;

/// A background question with its message and chat.
pub(super) struct BackgroundRequest {
    pub(super) key: String,
    pub(super) msg: InboxMessage,
    pub(super) text: String,
    pub(super) opening: OpeningRequest,
}

pub(super) async fn begin(
    shared: &Arc<GatewayShared>,
    asked: BackgroundRequest,
    under_way: SideWorkGuard,
    cancel: CancellationToken,
) {
    let BackgroundRequest {
        key,
        msg,
        text,
        opening,
    } = asked;
    let turn = msg.attempt("bg");
    if !shared.claim(&[msg.id], &turn, &cancel).await {
        return;
    }
    let time = shared.local_now().format("%H%M%S");
    let id = format!("bg_{time}_{:06x}", shared.rng.next_u64() & 0xFF_FFFF);
    let target = msg.target();
    let ack = format!("🔄 `{id}` works on it in the background.");
    let ack = Final {
        turn: format!("{turn}-ack"),
        replies: reply(&key, &target, shared.chunks(&target, &ack)),
        ..Final::default()
    };
    shared.settle(ack, &cancel).await;
    let opening = OpeningRequest {
        id: id.clone(),
        unattended: true,
        single: true,
        ..opening
    };
    let shared = Arc::clone(shared);
    let work = async move {
        // Until its result is stored.
        let _under_way = under_way;
        let ended = tokio::select! {
            // The message stays claimed: the next process reports that it was interrupted.
            () = cancel.cancelled() => return,
            ended = run(&shared, opening, text) => ended,
        };
        let text = match ended {
            Some(text) => format!("✅ `{id}`\n\n{text}"),
            None => format!("✅ `{id}` is done and has nothing to say."),
        };
        let chunks = shared.chunks_with_files(&target, &text);
        let end = Final {
            turn,
            answers: vec![msg.id],
            replies: reply(&key, &target, chunks),
            ..Final::default()
        };
        shared.settle(end, &cancel).await;
    };
    drop(task::spawn("background question", work));
}

fn reply(key: &str, target: &Target, chunks: Vec<NewChunk>) -> Vec<NewReply> {
    vec![NewReply {
        session_key: key.to_owned(),
        target: target.clone(),
        chunks,
    }]
}

/// Runs one question to its end. `None`: no answer.
async fn run(shared: &GatewayShared, opening: OpeningRequest, text: String) -> Option<String> {
    let Ok(_permit) = Arc::clone(&shared.turns).acquire_owned().await else {
        return Some(messages::BROKE.to_owned());
    };
    let mut conversation = match shared.pool.acquire(opening).await {
        Ok(conversation) => conversation,
        Err(refusal) => return Some(format!("⚠️ {refusal}")),
    };
    let input = UserInput {
        text,
        ..UserInput::default()
    };
    if !conversation.request(ConversationRequest::Input(input)) {
        return Some(messages::BROKE.to_owned());
    }
    while let Some(update) = conversation.next_update().await {
        match update {
            ConversationUpdate::Event(AgentEvent::TurnFinished { summary }) => {
                conversation.close().await;
                return messages::outcome_text(&summary, false);
            }
            ConversationUpdate::Event(AgentEvent::QuestionAsked { question }) => {
                let why = "this runs in the background, where no one can be asked".to_owned();
                let answer = hermes_core::ask::Answer::Unanswered { why };
                let question = question.id;
                let reply = AgentCommand::Reply { question, answer };
                conversation.command(reply);
            }
            ConversationUpdate::Event(AgentEvent::ApprovalNeeded { request }) => {
                let why = Some("this runs in the background, where no one can be asked".to_owned());
                let verdict = hermes_core::approval::Verdict::Deny { why };
                let request = request.id;
                let answer = AgentCommand::Answer { request, verdict };
                conversation.command(answer);
            }
            ConversationUpdate::Rejected(refusal) => return Some(format!("⚠️ {refusal}")),
            _ => {}
        }
    }
    Some(messages::BROKE.to_owned())
}
