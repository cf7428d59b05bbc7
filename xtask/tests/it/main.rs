//! Rules of the workspace that the compiler does not keep.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod arrows;
mod documents;
mod files;
mod names;

use std::path::Path;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
