//! Builds the tools of a session from the lists of all servers.
//!
//! Equal lists give equal tools in equal order, byte for byte: prompt caches depend on it. If two
//! tools would share a name, neither is offered.

use std::collections::BTreeMap;
use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};
use hermes_core::tool::{Effects, Tool, ToolSpec};
use serde_json::{Value, json};

use crate::actor::CatalogueSnapshot;
use crate::config::{ServerConfig, ServerTransport, ToolFilter};
use crate::tools::known_tools::{KnownTools, without_descriptions};
use crate::tools::naming;
use crate::tools::result::MediaStore;
use crate::tools::schema::{self, SanitisedSchema};
use crate::tools::tool::{Action, Caller, RemoteTool, ToolConsent, effects};
use crate::transport::link::Era;

/// A server that was up at least once.
pub struct Source<'a> {
    pub config: &'a ServerConfig,
    pub snapshot: &'a CatalogueSnapshot,
    pub caller: Arc<dyn Caller>,
}

/// The tools of all servers.
#[derive(Clone, Default)]
pub struct Catalogue {
    /// By name.
    pub tools: Arc<[Arc<dyn Tool>]>,
    pub remarks: Vec<Remark>,
}

/// An oddity in the tools that a server offers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Remark {
    pub server: String,
    pub text: String,
}

impl Catalogue {
    pub fn build(sources: &[Source<'_>], media: &Arc<MediaStore>, known: &KnownTools) -> Self {
        let mut remarks = Vec::new();
        let mut by_name: BTreeMap<String, Vec<RemoteTool>> = BTreeMap::new();
        for source in sources {
            let mut collector = ToolCollector {
                source,
                media,
                known,
                awaiting_consent: known.check(source.config, &source.snapshot.tools),
                remarks: &mut remarks,
                tools: Vec::new(),
            };
            collector.collect_all();
            for tool in collector.tools {
                by_name
                    .entry(tool.spec.name.clone())
                    .or_default()
                    .push(tool);
            }
        }
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for (name, mut same) in by_name {
            if same.len() == 1 {
                tools.extend(same.pop().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
                continue;
            }
            // Neither is offered: a call meant for one must not reach the other.
            let owners: Vec<String> = same.iter().map(owner).collect();
            for tool in &same {
                remarks.push(Remark {
                    server: tool.caller.server().to_owned(),
                    text: format!(
                        "{name} would stand for several tools ({}), so none is offered; rename a \
                         server or exclude a tool",
                        owners.join(", ")
                    ),
                });
            }
        }
        Self {
            tools: tools.into(),
            remarks,
        }
    }

    /// Number of tools of this server that are offered.
    pub fn count(&self, server: &str) -> usize {
        let toolset = naming::toolset(server);
        let own = |tool: &&Arc<dyn Tool>| tool.spec().toolset == toolset;
        self.tools.iter().filter(own).count()
    }
}

fn owner(tool: &RemoteTool) -> String {
    let raw = tool.raw_name().unwrap_or("a utility");
    format!("{raw} of {}", tool.caller.server())
}

/// Collects the tools of one server.
struct ToolCollector<'a> {
    source: &'a Source<'a>,
    media: &'a Arc<MediaStore>,
    known: &'a KnownTools,
    /// Tools whose description changed and that the user has not yet allowed.
    awaiting_consent: Vec<String>,
    remarks: &'a mut Vec<Remark>,
    tools: Vec<RemoteTool>,
}

impl ToolCollector<'_> {
    fn collect_all(&mut self) {
        let config = self.source.config;
        let matcher = ToolMatcher::new(&config.tools);
        let mut seen = std::collections::BTreeSet::new();
        for raw in self.source.snapshot.tools.iter() {
            match raw.get("name").and_then(Value::as_str) {
                None | Some("") => self.remark("a tool without a name is left out"),
                Some(name) if !matcher.includes(name) => {}
                Some(name) if !seen.insert(name) => {
                    self.remark(format!("{name} is offered twice; the first one counts"));
                }
                Some(name) => match self.header_error(raw) {
                    None => self.remote(name, raw),
                    Some(why) => {
                        let text = format!("{name} is not offered: {why}");
                        tracing::warn!(server = config.name, "{text}");
                        self.remark(text);
                    }
                },
            }
        }
        self.utilities();
    }

    /// Why a tool must not be offered. Header annotations matter only to transports with headers.
    fn header_error(&self, raw: &Value) -> Option<String> {
        let over_http = matches!(self.source.config.transport, ServerTransport::Http { .. });
        let stateless = self.source.snapshot.facts.era == Era::Modern;
        let schema = raw.get("inputSchema").filter(|_| over_http && stateless)?;
        schema::header_problem(schema)
    }

    fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(Remark {
            server: self.source.config.name.clone(),
            text: text.into(),
        });
    }

    fn remote(&mut self, name: &str, raw: &Value) {
        let config = self.source.config;
        let text = raw.get("description").and_then(Value::as_str);
        for what in schema::suspicious_phrases(text.unwrap_or_default()) {
            let warning = format!("the description of {name} {what}");
            tracing::warn!(server = config.name, "{warning}");
            self.remark(warning);
        }
        let sanitised = SanitisedSchema::new(raw.get("inputSchema").unwrap_or(&Value::Null));
        for remark in &sanitised.remarks {
            self.remark(format!("{name}: {remark}"));
        }
        let hints = self.source.snapshot.hints(name);
        let needs_consent = self
            .awaiting_consent
            .iter()
            .any(|awaiting_consent| awaiting_consent == name);
        let (description, parameters) = if needs_consent {
            self.remark(format!(
                "{name} says something else than before; its use is asked about"
            ));
            let text = "Its description changed. The person is asked before it is used again.";
            (
                schema::description(&config.name, name, Some(text)),
                without_descriptions(&sanitised.schema),
            )
        } else {
            (
                schema::description(&config.name, name, text),
                sanitised.schema.clone(),
            )
        };
        let spec = ToolSpec {
            name: naming::tool_name(&config.name, name),
            description,
            parameters: Arc::new(parameters),
            toolset: naming::toolset(&config.name),
            effects: effects(config.parallel_calls, config.trusted && hints.read_only),
            untrusted: true,
        };
        let action = Action::Call {
            tool: name.to_owned(),
            schema: sanitised,
        };
        let consent = needs_consent.then(|| ToolConsent {
            known: self.known.clone(),
            description: text.unwrap_or_default().to_owned(),
        });
        self.push(spec, action, consent);
    }

    fn push(&mut self, spec: ToolSpec, action: Action, consent: Option<ToolConsent>) {
        self.tools.push(RemoteTool {
            spec,
            action,
            consent,
            caller: Arc::clone(&self.source.caller),
            media: Arc::clone(self.media),
        });
    }

    /// Resources and prompts as tools, where the server has them and the user wants them.
    fn utilities(&mut self) {
        let config = self.source.config;
        let capabilities = &self.source.snapshot.facts.capabilities;
        let has = |key: &str| capabilities.get(key).is_some_and(|value| !value.is_null());
        let server = &config.name;
        if config.tools.resources && has("resources") {
            self.utility(
                "list_resources",
                format!("Lists what can be read from the MCP server {server}: URIs with names."),
                json!({"type": "object", "properties": {}}),
                Action::ListResources,
            );
            self.utility(
                "read_resource",
                format!("Reads a resource of the MCP server {server}."),
                json!({
                    "type": "object",
                    "properties": {"uri": {"type": "string", "description": "URI as list_resources names it"}},
                    "required": ["uri"],
                }),
                Action::ReadResource,
            );
        }
        if config.tools.prompts && has("prompts") {
            self.utility(
                "list_prompts",
                format!(
                    "Lists the prompt templates of the MCP server {server} and their arguments."
                ),
                json!({"type": "object", "properties": {}}),
                Action::ListPrompts,
            );
            self.utility(
                "get_prompt",
                format!("Fills in a prompt template of the MCP server {server}."),
                json!({
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "Name as list_prompts gives it"},
                        "arguments": {"type": "object", "description": "Values for its arguments", "properties": {}},
                    },
                    "required": ["name"],
                }),
                Action::GetPrompt,
            );
        }
    }

    fn utility(&mut self, name: &str, description: String, parameters: Value, action: Action) {
        let config = self.source.config;
        let full = naming::tool_name(&config.name, name);
        // A server's own tool of this name takes precedence.
        if self.tools.iter().any(|tool| tool.spec.name == full) {
            return;
        }
        let spec = ToolSpec {
            name: full,
            description,
            parameters: Arc::new(parameters),
            toolset: naming::toolset(&config.name),
            effects: Effects::ReadOnly,
            untrusted: true,
        };
        self.push(spec, action, None);
    }
}

/// `include` and `exclude`.
struct ToolMatcher {
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl ToolMatcher {
    fn new(filter: &ToolFilter) -> Self {
        Self {
            include: (!filter.include.is_empty()).then(|| globs(&filter.include)),
            exclude: globs(&filter.exclude),
        }
    }

    /// Matches the server's own name or the name that the model sees.
    fn includes(&self, name: &str) -> bool {
        let shown = naming::component(name);
        let matches = |set: &GlobSet| set.is_match(name) || set.is_match(&shown);
        match &self.include {
            Some(include) => matches(include),
            None => !matches(&self.exclude),
        }
    }
}

/// Patterns are checked when the config is read; an invalid one matches nothing.
fn globs(patterns: &[String]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        if let Ok(glob) = Glob::new(pattern) {
            set.add(glob);
        }
    }
    set.build().unwrap_or_else(|_| GlobSet::empty())
}

#[cfg(test)]
mod tests;
