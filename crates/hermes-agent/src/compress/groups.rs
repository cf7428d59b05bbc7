//! Groups rows that must stay together: an answer with the results of its calls.

use std::ops::Range;
use std::sync::Arc;

use hermes_core::message::Message;

use crate::tokens;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowGroup {
    pub rows: Range<usize>,
    pub tokens: u64,
    pub kind: RowGroupKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowGroupKind {
    User,
    /// A user row that the engine wrote, to keep the model going.
    Nudge,
    /// An answer and the tool rows after it.
    Answer,
    /// Tool rows at the start of the view, whose call is gone.
    Orphans,
}

/// Cuts a view into groups, none of which may be split. `scaffolding` are rows of the engine's own.
pub(super) fn groups(view: &[Arc<Message>], scaffolding: &[Arc<Message>]) -> Vec<RowGroup> {
    let mut groups: Vec<RowGroup> = Vec::new();
    for (at, row) in view.iter().enumerate() {
        let tokens = tokens::message(row);
        let kind = match row.as_ref() {
            Message::User(_) if scaffolding.iter().any(|own| Arc::ptr_eq(own, row)) => {
                RowGroupKind::Nudge
            }
            Message::User(_) => RowGroupKind::User,
            Message::Assistant(_) => RowGroupKind::Answer,
            Message::Tool(_) => {
                if let Some(last) = groups.last_mut()
                    && !matches!(last.kind, RowGroupKind::User | RowGroupKind::Nudge)
                {
                    last.rows.end = at + 1;
                    last.tokens += tokens;
                    continue;
                }
                RowGroupKind::Orphans
            }
        };
        groups.push(RowGroup {
            rows: at..at + 1,
            tokens,
            kind,
        });
    }
    groups
}
