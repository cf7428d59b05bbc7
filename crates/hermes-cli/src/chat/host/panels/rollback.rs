//! `/rollback`: snapshots of the project.

use hermes_app::checkpoints;
use hermes_core::front_end::TextKind;
use hermes_tools::files::checkpoints::{Checkpoint, Checkpoints};
use hermes_tui::port::{Panel, PanelGroup, PanelKey, PanelRequest, PanelRow};

use super::{PanelKeyResult, key, page, row, short, text, unknown};
use crate::chat::host::ScreenConversation;
use crate::commands::counted;
use crate::exit::Failure;

pub(super) const ID: &str = "rollback";

/// Those that the tools use, where there are any: they know whether snapshots are taken.
fn session_checkpoints(conversation: &ScreenConversation) -> Checkpoints {
    match &conversation.chat.commands {
        Some(commands) => commands.checkpoints.clone(),
        None => checkpoints::open(&conversation.cx, &conversation.chat.config),
    }
}

pub(super) async fn panel(conversation: &ScreenConversation) -> Result<Panel, Failure> {
    let session_checkpoints = session_checkpoints(conversation);
    let all = session_checkpoints.list(&conversation.chat.cwd).await;
    let all = all.map_err(|error| checkpoints::failure(&error))?;
    let mut panel = shown(&all, session_checkpoints.enabled());
    panel.note = conversation.chat.cwd.display().to_string();
    Ok(panel)
}

fn shown(all: &[Checkpoint], enabled: bool) -> Panel {
    let rows = all.iter().map(|one| {
        let at = one.timestamp.replacen('T', " ", 1);
        let files = usize::try_from(one.files_changed).unwrap_or(usize::MAX);
        PanelRow {
            // Numbers change when another snapshot is taken; this stays.
            id: one.hash.clone(),
            cells: vec![
                one.number.to_string(),
                at.get(..16).unwrap_or(&at).to_owned(),
                short(&one.reason, 60),
                format!("+{} -{}", one.insertions, one.deletions),
                counted(files, "file"),
            ],
            detail: format!("{} · {}", one.short_hash, short(&one.reason, 300)),
            ..PanelRow::default()
        }
    });
    let footer = if all.is_empty() {
        vec![checkpoints::listed(all, enabled)]
    } else {
        Vec::new()
    };
    Panel {
        id: ID.to_owned(),
        title: "Checkpoints".to_owned(),
        columns: ["#", "TAKEN", "BEFORE", "LINES", "FILES"]
            .map(str::to_owned)
            .to_vec(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: rows.collect(),
        }],
        keys: vec![
            key("enter", "what changed since", "diff"),
            PanelKey {
                confirm: Some("Restore the whole project to checkpoint {}?".to_owned()),
                ..key("r", "restore", "restore")
            },
            PanelKey {
                text: Some("file to take from checkpoint {}".to_owned()),
                ..key("f", "restore a file", "file")
            },
        ],
        footer,
        ..Panel::default()
    }
}

pub(super) async fn act(
    conversation: &ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    let which = row(ask)?;
    let session_checkpoints = session_checkpoints(conversation);
    let cwd = &conversation.chat.cwd;
    let file = match ask.action.as_str() {
        "diff" => {
            let changes = session_checkpoints.diff(cwd, which).await;
            let changes = changes.map_err(|error| checkpoints::failure(&error))?;
            let title = "changed since the checkpoint";
            if changes.diff.is_empty() {
                return Ok(PanelKeyResult::Note("nothing changed since".to_owned()));
            }
            return Ok(PanelKeyResult::Page(page(
                title,
                TextKind::Diff,
                changes.diff,
            )));
        }
        "restore" => None,
        "file" if text(ask).is_empty() => return Ok(PanelKeyResult::Again),
        "file" => Some(text(ask)),
        _ => return Err(unknown(ask)),
    };
    if conversation.busy {
        return Err(Failure::usage(
            "a turn is running and may be changing files\nstop it first: Esc",
        ));
    }
    let restored = session_checkpoints.restore(cwd, which, file).await;
    let restored = restored.map_err(|error| checkpoints::failure(&error))?;
    Ok(PanelKeyResult::Note(checkpoints::restore_text(&restored)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_rows_and_none_says_why() {
        let one = Checkpoint {
            number: 1,
            hash: "abcdef0123".to_owned(),
            short_hash: "abcdef0".to_owned(),
            timestamp: "2026-11-15T16:00:12+00:00".to_owned(),
            reason: "before patch".to_owned(),
            files_changed: 2,
            insertions: 3,
            deletions: 1,
        };
        let panel = shown(&[one], true);
        assert_eq!(
            panel.groups[0].rows[0].cells,
            ["1", "2026-11-15 16:00", "before patch", "+3 -1", "2 files"]
        );
        let none = shown(&[], false);
        assert!(
            none.footer[0].contains("checkpoints.enabled"),
            "{:?}",
            none.footer
        );
    }
}
