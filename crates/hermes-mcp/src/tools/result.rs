//! Converts a server's result into what the model reads.
//!
//! Text is passed on unchanged. Binary content is saved below the home's cache, within limits that
//! are checked before decoding; images that the model can view are attached as well. The engine
//! shortens long text and marks it as external.

mod media;
mod refusal;
#[cfg(test)]
mod tests;

use hermes_core::message::{Content, Part};
use hermes_core::redact;
use hermes_core::tool::{ToolErrorKind, ToolOutcome};
use serde_json::{Map, Value};

pub use media::MediaStore;
pub use refusal::refusal_outcome;

use media::MediaBudget;

/// Maximum number of listed items; more only cost context.
const MAX_LISTED: usize = 500;

/// The result of `tools/call`.
pub(crate) async fn call_outcome(result: &Value, media: &MediaStore) -> ToolOutcome {
    let mut page = Page::new(media);
    for block in blocks(result, "content") {
        page.block(block).await;
    }
    let structured = result
        .get("structuredContent")
        .filter(|value| !value.is_null());
    if let Some(structured) = structured {
        page.structured(structured);
    }
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        let text = page.text();
        let text = if text.trim().is_empty() {
            "the tool failed and gave no reason".to_owned()
        } else {
            redact::secrets(&text).into_owned()
        };
        return ToolOutcome::error(ToolErrorKind::Failed, text);
    }
    page.finish("(the tool ran and returned nothing)")
}

/// The result of `resources/read`.
pub(crate) async fn resource_outcome(result: &Value, media: &MediaStore) -> ToolOutcome {
    let mut page = Page::new(media);
    for resource in blocks(result, "contents") {
        page.resource(resource).await;
    }
    page.finish("(the resource is empty)")
}

/// The result of `prompts/get`.
pub async fn prompt_outcome(result: &Value, media: &MediaStore) -> ToolOutcome {
    let mut page = Page::new(media);
    if let Some(description) = result.get("description").and_then(Value::as_str) {
        page.line(description.to_owned());
    }
    for message in blocks(result, "messages") {
        let role = message
            .get("role")
            .and_then(Value::as_str)
            .unwrap_or("user");
        page.line(format!("[{role}]"));
        match message.get("content") {
            Some(Value::Array(content)) => {
                for block in content {
                    page.block(block).await;
                }
            }
            Some(block @ Value::Object(_)) => page.block(block).await,
            Some(Value::String(text)) => page.line(text.clone()),
            _ => {}
        }
    }
    page.finish("(the prompt is empty)")
}

/// The result of a `…/list`: what a model needs to choose from it, as one JSON object.
pub(crate) fn listing_outcome(result: &Value, key: &str) -> ToolOutcome {
    let mut listing = Map::new();
    list(&mut listing, result, key);
    ToolOutcome::json(&Value::Object(listing))
}

/// The lists of resources and of their templates.
pub(crate) fn resources_outcome(resources: &Value, templates: Option<&Value>) -> ToolOutcome {
    let mut listing = Map::new();
    list(&mut listing, resources, "resources");
    if let Some(templates) = templates {
        list(&mut listing, templates, "resourceTemplates");
    }
    ToolOutcome::json(&Value::Object(listing))
}

fn list(listing: &mut Map<String, Value>, result: &Value, key: &str) {
    const LISTED_FIELDS: &[&str] = &[
        "uri",
        "uriTemplate",
        "name",
        "title",
        "description",
        "mimeType",
        "size",
        "arguments",
    ];
    let all = blocks(result, key);
    let items: Vec<Value> = all
        .iter()
        .take(MAX_LISTED)
        .filter_map(Value::as_object)
        .map(|item| {
            let fields: Map<String, Value> = item
                .iter()
                .filter(|(name, value)| LISTED_FIELDS.contains(&name.as_str()) && !value.is_null())
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            Value::Object(fields)
        })
        .collect();
    if items.is_empty() && !listing.is_empty() {
        return;
    }
    listing.insert(key.to_owned(), Value::Array(items));
    if all.len() > MAX_LISTED {
        listing.insert(format!("{key}_left_out"), (all.len() - MAX_LISTED).into());
    }
}

fn blocks<'a>(result: &'a Value, key: &str) -> &'a [Value] {
    match result.get(key) {
        Some(Value::Array(blocks)) => blocks,
        _ => &[],
    }
}

/// Builds up a result.
struct Page<'a> {
    media: &'a MediaStore,
    budget: MediaBudget,
    lines: Vec<String>,
    images: Vec<Part>,
}

impl<'a> Page<'a> {
    fn new(media: &'a MediaStore) -> Self {
        Self {
            media,
            budget: MediaBudget::default(),
            lines: Vec::new(),
            images: Vec::new(),
        }
    }

    fn line(&mut self, text: String) {
        self.lines.push(text);
    }

    fn text(&self) -> String {
        self.lines.join("\n")
    }

    async fn block(&mut self, block: &Value) {
        let field = |name: &str| block.get(name).and_then(Value::as_str);
        match field("type") {
            Some("text") => self.line(field("text").unwrap_or_default().to_owned()),
            Some(kind @ ("image" | "audio")) => {
                let mime = field("mimeType").unwrap_or("application/octet-stream");
                self.binary(kind, field("data"), mime).await;
            }
            Some("resource") => match block.get("resource") {
                Some(resource) => self.resource(resource).await,
                None => self.line("[a resource without content]".to_owned()),
            },
            Some("resource_link") => {
                let uri = field("uri").unwrap_or("?");
                let name = field("title").or(field("name")).unwrap_or("resource");
                let about = field("description")
                    .map(|text| format!(": {text}"))
                    .unwrap_or_default();
                self.line(format!(
                    "[link to {name} {uri}{about}; read_resource reads it]"
                ));
            }
            // Content types of later protocol versions.
            _ => self.line(block.to_string()),
        }
    }

    async fn resource(&mut self, resource: &Value) {
        let field = |name: &str| resource.get(name).and_then(Value::as_str);
        if let Some(text) = field("text") {
            self.line(text.to_owned());
            return;
        }
        let mime = field("mimeType").unwrap_or("application/octet-stream");
        let what =
            field("uri").map_or_else(|| "resource".to_owned(), |uri| format!("resource {uri}"));
        self.binary(&what, field("blob"), mime).await;
    }

    async fn binary(&mut self, what: &str, data: Option<&str>, mime: &str) {
        let Some(data) = data else {
            self.line(format!("[{what} without data]"));
            return;
        };
        match self.media.save(data, mime, &mut self.budget).await {
            Ok(saved) => {
                self.line(format!(
                    "[{what}, {mime}, {} bytes, saved as {}]",
                    saved.bytes,
                    saved.path.display()
                ));
                self.images.extend(saved.image);
            }
            Err(why) => self.line(format!("[{what}, {mime}, left out: {why}]")),
        }
    }

    /// Skipped where the text already contains it, as with many servers.
    fn structured(&mut self, structured: &Value) {
        let repeated = |line: &String| {
            serde_json::from_str::<Value>(line).is_ok_and(|value| value == *structured)
        };
        if !self.lines.iter().any(repeated) {
            self.line(structured.to_string());
        }
    }

    fn finish(self, empty: &str) -> ToolOutcome {
        let text = self.text();
        let text = if text.trim().is_empty() {
            empty.to_owned()
        } else {
            text
        };
        if self.images.is_empty() {
            return ToolOutcome::Done(Content::Text(text));
        }
        let mut parts = vec![Part::text(text)];
        parts.extend(self.images);
        ToolOutcome::Done(Content::Parts(parts))
    }
}
