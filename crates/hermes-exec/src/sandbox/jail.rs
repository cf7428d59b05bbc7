//! Where commands run: the view of the file system that they share, whether each has a table of processes of
//! its own, and the filters that follow from both.

use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};

use super::fork::{Sibling, can_be_own};
use super::kernel;
use super::later::Awaited;
use super::prepared::read_files;
use super::rules::Files;
use super::seccomp::{FilterContext, Filters};
use super::spec::Spec;
use super::view::{PROC, View, show_own_processes};
use crate::local::family::{Family, start_time};

/// Commands that are remembered before those that have ended are forgotten.
const MANY: usize = 32;

pub(super) struct Room {
    /// The rules that it was made for, as they came.
    files: Vec<u8>,
    /// `None`: commands see the file system as it is.
    view: Option<View>,
    has_own_processes: bool,
    /// `None`: there are no limits at all.
    filters: Option<Filters>,
    /// Somebody believes that there is a view.
    lacks_view: bool,
}

impl Room {
    /// For commands that a helper starts one after another.
    pub(super) fn make(spec: &Spec, files: &[u8]) -> Result<Self, String> {
        let view = read_files(files)?.as_ref().and_then(own_view);
        let has_own_processes = view.is_some() && can_be_own(|| show_own_processes().is_ok());
        Self::with(spec, files.to_owned(), view, has_own_processes)
    }

    /// For one command that shares the table of processes.
    pub(super) fn shared(spec: &Spec) -> Result<Self, String> {
        let view = spec.files.as_ref().and_then(own_view);
        Self::with(spec, Vec::new(), view, false)
    }

    fn with(
        spec: &Spec,
        files: Vec<u8>,
        view: Option<View>,
        has_own_processes: bool,
    ) -> Result<Self, String> {
        if let Some(view) = view.as_ref().filter(|_| !has_own_processes) {
            view.show_all_processes()
                .map_err(|error| format!("processes: {error}"))?;
        }
        let around = FilterContext {
            network: spec.network,
            guard: &spec.guard,
            is_alone: has_own_processes,
        };
        let lacks_view = spec.expects_view && spec.seccomp && view.is_none();
        let filters = spec.seccomp.then(|| Filters::make(around)).transpose()?;
        Ok(Self {
            files,
            view,
            has_own_processes,
            filters,
            lacks_view,
        })
    }

    pub(super) fn is_for(&self, files: &[u8]) -> bool {
        self.files == files
    }

    pub(super) fn is_covered(&self) -> bool {
        self.view.is_some()
    }

    pub(super) fn has_own_processes(&self) -> bool {
        self.has_own_processes
    }

    /// The number of this process as whoever started the helper knows it.
    pub(super) fn own_number(&self) -> Result<i32, String> {
        match self.view.as_ref().filter(|_| self.has_own_processes) {
            Some(view) => view.own_number().map_err(|error| error.to_string()),
            None => Ok(rustix::process::getpid().as_raw_nonzero().get()),
        }
    }

    /// Where the processes of the command alone are listed.
    pub(super) fn own_table(&self) -> Option<&'static Path> {
        self.has_own_processes.then_some(Path::new(PROC))
    }

    pub(super) fn show_processes(&self) -> Result<(), String> {
        if self.has_own_processes {
            show_own_processes().map_err(|error| format!("processes: {error}"))?;
        }
        Ok(())
    }

    /// Words for a command that has fewer rights than whoever started it was told.
    pub(super) fn warning(&self) -> Option<String> {
        self.lacks_view.then(|| super::WITHOUT_VIEW.to_owned())
    }

    /// Resources, and what root may do.
    pub(super) fn limit(&self, spec: &Spec) -> Result<(), String> {
        if self.filters.is_some() {
            kernel::limit(spec.limits)?;
            kernel::drop_capabilities()?;
        }
        Ok(())
    }

    /// System calls; nothing can be mounted afterwards.
    pub(super) fn filter(&self) -> Result<(), String> {
        self.filters.as_ref().map_or(Ok(()), Filters::install)
    }
}

/// A view for these files, where this system allows one. Without it the rules permit less, never more.
fn own_view(files: &Files) -> Option<View> {
    View::enter(files).ok()
}

/// Commands that a helper started and that may still run, with what must not have appeared when they end.
#[derive(Default)]
pub(super) struct Running(Vec<(Sibling, Vec<u8>)>);

impl Running {
    pub(super) fn add(&mut self, sibling: Sibling, awaited: Vec<u8>) {
        if self.0.len() >= MANY {
            self.0.retain(|(one, _)| !has_ended(one));
        }
        self.0.push((sibling, awaited));
    }

    /// Nobody waits for them any more, nor looks at what they leave behind.
    pub(super) fn end(mut self, room: Option<&Room>) {
        let is_own = room.is_some_and(Room::has_own_processes);
        self.0.retain(|(one, _)| !has_ended(one));
        for (one, _) in &self.0 {
            if !is_own && let Some(pid) = Pid::from_raw(one.pid) {
                let leader = pid.as_raw_nonzero().get().cast_unsigned();
                // Not by its mark, which is the command's to know: by descent and session.
                Family::new(leader, start_time(leader), "-").kill_now();
            }
            // An error means that it has ended meanwhile.
            let _ = pidfd_send_signal(&one.handle, Signal::KILL);
        }
        for (one, awaited) in &self.0 {
            wait_for_end(one);
            if let Ok(Some(awaited)) = serde_json::from_slice::<Option<Awaited>>(awaited) {
                awaited.put_aside();
            }
        }
    }
}

/// How long a command that was killed may take to be gone.
const PATIENCE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

fn wait_for_end(one: &Sibling) {
    let mut watched = [PollFd::new(&one.handle, PollFlags::IN)];
    // One that does not end is looked after all the same.
    let _ = poll(&mut watched, Some(&PATIENCE));
}

fn has_ended(one: &Sibling) -> bool {
    let mut watched = [PollFd::new(&one.handle, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut watched, Some(&at_once)).is_ok_and(|count| count > 0)
}
