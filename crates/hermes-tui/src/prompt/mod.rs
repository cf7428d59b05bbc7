//! Approvals and questions, in the composer's place.
