//! Landlock rulesets, resource limits and capabilities.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::rules::{AccessRight, PathRule};
use super::spec::ResourceLimits;

/// The newest Landlock ABI we use; an older kernel enforces what it supports.
const NEWEST_ABI: ABI = ABI::V9;

/// Whether this kernel has Landlock and it is turned on.
pub(super) fn has_landlock() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok()
}

/// Builds a ruleset that can be enforced.
pub(super) fn ruleset(rules: &[PathRule], network: bool) -> Result<RulesetCreated, String> {
    let text = |error: landlock::RulesetError| error.to_string();
    let handled = AccessFs::from_all(NEWEST_ABI);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)
        .map_err(text)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(text)?;
    if !network {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST_ABI))
            .map_err(text)?;
    }
    let mut created = ruleset.create().map_err(text)?;
    // File names are not secret, and a script that cannot be read cannot be executed either.
    let everywhere = AccessFs::ReadDir | AccessFs::Execute;
    let root = PathFd::new("/").map_err(|error| error.to_string())?;
    created = created
        .add_rule(PathBeneath::new(root, everywhere))
        .map_err(text)?;
    for rule in rules {
        // It disappeared since it was listed, or is not accessible: there is nothing to permit.
        let Ok(fd) = PathFd::new(&rule.path) else {
            continue;
        };
        let mut rights = rights(rule.access);
        if !rule.is_dir {
            rights &= AccessFs::from_file(NEWEST_ABI);
        }
        created = created
            .add_rule(PathBeneath::new(fd, rights))
            .map_err(text)?;
    }
    Ok(created)
}

/// Adds read access to one more directory.
pub(super) fn permit_reading(
    ruleset: RulesetCreated,
    dir: &Path,
) -> Result<RulesetCreated, String> {
    let fd = PathFd::new(dir).map_err(|error| error.to_string())?;
    ruleset
        .add_rule(PathBeneath::new(fd, rights(AccessRight::Read)))
        .map_err(|error| error.to_string())
}

/// Restricts this process irrevocably.
pub(super) fn enforce(ruleset: RulesetCreated) -> Result<(), String> {
    let status = ruleset.restrict_self().map_err(|error| error.to_string())?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err("the kernel did not enforce the Landlock rules".to_owned());
    }
    Ok(())
}

fn rights(access: AccessRight) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    match access {
        AccessRight::Read => read,
        // Everything except creating devices, which would bypass all rules, and connecting to sockets.
        AccessRight::Write => {
            let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
            AccessFs::from_all(NEWEST_ABI) & !(devices | AccessFs::ResolveUnix)
        }
        AccessRight::Device => {
            let made = AccessFs::MakeChar | AccessFs::MakeBlock;
            AccessFs::from_all(NEWEST_ABI) & !(made | AccessFs::ResolveUnix)
        }
        AccessRight::Connect => AccessFs::ResolveUnix.into(),
    }
}

pub(super) fn limit(limits: ResourceLimits) -> Result<(), String> {
    let wanted = [
        (Resource::Core, Some(0)),
        (Resource::Nproc, nonzero(limits.processes)),
        // Private memory rather than address space: garbage collectors reserve terabytes of the latter.
        (Resource::Data, nonzero(limits.memory)),
        (Resource::Fsize, nonzero(limits.file)),
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

fn nonzero(limit: u64) -> Option<u64> {
    (limit > 0).then_some(limit)
}

/// Root keeps the capabilities to own files and change identity, not those that reach the kernel, raw memory or
/// other processes.
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
