//! The commands. Their order is that of `/help`.

use super::{CommandCategory, CommandDef, Surfaces, Values, Verb};

const fn def(
    category: CommandCategory,
    verb: Verb,
    name: &'static str,
    args: &'static str,
    summary: &'static str,
) -> CommandDef {
    CommandDef {
        name,
        aliases: &[],
        args,
        subcommands: &[],
        values: Values::None,
        surfaces: Surfaces::ALL,
        category,
        summary,
        verb,
    }
}

impl CommandDef {
    const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn sub(mut self, subcommands: &'static [&'static str]) -> Self {
        self.subcommands = subcommands;
        self
    }

    const fn of(mut self, values: Values) -> Self {
        self.values = values;
        self
    }

    const fn on(mut self, surfaces: Surfaces) -> Self {
        self.surfaces = surfaces;
        self
    }
}

use CommandCategory::{Busy, Info, Session, Settings, Tools};

/// Every command there is.
pub const COMMANDS: &[CommandDef] = &[
    def(
        Session,
        Verb::New,
        "new",
        "[title]",
        "start a new session; /undo goes back",
    )
    .or(&["reset"]),
    def(
        Session,
        Verb::Clear,
        "clear",
        "",
        "start a new session on an empty screen; /undo goes back",
    )
    .on(Surfaces::LOCAL),
    def(
        Session,
        Verb::Retry,
        "retry",
        "",
        "ask the last question again",
    ),
    def(
        Session,
        Verb::Undo,
        "undo",
        "[n]",
        "undo the last n questions; again: restore them",
    ),
    def(
        Session,
        Verb::Redo,
        "redo",
        "",
        "restore what /undo removed",
    ),
    def(
        Session,
        Verb::Title,
        "title",
        "[text]",
        "show or set the title",
    ),
    def(
        Session,
        Verb::Branch,
        "branch",
        "[title]",
        "continue in a copy of this session",
    )
    .or(&["fork"]),
    def(
        Session,
        Verb::Compress,
        "compress",
        "[topic | here [n] | --preview]",
        "summarise the older part; you still see all of it",
    )
    .or(&["compact"])
    .sub(&["here", "--preview"]),
    def(
        Session,
        Verb::Resume,
        "resume",
        "[id|title|words]",
        "resume another session",
    )
    .of(Values::Sessions),
    def(
        Session,
        Verb::Sessions,
        "sessions",
        "[words]",
        "list stored sessions",
    )
    .of(Values::Sessions),
    def(
        Session,
        Verb::History,
        "history",
        "[n]",
        "show this conversation",
    ),
    def(
        Session,
        Verb::Export,
        "export",
        "[file]",
        "write this session: .jsonl, .json, .md or .html",
    )
    .or(&["save"])
    .of(Values::Files)
    .on(Surfaces::LOCAL),
    def(
        Session,
        Verb::Status,
        "status",
        "",
        "show session, model, context and servers",
    ),
    def(
        Session,
        Verb::Rollback,
        "rollback",
        "[diff] [n] [file]",
        "snapshots of this project: list, compare, restore",
    )
    .sub(&["list", "diff"])
    .of(Values::Checkpoints),
    def(
        Session,
        Verb::Compose,
        "compose",
        "[text]",
        "write the message in $EDITOR",
    )
    .or(&["prompt"])
    .on(Surfaces::LOCAL),
    def(Session, Verb::Redraw, "redraw", "", "redraw the screen").on(Surfaces::SCREEN),
    def(
        Session,
        Verb::Quit,
        "quit",
        "[--delete]",
        "leave; --delete also deletes this session",
    )
    .or(&["exit"])
    .sub(&["--delete"])
    .on(Surfaces::LOCAL),
    def(
        Busy,
        Verb::Queue,
        "queue",
        "<text>",
        "ask this after the current turn",
    )
    .or(&["q"]),
    def(
        Busy,
        Verb::Steer,
        "steer",
        "<text>",
        "tell the model while it works",
    ),
    def(
        Busy,
        Verb::Background,
        "background",
        "<text>",
        "ask this in a separate session",
    )
    .or(&["bg", "btw"]),
    def(
        Busy,
        Verb::Stop,
        "stop",
        "[id]",
        "stop background processes",
    ),
    def(Busy, Verb::Agents, "agents", "", "list background work").or(&["tasks"]),
    def(
        Busy,
        Verb::Busy,
        "busy",
        "[steer|queue|interrupt]",
        "show or set what Enter does while a turn runs",
    )
    .sub(&["steer", "queue", "interrupt"])
    .on(Surfaces::SCREEN),
    def(
        Busy,
        Verb::Moa,
        "moa",
        "<question>",
        "ask several models and combine their answers",
    ),
    def(
        Settings,
        Verb::Model,
        "model",
        "[model] [--provider p] [--global]",
        "show or switch the model; --global makes it the default",
    )
    .of(Values::Models),
    def(
        Settings,
        Verb::Personality,
        "personality",
        "[name|none]",
        "choose how the agent talks",
    )
    .of(Values::Personalities),
    def(
        Settings,
        Verb::Reasoning,
        "reasoning",
        "[level|show|hide]",
        "set how much the model thinks, and whether you see it",
    )
    .sub(&[
        "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra", "show", "hide",
    ]),
    def(
        Settings,
        Verb::Yolo,
        "yolo",
        "[on|off]",
        "approve dangerous actions without asking",
    )
    .sub(&["on", "off"])
    .on(Surfaces::LOCAL),
    def(
        Settings,
        Verb::Verbose,
        "verbose",
        "[on|off]",
        "show reasoning and full tool results",
    )
    .sub(&["on", "off"])
    .on(Surfaces::LOCAL),
    def(
        Settings,
        Verb::Theme,
        "theme",
        "[name]",
        "choose a colour theme",
    )
    .or(&["skin"])
    .of(Values::Themes)
    .on(Surfaces::SCREEN),
    def(
        Settings,
        Verb::StatusBar,
        "statusbar",
        "[on|off]",
        "show or hide the line below the prompt",
    )
    .or(&["sb"])
    .sub(&["on", "off"])
    .on(Surfaces::SCREEN),
    def(
        Settings,
        Verb::Timestamps,
        "timestamps",
        "[on|off]",
        "show or hide the time of each message",
    )
    .or(&["ts"])
    .sub(&["on", "off"])
    .on(Surfaces::SCREEN),
    def(
        Settings,
        Verb::Config,
        "config",
        "[key] [value]",
        "show where the configuration is; read or set a key",
    )
    .on(Surfaces::LOCAL),
    def(
        Tools,
        Verb::Tools,
        "tools",
        "[list | enable t | disable t]",
        "list, enable or disable tools",
    )
    .sub(&["list", "enable", "disable"])
    .of(Values::Toolsets),
    def(
        Tools,
        Verb::Toolsets,
        "toolsets",
        "",
        "enable or disable groups of tools",
    ),
    def(
        Tools,
        Verb::Mcp,
        "mcp",
        "[name] [reconnect|login|on|off]",
        "MCP servers: status, reconnect, log in",
    )
    .sub(&["reconnect"])
    .of(Values::McpServers),
    def(
        Tools,
        Verb::Skills,
        "skills",
        "[words]",
        "list skills; /<name> uses one",
    )
    .of(Values::Skills),
    def(
        Tools,
        Verb::Memory,
        "memory",
        "[pending | approve id | reject id]",
        "show what is remembered and what waits for approval",
    )
    .sub(&["pending", "approve", "reject"]),
    def(
        Tools,
        Verb::Learn,
        "learn",
        "<what>",
        "turn something just done into a skill",
    ),
    def(
        Tools,
        Verb::Cron,
        "cron",
        "[list | pause | resume | remove] [job]",
        "scheduled jobs",
    )
    .sub(&["list", "pause", "resume", "remove"]),
    def(
        Tools,
        Verb::Reload,
        "reload",
        "",
        "read keys and configuration again",
    )
    .on(Surfaces::LOCAL),
    def(
        Tools,
        Verb::ReloadMcp,
        "reload-mcp",
        "",
        "reconnect all MCP servers",
    ),
    def(
        Tools,
        Verb::ReloadSkills,
        "reload-skills",
        "",
        "look for skills again",
    ),
    def(
        Tools,
        Verb::Bundles,
        "bundles",
        "",
        "list skill bundles; /<name> uses one",
    ),
    def(
        Tools,
        Verb::Platforms,
        "platforms",
        "",
        "show the gateway and its platforms",
    )
    .or(&["platform", "gateway"])
    .on(Surfaces::LOCAL),
    def(Info, Verb::Help, "help", "[command]", "list the commands")
        .or(&["?", "commands"])
        .of(Values::Commands),
    def(
        Info,
        Verb::Usage,
        "usage",
        "",
        "show tokens and cost of this session",
    )
    .or(&["cost", "context"]),
    def(
        Info,
        Verb::Insights,
        "insights",
        "[days]",
        "show tokens, cost and tools over time",
    ),
    def(
        Info,
        Verb::Profile,
        "profile",
        "",
        "show which profile is in use",
    )
    .on(Surfaces::LOCAL),
    def(
        Info,
        Verb::Whoami,
        "whoami",
        "",
        "show who you are to the agent",
    ),
    def(
        Info,
        Verb::Copy,
        "copy",
        "[n]",
        "copy the last answer, or the nth last",
    )
    .on(Surfaces::SCREEN),
    def(
        Info,
        Verb::Paste,
        "paste",
        "",
        "attach the image in the clipboard to the next message",
    )
    .on(Surfaces::LOCAL),
    def(
        Info,
        Verb::Image,
        "image",
        "<file>",
        "attach an image to the next message",
    )
    .of(Values::Files)
    .on(Surfaces::LOCAL),
    def(
        Info,
        Verb::Diff,
        "diff",
        "[staged]",
        "show what changed in this project",
    )
    .sub(&["staged"]),
    def(Info, Verb::Keys, "keys", "", "show the keys").on(Surfaces::LOCAL),
    def(Info, Verb::Doctor, "doctor", "", "check this installation").on(Surfaces::LOCAL),
    def(
        Info,
        Verb::Debug,
        "debug",
        "",
        "print what a bug report needs, without secrets",
    )
    .on(Surfaces::LOCAL),
    def(Info, Verb::Version, "version", "", "show the version").or(&["v"]),
];

/// What only a chat has, after the commands above in its lists. `platform` is `platforms` with what a chat
/// can do to them.
pub const CHAT_COMMANDS: &[CommandDef] = &[
    def(
        Busy,
        Verb::Approve,
        "approve",
        "[all] [session|always]",
        "allow what waits for you",
    )
    .on(Surfaces::CHAT),
    def(
        Busy,
        Verb::Deny,
        "deny",
        "[all] [reason]",
        "refuse what waits for you",
    )
    .on(Surfaces::CHAT),
    def(
        Settings,
        Verb::SetHome,
        "sethome",
        "",
        "make this chat the home of the platform",
    )
    .or(&["set-home"])
    .on(Surfaces::CHAT),
    def(
        Tools,
        Verb::Platforms,
        "platform",
        "[list | pause name | resume name]",
        "the platforms of the gateway",
    )
    .on(Surfaces::CHAT),
    def(
        Tools,
        Verb::Restart,
        "restart",
        "",
        "restart the gateway; running turns continue afterwards",
    )
    .on(Surfaces::CHAT),
    def(
        Settings,
        Verb::Voice,
        "voice",
        "[on | off | tts | status]",
        "whether answers are spoken here",
    )
    .on(Surfaces::CHAT),
    def(
        Info,
        Verb::Start,
        "start",
        "",
        "nothing: clients send it by themselves",
    )
    .on(Surfaces::CHAT),
];
