//! The built-in tools, one module per toolset.
//!
//! | module | tools |
//! |---|---|
//! | [`terminal`] | `terminal`, `process` |
//! | [`files`] | `read_file`, `write_file`, `patch`, `search_files`, and checkpoints |
//! | [`code`] | `execute_code` |
//! | [`web`] | `web_search`, `web_extract`, `vision_analyze` |
//! | [`schedule`] | `cronjob` |

pub mod code;
pub mod files;
pub mod schedule;
pub mod terminal;
pub mod web;

use hermes_core::approval::Presence;
use hermes_core::tool::ToolContext;
use hermes_exec::{Confinement, EnvironmentInfo};
use hermes_policy::{ApprovalMode, ConfinementLevel, Gate};

/// How the policy sees a command that runs there under `confinement`.
pub fn confinement_level(
    environment: &EnvironmentInfo,
    confinement: &Confinement,
) -> ConfinementLevel {
    if environment.isolated {
        ConfinementLevel::Isolated
    } else if confinement.is_off() {
        ConfinementLevel::None
    } else {
        ConfinementLevel::Sandboxed
    }
}

/// Whether a program under `confinement` can access the network.
pub(crate) fn reaches_network(confinement: &Confinement) -> bool {
    !matches!(confinement, Confinement::Workspace { network: false, .. })
}

/// `approvals.mode: off` is a deliberate choice: if no user can be asked to let a command or program out of the
/// sandbox, with or without `--yolo`, it is not confined. Logged once.
pub(crate) fn is_free(gate: &Gate, cx: &ToolContext) -> bool {
    static SAID: std::sync::Once = std::sync::Once::new();
    let free =
        gate.config().mode == ApprovalMode::Off && cx.approver.presence() != Presence::Person;
    if free {
        SAID.call_once(|| {
            tracing::warn!(
                "approvals.mode is off: commands and programs of headless runs are neither asked about nor confined"
            );
        });
    }
    free
}
