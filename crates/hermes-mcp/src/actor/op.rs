//! What can be asked of a server. All of it takes the same door.

use serde_json::{Map, Value};

/// One request.
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
    /// Is anybody there? Sent by the keepalive, in the way the link's era allows.
    Probe,
    /// The same question for servers that do not answer the first one: the first page of the tool
    /// list, further pages are not fetched.
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

    /// Whether running it twice changes nothing, whatever the server. Tools are not: a server's
    /// hints count only if the person trusts it.
    pub fn is_safe(&self) -> bool {
        !matches!(self, Self::CallTool { .. })
    }
}

/// What came back, as the protocol's JSON result (all pages of a list joined).
#[derive(Clone, Debug, PartialEq)]
pub struct OpOutput {
    pub result: Value,
}
