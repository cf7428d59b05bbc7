//! Connects the agent to chat platforms.
//!
//! | module | what it does |
//! |---|---|
//! | [`platforms`] | the adapters of a home, and the services they need |
//! | [`gateway`] | the running gateway |
//! | [`spine`] | durable delivery: nothing accepted is lost, nothing is sent twice without a mark |
//! | [`turn`] | messages become turns, turns become replies: commands, approvals, streaming, recovery |
//! | [`conversation_pool`] | open conversations |
//! | [`session`] | which conversation a message belongs to, and when a new one starts |
//! | [`render`] | text for a platform: markup, splitting, silence |
//! | [`authorize`] | who may talk to the agent: allow-lists, pairing |
//! | [`control`] | how other programs of the home reach a running gateway |
//! | [`cron`] | the scheduler of jobs |
//! | [`voice`] | speech |
//! | [`settings`] | settings |
//! | [`process`] | the gateway as a process |

pub mod authorize;
pub mod control;
pub mod conversation_pool;
pub mod cron;
pub mod gateway;
pub mod platforms;
pub mod process;
pub mod render;
pub mod session;
pub mod settings;
pub mod spine;
pub mod turn;
pub mod voice;
