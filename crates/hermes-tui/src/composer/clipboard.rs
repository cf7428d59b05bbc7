//! What the desktop's clipboard holds, asked of the programs that people have for it.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use hermes_core::image::MAX_BYTES;

use super::chip::Chip;

/// A program that answers no sooner has nothing to say.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) enum Content {
    Image(Chip),
    Text(String),
}

/// A program and how it is asked.
pub(super) struct Reader {
    pub(super) program: &'static str,
    pub(super) image: &'static [&'static str],
    pub(super) text: Option<(&'static str, &'static [&'static str])>,
}

pub(super) const READERS: [Reader; 3] = [
    Reader {
        program: "wl-paste",
        image: &["--no-newline", "--type", "image/png"],
        text: Some(("wl-paste", &["--no-newline"])),
    },
    Reader {
        program: "xclip",
        image: &["-selection", "clipboard", "-target", "image/png", "-out"],
        text: Some(("xclip", &["-selection", "clipboard", "-out"])),
    },
    Reader {
        program: "pngpaste",
        image: &["-"],
        text: Some(("pbpaste", &[])),
    },
];

enum Answer {
    /// The program is not here.
    Absent,
    Nothing,
    Bytes(Vec<u8>),
}

/// An image, else a text; or what to tell the person. Blocks: for a thread of its own.
pub(super) fn read(readers: &[Reader]) -> Result<Content, String> {
    let mut present = false;
    for reader in readers {
        match ask(reader.program, reader.image) {
            Answer::Absent => {}
            Answer::Nothing => present = true,
            Answer::Bytes(bytes) => {
                present = true;
                if let Ok(chip) = Chip::image(bytes.into(), None) {
                    return Ok(Content::Image(chip));
                }
            }
        }
        if let Some((program, args)) = reader.text
            && let Answer::Bytes(bytes) = ask(program, args)
            && let Ok(text) = String::from_utf8(bytes)
            && !text.is_empty()
        {
            return Ok(Content::Text(text));
        }
    }
    Err(if present {
        "the clipboard holds neither an image nor a text".to_owned()
    } else {
        "the clipboard cannot be read: install wl-paste (wl-clipboard), xclip or pngpaste, or drop \
         the image file on the terminal"
            .to_owned()
    })
}

fn ask(program: &str, args: &[&str]) -> Answer {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return Answer::Absent;
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    if let Some(stdout) = child.stdout.take() {
        // Reading has no time limit of its own; it ends with the program.
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let whole = stdout.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
            // Nobody waits any more: fine.
            let _ = sender.send(whole.is_ok().then_some(bytes));
        });
    }
    let bytes = receiver.recv_timeout(PATIENCE).ok().flatten();
    if bytes.is_none() || bytes.as_ref().is_some_and(|bytes| bytes.len() > MAX_BYTES) {
        // It may be gone already.
        let _ = child.kill();
    }
    let good = child.wait().is_ok_and(|status| status.success());
    match bytes {
        Some(bytes) if good && !bytes.is_empty() => Answer::Bytes(bytes),
        _ => Answer::Nothing,
    }
}
