//! The `web_search` tool.

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_fetch::FetchError;
use hermes_fetch::service::{ServiceError, select_search};
use serde_json::{Value, json};

use super::{WebDeps, failed};

const NAME: &str = "web_search";
const DEFAULT_HITS: i64 = 5;
const MAX_HITS: i64 = 100;
/// Longer queries are texts, which no service accepts.
const MAX_QUERY_CHARS: usize = 2_000;

pub(super) struct WebSearch {
    spec: ToolSpec,
    deps: Arc<WebDeps>,
}

impl WebSearch {
    pub(super) fn new(deps: Arc<WebDeps>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What to look for. Operators such as site:example.org, filetype:pdf, -word or \"exact words\" work where the service knows them.",
                },
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": DEFAULT_HITS,
                    "description": "How many results at most.",
                },
            },
            "required": ["query"],
        }));
        let description = "Search the web: titles, addresses and short descriptions of pages. \
            Read a page that looks right with web_extract before relying on it.";
        let mut spec = ToolSpec::new(NAME, "web", Effects::ReadOnly, description, parameters);
        spec.untrusted = true;
        Self { spec, deps }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<ToolOutcome, ToolOutcome> {
        let args = Args::new(NAME, args);
        let query = args.required("query", "what to search for")?.trim();
        if query.len() > MAX_QUERY_CHARS {
            return Err(args.bad("query is too long; ask in a sentence or two"));
        }
        if self.deps.pages.guard().leaks(query) {
            let text = "the query contains a secret of this installation; it is not sent anywhere";
            return Err(failed(ToolErrorKind::Denied, text));
        }
        let limit = args.integer("limit")?.unwrap_or(DEFAULT_HITS);
        let limit = limit.clamp(1, MAX_HITS) as usize;
        let selection = select_search(&self.deps.settings, self.deps.services.access());
        if let Some(remark) = &selection.remark {
            tracing::warn!("web_search: {remark}");
            cx.progress
                .report(format!("{remark}; asking {}", selection.backend.title()));
        }
        cx.progress
            .report(format!("asking {}", selection.backend.title()));
        let found = self
            .deps
            .services
            .search(selection.backend, query, limit, &cx.cancel)
            .await;
        match found {
            Ok(hits) => {
                let web: Vec<Value> = hits
                    .into_iter()
                    .enumerate()
                    .map(|(at, hit)| {
                        json!({
                            "title": hit.title,
                            "url": hit.url,
                            "description": hit.description,
                            "position": at + 1,
                        })
                    })
                    .collect();
                let answer = json!({ "success": true, "data": { "web": web } });
                Ok(ToolOutcome::json(&answer))
            }
            Err(error) => {
                let kind = match &error {
                    ServiceError::Failed {
                        why: FetchError::Cancelled,
                        ..
                    } => ToolErrorKind::Cancelled,
                    ServiceError::Failed {
                        why: FetchError::TimedOut { .. },
                        ..
                    } => ToolErrorKind::TimedOut,
                    _ => ToolErrorKind::Failed,
                };
                let text = match selection.remark {
                    Some(remark) => format!("{error} ({remark})"),
                    None => error.to_string(),
                };
                Err(failed(kind, text))
            }
        }
    }
}

impl Tool for WebSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { self.run(&args, cx).await.unwrap_or_else(|error| error) })
    }
}
