//! Decides, from declared effects alone, which calls of a step run side by side.
//!
//! Segments run one after the other, in the order the model wrote the calls; a later call never
//! overtakes an earlier barrier. Calls that only read run together; calls that write run beside
//! others as long as their files do not overlap.

mod coerce;
mod paths;
mod prepare;

use std::path::Path;

use hermes_core::tool::{Effects, ToolArgs};

pub(crate) use prepare::{CallAction, PreparedCall, prepare};

use paths::FileClaim;

/// Calls (by index) that run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParallelCalls {
    Together(Vec<usize>),
    Alone(usize),
    /// Waits for a person: no deadline.
    Person(usize),
}

impl ParallelCalls {
    pub(crate) fn calls(&self) -> &[usize] {
        match self {
            Self::Together(calls) => calls,
            Self::Alone(call) | Self::Person(call) => std::slice::from_ref(call),
        }
    }
}

/// Cuts the calls of a step into segments.
pub(crate) fn segments(calls: &[PreparedCall], cwd: &Path) -> Vec<ParallelCalls> {
    let mut plan = CallPlan::default();
    for (at, call) in calls.iter().enumerate() {
        match &call.work {
            // A call that cannot run may be the ground the next ones stand on: a barrier.
            CallAction::Refuse { .. } => plan.barrier(ParallelCalls::Alone(at)),
            CallAction::Run { tool, args, .. } => match tool.spec().effects {
                Effects::Exclusive => plan.barrier(ParallelCalls::Alone(at)),
                Effects::Interactive => plan.barrier(ParallelCalls::Person(at)),
                Effects::ReadOnly => plan.beside(at, None),
                Effects::ReadsPaths(keys) => plan.beside(at, Some(claim(args, keys, cwd, false))),
                Effects::WritesPaths(keys) => plan.beside(at, Some(claim(args, keys, cwd, true))),
            },
        }
    }
    plan.close();
    plan.segments
}

fn claim(args: &ToolArgs, keys: &[&str], cwd: &Path, writes: bool) -> FileClaim {
    FileClaim::new(args, keys, cwd, writes)
}

#[derive(Default)]
struct CallPlan {
    segments: Vec<ParallelCalls>,
    run: Vec<usize>,
    claims: Vec<FileClaim>,
}

impl CallPlan {
    fn beside(&mut self, call: usize, claim: Option<FileClaim>) {
        if let Some(claim) = claim {
            if self.claims.iter().any(|other| other.conflicts(&claim)) {
                self.close();
            }
            self.claims.push(claim);
        }
        self.run.push(call);
    }

    fn barrier(&mut self, segment: ParallelCalls) {
        self.close();
        self.segments.push(segment);
    }

    fn close(&mut self) {
        self.claims.clear();
        match std::mem::take(&mut self.run).as_slice() {
            [] => {}
            [alone] => self.segments.push(ParallelCalls::Alone(*alone)),
            run => self.segments.push(ParallelCalls::Together(run.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests;
