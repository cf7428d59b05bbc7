//! Reads the desktop clipboard through common helper programs.

use std::io::Read as _;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use hermes_core::image::MAX_BYTES;
use hermes_core::programs::own_program;

use super::chip::Chip;

/// How long a helper program may take.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) enum ClipboardContent {
    Image(Chip),
    Text(String),
}

/// A helper program and its arguments.
pub(super) struct ClipboardProgram {
    pub(super) program: &'static str,
    pub(super) image: &'static [&'static str],
    pub(super) text: Option<(&'static str, &'static [&'static str])>,
}

pub(super) const READERS: [ClipboardProgram; 3] = [
    ClipboardProgram {
        program: "wl-paste",
        image: &["--no-newline", "--type", "image/png"],
        text: Some(("wl-paste", &["--no-newline"])),
    },
    ClipboardProgram {
        program: "xclip",
        image: &["-selection", "clipboard", "-target", "image/png", "-out"],
        text: Some(("xclip", &["-selection", "clipboard", "-out"])),
    },
    ClipboardProgram {
        program: "pngpaste",
        image: &["-"],
        text: Some(("pbpaste", &[])),
    },
];

enum ProgramOutput {
    /// The program is not installed.
    Absent,
    Nothing,
    Bytes(Vec<u8>),
}

/// Reads an image, else a text; or returns a message for the person. Blocks: call it on its own
/// thread.
pub(super) fn read(readers: &[ClipboardProgram]) -> Result<ClipboardContent, String> {
    let mut present = false;
    for reader in readers {
        match run_program(reader.program, reader.image) {
            ProgramOutput::Absent => {}
            ProgramOutput::Nothing => present = true,
            ProgramOutput::Bytes(bytes) => {
                present = true;
                if let Ok(chip) = Chip::image(bytes.into(), None) {
                    return Ok(ClipboardContent::Image(chip));
                }
            }
        }
        if let Some((program, args)) = reader.text
            && let ProgramOutput::Bytes(bytes) = run_program(program, args)
            && let Ok(text) = String::from_utf8(bytes)
            && !text.is_empty()
        {
            return Ok(ClipboardContent::Text(text));
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

fn run_program(program: &str, args: &[&str]) -> ProgramOutput {
    let child = own_program(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return ProgramOutput::Absent;
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    if let Some(stdout) = child.stdout.take() {
        // Reading has no timeout of its own; it ends with the program.
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let whole = stdout.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
            // The receiver may be gone.
            let _ = sender.send(whole.is_ok().then_some(bytes));
        });
    }
    let bytes = receiver.recv_timeout(READ_TIMEOUT).ok().flatten();
    if bytes.is_none() || bytes.as_ref().is_some_and(|bytes| bytes.len() > MAX_BYTES) {
        // It may have exited already.
        let _ = child.kill();
    }
    let good = child.wait().is_ok_and(|status| status.success());
    match bytes {
        Some(bytes) if good && !bytes.is_empty() => ProgramOutput::Bytes(bytes),
        _ => ProgramOutput::Nothing,
    }
}
