//! The completable word at the caret.

use std::ops::Range;

use crate::composer::editor::TextEditor;
use crate::composer::text::MARK;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CompletionContext {
    /// `/na`: the range is the name with its slash.
    Command { range: Range<usize>, word: String },
    /// A word after a command.
    Argument {
        range: Range<usize>,
        /// Without its slash.
        command: String,
        before: String,
        word: String,
    },
    /// `@pa`: the range includes the `@`.
    File { range: Range<usize>, word: String },
}

impl CompletionContext {
    pub(super) fn range(&self) -> &Range<usize> {
        match self {
            Self::Command { range, .. }
            | Self::Argument { range, .. }
            | Self::File { range, .. } => range,
        }
    }

    /// Whether it is the same word, typed further.
    pub(super) fn continues(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && self.range().start == other.range().start
    }

    pub(super) fn at_caret(editor: &TextEditor) -> Option<Self> {
        let text = editor.text().as_str();
        let caret = editor.caret();
        let before = &text[..caret];
        file(text, caret).or_else(|| {
            let rest = before.strip_prefix('/')?;
            if before.contains(['\n', MARK]) {
                return None;
            }
            match rest.split_once(char::is_whitespace) {
                None if rest.contains('/') => None,
                None => Some(Self::Command {
                    range: 0..word_end(text, caret),
                    word: rest.to_owned(),
                }),
                Some((command, _)) if command.is_empty() || command.contains('/') => None,
                Some((command, arguments)) => {
                    let start = arguments
                        .rfind(char::is_whitespace)
                        .map_or(0, |at| at + blank_len(&arguments[at..]));
                    Some(Self::Argument {
                        range: caret - (arguments.len() - start)..word_end(text, caret),
                        command: command.to_owned(),
                        before: arguments[..start].trim().to_owned(),
                        word: arguments[start..].to_owned(),
                    })
                }
            }
        })
    }
}

fn blank_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn word_end(text: &str, at: usize) -> usize {
    text[at..]
        .find(|c: char| c.is_whitespace() || c == MARK)
        .map_or(text.len(), |end| at + end)
}

/// `@path` or `@"path with spaces`: the `@` begins a word.
fn file(text: &str, caret: usize) -> Option<CompletionContext> {
    let line = text[..caret].rfind(['\n', MARK]).map_or(0, |at| {
        at + text[at..].chars().next().map_or(0, char::len_utf8)
    });
    let before = &text[line..caret];
    let opens = |at: usize| {
        before[..at]
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '[' | '{' | '<' | ',' | ':'))
    };
    if let Some(at) = before.rfind("@\"")
        && opens(at)
        && !before[at + 2..].contains('"')
    {
        let word = before[at + 2..].to_owned();
        let rest = &text[caret..];
        // A closing quote on this line belongs to it.
        let end = match rest.find(['"', '\n']) {
            Some(end) if rest[end..].starts_with('"') && !rest[..end].contains(MARK) => {
                caret + end + 1
            }
            _ => caret,
        };
        return Some(CompletionContext::File {
            range: line + at..end,
            word,
        });
    }
    let start = before.rfind(char::is_whitespace).map_or(0, |at| {
        at + before[at..].chars().next().map_or(0, char::len_utf8)
    });
    let at = start + before[start..].rfind('@')?;
    let word = &before[at + 1..];
    (opens(at) && !word.starts_with('"')).then(|| CompletionContext::File {
        range: line + at..word_end(text, caret),
        word: word.to_owned(),
    })
}
