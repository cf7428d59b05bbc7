//! Commands in the foreground.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::{self, Call, CallInput, Ended, Step};
use super::script::Run;
use super::{Far, Remote, Transport, token};
use crate::environment::{Exec, ExecError, Exit, Finished, Sink, Stdin, Stream, Variables};
use crate::shell::{Program, read_report};

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(1);
/// For the last words of a command that was ended.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Ends the command on the far side unless that was taken care of.
struct Guard {
    link: Arc<dyn Transport>,
    kill: Option<String>,
}

impl Guard {
    async fn end(&mut self) -> Result<(), ExecError> {
        if let Some(kill) = &self.kill {
            call::ask(&self.link, kill, Bytes::new(), 1024).await?;
            self.kill = None;
        }
        Ok(())
    }
}

impl Drop for Guard {
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

impl Remote {
    /// The variables of a command: of the session, else of the login, what skills declared, and its
    /// own over them.
    pub(super) fn variables(
        &self,
        far: &Far,
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
        sink: &mut dyn Sink,
    ) -> Result<Finished, ExecError> {
        let far = self.far().await?;
        self.link.ready().await?;
        let mark = token();
        let run = Run {
            dir: &far.dir,
            mark: &mark,
        };
        let variables = self.variables(far, command.exports.clone(), command.extra_env.clone());
        let state = run.file("state");
        let program = Program {
            prelude: far.prelude.as_deref(),
            exports: Some(&variables),
            cwd: Some(&command.cwd),
            report: Some(&state),
        }
        .around(&command.script);
        let guard = Guard {
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
        run: &Run<'_>,
        program: &str,
        mut guard: Guard,
        sink: &mut dyn Sink,
    ) -> Result<Finished, ExecError> {
        let stdin = match &command.stdin {
            Stdin::Closed => Bytes::new(),
            Stdin::Bytes(bytes) => bytes.clone(),
        };
        let text = format!(
            "{}\n{}",
            run.keep(program),
            run.foreground(command.split, stdin.len(), command.timeout)
        );
        let begin = || Call::begin(&self.link, &text, run.mark, stdin.clone(), CallInput::Stays);
        let mut call = begin()?;
        let (mut how, mut ended) = follow(&mut call, command, &mut guard, sink).await?;
        if how.is_none() && ended.is_none() {
            // What was there is gone, and said so before it ran anything.
            self.link.ready().await?;
            call = begin()?;
            (how, ended) = follow(&mut call, command, &mut guard, sink).await?;
        }
        guard.kill = None;
        if how.is_none() && ended.is_none() {
            return Err(call::broken("it is gone again"));
        }
        let state = ended.as_ref().and_then(|ended| read_report(&ended.rest));
        let exit = how.unwrap_or_else(|| exit_of(ended.map_or(-1, |ended| ended.code)));
        Ok(Finished { exit, state })
    }

    async fn with_terminal(
        &self,
        command: &Exec,
        run: &Run<'_>,
        program: &str,
        mut guard: Guard,
        sink: &mut dyn Sink,
    ) -> Result<Finished, ExecError> {
        self.ask(&run.keep(program), Bytes::new(), 1024).await?;
        // A terminal passes no end of input on: a call beside it sees to the end when we are killed.
        let watch = run.watch(command.timeout);
        let _watch = Call::begin(&self.link, &watch, run.mark, Bytes::new(), CallInput::Stays)?;
        let mut call = Call::terminal(&self.link, &run.terminal())?;
        let how = match follow(&mut call, command, &mut guard, sink).await {
            Ok((how, _)) => how,
            // Without a trailer the end of the local program is all there is.
            Err(ExecError::Unavailable(_)) => None,
            Err(error) => return Err(error),
        };
        let code = call.local_code().await;
        let reply = self.ask(&run.finish(), Bytes::new(), 4 << 20).await?;
        guard.kill = None;
        let state = read_report(&reply.out);
        match (how, code) {
            (Some(how), _) => Ok(Finished { exit: how, state }),
            (None, Some(code)) if code != 255 || state.is_some() => Ok(Finished {
                exit: exit_of(code),
                state,
            }),
            _ => Err(call::broken("")),
        }
    }
}

/// Passes output on until the end. The first value says when it was us who ended it; neither: the far
/// side is gone and ran nothing.
async fn follow(
    call: &mut Call,
    command: &Exec,
    guard: &mut Guard,
    sink: &mut dyn Sink,
) -> Result<(Option<Exit>, Option<Ended>), ExecError> {
    let deadline = tokio::time::Instant::now() + command.timeout;
    let mut said = Vec::new();
    let mut came = false;
    let how = loop {
        let step = tokio::select! {
            biased;
            () = command.cancel.cancelled() => break Exit::Interrupted,
            () = tokio::time::sleep_until(deadline) => break Exit::TimedOut,
            step = call.next() => step?,
        };
        match step {
            Step::Output(stream, bytes) => {
                came |= stream == Stream::Out;
                pass(stream, &bytes, command, sink, &mut said);
            }
            Step::Ended(ended) => return Ok((None, Some(ended))),
            Step::Broken => {
                let said = String::from_utf8_lossy(&said);
                if !came && guard.link.lost(&said) {
                    return Ok((None, None));
                }
                return Err(call::broken(said.trim()));
            }
        }
    };
    guard.end().await?;
    let last_words = async {
        loop {
            match call.next().await {
                Ok(Step::Output(stream, bytes)) => pass(stream, &bytes, command, sink, &mut said),
                Ok(Step::Ended(ended)) => return Some(ended),
                Ok(Step::Broken) | Err(_) => return None,
            }
        }
    };
    let ended = tokio::time::timeout(AFTERMATH, last_words)
        .await
        .ok()
        .flatten();
    Ok((Some(how), ended))
}

fn pass(stream: Stream, bytes: &[u8], command: &Exec, sink: &mut dyn Sink, said: &mut Vec<u8>) {
    // Unsplit, errors of the command come with its output: this is the local program speaking.
    if stream == Stream::Err && !command.split {
        let room = (4 * 1024_usize).saturating_sub(said.len());
        said.extend_from_slice(&bytes[..bytes.len().min(room)]);
    } else {
        sink.push(stream, bytes);
    }
}

/// A shell says 128 + n for signal n.
pub(super) fn exit_of(code: i32) -> Exit {
    match code {
        129..=159 => Exit::Signal(code - 128),
        code => Exit::Code(code),
    }
}
