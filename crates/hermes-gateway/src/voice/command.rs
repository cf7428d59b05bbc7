//! Runs a command of the person's configuration, to its end or its deadline.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// Kept of what a command says.
const KEPT: u64 = 256 * 1024;

/// What it printed. `Err`: why it failed, for the person. Whatever it started ends with it.
pub(super) async fn run(command: &str, deadline: Duration) -> Result<String, String> {
    let mut child = Command::new("bash")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the command cannot be started: {error}"))?;
    let group = Group(child.id());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let (out, err, status) = tokio::join!(read(out), read(err), child.wait());
        (out, err, status)
    };
    let ended = tokio::time::timeout(deadline, work).await;
    drop(group);
    let (out, err, status) =
        ended.map_err(|_| format!("the command took longer than {} s", deadline.as_secs()))?;
    let status = status.map_err(|error| format!("the command: {error}"))?;
    if status.success() {
        return Ok(out);
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    };
    let last = err.lines().rfind(|line| !line.trim().is_empty());
    Err(match last {
        Some(line) => format!("the command failed ({how}): {}", line.trim()),
        None => format!("the command failed ({how})"),
    })
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        // What a broken pipe holds back is of no use to anybody.
        let _ = (&mut stream).take(KEPT).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Ends a process and what it started when it is dropped.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // It is gone already when the command ended by itself.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_ends_with_everything_it_started() {
        assert_eq!(
            run("echo hi", Duration::from_secs(20)).await.unwrap(),
            "hi\n"
        );
        let failed = run("echo no >&2; exit 3", Duration::from_secs(20)).await;
        assert_eq!(failed.unwrap_err(), "the command failed (exit 3): no");
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let command = format!("sleep 600 & echo $! > {}; wait", pid.display());
        // Long enough for the pid to be written, however busy the machine.
        let late = run(&command, Duration::from_secs(2)).await.unwrap_err();
        assert!(late.contains("longer than"), "{late}");
        let pid: u32 = std::fs::read_to_string(pid)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        for _ in 0..200 {
            if crate::process::start_time(pid).is_none_or(|_| zombie(pid)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{pid} still runs");
    }

    fn zombie(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
    }
}
