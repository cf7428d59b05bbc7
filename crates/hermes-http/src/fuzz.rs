//! Fuzz targets; see `hermes-fuzz`.

pub use crate::sse::fuzz::sse;

#[cfg(test)]
mod tests {
    #[test]
    fn sse() {
        hermes_testkit::fuzz::run("sse", 2000, super::sse);
    }
}
