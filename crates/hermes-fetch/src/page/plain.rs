//! Text that is text already.

use super::{Kind, Page};

/// A line of JSON longer than this is laid out.
const LONG_LINE: usize = 400;

pub(super) fn text(text: &str) -> Page {
    Page {
        title: String::new(),
        text: text.to_owned(),
        kind: Kind::Text,
    }
}

pub(super) fn json(text: &str) -> Page {
    let laid_out = text.lines().all(|line| line.len() <= LONG_LINE);
    let pretty = if laid_out {
        None
    } else {
        serde_json::from_str::<serde_json::Value>(text)
            .ok()
            .and_then(|value| serde_json::to_string_pretty(&value).ok())
    };
    Page {
        title: String::new(),
        text: pretty.unwrap_or_else(|| text.to_owned()),
        kind: Kind::Json,
    }
}
