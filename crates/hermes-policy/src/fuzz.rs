//! Fuzz targets; see `hermes-fuzz`.

pub use crate::assess::fuzz::shell;

#[cfg(test)]
mod tests {
    #[test]
    fn shell() {
        hermes_testkit::fuzz::run("shell", 300, super::shell);
    }
}
