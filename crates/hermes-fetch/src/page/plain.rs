//! Plain text and JSON.

use super::{PageKind, WebPage};

/// JSON with a longer line is formatted.
const MAX_JSON_LINE: usize = 400;
/// Larger JSON stays as it is: formatting may make it a hundred times as long.
const MAX_LAID_OUT: usize = 256 << 10;

pub(super) fn text(text: String) -> WebPage {
    WebPage {
        title: String::new(),
        text,
        kind: PageKind::Text,
    }
}

pub(super) fn json(text: String) -> WebPage {
    let laid_out = text.lines().all(|line| line.len() <= MAX_JSON_LINE);
    let pretty = if laid_out || text.len() > MAX_LAID_OUT {
        None
    } else {
        serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|value| serde_json::to_string_pretty(&value).ok())
    };
    WebPage {
        title: String::new(),
        text: pretty.unwrap_or(text),
        kind: PageKind::Json,
    }
}
