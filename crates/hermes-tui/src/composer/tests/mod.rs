//! Tests drive the composer with keys, as the program does.

mod complete;
mod editing;
mod files;
mod images;
mod keep;
mod props;
mod recall;
mod sending;
mod view;

use std::path::Path;

use tokio::sync::mpsc;

use super::{
    CompletionCommand, Composer, ComposerOutcome, ComposerResult, ComposerSetup, Submission,
};
use crate::keys::{KeyArea, KeyPress, Keymap};

/// A composer that keeps nothing, in a directory with nothing in it.
fn composer() -> Composer {
    with(ComposerSetup::default()).0
}

fn with(setup: ComposerSetup) -> (Composer, mpsc::Receiver<ComposerResult>) {
    Composer::new(ComposerSetup {
        commands: if setup.commands.is_empty() {
            commands()
        } else {
            setup.commands
        },
        ..setup
    })
}

fn keeping(keep: &Path, project: &str) -> Composer {
    with(ComposerSetup {
        keep: Some(keep.to_path_buf()),
        project: project.into(),
        ..ComposerSetup::default()
    })
    .0
}

fn commands() -> Vec<CompletionCommand> {
    let command = |name: &str, aliases: &[&str], args: &str, summary: &str| CompletionCommand {
        name: name.to_owned(),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        args: args.to_owned(),
        summary: summary.to_owned(),
    };
    vec![
        command("new", &["reset"], "[title]", "start a new conversation"),
        command("model", &[], "[name]", "show or change the model"),
        command("mcp", &[], "[name]", "MCP servers and their state"),
        command("memory", &[], "", "what is remembered"),
        command("queue", &["q"], "<text>", "send after this turn"),
        command("quit", &["exit"], "", "leave"),
    ]
}

/// Presses keys by name, separated by blanks.
fn press(composer: &mut Composer, keys: &str) -> ComposerOutcome {
    let map = Keymap::default();
    let mut outcome = ComposerOutcome::Nothing;
    for key in keys.split(' ') {
        let key: KeyPress = key.parse().unwrap();
        outcome = composer.key(key, map.action(key, KeyArea::Composer));
    }
    outcome
}

fn write(composer: &mut Composer, text: &str) -> ComposerOutcome {
    let mut outcome = ComposerOutcome::Nothing;
    for c in text.chars() {
        outcome = match c {
            '\n' => press(composer, "ctrl+j"),
            c => composer.key(KeyPress::char(c), None),
        };
    }
    outcome
}

/// The text with the caret as a bar.
fn state(composer: &Composer) -> String {
    let editor = &composer.editor;
    let (before, after) = (
        editor.text().slice(0..editor.caret()),
        editor.text().slice(editor.caret()..editor.text().len()),
    );
    format!("{}|{}", before.shown(), after.shown())
}

fn sent(outcome: ComposerOutcome) -> Submission {
    match outcome {
        ComposerOutcome::Submit(submission) => submission,
        other => panic!("not sent: {other:?}"),
    }
}

fn send(composer: &mut Composer, text: &str) -> Submission {
    composer.set_text(text);
    sent(press(composer, "enter"))
}
