//! Denies system calls that no command needs, with "operation not permitted".

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

mod numbers;

use numbers::{CLONE, CLONE3, DENIED, NAMES_A_PROCESS, NAMES_OTHERS, SIGNALLING, SOCKET, UNSHARE};

const AF_UNIX: u64 = 1;
const AF_VSOCK: u64 = 40;
const CLONE_NEWUSER: u64 = 0x1000_0000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Parameters of the filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterContext<'a> {
    pub(super) network: bool,
    /// Processes that must not be signalled.
    pub(super) guard: &'a [u32],
    /// The command has its own PID namespace, so that it cannot name other processes.
    pub(super) has_own_processes: bool,
}

/// Compiled filters.
#[derive(Clone, Debug)]
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    pub(super) fn build(around: FilterContext<'_>) -> Result<Self, String> {
        let mut rules = Rules::new();
        for &number in DENIED {
            rules.insert(number, Vec::new());
        }
        // A user namespace would expose the kernel's attack surface again.
        for number in [CLONE, UNSHARE] {
            let newuser = condition(0, SeccompCmpOp::MaskedEq(CLONE_NEWUSER), CLONE_NEWUSER)?;
            rules.insert(number, vec![newuser]);
        }
        let mut families = Vec::new();
        if !around.network {
            families.push(condition(0, SeccompCmpOp::Ne, AF_UNIX)?);
        }
        // Reaches the host of a virtual machine past every network rule.
        families.push(condition(0, SeccompCmpOp::Eq, AF_VSOCK)?);
        rules.insert(SOCKET, families);
        if !around.has_own_processes {
            rules.extend(deny_other_processes(around.guard)?);
        }
        Ok(Self(vec![
            compile(with_x32(rules), Errno::PERM)?,
            // Its flags are in memory that a filter cannot read; the C library falls back to `clone`.
            compile(with_x32(Rules::from([(CLONE3, Vec::new())])), Errno::NOSYS)?,
        ]))
    }

    pub(super) fn install(&self) -> Result<(), String> {
        for program in &self.0 {
            apply_filter(program).map_err(|error| format!("system call filter: {error}"))?;
        }
        Ok(())
    }
}

/// For a command in a shared PID namespace: denies calls that name another process.
fn deny_other_processes(guard: &[u32]) -> Result<Rules, String> {
    let mut rules = Rules::new();
    for &number in SIGNALLING {
        let mut denied = vec![condition(0, SeccompCmpOp::Eq, u64::from(u32::MAX))?];
        for &pid in guard {
            denied.push(condition(0, SeccompCmpOp::Eq, u64::from(pid))?);
            let group = u64::from(pid.cast_signed().wrapping_neg().cast_unsigned());
            denied.push(condition(0, SeccompCmpOp::Eq, group)?);
        }
        rules.insert(number, denied);
    }
    for &(number, index) in NAMES_A_PROCESS {
        rules.insert(number, vec![condition(index, SeccompCmpOp::Ne, 0)?]);
    }
    // Priorities of all processes of an account, and signals for file events.
    for &(number, index, value) in NAMES_OTHERS {
        let denied = condition(index, SeccompCmpOp::Eq, value)?;
        rules.entry(number).or_default().push(denied);
    }
    Ok(rules)
}

fn condition(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    let text = |error: seccompiler::BackendError| error.to_string();
    let condition =
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value).map_err(text)?;
    SeccompRule::new(vec![condition]).map_err(text)
}

/// The same calls by their x32 numbers.
fn with_x32(mut rules: Rules) -> Rules {
    if cfg!(target_arch = "x86_64") {
        let twins: Vec<_> = rules
            .iter()
            .map(|(number, rule)| (number | 0x4000_0000, rule.clone()))
            .collect();
        rules.extend(twins);
    }
    rules
}

fn compile(rules: Rules, errno: Errno) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let refuse = SeccompAction::Errno(errno.raw_os_error().cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)
        .map_err(|error| error.to_string())?;
    BpfProgram::try_from(filter).map_err(|error| error.to_string())
}
