//! Makes calls runnable: names, ids, arguments, duplicates.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use hermes_core::message::ToolCall;
use hermes_core::tool::{Registry, Tool, ToolArgs, ToolErrorKind};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::coerce::coerce;
use crate::guard::{self, CallSignature};
use crate::repair::{self, RepairedArguments};

/// A call of the model, as it will be stored, and what to do about it.
pub(crate) struct PreparedCall {
    pub call: ToolCall,
    pub work: CallAction,
}

pub(crate) enum CallAction {
    Run {
        tool: Arc<dyn Tool>,
        args: ToolArgs,
        signature: CallSignature,
    },
    /// The call cannot run; the model reads why.
    Refuse { kind: ToolErrorKind, text: String },
}

impl PreparedCall {
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(
            self.work,
            CallAction::Refuse {
                kind: ToolErrorKind::UnknownTool,
                ..
            }
        )
    }
}

/// How much of unreadable arguments is kept in the conversation.
const MAX_UNREADABLE_CHARS: usize = 2_000;

/// Prepares the calls of an answer, in order. Repeated calls (same tool, same arguments) are
/// left out. `is_used` tells whether an id is used in the conversation already.
pub(crate) fn prepare(
    calls: Vec<ToolCall>,
    registry: &Registry,
    is_used: impl Fn(&str) -> bool,
) -> Vec<PreparedCall> {
    let mut seen: HashSet<(String, String)> = HashSet::new();
    let mut ids: HashSet<String> = HashSet::new();
    let mut out = Vec::with_capacity(calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        let mut prepared = prepare_one(call, registry);
        let key = match &prepared.work {
            CallAction::Run { signature, .. } => signature.clone(),
            CallAction::Refuse { .. } => {
                (prepared.call.name.clone(), prepared.call.arguments.clone())
            }
        };
        if !seen.insert(key) {
            continue;
        }
        let call = &mut prepared.call;
        if call.id.trim().is_empty() || is_used(&call.id) || ids.contains(&call.id) {
            call.id = made_up_id(call, index, |id| is_used(id) || ids.contains(id));
        }
        ids.insert(call.id.clone());
        out.push(prepared);
    }
    out
}

fn prepare_one(mut call: ToolCall, registry: &Registry) -> PreparedCall {
    let arguments = RepairedArguments::read(&call.arguments);
    match &arguments {
        RepairedArguments::Exact(args) | RepairedArguments::Repaired(args) => {
            let written = call.arguments.trim();
            if matches!(arguments, RepairedArguments::Repaired(_)) || !written.starts_with('{') {
                call.arguments = serde_json::Value::Object(args.clone()).to_string();
            }
        }
        // A provider rejects a history with broken JSON in it, so what the model wrote is kept
        // as a value.
        RepairedArguments::Truncated | RepairedArguments::Unreadable(_) => {
            let excerpt: String = call.arguments.chars().take(MAX_UNREADABLE_CHARS).collect();
            call.arguments = json!({ "unreadable_arguments": excerpt }).to_string();
        }
    }
    let work = match repair::tool_name(registry, &call.name) {
        None => unknown(&mut call, registry),
        Some(name) => {
            call.name = name;
            match (registry.get(&call.name), arguments) {
                (
                    Some(tool),
                    RepairedArguments::Exact(mut args) | RepairedArguments::Repaired(mut args),
                ) => {
                    coerce(&mut args, &tool.spec().parameters);
                    CallAction::Run {
                        tool: Arc::clone(tool),
                        signature: guard::signature(&call.name, &args),
                        args,
                    }
                }
                (_, RepairedArguments::Truncated) => {
                    bad_arguments("the arguments break off in the middle")
                }
                (_, RepairedArguments::Unreadable(why)) => bad_arguments(&why),
                (None, _) => unknown(&mut call, registry),
            }
        }
    };
    PreparedCall { call, work }
}

fn bad_arguments(why: &str) -> CallAction {
    CallAction::Refuse {
        kind: ToolErrorKind::BadArguments,
        text: format!(
            "Not run: {why}. Call the tool again with one complete, valid JSON object as arguments."
        ),
    }
}

fn unknown(call: &mut ToolCall, registry: &Registry) -> CallAction {
    let text = if call.name.trim().is_empty() {
        // Strict servers refuse a history with a nameless call.
        "unnamed".clone_into(&mut call.name);
        "Not run: the call names no tool.".to_owned()
    } else {
        let names: Vec<&str> = registry.names().collect();
        format!(
            "Not run: there is no tool {:?}. The tools are: {}.",
            call.name,
            names.join(", ")
        )
    };
    CallAction::Refuse {
        kind: ToolErrorKind::UnknownTool,
        text,
    }
}

/// An id for a call that has none: the same call gets the same id, so that replaying it does not
/// change a byte.
fn made_up_id(call: &ToolCall, index: usize, is_used: impl Fn(&str) -> bool) -> String {
    for salt in 0_u32.. {
        let mut hash = Sha256::new();
        hash.update(call.name.as_bytes());
        hash.update([0]);
        hash.update(call.arguments.as_bytes());
        hash.update([0]);
        hash.update(index.to_be_bytes());
        if salt > 0 {
            hash.update(salt.to_be_bytes());
        }
        let mut id = "call_".to_owned();
        for byte in hash.finalize().iter().take(12) {
            let _ = write!(id, "{byte:02x}");
        }
        if !is_used(&id) {
            return id;
        }
    }
    format!("call_{index}")
}
