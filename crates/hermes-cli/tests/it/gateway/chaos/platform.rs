//! What a storm needs of a platform.

use std::fmt::Write as _;

use hermes_testkit::home::TempHome;
use rand::rngs::SmallRng;
use serde_json::Value;

use super::traffic::TurnTally;

/// What a home is told before its gateway starts.
#[derive(Default)]
pub(super) struct ChaosSetup {
    pub(super) config: Value,
    pub(super) env: String,
}

impl ChaosSetup {
    pub(super) fn env(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.env, "{name}={value}");
    }
}

/// A platform with its people: they write, things break, and in the end it is looked at what they
/// saw.
pub(super) trait ChaosPlatform {
    fn name(&self) -> &'static str;

    fn configure(&self, setting: &mut ChaosSetup);

    /// Called while a first gateway lives in peace, until it says that the storm may begin.
    fn is_ready(&mut self, _home: &TempHome) -> bool {
        true
    }

    /// Somebody writes.
    fn say(&mut self, rng: &mut SmallRng);

    /// Something breaks.
    fn trouble(&mut self, rng: &mut SmallRng);

    /// Nothing breaks any more.
    fn still(&mut self);

    /// One more message everywhere: when it is answered, all that came before is over.
    fn last_words(&mut self);

    /// What is still owed.
    fn open(&self) -> Vec<String>;

    /// Fails if anything was seen twice without a word, or in the wrong order.
    fn judge(&self) -> TurnTally;

    /// What people see, for whoever looks for the reason of a failure.
    fn seen(&self) -> Value;
}
