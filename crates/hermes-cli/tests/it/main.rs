//! The built binary, as a person or a script meets it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may end them loudly"
)]

mod acp;
mod auth;
mod backup;
mod browse;
mod completion;
mod config;
mod conformance;
mod crash;
mod cron;
mod doctor;
mod exit_codes;
mod faked_time;
mod foreign_text;
mod full_disk;
mod gateway;
mod help;
mod insights;
mod line_chat;
mod local;
mod logs;
mod mcp;
mod memory_skills;
mod model;
mod oneshot;
mod oracle;
mod profile;
mod resume;
mod schemas;
mod sessions;
mod setup;
mod skills_used;
mod tools;
mod tools_agent;
mod tools_attacks;
mod tools_escapes;
mod tools_files;
mod tools_plants;
mod tools_policy;
mod tools_sandbox;
mod tools_ssh;
mod tools_story;
mod tools_terminal;
mod tools_web;
mod tui;
mod tui_panels;
mod update;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::ModelServer;
use hermes_testkit::process::{FinishedProgram, Program};

/// A home whose model is a scripted server.
pub(crate) struct CliHarness {
    pub(crate) home: TempHome,
    pub(crate) server: ModelServer,
}

impl CliHarness {
    pub(crate) fn new() -> Self {
        Self::with_config("")
    }

    pub(crate) fn with_config(more: &str) -> Self {
        let home = TempHome::new();
        let server = ModelServer::start();
        home.use_server(&server.base_url(), more);
        Self { home, server }
    }

    pub(crate) fn program<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Program {
        hermes(&self.home).args(args)
    }

    pub(crate) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> FinishedProgram {
        self.program(args).run()
    }
}

pub(crate) fn hermes(home: &TempHome) -> Program {
    Program::new(env!("CARGO_BIN_EXE_hermes"), home)
}
