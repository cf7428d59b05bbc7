//! Chat platforms: what an adapter is, and the adapters. None knows another.
//!
//! | module | what it does |
//! |---|---|
//! | `platform` | the interface: receiving, sending, capabilities as data |
//! | `definition` | data about each platform for the rest of the program |
//! | `source` | the origin of a message |
//! | `posting` | unsolicited messages to chats |
//! | [`telegram`], [`discord`], [`slack`], [`email`], [`webhook`] | the adapters |
//! | `settings` | settings of one platform |
//! | `markup` | markdown in the markup of a platform |
//! | `http`, `form` | requests to a platform |
//! | `serve` | connections of clients that call us |

mod definition;
pub mod discord;
pub mod email;
mod form;
mod http;
mod markup;
mod platform;
mod posting;
mod serve;
mod settings;
pub mod slack;
mod source;
pub mod telegram;
pub mod webhook;

use std::sync::Arc;

use hermes_config::Home;
use hermes_core::clock::{Clock, Rng};

pub use definition::{
    Batching, PLATFORMS, PlatformDef, SetupField, StrangerRules, SwitchedOn, ThreadSyntax, Writers,
    definition, is_for_programs,
};
pub use form::MultipartForm;
pub use http::{HttpError, PlatformHttp};
pub use markup::render;
pub use platform::{
    AdapterLink, Admission, Applicant, Arrival, Button, ButtonPress, Capabilities, DeliveryLookup,
    FatalPlatformError, HealthReporter, InboundAdapter, IncomingMessage, Markup, MediaKind,
    MediaRef, Offer, OutMedia, OutboundAdapter, OutgoingMessage, Platform, PlatformCondition,
    PlatformLimits, PlatformState, Recourse, ReplyTo, SendError, SendFuture, TextUnit, Tone,
};
pub use posting::{MirrorRole, PostError, Posting};
pub use serve::serve;
pub use settings::{HomeChannel, PlatformSettings, ReplyMode, is_on, setting_text};
pub use source::MessageSource;

/// The dependencies of adapters besides their settings.
pub struct PlatformDeps {
    pub home: Home,
    pub admission: Arc<dyn Admission>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
}

/// Why a platform that is switched on cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusablePlatform {
    pub platform: String,
    pub why: String,
}

/// The enabled platforms, and those with invalid settings. The API server and webhooks are not
/// included, because no one can be written to there.
pub fn all<'a>(
    enabled: impl Iterator<Item = &'a PlatformSettings>,
    deps: &PlatformDeps,
) -> (Vec<Platform>, Vec<UnusablePlatform>) {
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for platform in enabled {
        match build(platform, deps) {
            Ok(accounts) => usable.extend(accounts),
            Err(why) => unusable.push(UnusablePlatform {
                platform: platform.name.clone(),
                why,
            }),
        }
    }
    (usable, unusable)
}

/// The accounts of one platform.
fn build(platform: &PlatformSettings, deps: &PlatformDeps) -> Result<Option<Platform>, String> {
    let (clock, rng) = (Arc::clone(&deps.clock), Arc::clone(&deps.rng));
    let root = deps.home.root();
    match platform.name.as_str() {
        telegram::NAME => telegram::platform(platform, clock, rng).map(Some),
        discord::NAME => discord::platform(platform, deps).map(Some),
        slack::NAME => {
            slack::platform(platform, root, clock, rng).map_err(|error| error.to_string())
        }
        email::NAME => email::platform(platform, root, clock, rng).map(Some),
        _ => Ok(None),
    }
}
