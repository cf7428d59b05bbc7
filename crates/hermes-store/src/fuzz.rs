//! Fuzz targets; see `hermes-fuzz`.

pub use crate::jobs::fuzz::jobs;

#[cfg(test)]
mod tests {
    #[test]
    fn jobs() {
        hermes_testkit::fuzz::run("jobs", 2000, super::jobs);
    }
}
