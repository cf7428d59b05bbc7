//! `hermes man`: manual pages of the commands.

use std::path::PathBuf;

use super::counted;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for every command into this directory, e.g. ~/.local/share/man/man1
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, out: Output) -> Outcome {
    let command = crate::args::command();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        out.piece(&String::from_utf8_lossy(&page))?;
        return Ok(());
    };
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .and_then(|()| std::fs::read_dir(dir).map(Iterator::count))
        .map_err(|error| Failure::failed(format!("cannot write to {}: {error}", dir.display())))?;
    out.remark(format!("{} in {}", counted(written, "page"), dir.display()));
    Ok(())
}
