//! Converting the text into a submission.

use std::sync::Arc;

use super::chip::{Chip, ChipError};
use super::text::{RichText, TextPiece};
use super::{MAX_UNFOLDED_BYTES, Submission, SubmissionKind, folded};

/// Expands all chips. Images leave nothing in the text: they are attached.
pub(super) fn expand(text: &RichText) -> Result<String, ChipError> {
    let mut whole = String::with_capacity(text.len());
    for piece in text.pieces() {
        match piece {
            TextPiece::Text(text) => whole.push_str(text),
            TextPiece::Chip(chip) => whole.push_str(chip.text()?.unwrap_or_default()),
        }
    }
    Ok(whole)
}

/// The submission, or why it cannot be sent.
pub(super) fn submission(text: &RichText, shell: bool) -> Result<Submission, ChipError> {
    // Trailing spaces that were typed are dropped; those of a paste are kept.
    let begin = usize::from(shell);
    let text_end = text.as_str().trim_end().len().max(begin);
    let whole = expand(&text.slice(begin..text_end))?;
    let images = text
        .chips()
        .iter()
        .filter_map(|chip| chip.part().transpose())
        .collect::<Result<Vec<_>, _>>()?;
    let kind = if shell {
        SubmissionKind::Shell
    } else if is_command(text.as_str()) {
        SubmissionKind::Slash
    } else {
        SubmissionKind::Message
    };
    let whole = match kind {
        SubmissionKind::Shell => whole.trim_start().to_owned(),
        SubmissionKind::Slash | SubmissionKind::Message => whole,
    };
    Ok(Submission {
        text: whole,
        shown: text.shown().trim_end().to_owned(),
        images,
        kind,
    })
}

/// `/name …`; a path such as `/etc/hosts` is ordinary text.
pub(super) fn is_command(text: &str) -> bool {
    text.strip_prefix('/').is_some_and(|rest| {
        let name = rest.split(char::is_whitespace).next().unwrap_or_default();
        !name.is_empty() && !name.contains(['/', super::text::MARK])
    })
}

/// For the person's editor: pastes expanded, images as distinct labels.
pub(super) fn editable(text: &RichText) -> Result<String, ChipError> {
    let mut whole = String::with_capacity(text.len());
    let mut images = 0;
    for piece in text.pieces() {
        match piece {
            TextPiece::Text(text) => whole.push_str(text),
            TextPiece::Chip(chip) => {
                if let Some(body) = chip.text()? {
                    whole.push_str(body);
                } else {
                    images += 1;
                    whole.push_str(&numbered(chip, images));
                }
            }
        }
    }
    Ok(whole)
}

/// The label of the `n`th image, if two may look alike.
fn numbered(chip: &Chip, n: usize) -> String {
    chip.label().replacen("[image", &format!("[image {n}:"), 1)
}

/// Text returned by the person's editor, with the images of `before` at their labels.
pub(super) fn relabel(edited: &str, before: &RichText) -> RichText {
    let mut labels: Vec<(String, Arc<Chip>)> = Vec::new();
    for chip in before.chips() {
        if matches!(**chip, Chip::Image(_)) {
            labels.push((numbered(chip, labels.len() + 1), Arc::clone(chip)));
        }
    }
    let mut rich = RichText::default();
    let mut rest = edited;
    loop {
        let first = labels
            .iter()
            .filter_map(|(label, chip)| Some((rest.find(label.as_str())?, label, chip)))
            .min_by_key(|(at, ..)| *at);
        let Some((at, label, chip)) = first else {
            break;
        };
        push_folded(&mut rich, &rest[..at]);
        rich.push_chip(Arc::clone(chip));
        rest = &rest[at + label.len()..];
    }
    push_folded(&mut rich, rest);
    rich
}

fn push_folded(rich: &mut RichText, text: &str) {
    if text.len() > MAX_UNFOLDED_BYTES {
        rich.push(&folded(text));
    } else {
        rich.push_text(text);
    }
}
