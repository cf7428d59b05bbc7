//! Installs what tests run against, under target/: real MCP servers, gateways and conformance
//! suites (`target/mcp` from npm, `target/mcp-py/{legacy,modern}` from PyPI) and the SDKs of search
//! services (`target/search-sdks`).
//!
//! Each part is pinned by a file in `ci`. A copy of that file marks a finished installation;
//! as long as it matches, nothing is done.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command::{output, retry, run as run_command};
use crate::setup::interpreter;
use crate::{in_ci, workspace};

/// Written last.
const STAMP: &str = ".installed";

struct Part {
    name: &'static str,
    home: PathBuf,
    /// What the installation is made from.
    pins: PathBuf,
    install: fn(&Part) -> Result<()>,
}

/// Everything that comes from npm and PyPI.
fn parts() -> Vec<Part> {
    let ci = workspace().join("ci/mcp");
    // Beside cargo's own directories, wherever those are, so that every build shares them.
    let target = workspace().join("target");
    vec![
        Part {
            name: "MCP servers from npm",
            home: target.join("mcp"),
            pins: ci.join("package-lock.json"),
            install: install_npm,
        },
        Part {
            name: "Python MCP 1.26",
            home: target.join("mcp-py/legacy"),
            pins: ci.join("python-legacy.txt"),
            install: install_python,
        },
        Part {
            name: "Python MCP 2.3",
            home: target.join("mcp-py/modern"),
            pins: ci.join("python-modern.txt"),
            install: install_python,
        },
        Part {
            name: "SDKs of search services",
            home: target.join("search-sdks"),
            pins: workspace().join("ci/web/python.txt"),
            install: install_python,
        },
        Part {
            name: "Slack's SDK",
            home: target.join("slack-sdk"),
            pins: workspace().join("ci/slack/python.txt"),
            install: install_python,
        },
        Part {
            name: "a listener (pocketsphinx)",
            home: target.join("voice-sdk"),
            pins: workspace().join("ci/voice/python.txt"),
            install: install_python,
        },
        Part {
            name: "SDKs for Telegram",
            home: target.join("telegram-sdks"),
            pins: workspace().join("ci/telegram/python.txt"),
            install: install_python,
        },
        Part {
            name: "OpenAI's SDK for Python",
            home: target.join("openai-sdk"),
            pins: workspace().join("ci/openai/python.txt"),
            install: install_python,
        },
        Part {
            name: "OpenAI's SDK for Node",
            home: target.join("openai-node"),
            pins: workspace().join("ci/openai/package-lock.json"),
            install: install_npm,
        },
        Part {
            name: "discord.py",
            home: target.join("discord-sdk"),
            pins: workspace().join("ci/discord/python.txt"),
            install: install_python,
        },
    ]
}

/// Makes sure everything is there. `false`: something cannot be had here, and the tests that need
/// it will be reported as skipped.
pub(crate) fn run() -> Result<bool> {
    let parts = parts();
    // Mostly waiting for the network: all at once.
    let results = std::thread::scope(|scope| {
        let running: Vec<_> = parts
            .iter()
            .map(|part| (part, scope.spawn(|| ensure(part))))
            .collect();
        running
            .into_iter()
            .map(|(part, thread)| {
                let result = thread.join();
                (
                    part,
                    result.unwrap_or_else(|_| bail!("installing panicked")),
                )
            })
            .collect::<Vec<_>>()
    });
    let mut whole = true;
    for (part, result) in results {
        match result {
            Ok(()) => {}
            Err(error) if in_ci() => return Err(error.context(part.name)),
            Err(error) => {
                eprintln!("warning: {} cannot be installed: {error:#}", part.name);
                eprintln!(
                    "warning: tests that need it are skipped; `cargo xtask setup` tries again"
                );
                whole = false;
            }
        }
    }
    Ok(whole)
}

fn ensure(part: &Part) -> Result<()> {
    let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    let wanted = read(&part.pins)?;
    let stamp = part.home.join(STAMP);
    if stamp.exists() && read(&stamp)? == wanted {
        eprintln!("{} installed: {}", part.name, part.home.display());
        return Ok(());
    }
    let begun = Instant::now();
    if stamp.exists() {
        std::fs::remove_file(&stamp).with_context(|| stamp.display().to_string())?;
    }
    (part.install)(part)?;
    std::fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())?;
    let took = begun.elapsed().as_secs_f64();
    eprintln!("{} installed in {took:.0} s", part.name);
    Ok(())
}

fn install_npm(part: &Part) -> Result<()> {
    if output(Command::new("npm").arg("--version")).is_none() {
        bail!("npm is not on PATH (install Node.js 20 or newer)");
    }
    let home = &part.home;
    std::fs::create_dir_all(home).with_context(|| home.display().to_string())?;
    let source = part.pins.parent().unwrap_or(Path::new("."));
    for name in ["package.json", "package-lock.json", ".npmrc"] {
        let from = source.join(name);
        std::fs::copy(&from, home.join(name)).with_context(|| from.display().to_string())?;
    }
    retry(4, "npm ci", || {
        run_command(
            Command::new("npm")
                .current_dir(home)
                // Packages get no chance to run anything while they are installed.
                .args(["ci", "--ignore-scripts", "--prefer-offline"])
                .args(["--no-audit", "--no-fund", "--loglevel", "error"]),
        )
    })
}

fn install_python(part: &Part) -> Result<()> {
    let home = &part.home;
    let base = interpreter()?;
    if home.exists() {
        std::fs::remove_dir_all(home).with_context(|| home.display().to_string())?;
    }
    run_command(Command::new(&base).args(["-m", "venv"]).arg(home))?;
    retry(4, "pip install", || {
        run_command(
            Command::new(home.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet"])
                .arg("--disable-pip-version-check")
                .args(["--retries", "5", "--timeout", "30"])
                .args(["--only-binary", ":all:", "--requirement"])
                .arg(&part.pins),
        )
    })
}
