//! Fuzz targets; see `hermes-fuzz`.

pub use crate::repair::fuzz::arguments;

#[cfg(test)]
mod tests {
    #[test]
    fn arguments() {
        hermes_testkit::fuzz::run("arguments", 2000, super::arguments);
    }
}
