//! Link options of the program.

use std::env::var;
use std::process::Command;

/// The first glibc whose loader reads packed relocations.
const PACKED_RELOCATIONS: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // 2.8 MB of relocations become 60 KB. An older loader refuses such a program, so this is only for the
    // machine that builds it.
    let is_here = var("HOST").is_ok_and(|host| var("TARGET").is_ok_and(|target| host == target));
    if is_here && glibc_version().is_some_and(|version| version >= PACKED_RELOCATIONS) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// `None`: another C library, or none that can be asked.
fn glibc_version() -> Option<(u32, u32)> {
    if var("CARGO_CFG_TARGET_ENV").ok()? != "gnu" {
        return None;
    }
    let output = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
