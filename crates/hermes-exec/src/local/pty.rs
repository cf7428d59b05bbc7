//! Pseudo-terminals.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const ROWS: u16 = 30;
const COLUMNS: u16 = 120;
/// Ends the input of a program in a terminal: Ctrl-D.
pub(super) const END_OF_INPUT: &[u8] = b"\x04";

/// Both sides of a new terminal: ours, which does not block, and the program's.
pub(super) fn open() -> io::Result<(OwnedFd, File)> {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let name = ptsname(&near, Vec::new())?;
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let far = rustix::fs::open(
        path,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let size = Winsize {
        ws_row: ROWS,
        ws_col: COLUMNS,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&near, size)?;
    let flags = fcntl_getfl(near.as_fd())?;
    fcntl_setfl(near.as_fd(), flags | OFlags::NONBLOCK)?;
    Ok((near, File::from(far)))
}
