//! What is known of the built-in tools by name: one row per tool.
//!
//! The engine asks it about the tools of a session; front ends ask it about calls of which they have only
//! the name, such as those of a conversation that was stored. Tools of MCP servers have no row.

/// What a tool does, as editors and other front ends group calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolKind {
    Read,
    Edit,
    Search,
    /// Runs a command or a program.
    Execute,
    Fetch,
    /// Plans, asks or delegates.
    Think,
    Other,
}

/// How a call is described in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTitle {
    /// The name of the tool.
    Name,
    Fixed(&'static str),
    /// A prefix and the value of an argument; without the argument, the name of the tool.
    Argument(&'static str, &'static str),
}

/// Properties of a built-in tool beside its [`ToolSpec`](crate::tool::ToolSpec).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolTraits {
    pub name: &'static str,
    pub kind: ToolKind,
    pub icon: &'static str,
    pub title: CallTitle,
    /// The field of a result that holds what people want to see; `None`: the whole result.
    pub result_field: Option<&'static str>,
    /// Offered to models with a very small context window.
    pub minimal: bool,
    /// Subagents may have it. They neither delegate (unless allowed to) nor ask the person, nor change what
    /// lasts, nor write in the person's name, nor run programs that call tools.
    pub for_subagents: bool,
    /// A step that calls only such tools does not count against the turn's budget: the work happened
    /// inside it.
    pub refunded: bool,
    /// Keeps the agent's own records. An answer beside only such calls is the answer of the turn.
    pub housekeeping: bool,
}

const fn tool(name: &'static str, kind: ToolKind, icon: &'static str) -> ToolTraits {
    ToolTraits {
        name,
        kind,
        icon,
        title: CallTitle::Name,
        result_field: None,
        minimal: false,
        for_subagents: true,
        refunded: false,
        housekeeping: false,
    }
}

/// Sorted by name.
pub const BUILT_IN_TOOLS: &[ToolTraits] = &[
    ToolTraits {
        minimal: true,
        for_subagents: false,
        ..tool("clarify", ToolKind::Think, "🔧")
    },
    ToolTraits {
        for_subagents: false,
        ..tool("cronjob", ToolKind::Other, "⏰")
    },
    ToolTraits {
        title: CallTitle::Argument("Subagent: ", "goal"),
        for_subagents: false,
        ..tool("delegate_task", ToolKind::Think, "👥")
    },
    ToolTraits {
        title: CallTitle::Fixed("Run a program"),
        result_field: Some("output"),
        for_subagents: false,
        refunded: true,
        ..tool("execute_code", ToolKind::Execute, "💻")
    },
    tool("mcp_call_tool", ToolKind::Other, "🔧"),
    tool("mcp_search_tools", ToolKind::Other, "🔧"),
    ToolTraits {
        minimal: true,
        for_subagents: false,
        housekeeping: true,
        ..tool("memory", ToolKind::Other, "🧠")
    },
    tool("mixture_of_agents", ToolKind::Think, "🔧"),
    ToolTraits {
        minimal: true,
        ..tool("patch", ToolKind::Edit, "✏️")
    },
    ToolTraits {
        result_field: Some("output"),
        minimal: true,
        ..tool("process", ToolKind::Execute, "💻")
    },
    ToolTraits {
        title: CallTitle::Argument("Read ", "path"),
        result_field: Some("content"),
        minimal: true,
        ..tool("read_file", ToolKind::Read, "📖")
    },
    ToolTraits {
        title: CallTitle::Argument("Search ", "pattern"),
        minimal: true,
        ..tool("search_files", ToolKind::Search, "🔎")
    },
    ToolTraits {
        for_subagents: false,
        ..tool("send_message", ToolKind::Other, "✉️")
    },
    ToolTraits {
        housekeeping: true,
        ..tool("session_search", ToolKind::Search, "🔎")
    },
    ToolTraits {
        housekeeping: true,
        ..tool("skill_manage", ToolKind::Other, "📚")
    },
    ToolTraits {
        minimal: true,
        ..tool("skill_view", ToolKind::Read, "📚")
    },
    tool("skills_list", ToolKind::Read, "📚"),
    ToolTraits {
        title: CallTitle::Argument("", "command"),
        result_field: Some("output"),
        minimal: true,
        ..tool("terminal", ToolKind::Execute, "💻")
    },
    tool("text_to_speech", ToolKind::Other, "🔧"),
    ToolTraits {
        title: CallTitle::Fixed("Plan"),
        housekeeping: true,
        ..tool("todo", ToolKind::Think, "📋")
    },
    tool("vision_analyze", ToolKind::Read, "🖼️"),
    ToolTraits {
        title: CallTitle::Fixed("Read web pages"),
        minimal: true,
        ..tool("web_extract", ToolKind::Fetch, "🌐")
    },
    ToolTraits {
        title: CallTitle::Argument("Search the web: ", "query"),
        minimal: true,
        ..tool("web_search", ToolKind::Fetch, "🔍")
    },
    ToolTraits {
        title: CallTitle::Argument("Write ", "path"),
        minimal: true,
        ..tool("write_file", ToolKind::Edit, "✏️")
    },
];

/// Tools that are not built in: those of MCP servers, and of conversations that another program stored.
const OTHER: ToolTraits = tool("", ToolKind::Other, "🔧");

/// The row of `name`; for a tool that is not built in, one without special properties.
pub fn tool_traits(name: &str) -> &'static ToolTraits {
    let found = BUILT_IN_TOOLS.binary_search_by(|row| row.name.cmp(name));
    found.map_or(&OTHER, |at| &BUILT_IN_TOOLS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found() {
        assert!(BUILT_IN_TOOLS.is_sorted_by_key(|row| row.name));
        for row in BUILT_IN_TOOLS {
            assert_eq!(tool_traits(row.name), row);
        }
        assert_eq!(tool_traits("mcp_mail_read_file"), &OTHER);
    }
}
