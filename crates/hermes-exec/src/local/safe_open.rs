//! Opens our own files in directories that a confined command can write to. The command may have replaced them:
//! a link would lead us to files that it cannot access itself, a pipe would block us.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

const SAFE_FLAGS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens one of our files for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    require_regular_file(rustix::fs::open(path, OFlags::RDONLY | SAFE_FLAGS, Mode::empty())?.into())
}

/// Opens one of our files for appending, creating it if necessary.
pub(super) fn open_to_append(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | SAFE_FLAGS;
    require_regular_file(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens the writing end of one of our named pipes.
pub(super) fn open_pipe(path: &Path) -> io::Result<File> {
    let file = rustix::fs::open(path, OFlags::WRONLY | SAFE_FLAGS, Mode::empty())?;
    Ok(file.into())
}

/// Reads one of our files; a longer one is not ours.
pub(super) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Writes a new file in place of whatever has that name.
pub(super) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)
}

fn require_regular_file(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("something else is in its place"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_place_of_a_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("private"), "words").unwrap();
        std::os::unix::fs::symlink(at("private"), at("link")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        for name in ["link", "pipe", "directory", "absent"] {
            assert!(read(&at(name), 100).is_err(), "{name}");
        }
        for name in ["link", "pipe", "directory"] {
            assert!(open_to_append(&at(name)).is_err(), "{name}");
        }
        assert!(open_pipe(&at("link")).is_err());
        assert_eq!(read(&at("private"), 5).unwrap(), b"words");
        assert!(read(&at("private"), 4).is_err());
        write_new(&at("link"), b"new").unwrap();
        assert_eq!(read(&at("link"), 100).unwrap(), b"new");
        assert_eq!(read(&at("private"), 100).unwrap(), b"words");
    }
}
