//! The platforms, one module each. None knows another.

pub mod discord;
pub mod email;
pub mod form;
pub mod http;
pub mod slack;
pub mod telegram;
pub mod webhook;

use std::sync::Arc;

use hermes_core::clock::{Clock, Rng};

use crate::platform::Platform;
use crate::settings::{GatewaySettings, PlatformSettings};

/// Why a platform that is switched on cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    pub platform: String,
    pub why: String,
}

/// The platforms of the home that are switched on, and those that cannot be run as they are
/// configured. The API server and webhooks are none: nobody can be written to there.
pub fn all(
    settings: &GatewaySettings,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> (Vec<Platform>, Vec<Unusable>) {
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for platform in settings.enabled() {
        match of(settings, platform, clock, rng) {
            Ok(accounts) => usable.extend(accounts),
            Err(why) => unusable.push(Unusable {
                platform: platform.name.clone(),
                why,
            }),
        }
    }
    (usable, unusable)
}

/// The accounts of one platform.
fn of(
    settings: &GatewaySettings,
    platform: &PlatformSettings,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> Result<Option<Platform>, String> {
    let (home, clock, rng) = (settings.home.root(), Arc::clone(clock), Arc::clone(rng));
    match platform.name.as_str() {
        "telegram" => telegram::platform(platform, clock, rng).map(Some),
        "discord" => discord::platform(platform, &settings.home, clock, rng).map(Some),
        "slack" => slack::platform(platform, home, clock, rng).map_err(|error| error.to_string()),
        "email" => email::platform(platform, home, clock, rng).map(Some),
        _ => Ok(None),
    }
}
