//! Reads the entries of a zip file in memory.

use std::io::Read as _;

use flate2::read::DeflateDecoder;

/// Maximum unpacked size of an entry: a small file may be a zip bomb.
const MAX_ENTRY: u64 = 64 * 1024 * 1024;
const END: &[u8] = b"PK\x05\x06";
const CENTRAL: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
/// Size of the end record without its comment.
const END_SIZE: usize = 22;

pub(super) struct ZipArchive<'a> {
    bytes: &'a [u8],
    entries: Vec<ZipEntry>,
}

struct ZipEntry {
    name: String,
    method: u16,
    packed: usize,
    at: usize,
}

impl<'a> ZipArchive<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let last = bytes.len().checked_sub(END_SIZE)?;
        let first = last.saturating_sub(usize::from(u16::MAX));
        let end = (first..=last)
            .rev()
            .find(|at| bytes[*at..].starts_with(END))?;
        let count = short(bytes, end + 10)?;
        let mut at = long(bytes, end + 16)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            if !bytes.get(at..)?.starts_with(CENTRAL) {
                return None;
            }
            let (name, extra, comment) = (
                usize::from(short(bytes, at + 28)?),
                usize::from(short(bytes, at + 30)?),
                usize::from(short(bytes, at + 32)?),
            );
            entries.push(ZipEntry {
                name: String::from_utf8_lossy(bytes.get(at + 46..at + 46 + name)?).into_owned(),
                method: short(bytes, at + 10)?,
                packed: long(bytes, at + 20)?,
                at: long(bytes, at + 42)?,
            });
            at += 46 + name + extra + comment;
        }
        Some(Self { bytes, entries })
    }

    /// An entry as text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let entry = self.entries.iter().find(|entry| entry.name == name)?;
        if !self.bytes.get(entry.at..)?.starts_with(LOCAL) {
            return None;
        }
        let start = entry.at
            + 30
            + usize::from(short(self.bytes, entry.at + 26)?)
            + usize::from(short(self.bytes, entry.at + 28)?);
        let packed = self.bytes.get(start..start.checked_add(entry.packed)?)?;
        let mut text = Vec::new();
        match entry.method {
            0 => text.extend_from_slice(packed),
            8 => {
                let unpacked = DeflateDecoder::new(packed).take(MAX_ENTRY);
                { unpacked }.read_to_end(&mut text).ok()?;
            }
            _ => return None,
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}
