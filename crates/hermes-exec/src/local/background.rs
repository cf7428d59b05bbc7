//! A command in the background. Its output goes to a file and its input comes from a named pipe, so
//! that it does not notice when this program is restarted; a small shell around it notes its exit
//! code and keeps the input open.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hermes_core::{BoxFuture, task};
use rustix::fs::{FallocateFlags, FileType, Mode, fallocate, mknodat};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::family::{self, Family};
use super::plain;
use super::pty;
use super::source::{Source, Terminal, watched, write_terminal};
use crate::confinement::{Launch, Watch};
use crate::environment::{Background, BackgroundRecord, Chunk, ExecError, Exit};
use crate::shell::quote_path;

/// Of a log, at most about this much stays on disk; it is looked at this often.
const MAX_LOG: u64 = 16 << 20;
const KEEP_LOG: u64 = 1 << 20;
const LOG_LOOK: Duration = Duration::from_secs(30);
/// How often it is looked whether a process made what would run later.
pub(super) const LATER_LOOK: Duration = Duration::from_secs(1);
/// After the end of a process, for the rest of its output.
const DRAIN: Duration = Duration::from_millis(300);
/// A program that does not read its input is not waited for longer.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
const OPEN_LOOK: Duration = Duration::from_millis(10);
/// Where no better way exists to learn of the end of a process.
const ALIVE_LOOK: Duration = Duration::from_millis(500);
/// An exit code as text.
const MAX_EXIT: u64 = 32;

/// What is kept of one process.
pub(super) struct Place {
    dir: PathBuf,
}

impl Place {
    pub(super) fn create(processes: &Path, id: &str) -> Result<Self, ExecError> {
        let dir = processes.join(id);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| ExecError::file(&dir, error))?;
        Ok(Self { dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn input(&self) -> PathBuf {
        self.dir.join("in")
    }

    fn exit(&self) -> PathBuf {
        self.dir.join("exit")
    }

    /// What must not appear while it runs, for whoever finds it again. Beside its directory, in which the process
    /// itself can write.
    fn awaited(&self) -> PathBuf {
        self.dir.with_extension("awaited")
    }

    fn keep(&self, watch: &Watch) -> Result<(), ExecError> {
        let Some(json) = watch.to_json() else {
            return Ok(());
        };
        let path = self.awaited();
        let mut file = File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| ExecError::file(&path, error))?;
        file.write_all(&json)
            .map_err(|error| ExecError::file(&path, error))
    }

    fn kept(&self) -> Watch {
        std::fs::read(self.awaited())
            .map(|json| Watch::from_json(&json))
            .unwrap_or_default()
    }

    /// Nothing is looked for any more.
    fn forget(&self) {
        // It may never have been there.
        let _ = std::fs::remove_file(self.awaited());
    }

    /// The program that runs `program`, holds its input open until USR1 and notes its exit code.
    pub(super) fn around(&self, program: &str) -> String {
        let input = quote_path(&self.input());
        let exit = quote_path(&self.exit());
        // job control gives the command ordinary signals: without it, `&` makes it ignore INT; what
        // bash says about jobs, when one ends at once, is not the command's output
        format!(
            "exec 9<>{input} 3>&1 4>&2 >/dev/null 2>&1\n\
             trap 'exec 9>&-; woken=1' USR1\n\
             set -m\n\
             ( set +m; trap - USR1; exec >&3 2>&4 3>&- 4>&-\n{program}\n) <{input} 9>&- &\n\
             exec 3>&- 4>&-\n\
             set +m\n\
             wait $!; code=$?\n\
             while [ \"$woken\" ]; do woken=; wait $!; code=$?; done\n\
             echo $code >{exit}\n\
             exit $code"
        )
    }

    fn open_log(&self) -> Result<File, ExecError> {
        let path = self.log();
        plain::open_to_append(&path).map_err(|error| ExecError::file(&path, error))
    }

    fn make_input(&self) -> Result<(), ExecError> {
        let path = self.input();
        let mode = Mode::RUSR | Mode::WUSR;
        match mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(ExecError::file(&path, error.into())),
        }
    }

    fn noted_exit(&self) -> Option<Exit> {
        let bytes = plain::read(&self.exit(), MAX_EXIT).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        let code: i32 = text.strip_suffix('\n')?.parse().ok()?;
        Some(Exit::Code(code))
    }
}

/// Starts it.
pub(super) fn start(
    launch: &Launch,
    place: Place,
    id: &str,
    pty: bool,
    watch: Watch,
) -> Result<LocalBackground, ExecError> {
    let could_not = || ExecError::io("the command could not be started");
    let log = place.open_log()?;
    place.keep(&watch)?;
    let mut command = super::command(launch);
    let mut terminal = None;
    if pty {
        let (near, far) = pty::open().map_err(could_not())?;
        let copy = |file: &File| file.try_clone().map_err(could_not());
        command.stdin(copy(&far)?).stdout(copy(&far)?).stderr(far);
        terminal = Some(Source::terminal(near).map_err(could_not())?);
    } else {
        place.make_input()?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(could_not())?)
            .stderr(log.try_clone().map_err(could_not())?);
    }
    let mut child = command.spawn().map_err(could_not())?;
    drop(command);
    let pid = child.id().unwrap_or_default();
    let start_time = start_time(pid);
    let (ended, end) = watch::channel(End::Running);
    let near = terminal.as_ref().and_then(Source::as_terminal);
    let background = LocalBackground {
        record: BackgroundRecord {
            id: id.to_owned(),
            pid,
            start_time,
            pty,
            dir: Some(place.dir.clone()),
        },
        family: Family::new(pid, start_time, id),
        terminal: near,
        stdin_closed: AtomicBool::new(false),
        end,
        place,
    };
    let keeping = log.try_clone().map_err(could_not())?;
    let notes = log.try_clone().map_err(could_not())?;
    let of_process = Place {
        dir: background.place.dir.clone(),
    };
    let name = format!("process {id}");
    task::spawn(&name, async move {
        let copying = copy_terminal(terminal, log);
        tokio::pin!(copying);
        let mut copied = false;
        let keeping = keep_small(keeping);
        tokio::pin!(keeping);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                () = &mut copying, if !copied => copied = true,
                never = &mut keeping => match never {},
                // What would run later does not wait for the end of a process that may have none.
                () = tokio::time::sleep(LATER_LOOK) => note(&watch, Some(&notes)),
            }
        };
        note(&watch, Some(&notes));
        of_process.forget();
        if !copied {
            // the last words; a grandchild that keeps the terminal open is not waited for
            let _ = tokio::time::timeout(DRAIN, copying).await;
        }
        let exit = match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Some(Exit::Code(code)),
                (None, Some(signal)) => Some(Exit::Signal(signal)),
                (None, None) => None,
            },
            Err(error) => {
                tracing::warn!("a background process was lost: {error}");
                None
            }
        };
        ended.send_replace(End::Over(exit));
    });
    Ok(background)
}

/// Puts aside what would run later; the log says so, where there is one.
fn note(watch: &Watch, log: Option<&File>) {
    if let (Some(words), Some(mut log)) = (watch.end(), log) {
        // A log that cannot be written to has lost more than this.
        let _ = log.write_all(words.as_bytes());
    }
}

/// Finds it again by its number and start time.
pub(super) fn adopt(record: BackgroundRecord, processes: &Path) -> Option<LocalBackground> {
    let dir = record
        .dir
        .clone()
        .unwrap_or_else(|| processes.join(&record.id));
    let place = Place { dir };
    let alive = record.start_time.is_some() && family::is_alive(record.pid, record.start_time);
    let noted = place.noted_exit();
    let watch = place.kept();
    // What it left while nobody looked.
    note(&watch, place.open_log().ok().as_ref());
    if !alive {
        place.forget();
    }
    if !alive && noted.is_none() {
        return None;
    }
    let (ended, end) = watch::channel(End::Running);
    if alive {
        let (pid, start_time) = (record.pid, record.start_time);
        let exit = Place {
            dir: place.dir.clone(),
        };
        let log = place.open_log().ok();
        let name = format!("process {}", record.id);
        task::spawn(&name, async move {
            let notes = exit.open_log().ok();
            let note_all = || note(&watch, notes.as_ref());
            let keep = async {
                match log {
                    Some(log) => keep_small(log).await,
                    None => std::future::pending().await,
                }
            };
            let gone = gone(pid, start_time);
            tokio::pin!(keep, gone);
            loop {
                tokio::select! {
                    () = &mut gone => break,
                    never = &mut keep => match never {},
                    () = tokio::time::sleep(LATER_LOOK) => note_all(),
                }
            }
            note_all();
            exit.forget();
            ended.send_replace(End::Over(exit.noted_exit()));
        });
    } else {
        ended.send_replace(End::Over(noted));
    }
    Some(LocalBackground {
        family: Family::new(record.pid, record.start_time, &record.id),
        record,
        terminal: None,
        stdin_closed: AtomicBool::new(false),
        end,
        place,
    })
}

fn start_time(pid: u32) -> Option<u64> {
    let stat = family::stat(i32::try_from(pid).ok()?)?;
    Some(stat.start_time)
}

/// Waits for the end of a process that is no child of ours.
async fn gone(pid: u32, start_time: Option<u64>) {
    let handle = Pid::from_raw(pid as i32)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .and_then(|fd| watched(fd, tokio::io::Interest::READABLE).ok());
    if !family::is_alive(pid, start_time) {
        return;
    }
    if let Some(handle) = handle
        && handle.readable().await.is_ok()
    {
        return;
    }
    while family::is_alive(pid, start_time) {
        tokio::time::sleep(ALIVE_LOOK).await;
    }
}

enum Never {}

/// Writes what a terminal shows to the log, for as long as it is open.
async fn copy_terminal(source: Option<Source>, mut log: File) {
    let Some(mut source) = source else {
        return;
    };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count) = source.read(&mut buffer).await {
        if count == 0 || log.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
}

/// Gives the beginning of a long log back to the file system. Offsets stay as they are.
async fn keep_small(log: File) -> Never {
    loop {
        tokio::time::sleep(LOG_LOOK).await;
        let Ok(meta) = log.metadata() else { continue };
        if meta.blocks() * 512 > MAX_LOG {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // a file system that cannot do this keeps the whole log
            let _ = fallocate(log.as_fd(), flags, 0, meta.len() - KEEP_LOG);
        }
    }
}

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Running,
    /// `None`: nobody knows how.
    Over(Option<Exit>),
}

pub(super) struct LocalBackground {
    record: BackgroundRecord,
    family: Family,
    terminal: Option<Terminal>,
    stdin_closed: AtomicBool,
    end: watch::Receiver<End>,
    place: Place,
}

impl LocalBackground {
    fn read_log(&self, from: u64, max: usize) -> Result<Chunk, ExecError> {
        let path = self.place.log();
        let wrong = |error| ExecError::file(&path, error);
        let file = match plain::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Chunk::default()),
            Err(error) => return Err(wrong(error)),
        };
        let total = file.metadata().map_err(wrong)?.len();
        // what was given back to the file system reads as zeros: begin behind it
        let first = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(from.min(total)));
        let from = first.unwrap_or(from).max(from).min(total);
        let length = (total - from).min(max as u64) as usize;
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match file.read_at(&mut bytes[filled..], from + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(wrong(error)),
            }
        }
        bytes.truncate(filled);
        Ok(Chunk {
            bytes: Bytes::from(bytes),
            total,
            from,
        })
    }

    /// Right after the start nobody may have opened the other end yet.
    async fn open_input(&self) -> io::Result<pipe::Sender> {
        loop {
            let opened = plain::open_pipe(&self.place.input());
            match opened.and_then(pipe::Sender::from_file) {
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
                        && *self.end.borrow() == End::Running =>
                {
                    tokio::time::sleep(OPEN_LOOK).await;
                }
                opened => return opened,
            }
        }
    }

    async fn feed(&self, bytes: Bytes) -> Result<(), ExecError> {
        if self.stdin_closed.load(Ordering::Acquire) {
            return Err(ExecError::Unsupported(
                "its input was closed before".to_owned(),
            ));
        }
        let writing = async {
            if let Some(terminal) = &self.terminal {
                return write_terminal(terminal, &bytes).await;
            }
            let mut pipe = self.open_input().await?;
            pipe.write_all(&bytes).await
        };
        match tokio::time::timeout(WRITE_LIMIT, writing).await {
            Ok(result) => result.map_err(ExecError::io("its input cannot be written")),
            Err(_) => Err(ExecError::Unavailable(format!(
                "it did not read its input for {} s; some of it may have arrived",
                WRITE_LIMIT.as_secs()
            ))),
        }
    }

    async fn finish_input(&self) -> Result<(), ExecError> {
        if let Some(terminal) = &self.terminal {
            return write_terminal(terminal, pty::END_OF_INPUT)
                .await
                .map_err(ExecError::io("its input cannot be written"));
        }
        self.stdin_closed.store(true, Ordering::Release);
        if !family::is_alive(self.record.pid, self.record.start_time) {
            return Ok(());
        }
        let Some(pid) = Pid::from_raw(self.record.pid as i32) else {
            return Ok(());
        };
        kill_process(pid, Signal::USR1)
            .map_err(io::Error::from)
            .map_err(ExecError::io("its input cannot be closed"))
    }
}

impl Background for LocalBackground {
    fn record(&self) -> BackgroundRecord {
        self.record.clone()
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Chunk, ExecError>> {
        Box::pin(std::future::ready(self.read_log(from, max)))
    }

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(self.feed(bytes))
    }

    fn close_stdin(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(self.finish_input())
    }

    fn kill(&self, grace: Duration) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async move {
            self.family.end(grace).await;
            Ok(())
        })
    }

    fn wait(&self) -> BoxFuture<'_, Option<Exit>> {
        let mut end = self.end.clone();
        Box::pin(async move {
            if let Ok(end) = end.wait_for(|end| *end != End::Running).await {
                return match *end {
                    End::Running => None,
                    End::Over(exit) => exit,
                };
            }
            // Whoever watched it is gone: this program ends. The process is there for the next one.
            gone(self.record.pid, self.record.start_time).await;
            None
        })
    }
}
