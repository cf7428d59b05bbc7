//! Fuzz targets; see `hermes-fuzz`.

pub use crate::transport::stdio::fuzz::stdio;

#[cfg(test)]
mod tests {
    #[test]
    fn stdio() {
        hermes_testkit::fuzz::run("mcp-stdio", 2000, super::stdio);
    }
}
