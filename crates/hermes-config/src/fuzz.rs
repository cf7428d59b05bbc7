//! Fuzz targets; see `hermes-fuzz`.

pub use crate::edit::fuzz::yaml;
pub use crate::env::fuzz::dotenv;

#[cfg(test)]
mod tests {
    use hermes_testkit::fuzz::run;

    #[test]
    fn yaml() {
        run("yaml", 2000, super::yaml);
    }

    #[test]
    fn dotenv() {
        run("dotenv", 2000, super::dotenv);
    }
}
