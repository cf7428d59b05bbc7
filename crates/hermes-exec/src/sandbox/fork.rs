//! Calls for which the standard library and `rustix` have no safe form: copies of a process, and making a tree
//! of mounts read-only.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Which of the two we are.
#[derive(Debug)]
pub(super) enum Side {
    /// The helper, which can watch the copy and end it.
    Helper(Sibling),
    Copy,
}

#[derive(Debug)]
pub(super) struct Sibling {
    pub(super) pid: i32,
    pub(super) handle: OwnedFd,
}

/// Makes a copy of this process. Its parent is ours: whoever started the helper waits for the command.
/// `is_own`: it gets a table of processes and of mounts of its own, in which it is the first process; when it
/// ends, everything in there ends.
#[expect(
    unsafe_code,
    reason = "no safe call makes a process that is not a program yet"
)]
pub(super) fn sibling(is_own: bool) -> io::Result<Side> {
    let mut flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    if is_own {
        flags |= libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    }
    let none: libc::c_long = 0;
    let mut handle: RawFd = -1;
    // SAFETY: The helper has one thread, so that no other can hold a lock or be in the middle of a change
    // when the copy is made. The copy has its own memory and uses the same stack at the same place. The
    // kernel writes one descriptor to `handle`, in the helper alone.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            none,
            &raw mut handle,
            none,
            none,
        )
    };
    match i32::try_from(pid) {
        Ok(0) => Ok(Side::Copy),
        Ok(pid) if pid > 0 && handle >= 0 => {
            // SAFETY: The kernel has just made it for us; nobody else knows of it.
            let handle = unsafe { OwnedFd::from_raw_fd(handle) };
            Ok(Side::Helper(Sibling { pid, handle }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits as the first process of its table until the command ends, and ends in the same way.
#[expect(
    unsafe_code,
    reason = "the standard library closes only what it opened, and cannot wait for orphans"
)]
pub(super) fn end_with(command: u32) -> ! {
    // Streams and handles are the command's; here they would stay open for others to find.
    // SAFETY: Nothing in this process uses a descriptor from here on: it only waits and ends.
    unsafe { libc::close_range(0, libc::c_uint::MAX, 0) };
    loop {
        let mut status = 0;
        // SAFETY: It writes to `status` alone.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if ended.cast_unsigned() == command {
            let code = if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                128 + libc::WTERMSIG(status)
            };
            // SAFETY: It does not return; what other processes left to do is the kernel's.
            unsafe { libc::_exit(code) };
        }
        if ended < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // SAFETY: As above.
            unsafe { libc::_exit(i32::from(super::CONFINE_FAILED)) };
        }
    }
}

/// Whether a copy of this process can have tables of its own, and do `trial` in them.
#[expect(
    unsafe_code,
    reason = "no safe call makes a process that is not a program yet"
)]
pub(super) fn can_be_own(trial: impl FnOnce() -> bool) -> bool {
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD;
    let none: libc::c_long = 0;
    // SAFETY: As in `sibling`.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            none,
            none,
            none,
            none,
        )
    };
    match i32::try_from(pid) {
        Ok(0) => {
            let code = i32::from(!trial());
            // SAFETY: It does not return; nothing of the helper's is to be tidied up twice.
            unsafe { libc::_exit(code) }
        }
        Ok(pid) if pid > 0 => {
            let mut status = 0;
            // SAFETY: It writes to `status` alone.
            let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            ended == pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
        _ => false,
    }
}

/// Makes what is mounted at a path, and below it, read-only.
pub(super) fn set_read_only_tree(path: &Path) -> io::Result<()> {
    set_read_only(path, libc::AT_RECURSIVE)
}

/// Makes what is mounted at a path read-only, and leaves what is mounted below it.
pub(super) fn set_read_only_alone(path: &Path) -> io::Result<()> {
    set_read_only(path, 0)
}

#[expect(unsafe_code, reason = "rustix has no form of this call")]
fn set_read_only(path: &Path, flags: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let wanted = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: Both pointers are to values that live longer than the call, which only reads them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
