//! Requantised weights, cached in a file so that the next start only reads them.
//!
//! The file is named after its source: size, time, header and samples of the data. It has a checksum; if
//! anything is wrong with it, it is created again.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::compute::{Blob, ThreadPool};
use super::error::OpenError;
use super::source::GgufSource;
use super::weights::WeightPlan;

/// Changes with the layout of the buffer.
const MAGIC: &[u8; 8] = b"HERMQ8\x00\x01";
const HEADER_BYTES: usize = 64;
const EXTENSION: &str = "q8";
/// Suffix of a copy that is being written.
const PART: &str = ".q8.part";
const SAMPLE_COUNT: u64 = 64;
const SAMPLE_BYTES: usize = 4096;

/// The weights of `source`: from the cache, or computed and cached.
pub(super) fn weights(
    source: &GgufSource,
    plan: &WeightPlan,
    cache: Option<&Path>,
    pool: &mut ThreadPool,
) -> Result<Blob, OpenError> {
    let Some(cache) = cache else {
        return plan.build(source, pool);
    };
    let identity = identity(source).map_err(|error| OpenError::Read {
        file: source.path().to_owned(),
        error,
    })?;
    let path = cache_path(cache, source.path(), &identity);
    match read(&path, plan.bytes, &identity) {
        Ok(blob) => return Ok(blob),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "requantised weights are made anew");
        }
    }
    let blob = plan.build(source, pool)?;
    if let Err(error) = write(&path, &blob, &identity) {
        tracing::warn!(file = %path.display(), %error, "requantised weights cannot be kept");
    }
    Ok(blob)
}

fn identity(source: &GgufSource) -> io::Result<[u8; 32]> {
    let facts = source.file().metadata()?;
    let mut hash = Sha256::new();
    hash.update(facts.size().to_le_bytes());
    hash.update(facts.mtime().to_le_bytes());
    hash.update(facts.mtime_nsec().to_le_bytes());
    let start = source.data_offset().min(source.size());
    let mut header = vec![0; start as usize];
    source.file().read_exact_at(&mut header, 0)?;
    hash.update(&header);
    let mut sample = [0; SAMPLE_BYTES];
    for number in 0..SAMPLE_COUNT {
        let at = start + (source.size() - start) / SAMPLE_COUNT * number;
        let count = source.file().read_at(&mut sample, at)?;
        hash.update(&sample[..count]);
    }
    Ok(hash.finalize().into())
}

fn stem(source: &Path) -> &OsStr {
    source.file_stem().unwrap_or_else(|| OsStr::new("model"))
}

fn cache_path(cache: &Path, source: &Path, identity: &[u8; 32]) -> PathBuf {
    let mut name = stem(source).to_owned();
    name.push(".");
    for byte in &identity[..8] {
        name.push(format!("{byte:02x}"));
    }
    name.push(".");
    name.push(EXTENSION);
    cache.join(name)
}

/// A fast checksum: it detects damage, not tampering.
fn sum(bytes: &[u8]) -> u64 {
    const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1u64, 2, 3, 4, 5, 6, 7, 8];
    for chunk in bytes.as_chunks::<64>().0 {
        for (lane, word) in lanes.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word))
                .wrapping_mul(HASH_FACTOR)
                .rotate_left(29);
        }
    }
    lanes.iter().fold(0, |sum, lane| {
        (sum ^ lane).wrapping_mul(HASH_FACTOR).rotate_left(29)
    })
}

fn header(blob: &Blob, identity: &[u8; 32]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&(blob.bytes().len() as u64).to_le_bytes());
    header[16..24].copy_from_slice(&sum(blob.bytes()).to_le_bytes());
    header[24..56].copy_from_slice(identity);
    header
}

fn read(path: &Path, bytes: usize, identity: &[u8; 32]) -> io::Result<Blob> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() != (HEADER_BYTES + bytes) as u64 {
        return Err(io::Error::other("it has the wrong size"));
    }
    let mut found = [0; HEADER_BYTES];
    file.read_exact(&mut found)?;
    let mut blob = Blob::zeroed(bytes);
    file.read_exact(blob.bytes_mut())?;
    if found != header(&blob, identity) {
        return Err(io::Error::other("its checksum is wrong"));
    }
    Ok(blob)
}

fn write(path: &Path, blob: &Blob, identity: &[u8; 32]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = part(folder, path)?;
    file.write_all(&header(blob, identity))?;
    file.write_all(blob.bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    remove_older(folder, path);
    Ok(())
}

/// A file for the copy at `path`, named so that one left by a killed process is found again.
fn part(folder: &Path, path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut prefix = stem(Path::new(stem(path))).to_owned();
    prefix.push(".");
    for entry in std::fs::read_dir(folder)?.flatten() {
        if is_part(entry.file_name().as_bytes(), prefix.as_bytes()) {
            remove_left(&entry.path());
        }
    }
    let file = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(PART)
        .tempfile_in(folder)?;
    // The lock protects it while it is written. On a file system without locks the copy is kept anyway, unless
    // two are written at once.
    let _ = file.as_file().try_lock();
    Ok(file)
}

fn is_part(name: &[u8], prefix: &[u8]) -> bool {
    let random = name.strip_prefix(prefix);
    let random = random.and_then(|rest| rest.strip_suffix(PART.as_bytes()));
    // A dot would be part of the name of another source.
    random.is_some_and(|random| !random.contains(&b'.'))
}

/// Removes copies that no process is writing.
fn remove_left(path: &Path) {
    let Ok(file) = File::open(path) else {
        return;
    };
    let written = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    if !written && std::fs::remove_file(path).is_ok() {
        tracing::info!(file = %path.display(), "removed weights that were not written to their end");
    }
}

/// Files of earlier versions of the same source.
fn remove_older(folder: &Path, current: &Path) {
    let Some(source) = current.file_stem().map(Path::new) else {
        return;
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let same_source = path.extension() == Some(OsStr::new(EXTENSION))
            && path.file_stem().map(Path::new).map(stem) == Some(stem(source))
            && path != current;
        if same_source && std::fs::remove_file(&path).is_ok() {
            tracing::info!(file = %path.display(), "removed weights of an older file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_leaves_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let copy = cache_path(folder.path(), Path::new("/a/Model.Q4_1.gguf"), &[7; 32]);
        let (file, left) = part(folder.path(), &copy).unwrap().keep().unwrap();
        let name = left.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("Model.Q4_1.") && name.ends_with(".q8.part"));
        let second = part(folder.path(), &copy).unwrap();
        assert!(left.exists(), "it is still written");
        // Its process and its lock are gone.
        drop(file);
        let third = part(folder.path(), &copy).unwrap();
        assert!(!left.exists());
        assert!(second.path().exists() && third.path().exists());
    }
}
