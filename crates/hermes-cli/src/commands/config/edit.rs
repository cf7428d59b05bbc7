//! `hermes config edit`: the file only changes when what was written can be read.

use std::io::{BufRead as _, Write as _};
use std::path::Path;

use hermes_config::fs::write_atomic;
use hermes_config::yaml;
use hermes_core::programs::own_program;
use serde_json::Value;

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};

pub(super) fn run(cx: &Context) -> Outcome {
    let chosen = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| cx.env.get(name).filter(|editor| !editor.trim().is_empty()));
    let editor = match chosen {
        Some(editor) => editor,
        None if cx.out.stdin_tty && cx.out.stdout_tty => "vi",
        None => {
            return Err(Failure::usage(
                "editing needs a terminal, or an editor in EDITOR; without: hermes config set KEY VALUE",
            ));
        }
    };
    let path = cx.home.config_path();
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let before = read(&path)?;
    let mut draft = tempfile::Builder::new()
        .prefix("config-draft-")
        .suffix(".yaml")
        .tempfile_in(cx.home.root())?;
    draft.write_all(before.as_bytes())?;
    loop {
        open(editor, draft.path())?;
        let text = read(draft.path())?;
        if text == before {
            cx.out.remark("nothing changed");
            return Ok(());
        }
        let Some(complaint) = complaint(&text) else {
            if read(&path)? != before {
                let draft_path = keep(draft)?;
                return Err(Failure::new(
                    Exit::Busy,
                    format!(
                        "{} was changed by someone else in the meantime; your text is in {draft_path}",
                        path.display()
                    ),
                ));
            }
            write_atomic(&path, text.as_bytes(), 0o600)?;
            cx.out.line(format!("wrote {}", path.display()))?;
            return Ok(());
        };
        cx.out.error(format!("this cannot be read, {complaint}"));
        if !again(cx)? {
            let draft_path = keep(draft)?;
            return Err(Failure::failed(format!(
                "{} is unchanged; your text is in {draft_path}",
                path.display()
            )));
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::failed(format!(
            "cannot read {}: {error}",
            path.display()
        ))),
    }
}

/// The editor may be a command with arguments, as git has it.
fn open(editor: &str, draft: &Path) -> Outcome {
    let status = own_program("sh")
        .arg("-c")
        .arg(format!("{editor} \"$@\""))
        .arg(editor)
        .arg(draft)
        .status()
        .map_err(|error| Failure::failed(format!("cannot start {editor}: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::failed(format!(
            "{editor} failed ({status}); nothing was changed"
        )))
    }
}

/// Why the text is no configuration.
fn complaint(text: &str) -> Option<String> {
    match yaml::parse(text.trim_start_matches('\u{feff}')) {
        Ok((Value::Object(_) | Value::Null, _)) => None,
        Ok(_) => Some("it must consist of `key: value` settings".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

fn again(cx: &Context) -> Result<bool, Failure> {
    if !cx.out.stdin_tty || cx.no_input {
        return Ok(false);
    }
    cx.out.error("Edit again? [Y/n]");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(!answer.trim().to_lowercase().starts_with('n'))
}

fn keep(draft: tempfile::NamedTempFile) -> Result<String, Failure> {
    let (_, path) = draft
        .keep()
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(path.display().to_string())
}
