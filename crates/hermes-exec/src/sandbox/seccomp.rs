//! System calls that no command of ours has a use for, refused with "operation not permitted".

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

mod numbers;

use numbers::{CLONE, CLONE3, DENIED, SIGNALLING, SOCKET, UNSHARE};

const AF_UNIX: u64 = 1;
const CLONE_NEWUSER: u64 = 0x1000_0000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filters. `guard`: processes that may not be signalled.
pub(super) fn install(network: bool, guard: &[u32]) -> Result<(), String> {
    let mut rules = Rules::new();
    for &number in DENIED {
        rules.insert(number, Vec::new());
    }
    // A user namespace of its own would give back the kernel's attack surface.
    for number in [CLONE, UNSHARE] {
        let newuser = condition(0, SeccompCmpOp::MaskedEq(CLONE_NEWUSER), CLONE_NEWUSER)?;
        rules.insert(number, vec![newuser]);
    }
    if !network {
        let other = condition(0, SeccompCmpOp::Ne, AF_UNIX)?;
        rules.insert(SOCKET, vec![other]);
    }
    for &number in SIGNALLING {
        let mut denied = vec![condition(0, SeccompCmpOp::Eq, u64::from(u32::MAX))?];
        for &pid in guard {
            denied.push(condition(0, SeccompCmpOp::Eq, u64::from(pid))?);
            let group = u64::from(pid.cast_signed().wrapping_neg().cast_unsigned());
            denied.push(condition(0, SeccompCmpOp::Eq, group)?);
        }
        rules.insert(number, denied);
    }
    apply(with_x32(rules), Errno::PERM)?;
    // Its flags are out of a filter's sight; the C library falls back to `clone`.
    apply(with_x32(Rules::from([(CLONE3, Vec::new())])), Errno::NOSYS)
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

fn apply(rules: Rules, errno: Errno) -> Result<(), String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let refuse = SeccompAction::Errno(errno.raw_os_error().cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)
        .map_err(|error| error.to_string())?;
    let program = BpfProgram::try_from(filter).map_err(|error| error.to_string())?;
    apply_filter(&program).map_err(|error| format!("system call filter: {error}"))
}
