//! The adapters of a home, and the services they need from the gateway.

use std::sync::Arc;

use hermes_app::{RunInline, expand_inline};
use hermes_core::BoxFuture;
use hermes_core::clock::{Clock, Rng};
use hermes_core::store::StoreError;
use hermes_platforms::webhook::{self, WebhookHost};
use hermes_platforms::{
    Admission, Applicant, Platform, PlatformDeps, PlatformSettings, PostError, Posting,
    UnusablePlatform,
};
use hermes_store::Store;
use hermes_store::delivery::Target;
use hermes_store::skills::SkillView;

use crate::authorize::pairing::Pairing;
use crate::authorize::{self, AccessVariables, SenderIdentity, SenderPolicy};
use crate::settings::GatewaySettings;
use crate::turn::MessagePoster;

/// The platforms of the home that are switched on, and those that cannot be run as they are
/// configured.
pub fn all(
    settings: &GatewaySettings,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> (Vec<Platform>, Vec<UnusablePlatform>) {
    let admission = HomeAdmission {
        platforms: settings.platforms.clone(),
        pairing: Pairing::new(&settings.home, Arc::clone(clock)),
    };
    let deps = PlatformDeps {
        home: settings.home.clone(),
        admission: Arc::new(admission),
        clock: Arc::clone(clock),
        rng: Arc::clone(rng),
    };
    hermes_platforms::all(settings.enabled(), &deps)
}

/// Allow-lists and pairing of a home, for adapters.
pub struct HomeAdmission {
    pub platforms: Vec<PlatformSettings>,
    pub pairing: Pairing,
}

impl HomeAdmission {
    async fn is_admitted(&self, applicant: Applicant<'_>) -> bool {
        let source = applicant.source;
        let mut known = self.platforms.iter();
        let Some(platform) = known.find(|one| one.name == source.platform) else {
            return false;
        };
        let vars = AccessVariables {
            env: &platform.env,
            platform: Some(platform),
        };
        let visitor = SenderIdentity {
            source,
            is_bot: applicant.is_bot,
            has_role: applicant.has_role,
            policy: SenderPolicy::default(),
            aliases: &[],
            paired: false,
        };
        if authorize::admit(&visitor, &vars).is_some() {
            return true;
        }
        let Some(user) = source.user_id.clone() else {
            return false;
        };
        let (pairing, name) = (self.pairing.clone(), source.platform.clone());
        let asked = tokio::task::spawn_blocking(move || pairing.is_approved(&name, &user)).await;
        matches!(asked, Ok(Ok(true)))
    }
}

impl Admission for HomeAdmission {
    fn admits<'a>(&'a self, applicant: Applicant<'a>) -> BoxFuture<'a, bool> {
        Box::pin(self.is_admitted(applicant))
    }
}

/// Implements [`WebhookHost`] with a gateway.
pub struct GatewayWebhooks {
    pub store: Store,
    pub post: MessagePoster,
    /// Runs commands in skills; `None`: they stay as they are written.
    pub inline: Option<RunInline>,
}

impl WebhookHost for GatewayWebhooks {
    fn received<'a>(
        &'a self,
        chat_id: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.store.was_received(webhook::NAME, "", chat_id, id))
    }

    fn target(&self, text: &str) -> Result<Target, PostError> {
        self.post.target(text, None)
    }

    fn post(&self, posting: Posting) -> BoxFuture<'_, Result<usize, PostError>> {
        Box::pin(self.post.send(posting))
    }

    fn skill_text(&self, skill: SkillView) -> BoxFuture<'_, String> {
        Box::pin(async move {
            expand_inline(skill.content, skill.dir.as_deref(), self.inline.as_ref()).await
        })
    }

    fn close_answered(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.post.close_answered(webhook::NAME).await {
                Ok(0) => {}
                Ok(count) => tracing::debug!("webhook: {count} conversations are over"),
                Err(error) => tracing::warn!("webhook: conversations cannot be ended: {error}"),
            }
        })
    }
}
