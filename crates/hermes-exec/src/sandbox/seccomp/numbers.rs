//! System call numbers by purpose.

pub(super) const CLONE: i64 = libc::SYS_clone;
pub(super) const CLONE3: i64 = libc::SYS_clone3;
pub(super) const UNSHARE: i64 = libc::SYS_unshare;
pub(super) const SOCKET: i64 = libc::SYS_socket;

/// Refused whatever their arguments. Looking into other processes (`ptrace`, `process_vm_readv`) is
/// not here: Landlock limits it to the command's own processes, so that debuggers work.
pub(super) const DENIED: &[i64] = &[
    // Other views of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    // Code in the kernel, or calls made where no filter looks.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    // The person's keys.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Their first argument is the target process.
pub(super) const SIGNALLING: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
];

/// The argument with this index is the target process; 0 is the caller.
pub(super) const NAMES_A_PROCESS: &[(i64, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_move_pages, 0),
];

const PRIO_USER: u64 = 2;
const IOPRIO_WHO_USER: u64 = 3;
const F_SETOWN: u64 = 8;
const F_SETOWN_EX: u64 = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

/// With this argument value they affect processes other than the caller.
pub(super) const NAMES_OTHERS: &[(i64, u8, u64)] = &[
    (libc::SYS_setpriority, 0, PRIO_USER),
    (libc::SYS_ioprio_set, 0, IOPRIO_WHO_USER),
    (libc::SYS_fcntl, 1, F_SETOWN),
    (libc::SYS_fcntl, 1, F_SETOWN_EX),
    (libc::SYS_ioctl, 1, FIOSETOWN),
    (libc::SYS_ioctl, 1, SIOCSPGRP),
];
