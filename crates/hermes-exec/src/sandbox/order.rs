//! What a waiting helper is told: its length, then JSON, on standard input.

use std::io;
use std::os::fd::AsFd as _;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::rules::Files;
use super::spec::Bytes;
use crate::confinement::Launch;

/// Larger than any command line the kernel takes.
const MAX: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) program: Bytes,
    pub(super) args: Vec<Bytes>,
    pub(super) env: Vec<(Bytes, Bytes)>,
    pub(super) cwd: Bytes,
    /// The command reads nothing; otherwise what follows is for it.
    pub(super) closed: bool,
    pub(super) files: Option<Files>,
}

impl Order {
    pub(super) fn new(launch: Launch, files: Option<Files>, closed: bool) -> Self {
        Self {
            program: launch.program.into(),
            args: launch.args.into_iter().map(Bytes::from).collect(),
            env: launch
                .env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: launch.cwd.into_os_string().into(),
            closed,
            files,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        // A structure of strings, numbers and lists cannot fail to be written.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json);
        bytes
    }

    /// Waits for it. `None`: nobody will send one.
    pub(super) fn receive() -> io::Result<Option<Self>> {
        let mut length = [0; 8];
        if !fill(&mut length)? {
            return Ok(None);
        }
        let length = u64::from_le_bytes(length);
        if length > MAX {
            return Err(io::Error::other("it is too long"));
        }
        let mut json = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        if !fill(&mut json)? {
            return Ok(None);
        }
        serde_json::from_slice(&json)
            .map(Some)
            .map_err(io::Error::other)
    }
}

/// Reads as much as is asked for and no byte more: the rest is the command's. `false`: it ended before.
fn fill(mut buffer: &mut [u8]) -> io::Result<bool> {
    let stdin = io::stdin();
    while !buffer.is_empty() {
        match rustix::io::read(stdin.as_fd(), &mut *buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => buffer = &mut buffer[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Programs look at what kind of input they have: none is not an empty pipe.
pub(super) fn close_input() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(())
}
