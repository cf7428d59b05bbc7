//! Memory, skills and jobs: several processes at once, and the original on the same files.

mod cron;
mod jobs;
mod memory;
mod skills;
