//! What the owner of the machine can see and decide without a chat: permissions that turns wait for.

use hermes_core::store::StoreError;
use hermes_store::delivery::{QuestionState, StoredQuestion, Target};

use super::GatewayShared;
use super::chat::{kept_for_operator, question_record};

/// An open permission request of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenPermission {
    pub id: String,
    /// The tool that needs the permission.
    pub tool: String,
    /// The text shown in the chat.
    pub text: String,
    pub session_key: String,
    pub target: Target,
    /// Seconds since the epoch.
    pub expires_at: f64,
    /// It can be allowed permanently.
    pub lasting: bool,
}

/// What the owner decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerDecision {
    AllowOnce,
    /// Permanently if offered, else for the session.
    AllowAlways,
    Deny,
}

/// Why a decision is rejected.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    #[error(
        "no permission {0:?} is waiting: it was decided, its time is over, or its turn has ended"
    )]
    NotOpen(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl GatewayShared {
    /// Oldest first.
    pub(crate) async fn open_permissions(&self) -> Result<Vec<OpenPermission>, StoreError> {
        let mut open = Vec::new();
        for id in self.open_question_ids() {
            let stored = self.delivery.question(&id).await?;
            open.extend(stored.and_then(|stored| self.waiting_permission(stored)));
        }
        open.sort_by(|one, other| one.expires_at.total_cmp(&other.expires_at));
        Ok(open)
    }

    fn waiting_permission(&self, stored: StoredQuestion) -> Option<OpenPermission> {
        let put = question_record(&stored).filter(|put| put.permission)?;
        let in_time = stored.question.expires_at > self.clock.epoch_seconds();
        (stored.state == QuestionState::Open && in_time).then(|| OpenPermission {
            tool: put.from,
            text: put.text,
            lasting: put.choices.iter().any(|choice| choice == "a"),
            id: stored.question.id,
            session_key: stored.question.session_key,
            target: stored.question.target,
            expires_at: stored.question.expires_at,
        })
    }

    /// Stores the decision like a button press and notifies the turn. `by`: who decided, for
    /// display in the chat.
    pub(crate) async fn decide_permission(
        &self,
        id: &str,
        decision: OwnerDecision,
        by: &str,
    ) -> Result<OpenPermission, DecisionError> {
        let not_open = || DecisionError::NotOpen(id.to_owned());
        let stored = self.delivery.question(id).await?;
        let open = stored
            .filter(|_| self.is_question_open(id))
            .and_then(|stored| self.waiting_permission(stored))
            .ok_or_else(not_open)?;
        let choice = match decision {
            OwnerDecision::AllowOnce => "o",
            OwnerDecision::AllowAlways if open.lasting => "a",
            OwnerDecision::AllowAlways => "s",
            OwnerDecision::Deny => "d",
        };
        let permission = kept_for_operator(choice, by);
        if !self.delivery.answer_question(id, &permission).await? {
            return Err(not_open());
        }
        self.notify_question(id);
        Ok(open)
    }
}
