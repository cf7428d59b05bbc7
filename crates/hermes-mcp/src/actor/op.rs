//! The operations that can be requested from a server.

use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    CallTool {
        name: String,
        arguments: Map<String, Value>,
    },
    ListTools,
    ListResources,
    ListResourceTemplates,
    ReadResource {
        uri: String,
    },
    ListPrompts,
    GetPrompt {
        name: String,
        arguments: Map<String, Value>,
    },
    /// A liveness probe, sent in the way the link's era allows.
    Probe,
    /// A liveness probe for servers that do not answer [`Op::Probe`]: the first page of the tool
    /// list.
    ProbeByList,
}

impl Op {
    /// For logs and status.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CallTool { .. } => "call_tool",
            Self::ListTools => "list_tools",
            Self::ListResources => "list_resources",
            Self::ListResourceTemplates => "list_resource_templates",
            Self::ReadResource { .. } => "read_resource",
            Self::ListPrompts => "list_prompts",
            Self::GetPrompt { .. } => "get_prompt",
            Self::Probe => "probe",
            Self::ProbeByList => "probe_by_list",
        }
    }

    /// Whether repeating it changes nothing on any server. For tools this depends on hints, which
    /// count only if the user trusts the server.
    pub fn is_safe(&self) -> bool {
        !matches!(self, Self::CallTool { .. })
    }
}

/// The JSON result, with all pages of a list joined.
#[derive(Clone, Debug, PartialEq)]
pub struct OpOutput {
    pub result: Value,
}
