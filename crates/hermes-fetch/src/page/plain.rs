//! Text that is text already.

use super::{Kind, Page};

/// A line of JSON longer than this is laid out.
const LONG_LINE: usize = 400;
/// Larger JSON stays as it is: laying it out may make it a hundred times as long.
const MAX_LAID_OUT: usize = 256 << 10;

pub(super) fn text(text: String) -> Page {
    Page {
        title: String::new(),
        text,
        kind: Kind::Text,
    }
}

pub(super) fn json(text: String) -> Page {
    let laid_out = text.lines().all(|line| line.len() <= LONG_LINE);
    let pretty = if laid_out || text.len() > MAX_LAID_OUT {
        None
    } else {
        serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|value| serde_json::to_string_pretty(&value).ok())
    };
    Page {
        title: String::new(),
        text: pretty.unwrap_or(text),
        kind: Kind::Json,
    }
}
