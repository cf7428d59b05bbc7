//! The environment that commands run in: their shared mount view, whether each has its own PID namespace, and
//! the resulting system call filters.

use std::fs::File;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};

use super::forbidden_paths::ForbiddenPaths;
use super::fork::{SiblingProcess, can_unshare_processes};
use super::kernel;
use super::prepared_ruleset::parse_file_rules;
use super::rules::FileRules;
use super::seccomp::{FilterContext, Filters};
use super::spec::HelperSpec;
use super::view::{MountView, PROC, mount_own_proc};
use crate::local::process_tree::{ProcessTree, start_time};

/// Number of remembered commands from which ended ones are removed.
const MAX_REMEMBERED: usize = 32;

pub(super) struct Jail {
    /// The encoded file rules that it was made for.
    files: Vec<u8>,
    /// `None`: commands see the file system as it is.
    view: Option<MountView>,
    has_own_processes: bool,
    /// `None`: there are no limits at all.
    filters: Option<Filters>,
    /// A view was expected and could not be created.
    lacks_view: bool,
}

impl Jail {
    /// For commands that a helper starts one after another.
    pub(super) fn for_helper(spec: &HelperSpec, files: &[u8]) -> Result<Self, String> {
        let view = parse_file_rules(files)?.as_ref().and_then(try_enter_view);
        let has_own_processes =
            view.is_some() && can_unshare_processes(|| mount_own_proc().is_ok());
        Self::build(spec, files.to_owned(), view, has_own_processes)
    }

    /// For one command that shares the PID namespace.
    pub(super) fn for_single_command(spec: &HelperSpec) -> Result<Self, String> {
        let view = spec.files.as_ref().and_then(try_enter_view);
        Self::build(spec, Vec::new(), view, false)
    }

    fn build(
        spec: &HelperSpec,
        files: Vec<u8>,
        view: Option<MountView>,
        has_own_processes: bool,
    ) -> Result<Self, String> {
        if let Some(view) = view.as_ref().filter(|_| !has_own_processes) {
            view.mount_host_proc()
                .map_err(|error| format!("processes: {error}"))?;
        }
        let around = FilterContext {
            network: spec.network,
            guard: &spec.guard,
            has_own_processes,
        };
        let lacks_view = spec.expects_view && spec.seccomp && view.is_none();
        let filters = spec.seccomp.then(|| Filters::build(around)).transpose()?;
        Ok(Self {
            files,
            view,
            has_own_processes,
            filters,
            lacks_view,
        })
    }

    pub(super) fn matches_rules(&self, files: &[u8]) -> bool {
        self.files == files
    }

    pub(super) fn has_view(&self) -> bool {
        self.view.is_some()
    }

    pub(super) fn has_own_processes(&self) -> bool {
        self.has_own_processes
    }

    /// The id of this process in the requester's PID namespace.
    pub(super) fn host_pid(&self) -> Result<i32, String> {
        match self.view.as_ref().filter(|_| self.has_own_processes) {
            Some(view) => view.host_pid().map_err(|error| error.to_string()),
            None => Ok(rustix::process::getpid().as_raw_nonzero().get()),
        }
    }

    /// The `/proc` that lists only the command's own processes.
    pub(super) fn own_proc(&self) -> Option<&'static Path> {
        self.has_own_processes.then_some(Path::new(PROC))
    }

    pub(super) fn mount_proc(&self) -> Result<(), String> {
        if self.has_own_processes {
            mount_own_proc().map_err(|error| format!("processes: {error}"))?;
        }
        Ok(())
    }

    /// A warning for a command that has fewer protections than its requester expects.
    pub(super) fn warning(&self) -> Option<String> {
        self.lacks_view
            .then(|| super::WITHOUT_VIEW_WARNING.to_owned())
    }

    /// Resource limits and capabilities.
    pub(super) fn apply_limits(&self, spec: &HelperSpec) -> Result<(), String> {
        if self.filters.is_some() {
            kernel::limit(spec.limits)?;
            kernel::drop_capabilities()?;
        }
        Ok(())
    }

    /// System call filters; nothing can be mounted afterwards.
    pub(super) fn install_filters(&self) -> Result<(), String> {
        self.filters.as_ref().map_or(Ok(()), Filters::install)
    }
}

/// A view for these rules, if this system allows one. Without it the rules permit less, never more.
fn try_enter_view(files: &FileRules) -> Option<MountView> {
    MountView::enter(files).ok()
}

#[derive(Default)]
pub(super) struct RunningCommands {
    /// Commands of a helper that may still run, each with its encoded forbidden paths.
    commands: Vec<(SiblingProcess, Vec<u8>)>,
    /// Of the latest command. Those before it are taken apart while the next command runs.
    mounts: Option<File>,
}

impl RunningCommands {
    pub(super) fn add(&mut self, mut sibling: SiblingProcess, forbidden: Vec<u8>) {
        self.mounts = sibling.mounts.take();
        if self.commands.len() >= MAX_REMEMBERED {
            self.commands.retain(|(one, _)| !has_exited(one));
        }
        self.commands.push((sibling, forbidden));
    }

    /// Kills them: nobody waits for them or checks what they leave behind.
    pub(super) fn kill_all(mut self, jail: Option<&Jail>) {
        let is_own = jail.is_some_and(Jail::has_own_processes);
        self.commands.retain(|(one, _)| !has_exited(one));
        for (one, _) in &self.commands {
            if !is_own && let Some(pid) = Pid::from_raw(one.pid) {
                let leader = pid.as_raw_nonzero().get().cast_unsigned();
                // Not by the mark, which the command knows: by descent and session.
                ProcessTree::new(leader, start_time(leader), "-").kill_now();
            }
            // An error means that it has exited meanwhile.
            let _ = pidfd_send_signal(&one.handle, Signal::KILL);
        }
        for (one, forbidden) in &self.commands {
            wait_for_exit(one);
            if let Ok(Some(forbidden)) = serde_json::from_slice::<Option<ForbiddenPaths>>(forbidden)
            {
                forbidden.quarantine_new();
            }
        }
    }
}

/// How long a killed command may take to disappear.
const KILL_TIMEOUT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

fn wait_for_exit(one: &SiblingProcess) {
    let mut watched = [PollFd::new(&one.handle, PollFlags::IN)];
    // One that does not exit is checked all the same.
    let _ = poll(&mut watched, Some(&KILL_TIMEOUT));
}

fn has_exited(one: &SiblingProcess) -> bool {
    let mut watched = [PollFd::new(&one.handle, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut watched, Some(&at_once)).is_ok_and(|count| count > 0)
}
