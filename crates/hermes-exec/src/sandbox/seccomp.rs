//! System calls that no command of ours has a use for, refused with "operation not permitted".

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

/// What filters depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterContext<'a> {
    pub(super) network: bool,
    /// Processes that may not be signalled.
    pub(super) guard: &'a [u32],
    /// No process but the command's own can be named.
    pub(super) is_alone: bool,
}

/// Filters that can be installed.
#[derive(Clone, Debug)]
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    pub(super) fn make(around: FilterContext<'_>) -> Result<Self, String> {
        let mut rules = Rules::new();
        for &number in DENIED {
            rules.insert(number, Vec::new());
        }
        // A user namespace of its own would give back the kernel's attack surface.
        for number in [CLONE, UNSHARE] {
            let newuser = condition(0, SeccompCmpOp::MaskedEq(CLONE_NEWUSER), CLONE_NEWUSER)?;
            rules.insert(number, vec![newuser]);
        }
        let mut families = Vec::new();
        if !around.network {
            families.push(condition(0, SeccompCmpOp::Ne, AF_UNIX)?);
        }
        // Reaches the host past every rule for networks, in virtual machines.
        families.push(condition(0, SeccompCmpOp::Eq, AF_VSOCK)?);
        rules.insert(SOCKET, families);
        if !around.is_alone {
            rules.extend(only_itself(around.guard)?);
        }
        Ok(Self(vec![
            compile(with_x32(rules), Errno::PERM)?,
            // Its flags are out of a filter's sight; the C library falls back to `clone`.
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

/// For a command that shares the table of processes: calls that name a process, and not itself.
fn only_itself(guard: &[u32]) -> Result<Rules, String> {
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
    // Priorities of all processes of an account, and signals for what is read from a file.
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

/// The same calls by their other numbers, where the processor has such.
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
