//! Questions of a turn, brought to the editor and back. Each waits in a task of its own.

use agent_client_protocol::v1::schema::{ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields};
use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::ask::{Answer, Question};
use hermes_core::event::AgentCommand;
use hermes_core::task;
use tokio_util::sync::CancellationToken;

use super::{EditorRequest, EditorSession};
use crate::permission;
use crate::question::{self, QuestionForm};

impl EditorSession {
    pub(super) fn ask_permission(&mut self, request: ApprovalRequest) {
        let id = request.id.clone();
        let answer = |verdict| {
            let request = id.clone();
            AgentCommand::Answer { request, verdict }
        };
        if let Some(verdict) = self.edits.mode().verdict(&request) {
            return self.send_command(answer(verdict));
        }
        let call = permission::call_of(&id, self.running.keys()).unwrap_or(&id);
        let changes = self.edits.of(call);
        let asked = permission::request(&self.outlet.session, call, &request, &changes);
        let call = call.clone();
        let open = self.open(&id);
        let (outlet, answers) = (self.outlet.clone(), self.answers.clone());
        task::spawn("acp permission", async move {
            outlet.gauge.room().await;
            let answered = outlet.connection.send_request(asked).block_task();
            let verdict = tokio::select! {
                biased;
                // Dropped, so that the editor removes the question.
                () = open.cancelled() => return,
                answered = answered => match answered {
                    Ok(response) => permission::verdict(&response.outcome, &request),
                    Err(error) => Verdict::Deny {
                        why: Some(format!("the editor could not ask: {error}")),
                    },
                },
            };
            if !matches!(verdict, Verdict::Deny { .. }) {
                let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
                outlet.call(ToolCallUpdate::new(call, fields)).await;
            }
            let request = request.id;
            let order = AgentCommand::Answer { request, verdict };
            // Without a session nothing can be allowed.
            if let Some(answers) = answers.upgrade() {
                let _ = answers.send(EditorRequest::Answer(order)).await;
            }
            open.cancel();
        });
    }

    pub(super) fn ask(&mut self, question: Question) {
        let can = self.outlet.client.elicitation.clone();
        let asking = question::asking(&self.outlet.session, &question, can.as_ref());
        if let QuestionForm::Not(answer) = asking {
            let question = question.id;
            return self.send_command(AgentCommand::Reply { question, answer });
        }
        let open = self.open(&question.id);
        let (outlet, answers) = (self.outlet.clone(), self.answers.clone());
        task::spawn("acp question", async move {
            outlet.gauge.room().await;
            let connection = outlet.connection.clone();
            let lost = |error: agent_client_protocol::Error| {
                question::unanswered(&format!("the editor could not ask: {error}"))
            };
            let answered = async {
                match asking {
                    QuestionForm::Form(form) => {
                        match connection.send_request(*form).block_task().await {
                            Ok(response) => question::filled(response.action, &question),
                            Err(error) => lost(error),
                        }
                    }
                    QuestionForm::Buttons(buttons) => {
                        match connection.send_request(*buttons).block_task().await {
                            Ok(response) => question::pressed(&response.outcome, &question),
                            Err(error) => lost(error),
                        }
                    }
                    QuestionForm::Not(answer) => answer,
                }
            };
            let answer: Answer = tokio::select! {
                biased;
                () = open.cancelled() => return,
                answer = answered => answer,
            };
            let question = question.id.clone();
            let order = AgentCommand::Reply { question, answer };
            if let Some(answers) = answers.upgrade() {
                let _ = answers.send(EditorRequest::Answer(order)).await;
            }
            open.cancel();
        });
    }

    /// Cancelled when the question is no longer open.
    fn open(&mut self, id: &str) -> CancellationToken {
        self.asked.retain(|_, open| !open.is_cancelled());
        let open = self.stop.child_token();
        if let Some(before) = self.asked.insert(id.to_owned(), open.clone()) {
            before.cancel();
        }
        open
    }
}
