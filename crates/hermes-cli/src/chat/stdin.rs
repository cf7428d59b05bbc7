//! Text piped into the program.

use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::sync::mpsc;
use std::time::Duration;

use crate::exit::Failure;

/// More than this is refused rather than cut: a model could not read it anyway.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// How long a pipe may stay silent before we go on without it. A program started with an open
/// pipe that nobody writes to (from a service manager, say) must not hang.
const PIPE_TIMEOUT: Duration = Duration::from_secs(3);

/// All of stdin, however long it takes: the caller asked for it with `-`.
pub(super) fn read_prompt() -> Result<String, Failure> {
    read_all(std::io::stdin().lock())
}

/// What is piped in beside a prompt, if anything is.
pub(super) fn read_context() -> Result<Option<String>, Failure> {
    if !is_data_source() {
        return Ok(None);
    }
    let (first, arrived) = mpsc::sync_channel(1);
    let reader = std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut head = [0_u8; 1];
        let got = stdin.read(&mut head);
        // The other side may have given up waiting.
        let _ = first.send(());
        match got {
            Ok(0) => Ok(String::new()),
            Ok(_) => read_all(head.as_slice().chain(stdin)),
            Err(error) => Err(Failure::failed(format!("reading stdin: {error}"))),
        }
    });
    if arrived.recv_timeout(PIPE_TIMEOUT).is_err() {
        return Ok(None);
    }
    let text = reader
        .join()
        .map_err(|_| Failure::failed("reading stdin failed"))??;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// A pipe, a file or a socket; not a terminal and not /dev/null.
fn is_data_source() -> bool {
    std::fs::metadata("/dev/stdin").is_ok_and(|meta| {
        let kind = meta.file_type();
        kind.is_fifo() || kind.is_file() || kind.is_socket()
    })
}

fn read_all(source: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    source
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::failed(format!("reading stdin: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!(
            "stdin is larger than {} MB; pass a file name instead",
            MAX_BYTES / 1024 / 1024
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        Failure::usage(format!(
            "stdin is not UTF-8 text (byte {})",
            error.utf8_error().valid_up_to()
        ))
    })
}
