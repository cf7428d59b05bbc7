//! A home in a temporary directory.

use std::path::PathBuf;

use hermes_config::{Config, ConfigError, Env, Home, Loaded, ProcessEnv};

pub(crate) struct TestHome {
    dir: tempfile::TempDir,
    pub(crate) home: Home,
    vars: Vec<(String, String)>,
}

impl TestHome {
    pub(crate) fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("home");
        std::fs::create_dir(&root).unwrap();
        let test = Self {
            home: Home::at(&root),
            // An administrator's directory on the machine must not take part.
            vars: vec![(
                "HERMES_MANAGED_DIR".to_owned(),
                dir.path().join("managed").to_string_lossy().into_owned(),
            )],
            dir,
        };
        std::fs::write(test.home.config_path(), config).unwrap();
        test
    }

    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        let path = self.home.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn managed(self, name: &str, text: &str) -> Self {
        let dir = self.dir.path().join("managed");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(name), text).unwrap();
        self
    }

    pub(crate) fn env(&self) -> Env {
        Env::load(&self.home, &ProcessEnv::from_vars(self.vars.clone())).unwrap()
    }

    pub(crate) fn try_load(&self) -> Result<Loaded, ConfigError> {
        Config::load(&self.home, &self.env())
    }

    pub(crate) fn load(&self) -> Loaded {
        self.try_load().unwrap()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.load()
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.join(name)).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }
}
