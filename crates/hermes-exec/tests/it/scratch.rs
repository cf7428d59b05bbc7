//! Directories that are left behind by a process that is killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hermes_exec::Scratch;

use crate::support::local;

/// How often something is looked for, ten milliseconds apart: half a minute.
const LOOKS: usize = 3000;

/// A process with an environment of its own and its temporary directories in `place`.
struct Owner {
    child: Child,
    dirs: Vec<PathBuf>,
}

impl Owner {
    fn start(place: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "scratch::the_other_process",
                "--ignored",
                "--nocapture",
            ])
            .env("TMPDIR", place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.any(|line| line.unwrap().ends_with("ready"));
        assert!(ready);
        let own = format!("-{}-", child.id());
        let dirs = left(place)
            .into_iter()
            .filter(|path| path.to_string_lossy().contains(&own));
        let dirs: Vec<PathBuf> = dirs.collect();
        assert_eq!(dirs.len(), 3, "{dirs:?}");
        Self { child, dirs }
    }

    fn kill(mut self) -> Vec<PathBuf> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::take(&mut self.dirs)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn left(place: &Path) -> Vec<PathBuf> {
    [place.to_owned(), place.join("own")]
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .collect()
}

/// Waits with its directories until it is killed.
#[tokio::test]
#[ignore = "started by the test below"]
async fn the_other_process() {
    let place = std::env::temp_dir();
    let _env = local(&place);
    let _program = Scratch::temporary("hermes-code-").unwrap();
    println!("ready");
    let wait = || std::io::stdin().read_line(&mut String::new());
    let _ = tokio::task::spawn_blocking(wait).await;
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().canonicalize().unwrap();
    let killed = Owner::start(&place);
    let living = Owner::start(&place);
    // Not after its end: the other may still be looking around, and may be the one that tidies up.
    assert!(killed.dirs.iter().all(|dir| dir.exists()));
    let killed = killed.kill();
    let _next = Owner::start(&place);
    for _ in 0..LOOKS {
        if !killed.iter().any(|dir| dir.exists()) {
            // Nobody's but theirs.
            assert!(living.dirs.iter().all(|dir| dir.exists()));
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("left behind: {:?}", left(&place));
}
