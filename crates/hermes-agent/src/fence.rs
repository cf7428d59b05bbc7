//! Marks text from outside; see [`hermes_core::fence`].

pub(crate) use hermes_core::fence::{fence, fence_flagged, is_fenced};
