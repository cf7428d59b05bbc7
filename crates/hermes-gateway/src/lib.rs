//! Connects the agent to chat platforms.
//!
//! Modules without a link are private; what others use of them is exported here.
//!
//! | module | what it does |
//! |---|---|
//! | [`platforms`] | the adapters of a home, and the services they need |
//! | `gateway` | the running gateway |
//! | `delivery` | durable delivery: nothing accepted is lost, nothing is sent twice without a mark |
//! | `turn` | messages become turns, turns become replies: commands, approvals, streaming, recovery |
//! | `conversation_pool` | open conversations |
//! | `session` | which conversation a message belongs to, and when a new one starts |
//! | [`render`] | text for a platform: markup, splitting, silence |
//! | [`authorize`] | who may talk to the agent: allow-lists, pairing |
//! | [`control`] | how other programs of the home reach a running gateway |
//! | [`cron`] | the scheduler of jobs |
//! | `voice` | speech |
//! | `settings` | settings |
//! | [`process`] | the gateway as a process |

pub mod authorize;
pub mod control;
mod conversation_pool;
pub mod cron;
mod delivery;
mod gateway;
pub mod platforms;
pub mod process;
pub mod render;
mod session;
mod settings;
mod turn;
mod voice;

pub use authorize::pairing::{
    ApprovedPairing, PairedUser, Pairing, PairingApproval, PairingError, PairingReply,
    PendingPairing,
};
pub use conversation_pool::{ConversationPool, HolderEvent, PoolLimits, PooledConversation};
pub use delivery::{
    ChunkExtras, DUPLICATE_MARK, MessageInbox, Outbox, OutboxPolicy, keep_ownership,
};
pub use gateway::{
    DecisionError, Gateway, GatewayCallbacks, GatewayDeps, GatewayError, GatewayStatus,
    GatewayTask, KnownChat, MessagePoster, OpenPermission, OwnerDecision, PlatformStatus,
    RebuildPlatform, RestartRequest, ShutdownNotice,
};
pub use session::{SessionEntry, SessionIndex, SessionKey, SessionSharing};
pub use settings::{AccessSummary, GatewaySettings, approval_wait, fresh_secret};
pub use voice::{HomeSynthesizer, HomeTranscriber, Transcriber};
