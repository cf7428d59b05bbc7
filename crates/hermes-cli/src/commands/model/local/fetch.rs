//! Making the built-in model ready: its program, its weights, what it can do.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_core::figures::size;
use hermes_models::local::WeightsHub;
use hermes_models::local::probe::MAX_PROMPTS;
use hermes_models::local::program::{self, LocalProgram};
use hermes_models::local::pull::{Pull, PullError, PullProgress};
use hermes_models::local::table;
use hermes_models::local::weights::NamedWeights;

use super::LocalModelContext;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::wiring;

/// Whether the second program is there, or can be built at once.
pub(crate) fn is_installed() -> bool {
    program::find() != LocalProgram::Missing
}

/// The model of that name, ready to be used: what is missing is fetched. Asks nothing.
pub(crate) fn ready(cx: &Context, name: Option<&str>) -> Result<NamedWeights, Failure> {
    let context = LocalModelContext::load(cx)?;
    let name = name.map_or_else(|| context.settings.default_name(), str::to_owned);
    let weights = context.weights(&name)?;
    let program = program(cx)?;
    if !weights.is_there() {
        pull(&context, &weights, false, cx)?;
    }
    checked(&weights)?;
    if context.settings.offers_tools(&weights).is_none() {
        cx.out.remark(format!(
            "trying whether {} can call tools (once) …",
            weights.name
        ));
        let bar = DownloadBar::new(&weights.name, cx.out);
        let tell = |tried| bar.line(&format!("{tried} of {MAX_PROMPTS} prompts"));
        let tried =
            wiring::runtime()?.block_on(context.settings.try_tools(&program, &weights, &tell));
        bar.end();
        match tried {
            Ok(verdict) if verdict.tools => cx.out.remark(format!(
                "it can: {} of {} calls were correct",
                verdict.right, verdict.asked
            )),
            Ok(verdict) => cx.out.remark(format!(
                "it chats only: {} of {} calls were correct",
                verdict.right, verdict.asked
            )),
            Err(error) => cx.out.remark(format!("{error}; it chats only")),
        }
    }
    Ok(weights)
}

/// An own file must be one.
pub(super) fn checked(weights: &NamedWeights) -> Outcome {
    weights.facts().map(drop).map_err(|error| {
        Failure::failed(format!(
            "{} cannot be used: {error}",
            weights.path.display()
        ))
    })
}

/// Where the second program is; under `cargo run` it is built.
fn program(cx: &Context) -> Result<std::path::PathBuf, Failure> {
    match program::find() {
        LocalProgram::Found(path) => Ok(path),
        LocalProgram::Missing => Err(Failure::new(Exit::NotConfigured, program::HOW_TO_GET)),
        LocalProgram::Buildable(build) => {
            cx.out
                .remark("building hermes-local, the program that runs it (once) …");
            // Results go to stdout; what cargo says is none.
            let status = Command::new(&build.cargo)
                .args(&build.args)
                .current_dir(&build.dir)
                .stdin(Stdio::null())
                .stdout(std::io::stderr())
                .status();
            match (status, program::find()) {
                (Ok(status), LocalProgram::Found(path)) if status.success() => Ok(path),
                (Err(error), _) => Err(Failure::failed(format!("cargo cannot be run: {error}"))),
                _ => Err(Failure::failed(
                    "hermes-local could not be built; see above",
                )),
            }
        }
    }
}

/// Fetches the weights, with progress on stderr.
pub(super) fn pull(
    context: &LocalModelContext,
    weights: &NamedWeights,
    force: bool,
    cx: &Context,
) -> Outcome {
    let Some(model) = weights.model else {
        return Err(Failure::not_found(format!(
            "{} does not exist",
            weights.path.display()
        )));
    };
    let http = context.router.web_settings()?;
    let hub = WeightsHub::from_env(&cx.env);
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let pull = Pull {
        settings: &context.settings,
        hub: &hub,
        http: &http,
        force,
    };
    if model.id != table::DEFAULT {
        cx.out.remark(format!("licence: {}", model.licence));
    }
    let bar = DownloadBar::new(model.id, cx.out);
    let fetched = wiring::runtime()?.block_on(pull.run(model, &|progress| bar.show(progress)));
    bar.end();
    fetched.map(drop).map_err(|error| {
        let exit = match error {
            PullError::NoSource { .. } => Exit::Unreachable,
            PullError::Disk { .. } | PullError::Memory { .. } | PullError::Io { .. } => {
                Exit::Failed
            }
        };
        Failure::new(exit, error.to_string())
    })
}

/// Cells of the bar.
const BAR_CELLS: u64 = 24;

/// How far something is: one line that changes at a terminal, a line per step elsewhere.
struct DownloadBar<'a> {
    name: &'a str,
    out: Output,
    shown: Mutex<BarState>,
}

#[derive(Default)]
struct BarState {
    /// Per thousand, or bytes where the whole is not known.
    step: Option<u64>,
    open: bool,
}

impl<'a> DownloadBar<'a> {
    fn new(name: &'a str, out: Output) -> Self {
        Self {
            name,
            out,
            shown: Mutex::default(),
        }
    }

    fn show(&self, progress: PullProgress) {
        match progress {
            PullProgress::From(place) => {
                self.end();
                self.out
                    .remark(format!("downloading {} from {place} …", self.name));
            }
            PullProgress::Failed(why) => {
                self.end();
                self.out.remark(format!("  that did not work: {why}"));
            }
            PullProgress::Waiting => self
                .out
                .remark("another process is downloading it; waiting …"),
            PullProgress::Bytes { done, total } => self.bytes(done, total),
        }
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        let mut shown = self.shown();
        let terminal = self.out.replaces_lines();
        let parts = if terminal { 200 } else { 10 };
        let step = match total.filter(|total| *total > 0) {
            Some(total) => done.min(total) * parts / total,
            None => done / 10_000_000,
        };
        if shown.step == Some(step) || (done == 0 && !terminal) {
            return;
        }
        shown.step = Some(step);
        drop(shown);
        self.line(&describe(done, total));
    }

    /// Says it in the place of what was said before.
    fn line(&self, text: &str) {
        if self.out.quiet {
            return;
        }
        if self.out.replaces_lines() {
            self.shown().open = true;
            self.out.transient(&format!("  {text}"));
        } else {
            self.out.remark(format!("  {text}"));
        }
    }

    fn shown(&self) -> MutexGuard<'_, BarState> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line is complete; what follows begins a new one.
    fn end(&self) {
        let mut shown = self.shown();
        if std::mem::take(&mut *shown).open {
            let _ = writeln!(crate::output::SafeStderr);
        }
    }
}

fn describe(done: u64, total: Option<u64>) -> String {
    match total.filter(|total| *total > 0) {
        Some(total) => {
            let full = usize::try_from(done.min(total) * BAR_CELLS / total).unwrap_or_default();
            let rest = usize::try_from(BAR_CELLS).unwrap_or_default() - full;
            format!(
                "[{}{}] {:>3} %  {} of {}",
                "#".repeat(full),
                " ".repeat(rest),
                done.min(total) * 100 / total,
                size(done),
                size(total)
            )
        }
        None => size(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_in_words() {
        assert_eq!(
            describe(49_000_000, Some(98_000_000)),
            "[############            ]  50 %  49 MB of 98 MB"
        );
        assert_eq!(describe(49_000_000, None), "49 MB");
    }
}
