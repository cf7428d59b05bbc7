//! The `web_extract` tool: pages as text.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_fetch::guard::ResolveError;
use hermes_fetch::page::{self, drop_inline_images};
use hermes_fetch::service::{WebBackend, select_extract};
use hermes_fetch::{BlockedUrl, FetchError, FetchOptions};
use serde_json::{Value, json};

use super::{WebDeps, keep};

const NAME: &str = "web_extract";
const MAX_PAGES: usize = 5;
const MIN_CHARS: i64 = 2_000;
const MAX_CHARS: i64 = 500_000;
/// PDFs are large; HTML is cut earlier by its reader.
const MAX_BYTES: usize = 20_000_000;
const EXTRACT_TIMEOUT: Duration = Duration::from_mins(1);
const ACCEPT: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.9,\
    application/json;q=0.9,application/pdf;q=0.9,application/xml;q=0.8,*/*;q=0.5";

pub(super) struct WebExtract {
    spec: ToolSpec,
    deps: Arc<WebDeps>,
}

/// One page of the result.
struct ExtractEntry {
    url: String,
    title: String,
    content: String,
    error: Option<String>,
    /// The rule of the website blocklist that refused it.
    policy: Option<Box<Value>>,
    kind: ToolErrorKind,
}

impl ExtractEntry {
    fn failed(url: &str, error: impl Into<String>, kind: ToolErrorKind) -> Self {
        Self {
            url: url.to_owned(),
            title: String::new(),
            content: String::new(),
            error: Some(error.into()),
            policy: None,
            kind,
        }
    }

    fn blocked(url: &str, error: &FetchError) -> Self {
        let kind = match error {
            FetchError::Blocked(_)
            | FetchError::RedirectBlocked { .. }
            | FetchError::UncheckedBehindProxy { .. } => ToolErrorKind::Denied,
            FetchError::Cancelled => ToolErrorKind::Cancelled,
            FetchError::TimedOut { .. } => ToolErrorKind::TimedOut,
            _ => ToolErrorKind::Failed,
        };
        let policy = match error.blocked() {
            Some(BlockedUrl::Website { host, rule, list }) => {
                let policy = json!({ "host": host, "rule": rule, "source": list });
                Some(Box::new(policy))
            }
            _ => None,
        };
        Self {
            policy,
            ..Self::failed(url, error.to_string(), kind)
        }
    }

    fn value(&self) -> Value {
        let mut value = json!({
            "url": self.url,
            "title": self.title,
            "content": self.content,
            "error": self.error,
        });
        if let Some(policy) = &self.policy {
            value["blocked_by_policy"] = Value::clone(policy);
        }
        value
    }
}

impl WebExtract {
    pub(super) fn new(deps: Arc<WebDeps>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "urls": {
                    "type": "array", "items": { "type": "string" }, "maxItems": MAX_PAGES,
                    "description": "Addresses of the pages, http or https, at most 5.",
                },
                "char_limit": {
                    "type": "integer", "minimum": MIN_CHARS,
                    "description": "Characters of each page to show (15000 unless told otherwise).",
                },
            },
            "required": ["urls"],
        }));
        let description = "Read web pages as Markdown: articles, documentation, PDFs, JSON, plain text. \
            A page longer than char_limit comes as its beginning and end, with the path of a file that \
            holds all of it; page through that with read_file. Images are named, not shown: use \
            vision_analyze for them. Each page that cannot be read says why in its error.";
        let mut spec = ToolSpec::new(NAME, "web", Effects::ReadOnly, description, parameters);
        spec.untrusted = true;
        Self { spec, deps }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<ToolOutcome, ToolOutcome> {
        let args = Args::new(NAME, args);
        let items = wanted(&args)?;
        let limit = match args.integer("char_limit")? {
            Some(limit) => limit,
            None => i64::try_from(self.deps.settings.extract_char_limit).unwrap_or(MAX_CHARS),
        };
        let limit = limit.clamp(MIN_CHARS, MAX_CHARS) as usize;
        let selection = select_extract(&self.deps.settings, self.deps.services.access());
        if let Some(remark) = &selection.remark {
            tracing::warn!("web_extract: {remark}");
            cx.progress
                .report(format!("{remark}; using {}", selection.backend.title()));
        }
        let entries = match selection.backend {
            WebBackend::Native => self.read_here(items, cx).await,
            backend => self.read_there(backend, items, cx).await,
        };
        let deps = Arc::clone(&self.deps);
        let entries = tokio::task::spawn_blocking(move || {
            let shown = entries.into_iter().map(|mut entry| {
                let text = drop_inline_images(&entry.content);
                entry.content = keep::fit(&text, &entry.url, limit, &deps.cache);
                entry
            });
            shown.collect::<Vec<ExtractEntry>>()
        });
        let entries = entries
            .await
            .map_err(|error| super::failed(ToolErrorKind::Panicked, error.to_string()))?;
        let results: Vec<Value> = entries.iter().map(ExtractEntry::value).collect();
        let answer = json!({ "results": results });
        match entries.first() {
            // Nothing at all was read.
            Some(first) if entries.iter().all(|entry| entry.error.is_some()) => {
                Err(ToolOutcome::error(first.kind, answer.to_string()))
            }
            _ => Ok(ToolOutcome::json(&answer)),
        }
    }

    /// With the built-in reader, all pages concurrently.
    async fn read_here(
        &self,
        items: Vec<Result<String, ExtractEntry>>,
        cx: &ToolContext,
    ) -> Vec<ExtractEntry> {
        stream::iter(items)
            .map(|item| async move {
                match item {
                    Ok(url) => self.read_page(&url, cx).await,
                    Err(entry) => entry,
                }
            })
            .buffered(MAX_PAGES)
            .collect()
            .await
    }

    async fn read_page(&self, url: &str, cx: &ToolContext) -> ExtractEntry {
        cx.progress.report(format!("reading {}", short(url)));
        let want = FetchOptions {
            accept: ACCEPT,
            max_bytes: MAX_BYTES,
            timeout: EXTRACT_TIMEOUT,
        };
        let fetched = match self.deps.pages.get(url, &want, &cx.cancel).await {
            Ok(fetched) => fetched,
            Err(error) => return ExtractEntry::blocked(url, &error),
        };
        if !(200..300).contains(&fetched.status) {
            let text = format!("the server answered {}", status(fetched.status));
            return ExtractEntry::failed(url, text, ToolErrorKind::Failed);
        }
        let arrived_at = fetched.url.to_string();
        match page::read(fetched).await {
            Ok(page) => ExtractEntry {
                url: arrived_at,
                title: page.title,
                content: page.text,
                error: None,
                policy: None,
                kind: ToolErrorKind::Failed,
            },
            Err(error) => ExtractEntry::failed(url, error.to_string(), ToolErrorKind::Failed),
        }
    }

    /// With a service. An address that would be refused here is not passed to services either.
    async fn read_there(
        &self,
        backend: WebBackend,
        items: Vec<Result<String, ExtractEntry>>,
        cx: &ToolContext,
    ) -> Vec<ExtractEntry> {
        let mut entries: Vec<Result<String, ExtractEntry>> = Vec::new();
        for item in items {
            entries.push(match item {
                Ok(url) => self.allowed(url).await,
                Err(entry) => Err(entry),
            });
        }
        let urls: Vec<String> = entries
            .iter()
            .filter_map(|entry| entry.as_ref().ok().cloned())
            .collect();
        if urls.is_empty() {
            return entries.into_iter().filter_map(Result::err).collect();
        }
        cx.progress.report(format!(
            "{} is reading {} pages",
            backend.title(),
            urls.len()
        ));
        let read = self.deps.services.extract(backend, &urls, &cx.cancel).await;
        let mut read = read.into_iter();
        entries
            .into_iter()
            .map(|entry| match entry {
                Err(entry) => entry,
                Ok(url) => match read.next() {
                    Some(found) => match found.text {
                        Ok(text) if text.trim().is_empty() => ExtractEntry::failed(
                            &url,
                            "the page has no text",
                            ToolErrorKind::Failed,
                        ),
                        Ok(content) => ExtractEntry {
                            url,
                            title: found.title,
                            content,
                            error: None,
                            policy: None,
                            kind: ToolErrorKind::Failed,
                        },
                        Err(error) => ExtractEntry::failed(&url, error, ToolErrorKind::Failed),
                    },
                    None => ExtractEntry::failed(&url, "nothing came back", ToolErrorKind::Failed),
                },
            })
            .collect()
    }

    async fn allowed(&self, url: String) -> Result<String, ExtractEntry> {
        let guard = self.deps.pages.guard();
        let checked = guard
            .check(&url)
            .map_err(|blocked| ExtractEntry::blocked(&url, &FetchError::Blocked(blocked)))?;
        if let Some(host) = checked.domain()
            && let Err(ResolveError::Blocked(blocked)) = guard.resolve(host).await
        {
            return Err(ExtractEntry::blocked(&url, &FetchError::Blocked(blocked)));
        }
        Ok(checked.to_string())
    }
}

/// The addresses, or what is wrong with each. Models also pass whole search results.
fn wanted(args: &Args<'_>) -> Result<Vec<Result<String, ExtractEntry>>, ToolOutcome> {
    let items = match args.get("urls") {
        Some(Value::String(one)) if !one.trim_start().starts_with('[') => {
            vec![Value::String(one.clone())]
        }
        Some(one @ Value::Object(_)) => vec![one.clone()],
        _ => args
            .list("urls")?
            .ok_or_else(|| args.bad("urls is missing; pass a list of addresses"))?,
    };
    if items.is_empty() {
        return Err(args.bad("urls is empty; pass at least one address"));
    }
    let read = items.iter().enumerate().map(|(at, item)| {
        let url = match item {
            Value::Object(map) => map.get("url").or_else(|| map.get("href")),
            other => Some(other),
        };
        let url = url
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|url| !url.is_empty());
        match url {
            Some(url) if at >= MAX_PAGES => Err(ExtractEntry::failed(
                url,
                format!("at most {MAX_PAGES} pages are read at once; ask for this one again"),
                ToolErrorKind::BadArguments,
            )),
            Some(url) => Ok(url.to_owned()),
            None => Err(ExtractEntry::failed(
                "",
                format!("item {at} of urls is not an address"),
                ToolErrorKind::BadArguments,
            )),
        }
    });
    Ok(read.take(100).collect())
}

fn short(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    hermes_core::text::shorten(&url[..end], 80)
}

pub(super) fn status(code: u16) -> String {
    let meaning = match code {
        401 => "it wants a login",
        402 => "it wants money",
        403 => "it refuses to show this; try the browser tool or another source",
        404 | 410 => "there is no such page",
        429 => "too many requests; wait before asking again",
        451 => "withheld for legal reasons",
        500..=599 => "the server is in trouble; try later",
        _ => return code.to_string(),
    };
    format!("{code}: {meaning}")
}

impl Tool for WebExtract {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { self.run(&args, cx).await.unwrap_or_else(|error| error) })
    }
}
