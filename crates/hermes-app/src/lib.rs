//! Conversations as every front end uses them.
//!
//! | module | what it does |
//! |---|---|
//! | `conversation` | a conversation that is held ([`Conversation`]): the open session, what is remembered between messages, its actor ([`hosted`]), [`replay`], [`images`] |
//! | [`slash_commands`], `quick_commands` | what is typed behind a slash; names that the config gives to commands |
//! | `host` | how front ends that serve others (chats, editors) get their conversations ([`ConversationHost`]) |
//! | `front` | what such a front end asks of a conversation, and what it receives |
//! | [`wiring`] | opens conversations: model, store, tools, MCP servers, hooks and prompt are connected here |
//! | `options` | what a person or a front end asks for when a conversation is opened ([`TurnOptions`]) |
//! | `context` | the home, its environment, and the process that holds the conversations ([`AppContext`]) |
//! | `home` | settings, prompt and tools that a session takes from a home; [`toolsets`] |
//! | [`hooks`] | the person's own programs that run when something happens |
//! | [`child`] | runs such a program to its end or its deadline |
//! | [`checkpoints`], `export_html`, [`text`] | texts for people |
//! | `failure` | why something did not succeed ([`Failure`]), and the exit code that says so |
//!
//! Public modules are groups of functions that need the name of their module (`hooks::load`, `replay::entries`).
//!
//! No type of a front end occurs here: arguments of the command line become [`TurnOptions`], and
//! what is to be shown beside a conversation goes through [`HostProcess`].

pub mod checkpoints;
pub mod child;
mod context;
mod conversation;
mod export_html;
mod failure;
mod front;
mod home;
pub mod hooks;
mod host;
mod options;
mod quick_commands;
pub mod slash_commands;
pub mod text;
pub mod wiring;

pub use context::{AppContext, Audience, HostProcess, IN_GATEWAY};
pub use conversation::lease::{LeaseHolder, WindowLease};
pub use conversation::{
    CommandResult, ConflictChoice, Conversation, Surface, WindowConflict, hosted, images, replay,
    show_text,
};
pub use export_html::session_html;
pub use failure::{Exit, Failure, Outcome, exit_of_turn, skill_failure};
pub use front::{
    CommandFollowUp, ConversationDriver, ConversationRequest, ConversationUpdate, HostError,
    HostErrorKind, LiveConversation, OpenedConversation,
};
pub use home::store_tools::{
    RunInline, StoreTools, apply_pending_skill, expand_inline, store_backed,
};
pub use home::toolsets;
pub use host::gateway::GatewayConversations;
pub use host::{
    CommandInfo, ConversationHost, FrontEndKind, HomeScript, ListQuery, ListedConversation,
    OpeningRequest, OwnServer, ServerAddress,
};
pub use options::TurnOptions;
pub use quick_commands::{QuickCommand, QuickKind, read_quick_commands};
