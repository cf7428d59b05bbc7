//! Workspace chores: `cargo xtask setup | test | ci | size | advisories | nightly | bench | fuzz | soak | chaos | flat`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program talks to the person who started it"
)]

mod advisories;
mod bench;
mod ci;
mod command;
mod deny;
mod exec_setup;
mod fuzz;
mod local_setup;
mod mail_setup;
mod mcp_setup;
mod nightly;
mod setup;
mod size;
mod soak;
mod test;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  setup        install what tests and benchmarks need under target/: the pinned original, real MCP
               servers, sshd, podman and bubblewrap, a mail server, weights of the built-in model,
               cargo-nextest and cargo-deny where they are missing
  test [args]  setup, then every test of the workspace; args go to the test runner
  ci           fmt, tests, soak, chaos, clippy, licences, bans and advisories of what we build on, and
               the size of the release binary; what .ci/run calls
  size         build the release binary and fail if it is larger than allowed
  advisories [--update [--from DIR]]
               only the last of these, against the advisories in ci/advisories; --update rebuilds that
               folder from the public database: from a clone in DIR, or fetched with git
  nightly      everything at full length: tests, 50,000 ways to lose an MCP session, fuzz, soak, chaos,
               flat, bench --check (hours)
  bench [--check] [--no-build] [scenario …]
               measure against the original and a bare client; --check fails on a missed target,
               --no-build uses the existing release binaries
  fuzz [TARGET …] [--seconds N]
               give parsers inputs that nobody writes, guided by coverage (default: 60 seconds for
               each target); targets are the folders of crates/hermes-fuzz/corpus. Needs a C++
               compiler
  soak [--minutes N]
               MCP servers killed, restarted and made to forget, under load (default: 5 minutes)
  chaos [--minutes N]
               a gateway killed again and again while people write (default: 3 minutes)
  flat [--turns N]
               a gateway that must not grow over many turns (default: 10000);
               HERMES_FLAT_PROGRAM is the program to measure
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match args.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("help", args.as_slice()),
    };
    let result = match task {
        "setup" => install_all(),
        "test" => test::run(rest),
        "ci" => ci::run(),
        "size" => size::run(),
        "advisories" => advisories::run(rest),
        "nightly" => nightly::run(),
        "bench" => bench::run(rest),
        "fuzz" => fuzz::run(rest),
        "soak" => soak::SOAK.run(rest),
        "chaos" => soak::CHAOS.run(rest),
        "flat" => soak::FLAT.run(rest),
        bench::MEASURE => bench::measure(rest),
        "help" | "-h" | "--help" => {
            print!("{USAGE}");
            Ok(())
        }
        other => {
            eprint!("unknown task {other:?}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Everything the tests need, side by side.
fn install_all() -> anyhow::Result<()> {
    let (oracle, servers, environments, weights) = std::thread::scope(|scope| {
        let servers = scope.spawn(mcp_setup::run);
        let environments = scope.spawn(mail_setup::after_exec);
        let weights = scope.spawn(local_setup::run);
        (
            setup::run(),
            servers.join(),
            environments.join(),
            weights.join(),
        )
    });
    let weights = weights.map_err(|_| anyhow::anyhow!("fetching the weights panicked"))?;
    let servers = servers.map_err(|_| anyhow::anyhow!("setting up the MCP servers panicked"))?;
    let environments =
        environments.map_err(|_| anyhow::anyhow!("unpacking sshd and podman panicked"))?;
    if oracle?.is_none() || !servers? || !environments? || !weights? {
        anyhow::bail!("not everything could be installed");
    }
    // Built, not fetched: one after the other, when the processor is free.
    tools::NEXTEST.ensure()?;
    tools::DENY.ensure()?;
    Ok(())
}

/// The root of the workspace.
fn workspace() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Where cargo builds.
fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// Whether a skipped test is a failure.
fn in_ci() -> bool {
    std::env::var("CI").as_deref() == Ok("true")
}
