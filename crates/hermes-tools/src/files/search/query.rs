//! The search parameters.

use hermes_core::args::Args;
use hermes_core::tool::ToolOutcome;

const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 10_000;
const MAX_CONTEXT: i64 = 50;

#[derive(Clone, Debug)]
pub(super) struct SearchQuery {
    pub(super) pattern: String,
    /// By name, not by content.
    pub(super) files: bool,
    pub(super) glob: Option<String>,
    pub(super) limit: usize,
    pub(super) offset: usize,
    pub(super) output: SearchOutput,
    pub(super) context: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchOutput {
    Content,
    Files,
    Count,
}

impl SearchQuery {
    pub(super) fn read(args: &Args<'_>) -> Result<Self, ToolOutcome> {
        // Blanks are part of a pattern; only an empty one is invalid.
        let pattern = match args.text("pattern")? {
            Some(pattern) if !pattern.is_empty() => pattern.to_owned(),
            _ => return Err(args.bad("pattern is missing; pass what to look for")),
        };
        let files = match args.text("target")?.unwrap_or("content") {
            "content" => false,
            "files" => true,
            other => {
                return Err(args.bad(&format!("target is {other:?}; use content or files")));
            }
        };
        let output = match args.text("output_mode")?.unwrap_or("content") {
            "content" => SearchOutput::Content,
            "files_only" => SearchOutput::Files,
            "count" => SearchOutput::Count,
            other => {
                let known = "content, files_only or count";
                return Err(args.bad(&format!("output_mode is {other:?}; use {known}")));
            }
        };
        let limit = args.integer("limit")?.unwrap_or(DEFAULT_LIMIT);
        let offset = args.integer("offset")?.unwrap_or(0);
        let context = args.integer("context")?.unwrap_or(0);
        let glob = args.text("file_glob")?.map(str::trim);
        Ok(Self {
            pattern,
            files,
            glob: glob.filter(|glob| !glob.is_empty()).map(str::to_owned),
            limit: limit.clamp(1, MAX_LIMIT) as usize,
            offset: offset.max(0) as usize,
            output,
            context: context.clamp(0, MAX_CONTEXT) as usize,
        })
    }

    /// The number of the last shown result, from 1.
    pub(super) fn end(&self) -> usize {
        self.offset.saturating_add(self.limit)
    }
}
