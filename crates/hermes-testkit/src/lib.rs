//! Test only: scripted model server, virtual clock, temporary homes, event recorder, the original
//! as oracle.
//!
//! | module | for |
//! |---|---|
//! | [`model_server`] | a model that says what the test wants, in three wire formats, with faults |
//! | [`mcp_server`] | an MCP server of either era with every fault seen in the wild |
//! | [`clock`] | time and randomness the test decides |
//! | [`mail`] | a real mail server (Dovecot, Exim) and bad weather before it |
//! | [`fuzz`] | the fuzz targets over their corpus and mutations of it |
//! | [`home`] | a throw-away home with its configuration |
//! | [`recorder`] | collecting events and waiting for one |
//! | [`oracle`] | the pinned Python original |
//! | [`slack`] | a Slack with Web API and Socket Mode, several workspaces, faults |
//! | [`place`] | directories that are not temporary ones |
//! | [`web_server`] | a web server with the pages and faults of the test |
//! | [`terminal`] | the built binary at a terminal of its own: keys in, a screen out |
//! | [`telegram`] | Telegram's Bot API, certified by two SDKs, with faults |
//! | [`discord`] | Discord's REST and gateway, certified by discord.py, with faults |
//! | [`process`] | running the built binary in a clean environment |
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use this crate: a broken precondition should end them loudly"
)]

pub mod clock;
pub mod directories;
pub mod discord;
pub mod fuzz;
pub mod home;
pub mod mail;
pub mod mcp_server;
pub mod model_server;
pub mod oracle;
pub mod process;
pub mod recorder;
mod server_thread;
pub mod slack;
pub mod telegram;
pub mod terminal;
pub mod web_server;
