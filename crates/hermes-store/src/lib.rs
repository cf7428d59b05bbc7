//! Persistent data: state.db, memory files, the skills library, the job table
//!
//! | module | what it does |
//! |---|---|
//! | `db` | state.db: sessions, messages, usage, search ([`Store`]) |
//! | [`delivery`] (in `db`) | messages of chats and the replies to them |
//! | [`insights`] (in `db`) | statistics of use |
//! | [`jobs`] | the job table `cron/jobs.json`, shared with the original |
//! | `memory` | `MEMORY.md` and `USER.md` ([`MemoryFiles`]) |
//! | `pending` | writes that wait for approval ([`PendingWrites`]) |
//! | [`skills`] | the skills library |
//!
//! Delivery, insights, jobs and skills keep their modules: each has its own words for messages, uses and runs.

mod db;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod jobs;
mod memory;
mod pending;
pub mod skills;

pub use db::{
    AutoPrune, DiscoverRequest, ImportReport, Imported, ListFilter, MessageRecord, NewRequest,
    OpenOptions, PruneCandidate, RepairOptions, RepairReport, RepairStrategy, RequestStatus,
    ResponseStore, SCHEMA_VERSION, ScrollRequest, SearchHit, SearchOptions, SearchOrder,
    SessionFilter, SessionOrder, SessionRecord, SessionSummary, Store, StoreStats, StoredRun,
    copy_database, delivery, find_corruption, insights, quick_check_database, remove_texts,
    repair_database, session_markdown,
};
pub use memory::{
    MemoryError, MemoryFiles, MemoryLimits, MemoryOperation, MemoryStatus, MemoryTarget,
};
pub use pending::{PendingWrite, PendingWrites, Subsystem};
