//! The kernel's part: Landlock rules, resource limits, capabilities.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::rules::{Access, Rule};
use super::spec::Limits;

/// The newest rules we know how to write; an older kernel enforces those it knows.
const KNOWN: ABI = ABI::V9;

/// Whether this kernel has Landlock and it is turned on.
pub(super) fn has_landlock() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok()
}

/// Rules that can be enforced.
pub(super) fn ruleset(rules: &[Rule], network: bool) -> Result<RulesetCreated, String> {
    let text = |error: landlock::RulesetError| error.to_string();
    let handled = AccessFs::from_all(KNOWN);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)
        .map_err(text)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(text)?;
    if !network {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(KNOWN))
            .map_err(text)?;
    }
    let mut created = ruleset.create().map_err(text)?;
    // Names of files are no secret, and what cannot be read cannot be run as a script either.
    let everywhere = AccessFs::ReadDir | AccessFs::Execute;
    let root = PathFd::new("/").map_err(|error| error.to_string())?;
    created = created
        .add_rule(PathBeneath::new(root, everywhere))
        .map_err(text)?;
    for rule in rules {
        // Gone since it was listed, or not for us: then there is nothing to permit.
        let Ok(fd) = PathFd::new(&rule.path) else {
            continue;
        };
        let mut rights = rights(rule.access);
        if !rule.is_dir {
            rights &= AccessFs::from_file(KNOWN);
        }
        created = created
            .add_rule(PathBeneath::new(fd, rights))
            .map_err(text)?;
    }
    Ok(created)
}

/// The rules with one more directory to read.
pub(super) fn permit_reading(
    ruleset: RulesetCreated,
    dir: &Path,
) -> Result<RulesetCreated, String> {
    let fd = PathFd::new(dir).map_err(|error| error.to_string())?;
    ruleset
        .add_rule(PathBeneath::new(fd, rights(Access::Read)))
        .map_err(|error| error.to_string())
}

/// Restricts this process, for good.
pub(super) fn enforce(ruleset: RulesetCreated) -> Result<(), String> {
    let status = ruleset.restrict_self().map_err(|error| error.to_string())?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err("the kernel did not enforce the Landlock rules".to_owned());
    }
    Ok(())
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    match access {
        Access::Read => read,
        // Everything but making devices, which would lead past all rules, and sockets of others.
        Access::Write => {
            let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
            AccessFs::from_all(KNOWN) & !(devices | AccessFs::ResolveUnix)
        }
        Access::Device => {
            let made = AccessFs::MakeChar | AccessFs::MakeBlock;
            AccessFs::from_all(KNOWN) & !(made | AccessFs::ResolveUnix)
        }
        Access::Connect => AccessFs::ResolveUnix.into(),
    }
}

pub(super) fn limit(limits: Limits) -> Result<(), String> {
    let wanted = [
        (Resource::Core, Some(0)),
        (Resource::Nproc, some(limits.processes)),
        // Private memory, not address space: garbage collectors reserve terabytes of the latter.
        (Resource::Data, some(limits.memory)),
        (Resource::Fsize, some(limits.file)),
    ];
    for (resource, wanted) in wanted {
        let Some(wanted) = wanted else { continue };
        let now = getrlimit(resource);
        let least = |limit: Option<u64>| Some(limit.map_or(wanted, |limit| limit.min(wanted)));
        let new = Rlimit {
            current: least(now.current),
            maximum: least(now.maximum),
        };
        setrlimit(resource, new).map_err(|error| format!("limit {resource:?}: {error}"))?;
    }
    Ok(())
}

fn some(limit: u64) -> Option<u64> {
    (limit > 0).then_some(limit)
}

/// What root keeps in here: to own files and to change identity, not to reach into the kernel, raw
/// memory or other processes.
pub(super) fn drop_capabilities() -> Result<(), String> {
    let kept = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::KILL
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID
        | CapabilitySet::NET_BIND_SERVICE;
    let text = |error: rustix::io::Errno| format!("capabilities: {error}");
    let mut sets = capabilities(None).map_err(text)?;
    if kept.contains(sets.permitted) {
        return Ok(());
    }
    sets.permitted &= kept;
    sets.effective &= kept;
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets).map_err(text)
}
