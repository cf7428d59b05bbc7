//! The full interface, at a terminal of its own.

mod leaving;
mod servers;
mod talking;
mod unusual;
mod windows;

use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::terminal::{Terminal, TerminalBuilder};

use crate::CliHarness;

/// Longer than the interface holds a key for the rest of a paste.
const APART: Duration = Duration::from_millis(120);

pub(crate) fn at(home: &TempHome) -> TerminalBuilder {
    TerminalBuilder::new(env!("CARGO_BIN_EXE_hermes"), home)
}

/// Opened, with its prompt on the screen.
pub(crate) fn open(setup: &CliHarness) -> Terminal {
    let terminal = at(&setup.home).start();
    ready(&terminal);
    terminal
}

pub(crate) fn ready(terminal: &Terminal) {
    terminal.wait_for("? keys");
}

/// Types as people do: the Enter comes after the text, not with it.
pub(crate) fn say(terminal: &mut Terminal, text: &str) {
    typed(terminal, text);
    terminal.press("\r");
}

/// Types without Enter.
pub(crate) fn typed(terminal: &mut Terminal, text: &str) {
    terminal.press(text);
    let last: String = text.chars().rev().take(12).collect();
    let last: String = last.chars().rev().collect();
    terminal.wait_for(&last);
    // A pause of a person, which tells typing from pasting.
    std::thread::sleep(APART);
}

/// Whether one of the last rows that are not empty has this text.
pub(crate) fn at_bottom(rows: &[String], count: usize, text: &str) -> bool {
    let filled = rows.iter().rev().filter(|row| !row.is_empty());
    filled.take(count).any(|row| row.contains(text))
}

/// How often a row with this text was printed.
pub(crate) fn times(terminal: &Terminal, text: &str) -> usize {
    let all = terminal.scrollback();
    all.iter().filter(|row| row.contains(text)).count()
}

pub(crate) fn quit(mut terminal: Terminal) -> (u32, Vec<String>) {
    say(&mut terminal, "/quit");
    terminal.leave()
}
