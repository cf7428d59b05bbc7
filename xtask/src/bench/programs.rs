//! What is measured, and where it lives.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{cargo, run};
use crate::{setup, target_dir};

use super::process::{Finished, Running, start, start_in};
use super::server::Server;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Who {
    Ours,
    Original,
    Bare,
    /// Other agents for the terminal; only there.
    Codex,
    Opencode,
}

pub(super) struct Programs {
    ours: PathBuf,
    original: Option<PathBuf>,
    bare: PathBuf,
    server: PathBuf,
    root: PathBuf,
}

impl Programs {
    /// Builds everything in release mode and makes an empty place to work in.
    pub(super) fn prepare(build: bool) -> Result<Self> {
        let original = setup::run()?.map(|python| python.with_file_name("hermes"));
        if build {
            let mut command = cargo();
            command.args(["build", "--release"]);
            for (package, program) in [
                ("hermes-cli", "hermes"),
                ("hermes-local", "hermes-local"),
                ("bare-client", "bare-client"),
                ("hermes-testkit", "scripted-model"),
            ] {
                command.args(["--package", package, "--bin", program]);
            }
            run(&mut command)?;
            super::mcp::build()?;
        }
        let release = target_dir().join("release");
        let root = target_dir().join("bench");
        if root.exists() {
            std::fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
        }
        Ok(Self {
            ours: release.join("hermes"),
            original,
            bare: release.join("bare-client"),
            server: release.join("scripted-model"),
            root,
        })
    }

    /// Everyone there is, in the order they take turns.
    pub(super) fn all(&self) -> Vec<Who> {
        let mut all = vec![Who::Ours, Who::Bare];
        if self.original.is_some() {
            all.push(Who::Original);
        }
        all
    }

    /// Everyone with a home.
    pub(super) fn agents(&self) -> Vec<Who> {
        let mut all = self.all();
        all.retain(|who| *who != Who::Bare);
        all
    }

    pub(super) fn path(&self, who: Who) -> &Path {
        match who {
            Who::Ours => &self.ours,
            Who::Original => self.original.as_deref().unwrap_or(&self.ours),
            Who::Bare => &self.bare,
            // They live elsewhere.
            Who::Codex | Who::Opencode => Path::new(""),
        }
    }

    /// An empty home for `who` in this scenario.
    pub(super) fn home(&self, scenario: &str, who: Who) -> Result<PathBuf> {
        let home = self
            .root
            .join(scenario)
            .join(format!("{who:?}").to_lowercase());
        // The work is a project of its own, beside the home, as people have it: inside the sources of
        // this program everything below them, the home too, would count as the project.
        for name in ["home", "user", "work/.git"] {
            std::fs::create_dir_all(home.join(name))?;
        }
        std::fs::write(home.join("work/a.txt"), "one\ntwo\nthree\n")?;
        Ok(home)
    }

    pub(super) fn serve(&self, scenario: &str, script: &serde_json::Value) -> Result<Server> {
        let directory = self.root.join(scenario);
        std::fs::create_dir_all(&directory)?;
        Server::start(&self.server, script, &directory)
    }

    pub(super) fn start(&self, who: Who, args: &[&str], home: &Path) -> Result<Running> {
        start(self.path(who), args, home)
    }

    /// In the person's directory itself, with the program's home below it: where a gateway works.
    pub(super) fn start_at_home(&self, who: Who, args: &[&str], home: &Path) -> Result<Running> {
        start_in(self.path(who), args, home, [home, home])
    }

    /// Asks the model one thing.
    pub(super) fn ask(
        &self,
        who: Who,
        server: &Server,
        home: &Path,
        text: &str,
    ) -> Result<Running> {
        if who == Who::Bare {
            return self.start(who, &[&server.base_url, text], home);
        }
        self.start(who, &["-z", text], home)
    }

    pub(super) fn run(&self, who: Who, args: &[&str], home: &Path) -> Result<Finished> {
        self.start(who, args, home)?.finish()
    }
}

/// Points the home at a model.
pub(super) fn configure(home: &Path, base_url: &str) -> Result<()> {
    let config = format!(
        "model:\n  default: scripted-model\n  provider: custom\n  base_url: {base_url}\n  \
         api_key: bench-key\n  context_length: 1000000\n\
         auxiliary:\n  title_generation:\n    enabled: false\n\
         agent:\n  max_turns: 200\n"
    );
    std::fs::write(home.join("home/config.yaml"), config)?;
    Ok(())
}
