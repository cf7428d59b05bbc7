//! Background commands on the remote side. A supervisor there stores the state of a command in a directory:
//! `out`, `in`, `pid`, `exit`. It outlives the connection and this program.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hermes_core::BoxFuture;

use super::call::{self, CallReply};
use super::exec::exit_from_code;
use super::script::kill_group;
use super::{RemoteEnvironment, RemoteTransport, token};
use crate::environment::{
    Background, BackgroundRecord, BackgroundStart, ExecError, OutputChunk, ProcessExit,
};
use crate::shell::{BashProgram, MARK, quote, quote_path};

/// Interval of checks whether it has ended.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LATER_LOOK: Duration = Duration::from_secs(2);

struct RemoteProcess {
    link: Arc<dyn RemoteTransport>,
    record: BackgroundRecord,
    dir: PathBuf,
}

impl RemoteEnvironment {
    pub(super) async fn start(
        &self,
        command: BackgroundStart,
    ) -> Result<Box<dyn Background>, ExecError> {
        let named = command
            .id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if !named || command.id.is_empty() {
            let why = format!("{:?} cannot name a process", command.id);
            return Err(ExecError::Unsupported(why));
        }
        let far = self.far().await?;
        self.link.ready().await?;
        let variables = self.variables(far, command.exports, command.extra_env);
        let program = BashProgram {
            prelude: far.prelude.as_deref(),
            exports: Some(&variables),
            cwd: Some(&command.cwd),
            report: None,
        }
        .wrap(&command.script);
        // Not in our own directory, which is removed with this environment.
        let dir = PathBuf::from(format!("/tmp/hermes-bg-{}-{}", command.id, token()));
        let reply = self
            .ask(
                &launch(&dir, &program, &command.id, command.pty),
                Bytes::new(),
                4096,
            )
            .await?;
        match reply.code {
            0 => {}
            50 => {
                return Err(ExecError::Unsupported(
                    "a terminal in the background needs the `script` program there".to_owned(),
                ));
            }
            _ => {
                return Err(ExecError::Unavailable(format!(
                    "the command could not be started there: {}",
                    reply.stderr_text()
                )));
            }
        }
        let (pid, start_time) = parse_pid(&reply)
            .ok_or_else(|| ExecError::Unavailable("the started command has no pid".to_owned()))?;
        let record = BackgroundRecord {
            id: command.id,
            pid,
            start_time,
            pty: command.pty,
            dir: Some(dir.clone()),
        };
        Ok(Box::new(RemoteProcess {
            link: Arc::clone(&self.link),
            record,
            dir,
        }))
    }

    pub(super) async fn find(
        &self,
        record: BackgroundRecord,
    ) -> Result<Option<Box<dyn Background>>, ExecError> {
        let Some(dir) = record.dir.clone() else {
            return Ok(None);
        };
        let text = format!(
            "cd -- {} 2>/dev/null || exit 44; [ -e exit ] && exit 10\n\
             echo {pid}; cat /proc/{pid}/stat",
            quote_path(&dir),
            pid = record.pid
        );
        let reply = self.ask(&text, Bytes::new(), 4096).await?;
        let known = match reply.code {
            10 => true,
            0 => parse_pid(&reply).is_some_and(|(_, start)| start == record.start_time),
            _ => false,
        };
        Ok(known.then(|| -> Box<dyn Background> {
            Box::new(RemoteProcess {
                link: Arc::clone(&self.link),
                record,
                dir,
            })
        }))
    }
}

/// Starts the supervisor and waits until it has started the command.
fn launch(dir: &Path, program: &str, mark: &str, pty: bool) -> String {
    let run =
        format!("env -i \"PATH=$PATH\" {MARK}={mark} bash --noprofile --norc -c '. \"$0\"' ./sh");
    let (check, run) = if pty {
        (
            "command -v script >/dev/null || exit 50",
            format!("script -qefc {} /dev/null", quote(&run)),
        )
    } else {
        (":", run)
    };
    let supervisor = format!(
        "s=$(command -v setsid)\n\
         sleep 2147483647 >in & h=$!; echo $h >holder\n\
         $s {run} <in >out 2>&1 & p=$!\n\
         echo $p >pid.new && mv pid.new pid\n\
         wait $p; r=$?; kill $h 2>/dev/null\n\
         echo $r >exit.new && mv exit.new exit"
    );
    format!(
        "{check}\n\
         umask 077; mkdir -- {dir} && cd -- {dir} && mkfifo in && printf %s {program} >sh || exit 1\n\
         $(command -v setsid) bash -c {supervisor} </dev/null >/dev/null 2>&1 &\n\
         n=0; while [ ! -e pid ] && [ $n -lt 250 ]; do sleep 0.02; n=$((n+1)); done\n\
         cat pid && cat /proc/$(cat pid)/stat 2>/dev/null; [ -s pid ]",
        dir = quote_path(dir),
        program = quote(program),
        supervisor = quote(&supervisor),
    )
}

/// The pid and its start time.
fn parse_pid(reply: &CallReply) -> Option<(u32, Option<u64>)> {
    let text = String::from_utf8_lossy(&reply.out).into_owned();
    let (pid, stat) = text.split_once('\n')?;
    let start = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    Some((pid.trim().parse().ok()?, start))
}

impl RemoteProcess {
    async fn ask(&self, text: &str, stdin: Bytes, limit: usize) -> Result<CallReply, ExecError> {
        let text = format!("cd -- {} || exit 44\n{text}", quote_path(&self.dir));
        let reply = call::ask(&self.link, &text, stdin, limit).await?;
        if reply.code == 44 {
            let why = "nothing is left of it on the far side";
            return Err(ExecError::Unsupported(why.to_owned()));
        }
        Ok(reply)
    }

    async fn poll_exit(&self) -> Result<Option<Option<ProcessExit>>, ExecError> {
        let text = format!(
            "if [ -e exit ]; then cat exit; elif kill -0 {} 2>/dev/null; then echo runs; \
             else sleep 0.1; cat exit 2>/dev/null || echo gone; fi",
            self.record.pid
        );
        let reply = match self.ask(&text, Bytes::new(), 64).await {
            // Its files were removed: the exit status is lost.
            Err(ExecError::Unsupported(_)) => return Ok(Some(None)),
            other => other?,
        };
        let said = String::from_utf8_lossy(&reply.out).trim().to_owned();
        Ok(match said.as_str() {
            "runs" => None,
            code => Some(code.parse().ok().map(exit_from_code)),
        })
    }
}

impl Background for RemoteProcess {
    fn record(&self) -> BackgroundRecord {
        self.record.clone()
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<OutputChunk, ExecError>> {
        Box::pin(async move {
            let text = format!(
                "n=$(wc -c <out | tr -d ' '); echo \"$n\"; tail -c +{} out | head -c {max}",
                from.saturating_add(1)
            );
            let reply = self.ask(&text, Bytes::new(), max + 32).await?;
            let end = reply
                .out
                .iter()
                .position(|&byte| byte == b'\n')
                .unwrap_or(0);
            let total = std::str::from_utf8(&reply.out[..end])
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let reply_len = reply.out.len();
            let bytes = Bytes::from(reply.out).slice((end + 1).min(reply_len)..);
            // More may have arrived between counting and reading.
            let total = u64::max(total, from.min(total) + bytes.len() as u64);
            Ok(OutputChunk { bytes, total, from })
        })
    }

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async move {
            let text = "[ -e exit ] && exit 45; [ -e holder ] || exit 46; exec cat >in";
            match self.ask(text, bytes, 64).await?.code {
                0 => Ok(()),
                45 => Err(ExecError::Unsupported("it has ended".to_owned())),
                _ => Err(ExecError::Unsupported("its input is closed".to_owned())),
            }
        })
    }

    fn close_stdin(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async move {
            let text =
                "h=$(cat holder 2>/dev/null) && rm -f holder && kill \"$h\" 2>/dev/null; true";
            self.ask(text, Bytes::new(), 64).await.map(drop)
        })
    }

    fn kill(&self, grace: Duration) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async move {
            let text = format!(
                "p=$(cat pid 2>/dev/null)\n{}\n\
                 n=0; while [ ! -e exit ] && [ $n -lt 40 ]; do sleep 0.05; n=$((n+1)); done",
                kill_group(&self.record.id, grace)
            );
            self.ask(&text, Bytes::new(), 64).await.map(drop)
        })
    }

    fn wait(&self) -> BoxFuture<'_, Option<ProcessExit>> {
        Box::pin(async move {
            let mut pause = FIRST_LOOK;
            loop {
                match self.poll_exit().await {
                    Ok(Some(exit)) => return exit,
                    Ok(None) => {}
                    Err(error) => tracing::debug!("{}: {error}", self.record.id),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LATER_LOOK);
            }
        })
    }
}
