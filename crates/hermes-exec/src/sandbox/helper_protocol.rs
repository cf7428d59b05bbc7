//! Protocol between Hermes and an idle helper over the socket that is the helper's standard input. A request is
//! three lengths followed by the file rules, the forbidden paths and the command as JSON; the first byte
//! carries the command's three streams. The reply is a [`HelperReply`].

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::spec::OsBytes;
use crate::confinement::Launch;

/// Larger than any command line that the kernel accepts.
const MAX_PART: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HelperRequest {
    pub(super) program: OsBytes,
    pub(super) args: Vec<OsBytes>,
    pub(super) env: Vec<(OsBytes, OsBytes)>,
    pub(super) cwd: OsBytes,
    /// Standard input is a terminal that becomes the controlling one.
    pub(super) terminal: bool,
}

impl HelperRequest {
    pub(super) fn new(launch: Launch) -> Self {
        Self {
            program: launch.program.into(),
            args: launch.args.into_iter().map(OsBytes::from).collect(),
            env: launch
                .env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: launch.cwd.into_os_string().into(),
            terminal: launch.terminal,
        }
    }

    /// The whole request; `files` and `forbidden` come from [`encode_json`].
    pub(super) fn encode(&self, files: &[u8], forbidden: &[u8]) -> Vec<u8> {
        // A structure of strings, numbers and lists always serializes.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let lengths = [files, forbidden, &json].map(|part| (part.len() as u64).to_le_bytes());
        [lengths.as_flattened(), files, forbidden, &json].concat()
    }
}

/// File rules or forbidden paths. `None` is encoded explicitly: no rules, or nothing to check.
pub(super) fn encode_json<T: Serialize>(value: Option<&T>) -> Vec<u8> {
    serde_json::to_vec(&value).unwrap_or_default()
}

/// A received request that is not parsed yet: only the process that runs the command parses it.
pub(super) struct RawRequest {
    /// Encoded file rules, or the encoding of `None`.
    pub(super) files: Vec<u8>,
    /// Encoded forbidden paths, or the encoding of `None`.
    pub(super) forbidden: Vec<u8>,
    json: Vec<u8>,
    /// Input, output, errors.
    streams: [OwnedFd; 3],
}

impl RawRequest {
    /// Waits for a request. `None`: the connection was closed.
    pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<Self>> {
        let socket = socket.as_fd();
        let mut streams = Vec::new();
        let mut lengths = [[0; 8]; 3];
        if !read_exact_with_fds(socket, lengths.as_flattened_mut(), &mut streams)? {
            return Ok(None);
        }
        let [mut files, mut forbidden, mut json] = [Vec::new(), Vec::new(), Vec::new()];
        let parts = [&mut files, &mut forbidden, &mut json];
        for (part, length) in parts.into_iter().zip(lengths) {
            let length = u64::from_le_bytes(length);
            if length > MAX_PART {
                return Err(io::Error::other("it is too long"));
            }
            part.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
            if !read_exact_with_fds(socket, part, &mut streams)? {
                return Ok(None);
            }
        }
        let streams = <[OwnedFd; 3]>::try_from(streams)
            .map_err(|_| io::Error::other("its streams are missing"))?;
        Ok(Some(Self {
            files,
            forbidden,
            json,
            streams,
        }))
    }

    /// Forwards it to a spare process, which already has the rules.
    pub(super) fn forward(&self, to: impl AsFd) -> io::Result<()> {
        let lengths = [0, 0, self.json.len() as u64].map(u64::to_le_bytes);
        let bytes = [lengths.as_flattened(), &self.json].concat();
        let [input, output, errors] = &self.streams;
        let descriptors = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL;
        let mut sent = sendmsg(to.as_fd(), &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
        while sent < bytes.len() {
            sent += match send(to.as_fd(), &bytes[sent..], flags) {
                Err(Errno::INTR) => 0,
                count => count?,
            };
        }
        Ok(())
    }

    /// Takes over the streams and parses the command.
    pub(super) fn accept(self) -> io::Result<HelperRequest> {
        let [input, output, errors] = &self.streams;
        rustix::stdio::dup2_stdin(input)?;
        rustix::stdio::dup2_stdout(output)?;
        rustix::stdio::dup2_stderr(errors)?;
        self.into_command().parse()
    }

    /// The command alone; its streams are closed.
    pub(super) fn into_command(self) -> EncodedCommand {
        EncodedCommand(self.json)
    }
}

/// The command of a request, not parsed yet.
pub(super) struct EncodedCommand(Vec<u8>);

impl EncodedCommand {
    pub(super) fn parse(&self) -> io::Result<HelperRequest> {
        serde_json::from_slice(&self.0).map_err(io::Error::other)
    }
}

/// Fills `buffer` and collects received descriptors. `false`: end of stream.
fn read_exact_with_fds(
    socket: impl AsFd,
    mut buffer: &mut [u8],
    streams: &mut Vec<OwnedFd>,
) -> io::Result<bool> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let count = match recvmsg(socket.as_fd(), &mut pieces, &mut ancillary, flags) {
            Ok(received) if received.bytes == 0 => return Ok(false),
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                streams.extend(descriptors);
            }
        }
        buffer = &mut buffer[count..];
    }
    Ok(true)
}

/// The reply: two process ids as seen by the requester, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HelperReply {
    /// The command.
    pub(crate) command: i32,
    /// A spare process that ended without a command; the requester has to reap it.
    pub(crate) discarded: i32,
}

impl HelperReply {
    pub(crate) const LENGTH: usize = 8;

    pub(crate) fn decode(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, rest @ ..] = bytes;
        Self {
            command: i32::from_le_bytes([a, b, c, d]),
            discarded: i32::from_le_bytes(rest),
        }
    }

    pub(super) fn send(self, socket: impl AsFd) -> io::Result<()> {
        let bytes = [self.command, self.discarded].map(i32::to_le_bytes);
        // So few bytes are sent completely or not at all.
        send(socket, bytes.as_flattened(), SendFlags::NOSIGNAL)?;
        Ok(())
    }
}
