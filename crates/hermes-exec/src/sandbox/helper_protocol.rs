//! What a waiting helper is told over the socket that is its standard input: three lengths, then the rules
//! for files, what must not have appeared when the command ends, and the command, as JSON; with the first byte
//! come the three streams of the command. The answer is a [`HelperAnswer`].

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use serde::{Deserialize, Serialize};

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

    /// All that is to be sent, with what is said about files as it is [`written`].
    pub(super) fn bytes(&self, files: &[u8], awaited: &[u8]) -> Vec<u8> {
        // Structures of strings, numbers and lists cannot fail to be written.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let lengths = [files, awaited, &json].map(|part| (part.len() as u64).to_le_bytes());
        [lengths.as_flattened(), files, awaited, &json].concat()
    }
}

/// Rules for files, or what must not appear. `None`: a command may do with files what it wants, and nobody asks
/// what appears; that is said, and not taken from nothing.
pub(super) fn written<T: Serialize>(said: Option<&T>) -> Vec<u8> {
    serde_json::to_vec(&said).unwrap_or_default()
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

    /// Hands it to the copy at the other end, which needs no rules: it has them.
    pub(super) fn forward(&self, to: impl AsFd) -> io::Result<()> {
        let lengths = [0, 0, self.json.len() as u64].map(u64::to_le_bytes);
        let bytes = [lengths.as_flattened(), &self.json].concat();
        let [input, output, errors] = &self.streams;
        let descriptors = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        beside.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL;
        let mut sent = sendmsg(to.as_fd(), &[IoSlice::new(&bytes)], &mut beside, flags)?;
        while sent < bytes.len() {
            sent += match send(to.as_fd(), &bytes[sent..], flags) {
                Err(Errno::INTR) => 0,
                count => count?,
            };
        }
        Ok(())
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

/// The answer: two processes of whoever gave the order, or 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HelperAnswer {
    /// The command.
    pub(crate) command: i32,
    /// A copy that ends without a command: nobody else can take note of its end.
    pub(crate) ended: i32,
}

impl HelperAnswer {
    pub(crate) const LENGTH: usize = 8;

    pub(crate) fn read(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, rest @ ..] = bytes;
        Self {
            command: i32::from_le_bytes([a, b, c, d]),
            ended: i32::from_le_bytes(rest),
        }
    }

    pub(super) fn send(self, socket: impl AsFd) -> io::Result<()> {
        let bytes = [self.command, self.ended].map(i32::to_le_bytes);
        // So few bytes are taken whole or not at all.
        send(socket, bytes.as_flattened(), SendFlags::NOSIGNAL)?;
        Ok(())
    }
}
