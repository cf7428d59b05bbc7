//! Fuzz targets; see `hermes-fuzz`.

pub use crate::input::fuzz::keys;

#[cfg(test)]
mod tests {
    #[test]
    fn keys() {
        hermes_testkit::fuzz::run("keys", 2000, super::keys);
    }
}
