//! The tools that act: files, commands, programs, web, jobs. Put together once per conversation.

use std::sync::Arc;

use hermes_config::Config;
use hermes_core::tool::Tool;

use crate::commands::Context;

/// What a conversation can act with.
#[derive(Default)]
pub(crate) struct Hands {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// Tools that exist and cannot be offered here, with the reason.
    pub(crate) missing: Vec<(&'static str, String)>,
}

impl Hands {
    pub(crate) fn new(_cx: &Context, _config: &Config) -> Self {
        Self::default()
    }
}
