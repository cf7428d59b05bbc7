//! A user's script that may drop or rewrite a call.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hermes_core::programs::own_program;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// Maximum output of a script.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// Maximum error output read.
const MAX_STDERR_BYTES: u64 = 8 << 10;
/// Its environment variables, without secrets.
const VARIABLES: [&str; 8] = [
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "SHELL",
];

/// The rewritten call. `Ok(None)`: dropped. `Err`: why the script failed.
pub(super) async fn run(
    home: &Path,
    script: &str,
    payload: &Value,
    patience: Duration,
) -> Result<Option<Value>, String> {
    let path = resolve(home, script)?;
    let mut child = command(&path)
        .current_dir(path.parent().unwrap_or(home))
        .env_clear()
        .envs(
            VARIABLES
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .env("HERMES_HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let input = payload.to_string();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let talk = async {
        let write = async {
            if let Some(mut stdin) = stdin {
                // A script need not read its input.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let read = async {
            let mut script_output = Vec::new();
            if let Some(stdout) = stdout {
                let _ = stdout
                    .take(MAX_OUTPUT_BYTES)
                    .read_to_end(&mut script_output)
                    .await;
            }
            script_output
        };
        let complain = async {
            let mut script_output = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = (&mut stderr)
                    .take(MAX_STDERR_BYTES)
                    .read_to_end(&mut script_output)
                    .await;
                let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            }
            String::from_utf8_lossy(&script_output).trim().to_owned()
        };
        let ((), script_output, complaints) = tokio::join!(write, read, complain);
        (script_output, complaints, child.wait().await)
    };
    let (script_output, complaints, status) =
        tokio::time::timeout(patience, talk).await.map_err(|_| {
            format!(
                "{}: not done within {} s",
                path.display(),
                patience.as_secs()
            )
        })?;
    let status = status.map_err(|error| format!("{}: {error}", path.display()))?;
    if !status.success() {
        let about = format!("{}: {status}: {complaints}", path.display());
        if is_broken(status.code(), &complaints) {
            return Err(about);
        }
        tracing::info!("webhook: a script dropped a call: {about}");
        return Ok(None);
    }
    Ok(read(
        String::from_utf8_lossy(&script_output).trim(),
        payload,
    ))
}

/// A status other than 0 drops the call, unless it does not come from the script itself: it was
/// killed, a program in it cannot be run, or Python raised an error.
fn is_broken(code: Option<i32>, complaints: &str) -> bool {
    matches!(code, None | Some(126 | 127)) || complaints.contains("Traceback (most recent call")
}

fn read(script_output: &str, payload: &Value) -> Option<Value> {
    if script_output.is_empty() || script_output == "[SILENT]" {
        return None;
    }
    let changed = serde_json::from_str(script_output).unwrap_or_else(|_| {
        // Plain text is added to the call.
        let mut changed = payload.clone();
        if let Some(object) = changed.as_object_mut() {
            object.insert("script_output".to_owned(), Value::from(script_output));
        }
        changed
    });
    let silent = |name: &str| changed.get(name).and_then(Value::as_bool) == Some(true);
    (changed.is_object() && !silent("[SILENT]") && !silent("__hermes_ignore__")).then_some(changed)
}

/// Only scripts of the home's own directory are run.
fn resolve(home: &Path, script: &str) -> Result<PathBuf, String> {
    let script = script.trim();
    let root = home.join("scripts");
    let path = match script.strip_prefix("~/.hermes/") {
        Some(rest) => home.join(rest),
        None => root.join(script),
    };
    let root = root
        .canonicalize()
        .map_err(|error| format!("{}: {error}", root.display()))?;
    let real = path
        .canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if !real.starts_with(&root) {
        return Err(format!("{} is not in {}", path.display(), root.display()));
    }
    if !real.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    Ok(real)
}

fn command(path: &Path) -> Command {
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().to_lowercase());
    let interpreter = match ending.as_deref() {
        Some("sh" | "bash") => "bash",
        _ => "python3",
    };
    let mut command = Command::from(own_program(interpreter));
    command.arg(path);
    command
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_script_drops_rewrites_or_adds_and_stays_in_its_place() {
        let home = tempfile::tempdir().unwrap();
        let scripts = home.path().join("scripts");
        std::fs::create_dir(&scripts).unwrap();
        let payload = json!({"n": 1});
        for (text, expected) in [
            ("echo '{\"n\": 2}'", Ok(Some(json!({"n": 2})))),
            ("cat", Ok(Some(json!({"n": 1})))),
            (
                "echo words",
                Ok(Some(json!({"n": 1, "script_output": "words"}))),
            ),
            ("true", Ok(None)),
            ("echo '[SILENT]'", Ok(None)),
            ("echo '{\"__hermes_ignore__\": true}'", Ok(None)),
            ("echo '[1]'", Ok(None)),
            ("echo '{\"n\": 2}'; exit 3", Ok(None)),
            ("env | grep -q SECRET_OF_TEST && echo leak", Ok(None)),
        ] {
            std::fs::write(scripts.join("s.sh"), text).unwrap();
            let got = run(home.path(), "s.sh", &payload, Duration::from_secs(20)).await;
            assert_eq!(got, expected, "{text}");
        }
        for broken in [
            "no-such-program",
            "kill -9 $$",
            "python3 -c 'raise ValueError'",
        ] {
            std::fs::write(scripts.join("s.sh"), broken).unwrap();
            let got = run(home.path(), "s.sh", &payload, Duration::from_secs(20)).await;
            assert!(got.is_err(), "{broken}: {got:?}");
        }
        std::fs::write(scripts.join("s.sh"), "exec sleep 600").unwrap();
        let slow = run(home.path(), "s.sh", &payload, Duration::from_millis(50)).await;
        assert!(slow.unwrap_err().contains("not done"));
        std::fs::write(home.path().join("out.sh"), "").unwrap();
        std::os::unix::fs::symlink(home.path().join("out.sh"), scripts.join("link.sh")).unwrap();
        for outside in [
            "../out.sh",
            "/etc/passwd",
            "link.sh",
            "~/.hermes/out.sh",
            "none.sh",
            ".",
        ] {
            assert!(
                run(home.path(), outside, &payload, Duration::from_secs(1))
                    .await
                    .is_err(),
                "{outside}"
            );
        }
    }
}
