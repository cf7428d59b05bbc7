//! Tools from outside that are too many to be sent with every request: the model searches them and calls them by
//! name, and the request stays the same from turn to turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Registry, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};

/// Bytes of definitions from outside that go with every request; beyond that the largest toolsets are deferred.
pub const LIMIT: usize = 64 * 1024;

pub const SEARCH: &str = "mcp_search_tools";
const CALL: &str = "mcp_call_tool";
/// Toolsets of the two, which belong to no server.
pub const TOOLSET: &str = "mcp";
/// Tools that one search shows, and bytes of them.
const MAX_FOUND_TOOLS: usize = 10;
const MAX_FOUND_BYTES: usize = 24 * 1024;
/// Toolsets that the description names; more are counted.
const MAX_NAMED_TOOLSETS: usize = 40;

/// Names of tools that are not sent.
pub type Deferred = Arc<BTreeSet<String>>;

/// Which of these tools are deferred: whole toolsets, the largest first, until the rest fits. `is_offered` are those
/// that a person asked for by name.
pub fn choose(
    fed: &[Arc<dyn Tool>],
    limit: usize,
    is_offered: impl Fn(&ToolSpec) -> bool,
) -> Deferred {
    let mut sizes: BTreeMap<&'static str, usize> = BTreeMap::new();
    for tool in fed {
        *sizes.entry(tool.spec().toolset).or_default() += size(tool.spec());
    }
    let mut left: usize = sizes.values().sum();
    let mut largest: Vec<(&'static str, usize)> = sizes.into_iter().collect();
    // By name where they are alike, so that the same tools are always told the same way.
    largest.sort_by_key(|(name, size)| (std::cmp::Reverse(*size), *name));
    let mut out = BTreeSet::new();
    for (name, size) in largest {
        if left <= limit {
            break;
        }
        left -= size;
        out.insert(name);
    }
    let names = fed
        .iter()
        .map(|tool| tool.spec())
        .filter(|spec| out.contains(spec.toolset) && !is_offered(spec))
        .map(|spec| spec.name.clone());
    Arc::new(names.collect())
}

/// About what it takes in a request.
fn size(spec: &ToolSpec) -> usize {
    spec.name.len() + spec.description.len() + spec.parameters.to_string().len() + 64
}

/// The tools by which the others are found and called; none where nothing is deferred.
pub fn tools(fed: &[Arc<dyn Tool>], deferred: &Deferred) -> Vec<Arc<dyn Tool>> {
    if deferred.is_empty() {
        return Vec::new();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in fed
        .iter()
        .filter(|tool| deferred.contains(&tool.spec().name))
    {
        *counts.entry(tool.spec().toolset).or_default() += 1;
    }
    let shown: Vec<String> = counts
        .iter()
        .take(MAX_NAMED_TOOLSETS)
        .map(|(toolset, count)| {
            let server = toolset.strip_prefix("mcp-").unwrap_or(toolset);
            format!("{server} ({count})")
        })
        .collect();
    let more = match counts.len().saturating_sub(MAX_NAMED_TOOLSETS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    vec![
        Arc::new(SearchTools {
            spec: search_spec(&format!("{}{more}", shown.join(", "))),
            deferred: Arc::clone(deferred),
        }),
        Arc::new(CallTool {
            spec: call_spec(),
            deferred: Arc::clone(deferred),
        }),
    ]
}

fn search_spec(servers: &str) -> ToolSpec {
    ToolSpec {
        name: SEARCH.to_owned(),
        description: format!(
            "Finds tools of MCP servers that are too many to be listed here: {servers}. Gives names, descriptions \
             and parameters; call them with {CALL}."
        ),
        parameters: schema!(json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words about what the tool should do, or its name. Several words narrow the search."
                },
                "server": {"type": "string", "description": "Only tools of this server."}
            },
            "required": ["query"]
        })),
        toolset: TOOLSET,
        effects: Effects::ReadOnly,
        // What is shown are words of servers.
        untrusted: true,
    }
}

fn call_spec() -> ToolSpec {
    ToolSpec {
        name: CALL.to_owned(),
        description: format!(
            "Calls a tool that {SEARCH} found, with arguments as its parameters say."
        ),
        parameters: schema!(json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": format!("The tool's name, as {SEARCH} gives it.")},
                "arguments": {"type": "object", "description": "Its arguments.", "properties": {}}
            },
            "required": ["name"]
        })),
        toolset: TOOLSET,
        effects: Effects::Exclusive,
        untrusted: true,
    }
}

struct SearchTools {
    spec: ToolSpec,
    deferred: Deferred,
}

impl Tool for SearchTools {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        let text = |key: &str| {
            args.get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .trim()
        };
        let found = search(&cx.registry, &self.deferred, text("query"), text("server"));
        Box::pin(std::future::ready(found))
    }
}

fn search(registry: &Registry, deferred: &Deferred, query: &str, server: &str) -> ToolOutcome {
    let words: Vec<String> = words(query).collect();
    if words.is_empty() && server.is_empty() {
        let text = "query is missing: words about what the tool should do";
        return ToolOutcome::error(ToolErrorKind::BadArguments, text);
    }
    let of_server = |spec: &ToolSpec| {
        let own = spec.toolset.strip_prefix("mcp-").unwrap_or(spec.toolset);
        server.is_empty() || own.eq_ignore_ascii_case(server)
    };
    let mut found: Vec<(usize, &ToolSpec)> = registry
        .iter()
        .map(|tool| tool.spec())
        .filter(|spec| deferred.contains(&spec.name) && of_server(spec))
        .map(|spec| (score(spec, &words), spec))
        .filter(|(score, _)| *score > 0 || words.is_empty())
        .collect();
    let total = found.len();
    // The registry is ordered by name, and so are those that fit alike.
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let mut bytes = 0;
    let mut shown = Vec::new();
    for (_, spec) in found.into_iter().take(MAX_FOUND_TOOLS) {
        bytes += size(spec);
        if bytes > MAX_FOUND_BYTES && !shown.is_empty() {
            break;
        }
        shown.push(json!({
            "name": spec.name,
            "description": spec.description,
            "parameters": *spec.parameters,
        }));
    }
    let mut answer = json!({"total": total, "tools": shown});
    if total > shown.len() {
        answer["note"] = json!("more tools fit: search with more words to narrow it");
    }
    ToolOutcome::json(&answer)
}

/// How well a tool fits: its name counts more than its description, and every word counts.
fn score(spec: &ToolSpec, query: &[String]) -> usize {
    let name: BTreeSet<String> = words(&spec.name).collect();
    let about: BTreeSet<String> = words(&spec.description).collect();
    let whole = spec.name.to_lowercase();
    let one = |word: &String| {
        if name.contains(word) {
            6
        } else if whole.contains(word.as_str()) {
            4
        } else if about.contains(word) {
            2
        } else {
            usize::from(about.iter().any(|other| other.starts_with(word.as_str())))
        }
    };
    query.iter().map(one).sum()
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|ch: char| !ch.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

struct CallTool {
    spec: ToolSpec,
    deferred: Deferred,
}

impl Tool for CallTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, mut args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let bad = |text: String| ToolOutcome::error(ToolErrorKind::BadArguments, text);
            let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
            let name = name.trim().to_owned();
            // Only those: every other tool is called by its own name, and by its own rules.
            let tool = self
                .deferred
                .get(&name)
                .and_then(|name| cx.registry.get(name));
            let Some(tool) = tool else {
                return bad(format!(
                    "there is no tool {name:?} to call; {SEARCH} finds them"
                ));
            };
            let arguments = match args.remove("arguments") {
                Some(Value::Object(arguments)) => arguments,
                None | Some(Value::Null) => ToolArgs::new(),
                Some(_) => return bad("arguments must be an object".to_owned()),
            };
            tool.call(arguments, cx).await
        })
    }
}
