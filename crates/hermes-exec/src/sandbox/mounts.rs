//! Other names of a file: a part of a file system can be mounted at several paths, and a file hidden at one
//! would be visible at another.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::tracked_fs;

/// All mounts, in mount order.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounts(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    /// The mounted part of the file system.
    root: PathBuf,
    /// The mount point.
    mount_point: PathBuf,
}

impl Mounts {
    pub(super) fn current() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    fn parse(table: &str) -> Self {
        let mounts = table.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(2);
            Some(Mount {
                device: words.next()?.to_owned(),
                root: unescaped(words.next()?),
                mount_point: unescaped(words.next()?),
            })
        });
        Self(mounts.collect())
    }

    /// Other paths of the same file.
    pub(super) fn aliases(&self, path: &Path) -> Vec<PathBuf> {
        let mut names = self.other_names(path);
        names.retain(|name| is_same(name, path));
        names
    }

    /// Paths that the mount table suggests.
    fn other_names(&self, path: &Path) -> Vec<PathBuf> {
        let around = self
            .0
            .iter()
            .filter(|mount| path.starts_with(&mount.mount_point));
        // Of several mounts at one path the last one is visible.
        let Some(own) = around.max_by_key(|mount| mount.mount_point.components().count()) else {
            return Vec::new();
        };
        let Ok(below) = path.strip_prefix(&own.mount_point) else {
            return Vec::new();
        };
        let inner = own.root.join(below);
        self.0
            .iter()
            .filter(|mount| mount.device == own.device && *mount != own)
            .filter_map(|mount| {
                Some(
                    mount
                        .mount_point
                        .join(inner.strip_prefix(&mount.root).ok()?),
                )
            })
            .filter(|name| name != path)
            .collect()
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (tracked_fs::lstat(one), tracked_fs::lstat(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Decodes octal escapes such as `\040`.
fn unescaped(word: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, behind @ ..] = rest {
        let number = std::str::from_utf8(behind.get(..3).unwrap_or_default()).ok();
        let number = number.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let (b'\\', Some(byte)) = (first, number) {
            bytes.push(byte);
            rest = &behind[3..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_twice_has_two_names() {
        let mounts = Mounts::parse(
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
             23 22 0:21 / /proc rw - proc proc rw\n\
             24 22 254:0 /home /mnt/all\\040homes rw - ext4 /dev/vda rw\n\
             25 22 254:0 /home/a/work /work rw - ext4 /dev/vda rw\n",
        );
        let names = |path: &str| mounts.other_names(Path::new(path));
        assert_eq!(
            names("/home/a/.ssh"),
            [PathBuf::from("/mnt/all homes/a/.ssh")]
        );
        assert_eq!(
            names("/work/.env"),
            [
                PathBuf::from("/home/a/work/.env"),
                PathBuf::from("/mnt/all homes/a/work/.env")
            ]
        );
        assert!(names("/etc/shadow").is_empty());
        assert!(names("/proc/1").is_empty());
    }
}
