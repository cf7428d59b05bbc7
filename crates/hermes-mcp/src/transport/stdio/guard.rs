//! Ends our children if this process is killed (`kill -9`, out of memory).
//!
//! One small `sh` per process reads the process groups from a pipe. When the pipe closes because
//! this process is gone, it ends the groups that are still listed. Unlike `PR_SET_PDEATHSIG`, this
//! also reaches grandchildren, works on every Unix, does not depend on the thread that spawned the
//! child, and needs no unsafe code.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r op group; do
  if [ "$op" = + ]; then
    groups="$groups $group"
  else
    left=
    for one in $groups; do [ "$one" = "$group" ] || left="$left $one"; done
    groups=$left
  fi
done
[ -n "$groups" ] || exit 0
for group in $groups; do kill -TERM "-$group" 2>/dev/null; done
sleep 1
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
"#;

#[derive(Default)]
pub(super) struct Guard {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    process: Option<(std::process::Child, ChildStdin)>,
    groups: Vec<u32>,
}

impl Guard {
    pub(super) fn add(&self, group: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.push(group);
        if !state.send(&format!("+ {group}\n")) {
            state.start();
        }
    }

    pub(super) fn remove(&self, group: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.retain(|&one| one != group);
        state.send(&format!("- {group}\n"));
    }
}

impl State {
    fn send(&mut self, line: &str) -> bool {
        self.process
            .as_mut()
            .is_some_and(|(_, stdin)| stdin.write_all(line.as_bytes()).is_ok())
    }

    /// Starts it, or restarts it if it was killed.
    fn start(&mut self) {
        use std::os::unix::process::CommandExt as _;
        if let Some((mut process, _)) = self.process.take() {
            let _ = process.wait();
        }
        let spawned = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "hermes-mcp-guard"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match spawned {
            Ok(mut process) => {
                self.process = process.stdin.take().map(|stdin| (process, stdin));
                for group in self.groups.clone() {
                    self.send(&format!("+ {group}\n"));
                }
            }
            Err(error) => tracing::warn!("MCP children have no guard: /bin/sh: {error}"),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let Some((mut process, stdin)) = self.process.take() else {
            return;
        };
        drop(stdin);
        // It may have to wait for children that ignore SIGTERM; reaping it must not block us.
        std::thread::spawn(move || process.wait());
    }
}
