//! What a waiting helper is told over the socket that is its standard input: three lengths, then the rules
//! for files, what must not have appeared when the command ends, and the command, as JSON; with the first byte
//! come the three streams of the command. The answer is the number of its process.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use serde::{Deserialize, Serialize};

use super::later::Awaited;
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
    /// Standard input is a terminal that becomes the controlling one.
    pub(super) terminal: bool,
}

impl Order {
    pub(super) fn new(launch: Launch) -> Self {
        Self {
            program: launch.program.into(),
            args: launch.args.into_iter().map(Bytes::from).collect(),
            env: launch
                .env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: launch.cwd.into_os_string().into(),
            terminal: launch.terminal,
        }
    }

    /// The rules by themselves, and all that is to be sent. `None`: it may do with files what it wants.
    pub(super) fn bytes(
        &self,
        files: Option<&Files>,
        awaited: Option<&Awaited>,
    ) -> (Vec<u8>, Vec<u8>) {
        // Structures of strings, numbers and lists cannot fail to be written. Nothing at all would not
        // be taken for "no rules": those are said.
        let files = serde_json::to_vec(&files).unwrap_or_default();
        let awaited = serde_json::to_vec(&awaited).unwrap_or_default();
        let json = serde_json::to_vec(self).unwrap_or_default();
        let parts = [&files, &awaited, &json];
        let lengths = parts.map(|part| (part.len() as u64).to_le_bytes());
        let all = [lengths.as_flattened(), &files, &awaited, &json].concat();
        (files, all)
    }
}

/// An order as it came, not yet read: only the process that it is for looks into it.
pub(super) struct Letter {
    /// The rules for files, or that there are none.
    pub(super) files: Vec<u8>,
    /// What must not have appeared when the command ends, or that nobody asks.
    pub(super) awaited: Vec<u8>,
    json: Vec<u8>,
    /// Input, output, errors.
    streams: [OwnedFd; 3],
}

impl Letter {
    /// Waits for it. `None`: nobody will send one.
    pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<Self>> {
        let socket = socket.as_fd();
        let mut streams = Vec::new();
        let mut lengths = [[0; 8]; 3];
        if !fill(socket, lengths.as_flattened_mut(), &mut streams)? {
            return Ok(None);
        }
        let [mut files, mut awaited, mut json] = [Vec::new(), Vec::new(), Vec::new()];
        let parts = [&mut files, &mut awaited, &mut json];
        for (part, length) in parts.into_iter().zip(lengths) {
            let length = u64::from_le_bytes(length);
            if length > MAX {
                return Err(io::Error::other("it is too long"));
            }
            part.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
            if !fill(socket, part, &mut streams)? {
                return Ok(None);
            }
        }
        let streams = <[OwnedFd; 3]>::try_from(streams)
            .map_err(|_| io::Error::other("its streams are missing"))?;
        Ok(Some(Self {
            files,
            awaited,
            json,
            streams,
        }))
    }

    /// What it says; from now on its streams are ours.
    pub(super) fn open(self) -> io::Result<Order> {
        let [input, output, errors] = &self.streams;
        rustix::stdio::dup2_stdin(input)?;
        rustix::stdio::dup2_stdout(output)?;
        rustix::stdio::dup2_stderr(errors)?;
        serde_json::from_slice(&self.json).map_err(io::Error::other)
    }
}

/// Reads as much as is asked for, and what comes with it. `false`: it ended before.
fn fill(socket: impl AsFd, mut buffer: &mut [u8], streams: &mut Vec<OwnedFd>) -> io::Result<bool> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let count = match recvmsg(socket.as_fd(), &mut pieces, &mut beside, flags) {
            Ok(received) if received.bytes == 0 => return Ok(false),
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                streams.extend(descriptors);
            }
        }
        buffer = &mut buffer[count..];
    }
    Ok(true)
}

/// The answer: a process, or 0 for none.
pub(super) fn answer(socket: impl AsFd, pid: i32) -> io::Result<()> {
    let bytes = pid.to_le_bytes();
    // So few bytes are taken whole or not at all.
    send(socket, &bytes, SendFlags::NOSIGNAL)?;
    Ok(())
}
