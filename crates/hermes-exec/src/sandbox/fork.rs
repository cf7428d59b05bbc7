//! A copy of the helper, to become a command: loading our program again would take longer than most
//! commands.

use rustix::io::Errno;

/// Which of the two we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Helper,
    Copy,
}

/// Makes a copy of this process. Its parent is ours: whoever started the helper waits for the command.
#[expect(
    unsafe_code,
    reason = "no safe call makes a process that is not a program yet"
)]
pub(super) fn sibling() -> Result<Side, Errno> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: The helper has one thread, so that no other can hold a lock or be in the middle of a change
    // when the copy is made. The copy has its own memory and uses the same stack at the same place.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match pid {
        0 => Ok(Side::Copy),
        pid if pid > 0 => Ok(Side::Helper),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::AGAIN, Errno::from_raw_os_error)),
    }
}
