//! Conversations as every front end uses them.
//!
//! | module | what it does |
//! |---|---|
//! | [`conversation`] | a conversation that is held: the open session, what is remembered between messages, its actor, replay |
//! | [`slash_commands`], [`quick_commands`] | what is typed behind a slash; names that the config gives to commands |
//! | [`host`] | how front ends that serve others (chats, editors) get their conversations |
//! | [`front`] | what such a front end asks of a conversation, and what it receives |
//! | [`wiring`] | opens conversations: model, store, tools, MCP servers, hooks and prompt are connected here |
//! | [`options`] | what a person or a front end asks for when a conversation is opened |
//! | [`context`] | the home, its environment, and the process that holds the conversations |
//! | [`home`] | settings, prompt and tools that a session takes from a home; toolsets |
//! | [`hooks`] | the person's own programs that run when something happens |
//! | [`child`] | runs such a program to its end or its deadline |
//! | [`checkpoints`], [`export_html`], [`text`] | texts for people |
//! | [`failure`] | why something did not succeed, and the exit code that says so |
//!
//! No type of a front end occurs here: arguments of the command line become [`options::TurnOptions`], and
//! what is to be shown beside a conversation goes through [`context::HostProcess`].

pub mod checkpoints;
pub mod child;
pub mod context;
pub mod conversation;
pub mod export_html;
pub mod failure;
pub mod front;
pub mod home;
pub mod hooks;
pub mod host;
pub mod options;
pub mod quick_commands;
pub mod slash_commands;
pub mod text;
pub mod wiring;

pub use context::AppContext;
pub use options::TurnOptions;
