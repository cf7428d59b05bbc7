//! Other agents for the terminal, from npm into `target/bench-peers`.
//!
//! They are only compared with: one that cannot be had here is left out by name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::json;

use crate::command::{output, retry, run as run_command};
use crate::workspace;

use super::super::programs::Who;
use super::super::server::Server;

struct Package {
    who: Who,
    /// Of the package and of its program.
    name: &'static str,
    program: &'static str,
    version: &'static str,
}

const PACKAGES: &[Package] = &[
    Package {
        who: Who::Codex,
        name: "@openai/codex",
        program: "codex",
        version: "0.166.0",
    },
    Package {
        who: Who::Opencode,
        name: "opencode-ai",
        program: "opencode",
        version: "1.18.33",
    },
];

/// Everyone who is there or can be had.
pub(super) fn installed() -> Vec<(Who, PathBuf)> {
    let mut found = Vec::new();
    for package in PACKAGES {
        match install(package) {
            Ok(program) => found.push((package.who, program)),
            Err(error) => eprintln!("   {} is left out: {error:#}", package.program),
        }
    }
    found
}

fn install(package: &Package) -> Result<PathBuf> {
    // Beside cargo's own directories, wherever those are, so that every build shares them.
    let home = workspace().join("target/bench-peers").join(package.program);
    let program = home.join("node_modules/.bin").join(package.program);
    if runs(&program, package.version) {
        return Ok(program);
    }
    std::fs::create_dir_all(&home)?;
    retry(3, &format!("installing {}", package.name), || {
        run_command(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--no-save"])
                .args(["--loglevel", "error", "--prefix"])
                .arg(&home)
                .arg(format!("{}@{}", package.name, package.version)),
        )
    })?;
    if !runs(&program, package.version) {
        bail!("npm reports success, yet it does not run on this platform");
    }
    Ok(program)
}

fn runs(program: &Path, version: &str) -> bool {
    let mut command = Command::new(program);
    // It must not look into the home of the person who measures.
    let nowhere = program.with_file_name("nobody");
    command.arg("--version").env("HOME", nowhere);
    program.exists() && output(&mut command).is_some_and(|text| text.contains(version))
}

/// Points a peer at the server, with everything it would ask for at its first start answered.
pub(super) fn configure(who: Who, home: &Path, server: &Server) -> Result<()> {
    let work = home.join("work").display().to_string();
    match who {
        Who::Codex => {
            let config = format!(
                "model = \"scripted-model\"\nmodel_provider = \"bench\"\n\
                 check_for_update_on_startup = false\n\
                 [model_providers.bench]\nname = \"bench\"\nbase_url = \"{}\"\n\
                 wire_api = \"responses\"\n\
                 [projects.\"{work}\"]\ntrust_level = \"trusted\"\n",
                server.base_url
            );
            std::fs::write(home.join("home/config.toml"), config)?;
        }
        Who::Opencode => {
            let config = json!({
                "autoupdate": false, "share": "disabled", "model": "bench/scripted-model",
                "small_model": "bench/scripted-model",
                "provider": {"bench": {
                    "npm": "@ai-sdk/openai-compatible", "name": "bench",
                    "options": {"baseURL": server.base_url, "apiKey": "bench-key"},
                    "models": {"scripted-model": {"name": "scripted-model"}},
                }},
            });
            let directory = home.join("user/.config/opencode");
            std::fs::create_dir_all(&directory)?;
            std::fs::write(directory.join("opencode.json"), config.to_string())?;
        }
        Who::Ours | Who::Original | Who::Bare => {
            super::super::programs::configure(home, &server.base_url)?;
        }
    }
    Ok(())
}
