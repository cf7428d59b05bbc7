//! Runs a user's program (a command from the configuration, a hook) to its end or its deadline. All
//! its child processes end with it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use hermes_core::programs::own_program;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// Maximum output kept, in bytes.
const MAX_OUTPUT_BYTES: u64 = 256 * 1024;

/// The output and exit status of a program.
#[derive(Debug)]
pub struct ChildOutput {
    status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl ChildOutput {
    /// Its output; if it failed, the reason.
    pub fn printed(self) -> Result<String, String> {
        if self.status.success() {
            return Ok(self.out);
        }
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        };
        let last = self.err.lines().rfind(|line| !line.trim().is_empty());
        Err(match last {
            Some(line) => format!("the command failed ({how}): {}", line.trim()),
            None => format!("the command failed ({how})"),
        })
    }
}

/// A command as bash reads it.
pub fn shell(command: &str) -> Command {
    let mut program = Command::from(own_program("bash"));
    program.args(["-c", command]);
    program
}

/// Runs it with this input. `Err`: it did not start, or took too long.
pub async fn run(
    mut program: Command,
    input: &str,
    dir: Option<&Path>,
    deadline: Duration,
) -> Result<ChildOutput, String> {
    if let Some(dir) = dir {
        program.current_dir(dir);
    }
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the command cannot be started: {error}"))?;
    let group = ChildGroup(child.id());
    let (stdin, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let work = async {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input is fine.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        tokio::join!(feed, read(out), read(err), child.wait())
    };
    let ended = tokio::time::timeout(deadline, work).await;
    drop(group);
    let ((), out, err, status) =
        ended.map_err(|_| format!("the command took longer than {} s", deadline.as_secs()))?;
    let status = status.map_err(|error| format!("the command: {error}"))?;
    Ok(ChildOutput { status, out, err })
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut output = Vec::new();
    if let Some(mut stream) = stream {
        // Data lost in a broken pipe does not matter.
        let _ = (&mut stream)
            .take(MAX_OUTPUT_BYTES)
            .read_to_end(&mut output)
            .await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&output).into_owned()
}

/// Kills a process group when dropped.
struct ChildGroup(Option<u32>);

impl Drop for ChildGroup {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // It is already gone if the command ended by itself.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn it_reads_and_says() {
        let ended = run(
            shell("cat; echo no >&2; exit 3"),
            "hi",
            None,
            PROGRAM_TIMEOUT,
        )
        .await;
        let ended = ended.unwrap();
        assert_eq!(ended.out, "hi");
        assert_eq!(
            ended.printed().unwrap_err(),
            "the command failed (exit 3): no"
        );
        // A megabyte of input that is never read.
        let long = "x".repeat(1 << 20);
        let ended = run(shell("echo hi"), &long, None, PROGRAM_TIMEOUT)
            .await
            .unwrap();
        assert_eq!(ended.printed().unwrap(), "hi\n");
    }

    #[tokio::test]
    async fn it_ends_with_everything_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let command = format!("sleep 600 & echo $! > {}; wait", pid.display());
        // Long enough for the pid to be written, however busy the machine.
        let late = run(shell(&command), "", None, Duration::from_secs(2)).await;
        let late = late.unwrap_err();
        assert!(late.contains("longer than"), "{late}");
        let pid = std::fs::read_to_string(pid).unwrap();
        let pid: u32 = pid.trim().parse().unwrap();
        for _ in 0..500 {
            if is_gone(pid) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{pid} still runs");
    }

    /// Whether a process has ended, reaped or not.
    fn is_gone(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
    }
}
