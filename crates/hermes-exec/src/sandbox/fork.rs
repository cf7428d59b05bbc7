//! System calls without a safe wrapper in the standard library or `rustix`: forking, and making a mount tree
//! read-only.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{DumpableBehavior, Pid, set_dumpable_behavior, setsid};

use crate::local::process_tree::kill_descendants;

/// Which of the two processes we are.
#[derive(Debug)]
pub(super) enum ForkResult {
    /// The helper, which can watch and kill the copy.
    Helper(SiblingProcess),
    Copy,
}

#[derive(Debug)]
pub(super) struct SiblingProcess {
    pub(super) pid: i32,
    pub(super) handle: OwnedFd,
    /// Keeps its mount namespace: taking that apart is a part of its exit, for which the requester would wait.
    pub(super) mounts: Option<File>,
}

/// Forks this process as a child of our parent, which can then wait for the command. `own_namespaces`: the copy
/// gets its own PID and mount namespaces, in which it is the init process; when it exits, everything in there
/// is killed.
#[expect(
    unsafe_code,
    reason = "no safe call makes a process that is not a program yet"
)]
pub(super) fn fork_sibling(own_namespaces: bool) -> io::Result<ForkResult> {
    let mut flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    if own_namespaces {
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
        Ok(0) => Ok(ForkResult::Copy),
        Ok(pid) if pid > 0 && handle >= 0 => {
            // SAFETY: The kernel has just created it for us; nothing else refers to it.
            let handle = unsafe { OwnedFd::from_raw_fd(handle) };
            let mounts = own_namespaces.then(|| File::open(format!("/proc/{pid}/ns/mnt")));
            Ok(ForkResult::Helper(SiblingProcess {
                pid,
                handle,
                // Without it, the exit takes a little longer.
                mounts: mounts.and_then(Result::ok),
            }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts a program as a child in a session of its own. A program that cannot be run is a child that exits.
#[expect(
    unsafe_code,
    reason = "the standard library starts no sessions without unsafe code"
)]
pub(super) fn spawn_in_session(program: &mut Command) -> io::Result<Pid> {
    // SAFETY: This process has one thread, as in `fork_sibling`. The child becomes a program or exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Fails only for a leader of a group, which a new process is not.
        let _ = setsid();
        let _ = program.exec();
        // SAFETY: It does not return; nothing of the parent is cleaned up twice.
        unsafe { libc::_exit(i32::from(super::CONFINE_FAILED)) };
    }
    Pid::from_raw(pid).ok_or_else(io::Error::last_os_error)
}

/// A command that traces init would read what is left of the helper in its memory, and could stop it for good.
pub(super) fn hide_memory() {
    // An error means that the kernel has no such setting.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Waits as init of the PID namespace until the command exits, and exits with the same status.
#[expect(
    unsafe_code,
    reason = "the standard library closes only what it opened, and cannot wait for orphans"
)]
pub(super) fn exit_like(command: Pid) -> ! {
    hide_memory();
    // Streams and descriptors belong to the command; here they would stay open.
    // SAFETY: Nothing in this process uses a descriptor from here on: it only waits and ends.
    unsafe { libc::close_range(0, libc::c_uint::MAX, 0) };
    let code = wait_for(command).map_or(i32::from(super::CONFINE_FAILED), exit_code);
    // SAFETY: It does not return; the kernel cleans up the other processes.
    unsafe { libc::_exit(code) };
}

/// The same without a PID namespace: orphans of the command are children of this process, which kills them before
/// it exits, or dies by the command's signal.
#[expect(
    unsafe_code,
    reason = "the standard library closes only what it opened and has no signal masks"
)]
pub(super) fn exit_without_orphans(command: Pid) -> ! {
    // Signals to the group are for the command.
    set_blocked(true);
    // SAFETY: Nothing in this process uses a descriptor that it has now.
    unsafe { libc::close_range(0, libc::c_uint::MAX, 0) };
    let status = wait_for(command);
    kill_descendants();
    if let Some(status) = status.filter(|status| libc::WIFSIGNALED(*status)) {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // A core of this process would tell nothing about the command.
        // SAFETY: The limit lives longer than the call, which only reads it; the others take numbers.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(libc::WTERMSIG(status), libc::SIG_DFL);
        }
        set_blocked(false);
        // SAFETY: It takes a number.
        unsafe { libc::raise(libc::WTERMSIG(status)) };
    }
    let code = status.map_or(i32::from(super::CONFINE_FAILED), exit_code);
    // SAFETY: It does not return; nothing has to be cleaned up.
    unsafe { libc::_exit(code) };
}

/// Blocks all signals of this process that can be blocked, or none.
#[expect(unsafe_code, reason = "no safe call changes the signal mask")]
fn set_blocked(blocked: bool) {
    let how = if blocked {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: The first call initializes the set that the second one reads.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(how, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Reaps children until the command has ended. `None`: it cannot be waited for.
#[expect(unsafe_code, reason = "the standard library cannot wait for orphans")]
fn wait_for(command: Pid) -> Option<libc::c_int> {
    loop {
        let mut status = 0;
        // SAFETY: It writes to `status` alone.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if ended == command.as_raw_nonzero().get() {
            return Some(status);
        }
        if ended < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// As a shell reports it.
fn exit_code(status: libc::c_int) -> libc::c_int {
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

/// Whether a copy of this process can have its own namespaces and run `trial` in them.
#[expect(
    unsafe_code,
    reason = "no safe call makes a process that is not a program yet"
)]
pub(super) fn can_unshare_processes(trial: impl FnOnce() -> bool) -> bool {
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
            // SAFETY: It does not return; nothing of the helper is cleaned up twice.
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

/// Makes the mount at a path and all mounts below it read-only.
pub(super) fn set_read_only_tree(path: &Path) -> io::Result<()> {
    set_read_only(path, libc::AT_RECURSIVE)
}

/// Makes the mount at a path read-only, but not the mounts below it.
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
