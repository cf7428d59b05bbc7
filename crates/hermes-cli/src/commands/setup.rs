//! `hermes setup`: one form for what most people set. It can be left and taken up again at any
//! time: what is set already is marked, nothing is written before the person has seen the changes,
//! and nothing is ever installed.

mod agent;
mod draft;
pub(crate) mod keys;
mod model;
mod non_interactive;
mod terminal;
mod tools;

use clap::{Args, ValueEnum};
use hermes_tui::port::{Panel, PanelGroup, PanelRow, RowMark};

use crate::choose;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::prompt::{self, PromptAnswer};
use draft::SetupDraft;

pub(crate) use terminal::try_out as try_terminal;

#[derive(Debug, Default, Args)]
pub(crate) struct SetupArgs {
    /// Set up only this section
    #[arg(value_enum)]
    section: Option<SetupSection>,
    /// Do not prompt; use only the flags below
    #[arg(long)]
    non_interactive: bool,
    /// Ask only for what is missing
    #[arg(long)]
    quick: bool,
    /// Start from the defaults; the old config.yaml is kept as a backup
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    with: non_interactive::SetupFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SetupSection {
    /// Model: which one answers
    Model,
    /// Terminal: where commands run
    Terminal,
    /// Tools: what the agent may use
    Tools,
    /// Agent: approvals, steps, memory
    Agent,
}

impl SetupSection {
    const ALL: [Self; 4] = [Self::Model, Self::Terminal, Self::Tools, Self::Agent];

    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Terminal => "terminal",
            Self::Tools => "tools",
            Self::Agent => "agent",
        }
    }

    /// How it stands: whether it is good as it is, and in a few words.
    fn standing(self, draft: &SetupDraft<'_>) -> Result<(bool, String), Failure> {
        match self {
            Self::Model => model::standing(draft),
            Self::Terminal => terminal::standing(draft),
            Self::Tools => tools::standing(draft),
            Self::Agent => agent::standing(draft),
        }
    }

    /// Asks for it. What is answered goes into the draft.
    fn fill(self, draft: &mut SetupDraft<'_>) -> Outcome {
        match self {
            Self::Model => model::fill(draft),
            Self::Terminal => terminal::fill(draft),
            Self::Tools => tools::fill(draft),
            Self::Agent => agent::fill(draft),
        }
    }
}

/// What to type where nobody can be asked.
const WITHOUT_TERMINAL: &str = "\
setup asks questions and needs a terminal. Without one, use
  hermes setup --non-interactive --provider P --model M [--key-env VAR] [--base-url URL]
               [--backend local|docker|ssh] [--approvals smart|manual|off] [--no-test]
  hermes config set KEY VALUE          any other setting
  hermes tools enable|disable NAME     what the agent may use
  hermes auth add PROVIDER             a key, on stdin";

pub(crate) fn run(args: &SetupArgs, cx: &Context) -> Outcome {
    if args.non_interactive || args.with.any() {
        return non_interactive::run(args, cx);
    }
    if !(cx.out.stdin_tty && cx.out.stdout_tty) || cx.no_input {
        return Err(Failure::usage(WITHOUT_TERMINAL));
    }
    let mut draft = SetupDraft::open(cx, args.reset)?;
    let intro = format!(
        "Setup of {}. Esc goes back; Ctrl+C quits without changing anything.",
        cx.home.root().display()
    );
    cx.out
        .line(crate::prompt::fitted(&intro, cx.out.width(), 0))?;
    match args.section {
        Some(section) => section.fill(&mut draft)?,
        None if args.quick => quick(&mut draft)?,
        None => form(&mut draft)?,
    }
    finish(&mut draft)
}

/// Only the sections that are not good as they are.
fn quick(draft: &mut SetupDraft<'_>) -> Outcome {
    for section in SetupSection::ALL {
        if !section.standing(draft)?.0 {
            draft.cx.out.line(format!("{}:", section.name()))?;
            section.fill(draft)?;
        }
    }
    Ok(())
}

/// All sections, in any order, as often as wanted.
fn form(draft: &mut SetupDraft<'_>) -> Outcome {
    let out = draft.cx.out;
    // The cursor returns to the section that was open.
    let mut last = None;
    loop {
        if choose::can_show(draft.cx) {
            let panel = Panel {
                selected: last.take(),
                ..overview(draft)?
            };
            match choose::pick(draft.cx, panel)?.and_then(|ask| ask.row) {
                Some(row) if row != DONE => {
                    if let Some(section) = named(&row) {
                        section.fill(draft)?;
                    }
                    last = Some(row);
                    continue;
                }
                _ => return Ok(()),
            }
        }
        for (index, section) in SetupSection::ALL.into_iter().enumerate() {
            let (good, text) = section.standing(draft)?;
            let mark = if good { "✓" } else { "·" };
            out.foreign_line(&format!(
                "  {} {mark} {:<9} {text}",
                index + 1,
                section.name()
            ))?;
        }
        let answer = prompt::line("section (1-4 or its name), Enter to see the changes: ")?;
        let typed = match answer {
            PromptAnswer::Back => return Ok(()),
            PromptAnswer::Line(line) if line.is_empty() => return Ok(()),
            PromptAnswer::Line(line) => line,
        };
        let chosen = typed
            .parse::<usize>()
            .ok()
            .and_then(|number| SetupSection::ALL.get(number.wrapping_sub(1)).copied())
            .or_else(|| named(&typed));
        match chosen {
            Some(section) => section.fill(draft)?,
            None => out.error(format!("there is no section {typed:?}")),
        }
    }
}

/// The row that ends the form.
const DONE: &str = "done";

fn named(name: &str) -> Option<SetupSection> {
    SetupSection::ALL
        .into_iter()
        .find(|section| section.name().eq_ignore_ascii_case(name))
}

/// The sections and how they stand.
fn overview(draft: &SetupDraft<'_>) -> Result<Panel, Failure> {
    let mut rows = Vec::new();
    for section in SetupSection::ALL {
        let (good, text) = section.standing(draft)?;
        rows.push(PanelRow {
            id: section.name().to_owned(),
            mark: if good {
                RowMark::Good
            } else {
                RowMark::Waiting
            },
            cells: vec![section.name().to_owned(), text],
            ..PanelRow::default()
        });
    }
    rows.push(PanelRow {
        id: DONE.to_owned(),
        cells: vec![
            DONE.to_owned(),
            "see the changes, then write them or not".to_owned(),
        ],
        ..PanelRow::default()
    });
    Ok(Panel {
        id: "setup".to_owned(),
        title: "Setup".to_owned(),
        note: "nothing is written before you have seen it".to_owned(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows,
        }],
        keys: vec![choose::enter("open")],
        ..Panel::default()
    })
}

/// Shows what would change, and writes it if the person agrees.
fn finish(draft: &mut SetupDraft<'_>) -> Outcome {
    let cx = draft.cx;
    let changes = draft.changes();
    if changes.is_empty() {
        return Ok(cx.out.line("nothing to change")?);
    }
    cx.out
        .line(format!("changes in {}:", cx.home.root().display()))?;
    for line in &changes {
        cx.out.foreign_line(line)?;
    }
    if !prompt::confirm("write them?", true)? {
        return Err(Failure::new(Exit::Refused, "nothing was written"));
    }
    draft.write()?;
    cx.out.line("written. Start with: hermes")?;
    Ok(())
}
