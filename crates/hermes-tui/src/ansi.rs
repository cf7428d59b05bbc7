//! Output of programs: colours kept, everything else that drives a terminal removed.
