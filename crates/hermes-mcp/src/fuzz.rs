//! Fuzz targets; see `hermes-fuzz`.

pub use crate::http::fuzz::sse;
pub use crate::stdio::fuzz::stdio;

#[cfg(test)]
mod tests {
    #[test]
    fn sse() {
        hermes_testkit::fuzz::run("mcp-sse", 2000, super::sse);
    }

    #[test]
    fn stdio() {
        hermes_testkit::fuzz::run("mcp-stdio", 2000, super::stdio);
    }
}
