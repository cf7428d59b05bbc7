//! Under libfaketime, which is loaded before the program and asks for memory before it does.

use std::path::{Path, PathBuf};

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;

use crate::hermes;

/// The library, where `cargo xtask setup` has unpacked it.
fn library(name: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let path = workspace
        .join("target/exec/root/usr/lib")
        .join(triple)
        .join("faketime")
        .join(name);
    if path.exists() {
        return Some(path);
    }
    oracle::skip("no libfaketime", "faked_time::it_starts_at_any_time");
    None
}

#[test]
fn it_starts_at_any_time() {
    for name in ["libfaketime.so.1", "libfaketimeMT.so.1"] {
        let Some(library) = library(name) else { return };
        for time in ["@2035-01-01 00:00:00", "+40d", "+0 x10"] {
            let home = TempHome::new();
            for args in [
                &["--version"][..],
                &["config", "get", "model"],
                &["sessions", "list"],
            ] {
                let done = hermes(&home)
                    .env("LD_PRELOAD", &library)
                    .env("FAKETIME", time)
                    .args(args)
                    .run();
                let code = done.code;
                assert!(
                    matches!(code, Some(0 | 1)),
                    "{args:?} at {time}: {code:?} {}",
                    done.stderr
                );
            }
        }
    }
}
