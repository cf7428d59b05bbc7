//! `hermes completion`.

use clap_complete::Shell;

use crate::exit::Outcome;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// bash, zsh, fish, elvish or powershell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionArgs, out: Output) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::args::command(),
        "hermes",
        &mut script,
    );
    out.piece(&String::from_utf8_lossy(&script))?;
    Ok(())
}
