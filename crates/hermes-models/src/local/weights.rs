//! Resolving a model name to a file.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::table::{self, LocalModel};
use super::{LocalModelSettings, gguf};

/// A model that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWeights {
    /// The name as given.
    pub name: String,
    pub path: PathBuf,
    /// `None`: a user's own file.
    pub model: Option<&'static LocalModel>,
}

/// What an existing file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightsInfo {
    pub parameters: u64,
    /// The trained context length.
    pub context: u32,
    pub architecture: String,
}

/// A name that matches no file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither a listed model nor a .gguf file; available models: hermes model local list"
)]
pub struct UnknownWeights(pub String);

impl LocalModelSettings {
    /// The weights that `name` means: a model of the table, or the path of a GGUF file.
    pub fn weights(&self, name: &str) -> Result<NamedWeights, UnknownWeights> {
        let name = name.trim();
        if let Some(model) = table::find(name) {
            return Ok(NamedWeights {
                name: model.id.to_owned(),
                path: self.cache.join(model.file),
                model: Some(model),
            });
        }
        let path = self.home.expand_user(name);
        let is_file = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
        if is_file {
            let absolute_path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
            // A name must mean the same in every directory.
            let name = if path.is_absolute() {
                name.to_owned()
            } else {
                absolute_path.display().to_string()
            };
            return Ok(NamedWeights {
                name,
                path: absolute_path,
                model: None,
            });
        }
        Err(UnknownWeights(name.to_owned()))
    }

    /// The name used if none is given.
    pub fn default_name(&self) -> String {
        self.model
            .clone()
            .unwrap_or_else(|| table::DEFAULT.to_owned())
    }
}

impl NamedWeights {
    pub fn is_there(&self) -> bool {
        self.path.is_file()
    }

    /// Reads the head of the file.
    pub fn facts(&self) -> std::io::Result<WeightsInfo> {
        let head = gguf::head(&self.path)?;
        Ok(WeightsInfo {
            parameters: head.parameters,
            context: head
                .context
                .or(self.model.map(|model| model.context))
                .unwrap_or(2_048),
            architecture: head.architecture,
        })
    }

    /// Identifies this file among others of its name.
    pub(super) fn print(&self) -> Option<String> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        let changed = metadata
            .modified()
            .ok()?
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        Some(format!(
            "{}:{}:{}",
            self.path.display(),
            metadata.len(),
            changed.as_millis()
        ))
    }
}

/// The file's name without its ending.
pub fn stem(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hermes_config::Config;
    use hermes_config::home::Home;

    use super::*;

    #[test]
    fn a_name_means_a_model_of_the_table_or_a_file() {
        let settings = LocalModelSettings::new(&Home::at("/h/.hermes"), &Config::default());
        let known = settings.weights("SmolLM2-135M").unwrap();
        assert_eq!(known.name, "smollm2-135m");
        assert_eq!(
            known.path,
            Path::new("/h/.hermes/cache/local/SmolLM2-135M-Instruct.Q4_1.gguf")
        );
        let own = settings.weights("/models/own.GGUF").unwrap();
        assert_eq!((own.name.as_str(), own.model), ("/models/own.GGUF", None));
        let near = settings.weights("own.gguf").unwrap();
        assert!(near.path.is_absolute() && Path::new(&near.name) == near.path);
        for other in ["gpt-5", "own.bin", ""] {
            assert!(settings.weights(other).is_err(), "{other}");
        }
        // Profiles share what is large.
        let profile =
            LocalModelSettings::new(&Home::at("/h/.hermes/profiles/work"), &Config::default());
        assert_eq!(profile.cache, settings.cache);
        assert_eq!(profile.run, settings.run);
    }
}
