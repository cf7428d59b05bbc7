//! What survives: state.db, memory files, the skills library, the job table
