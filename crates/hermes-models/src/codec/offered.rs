//! The encoded tools array. It is most of a short request and the same for every call of every
//! conversation with these tools, so it is encoded once.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::model::WireFormat;
use hermes_core::tool::ToolSpec;
use serde::Serialize;

use crate::quirks::SchemaDialect;

/// Number of cached arrays, the most recently used ones.
const MAX_CACHED: usize = 8;

/// What determines the encoding of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ToolsStyle {
    pub(super) format: WireFormat,
    pub(super) schema: SchemaDialect,
}

struct EncodedTools {
    /// Compared by identity; held here so that no other list can take its address.
    tools: Arc<[ToolSpec]>,
    style: ToolsStyle,
    bytes: Arc<[u8]>,
}

static CACHE: Mutex<Vec<EncodedTools>> = Mutex::new(Vec::new());

/// The JSON of `tools`, which `shape` converts to the format.
pub(super) fn written<T: Serialize>(
    tools: &Arc<[ToolSpec]>,
    style: ToolsStyle,
    shape: impl FnOnce() -> T,
) -> Result<Arc<[u8]>, serde_json::Error> {
    let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |known: &EncodedTools| known.style == style && Arc::ptr_eq(&known.tools, tools);
    if let Some(known) = cache().iter().find(|known| is_it(known)) {
        return Ok(Arc::clone(&known.bytes));
    }
    let bytes: Arc<[u8]> = serde_json::to_vec(&shape())?.into();
    let mut cache = cache();
    cache.truncate(MAX_CACHED - 1);
    let written = EncodedTools {
        tools: Arc::clone(tools),
        style,
        bytes: Arc::clone(&bytes),
    };
    cache.insert(0, written);
    Ok(bytes)
}
