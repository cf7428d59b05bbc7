//! Foreground commands.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::{self, CallEnd, CallInput, CallStep, RemoteCall};
use super::script::CommandScript;
use super::{RemoteEnvironment, RemoteSetup, RemoteTransport, token};
use crate::environment::{
    Exec, ExecError, ExecOutcome, OutputSink, OutputStream, ProcessExit, Stdin, Variables,
};
use crate::shell::{BashProgram, parse_report};

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(1);
/// Time for the last output of a command that was killed.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Kills the remote command on drop unless it has ended.
struct RemoteKillGuard {
    link: Arc<dyn RemoteTransport>,
    kill: Option<String>,
}

impl RemoteKillGuard {
    async fn end(&mut self) -> Result<(), ExecError> {
        if let Some(kill) = &self.kill {
            call::ask(&self.link, kill, Bytes::new(), 1024).await?;
            self.kill = None;
        }
        Ok(())
    }
}

impl Drop for RemoteKillGuard {
    fn drop(&mut self) {
        if let Some(kill) = self.kill.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let link = Arc::clone(&self.link);
            drop(hermes_core::task::spawn("end a far command", async move {
                if let Err(error) = call::ask(&link, &kill, Bytes::new(), 1024).await {
                    tracing::warn!("a command may still run on the far side: {error}");
                }
            }));
        }
    }
}

impl RemoteEnvironment {
    /// The variables of a command: those of the session, else of the login, then declared ones, and its own
    /// override all.
    pub(super) fn variables(
        &self,
        far: &RemoteSetup,
        exports: Option<Variables>,
        extra: Variables,
    ) -> Variables {
        let mut all = exports.unwrap_or_else(|| far.login.clone());
        if let Some((declared, env)) = &self.declared {
            for (name, value) in declared.values(env) {
                all.entry(name).or_insert(value);
            }
        }
        all.extend(extra);
        all
    }

    pub(super) async fn run(
        &self,
        command: Exec,
        sink: &mut dyn OutputSink,
    ) -> Result<ExecOutcome, ExecError> {
        let far = self.far().await?;
        self.link.ready().await?;
        let mark = token();
        let run = CommandScript {
            dir: &far.dir,
            mark: &mark,
        };
        let variables = self.variables(far, command.exports.clone(), command.extra_env.clone());
        let state = run.file("state");
        let program = BashProgram {
            prelude: far.prelude.as_deref(),
            exports: Some(&variables),
            cwd: Some(&command.cwd),
            report: Some(&state),
        }
        .wrap(&command.script);
        let guard = RemoteKillGuard {
            link: Arc::clone(&self.link),
            kill: Some(run.kill(GRACE)),
        };
        if command.pty {
            self.with_terminal(&command, &run, &program, guard, sink)
                .await
        } else {
            self.with_pipes(&command, &run, &program, guard, sink).await
        }
    }

    async fn with_pipes(
        &self,
        command: &Exec,
        run: &CommandScript<'_>,
        program: &str,
        mut guard: RemoteKillGuard,
        sink: &mut dyn OutputSink,
    ) -> Result<ExecOutcome, ExecError> {
        let stdin = match &command.stdin {
            Stdin::Closed => Bytes::new(),
            Stdin::Bytes(bytes) => bytes.clone(),
        };
        let text = format!(
            "{}\n{}",
            run.keep(program),
            run.foreground(command.split, stdin.len(), command.timeout)
        );
        let begin =
            || RemoteCall::begin(&self.link, &text, run.mark, stdin.clone(), CallInput::Stays);
        let mut call = begin()?;
        let (mut how, mut ended) = follow(&mut call, command, &mut guard, sink).await?;
        if how.is_none() && ended.is_none() {
            // The remote side was gone and reported that before running anything.
            self.link.ready().await?;
            call = begin()?;
            (how, ended) = follow(&mut call, command, &mut guard, sink).await?;
        }
        guard.kill = None;
        if how.is_none() && ended.is_none() {
            return Err(call::link_error("it is gone again"));
        }
        let state = ended.as_ref().and_then(|ended| parse_report(&ended.rest));
        let exit = how.unwrap_or_else(|| exit_from_code(ended.map_or(-1, |ended| ended.code)));
        Ok(ExecOutcome { exit, state })
    }

    async fn with_terminal(
        &self,
        command: &Exec,
        run: &CommandScript<'_>,
        program: &str,
        mut guard: RemoteKillGuard,
        sink: &mut dyn OutputSink,
    ) -> Result<ExecOutcome, ExecError> {
        self.ask(&run.keep(program), Bytes::new(), 1024).await?;
        // A terminal does not forward the end of input: a second call kills the command if we are killed.
        let watch = run.watch(command.timeout);
        let _watch =
            RemoteCall::begin(&self.link, &watch, run.mark, Bytes::new(), CallInput::Stays)?;
        let mut call = RemoteCall::terminal(&self.link, &run.terminal())?;
        let how = match follow(&mut call, command, &mut guard, sink).await {
            Ok((how, _)) => how,
            // Without a trailer only the exit of the local program is known.
            Err(ExecError::Unavailable(_)) => None,
            Err(error) => return Err(error),
        };
        let code = call.local_code().await;
        let reply = self.ask(&run.finish(), Bytes::new(), 4 << 20).await?;
        guard.kill = None;
        let state = parse_report(&reply.out);
        match (how, code) {
            (Some(how), _) => Ok(ExecOutcome { exit: how, state }),
            (None, Some(code)) if code != 255 || state.is_some() => Ok(ExecOutcome {
                exit: exit_from_code(code),
                state,
            }),
            _ => Err(call::link_error("")),
        }
    }
}

/// Forwards output until the end. The first value is set if we ended the command; neither: the remote side is
/// gone and ran nothing.
async fn follow(
    call: &mut RemoteCall,
    command: &Exec,
    guard: &mut RemoteKillGuard,
    sink: &mut dyn OutputSink,
) -> Result<(Option<ProcessExit>, Option<CallEnd>), ExecError> {
    let deadline = tokio::time::Instant::now() + command.timeout;
    let mut said = Vec::new();
    let mut came = false;
    let how = loop {
        let step = tokio::select! {
            biased;
            () = command.cancel.cancelled() => break ProcessExit::Interrupted,
            () = tokio::time::sleep_until(deadline) => break ProcessExit::TimedOut,
            step = call.next() => step?,
        };
        match step {
            CallStep::Output(stream, bytes) => {
                came |= stream == OutputStream::Out;
                pass(stream, &bytes, command, sink, &mut said);
            }
            CallStep::CallEnd(ended) => return Ok((None, Some(ended))),
            CallStep::Broken => {
                let said = String::from_utf8_lossy(&said);
                if !came && guard.link.lost(&said) {
                    return Ok((None, None));
                }
                return Err(call::link_error(said.trim()));
            }
        }
    };
    guard.end().await?;
    let last_words = async {
        loop {
            match call.next().await {
                Ok(CallStep::Output(stream, bytes)) => {
                    pass(stream, &bytes, command, sink, &mut said);
                }
                Ok(CallStep::CallEnd(ended)) => return Some(ended),
                Ok(CallStep::Broken) | Err(_) => return None,
            }
        }
    };
    let ended = tokio::time::timeout(AFTERMATH, last_words)
        .await
        .ok()
        .flatten();
    Ok((Some(how), ended))
}

fn pass(
    stream: OutputStream,
    bytes: &[u8],
    command: &Exec,
    sink: &mut dyn OutputSink,
    said: &mut Vec<u8>,
) {
    // If not split, the command's errors come with its output, so this is output of the local program.
    if stream == OutputStream::Err && !command.split {
        let room = (4 * 1024_usize).saturating_sub(said.len());
        said.extend_from_slice(&bytes[..bytes.len().min(room)]);
    } else {
        sink.push(stream, bytes);
    }
}

/// A shell reports signal n as 128 + n.
pub(super) fn exit_from_code(code: i32) -> ProcessExit {
    match code {
        129..=159 => ProcessExit::Signal(code - 128),
        code => ProcessExit::Code(code),
    }
}
