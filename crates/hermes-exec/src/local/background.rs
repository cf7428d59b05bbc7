//! A background command. Its output goes to a file and its input comes from a named pipe, so that it survives a
//! restart of this program; a small shell around it records the exit code and keeps the input open.

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

use super::output_source::{OutputSource, TerminalMaster, async_fd, write_terminal};
use super::process_tree::{self, ProcessTree};
use super::pty;
use super::safe_open;
use crate::confinement::{Launch, QuarantineWatch};
use crate::environment::{Background, BackgroundRecord, ExecError, OutputChunk, ProcessExit};
use crate::shell::quote_path;

/// At most about this much of a log stays on disk; checked at this interval.
const MAX_LOG: u64 = 16 << 20;
const KEEP_LOG: u64 = 1 << 20;
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of the check for files that would be executed later.
pub(super) const QUARANTINE_INTERVAL: Duration = Duration::from_secs(1);
/// For the remaining output after a process has ended.
const DRAIN: Duration = Duration::from_millis(300);
/// A program that does not read its input is not waited for longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// If there is no better way to learn that a process has ended.
const ALIVE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum length of the exit code file.
const MAX_EXIT: u64 = 32;

/// The stored files of one process.
pub(super) struct ProcessDir {
    dir: PathBuf,
}

impl ProcessDir {
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

    /// Forbidden paths, for a program that adopts the process. Beside its directory, which the process itself
    /// can write to.
    fn forbidden_file(&self) -> PathBuf {
        self.dir.with_extension("awaited")
    }

    fn store_watch(&self, watch: &QuarantineWatch) -> Result<(), ExecError> {
        let Some(json) = watch.to_json() else {
            return Ok(());
        };
        let path = self.forbidden_file();
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

    fn load_watch(&self) -> QuarantineWatch {
        std::fs::read(self.forbidden_file())
            .map(|json| QuarantineWatch::from_json(&json))
            .unwrap_or_default()
    }

    /// Stops checking for forbidden paths.
    fn remove_watch(&self) {
        // It may never have existed.
        let _ = std::fs::remove_file(self.forbidden_file());
    }

    /// The bash program that runs `program`, holds its input open until USR1 and records its exit code.
    pub(super) fn wrap(&self, program: &str) -> String {
        let input = quote_path(&self.input());
        let exit = quote_path(&self.exit());
        // Job control gives the command ordinary signals: without it, `&` makes it ignore INT. What bash prints
        // about jobs is not part of the command's output.
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
        safe_open::open_to_append(&path).map_err(|error| ExecError::file(&path, error))
    }

    fn create_input(&self) -> Result<(), ExecError> {
        let path = self.input();
        let mode = Mode::RUSR | Mode::WUSR;
        match mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(ExecError::file(&path, error.into())),
        }
    }

    fn recorded_exit(&self) -> Option<ProcessExit> {
        let bytes = safe_open::read(&self.exit(), MAX_EXIT).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        let code: i32 = text.strip_suffix('\n')?.parse().ok()?;
        Some(ProcessExit::Code(code))
    }
}

/// Starts a process.
pub(super) fn start(
    launch: &Launch,
    process_dir: ProcessDir,
    id: &str,
    pty: bool,
    watch: QuarantineWatch,
) -> Result<LocalBackground, ExecError> {
    let could_not = || ExecError::io("the command could not be started");
    let log = process_dir.open_log()?;
    process_dir.store_watch(&watch)?;
    let mut command = super::command(launch);
    let mut terminal = None;
    if pty {
        let (near, far) = pty::open().map_err(could_not())?;
        let copy = |file: &File| file.try_clone().map_err(could_not());
        command.stdin(copy(&far)?).stdout(copy(&far)?).stderr(far);
        terminal = Some(OutputSource::terminal(near).map_err(could_not())?);
    } else {
        process_dir.create_input()?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(could_not())?)
            .stderr(log.try_clone().map_err(could_not())?);
    }
    let mut child = command.spawn().map_err(could_not())?;
    drop(command);
    let pid = child.id().unwrap_or_default();
    let start_time = start_time(pid);
    let (ended, end) = watch::channel(ProcessPhase::Running);
    let near = terminal.as_ref().and_then(OutputSource::as_terminal);
    let background = LocalBackground {
        record: BackgroundRecord {
            id: id.to_owned(),
            pid,
            start_time,
            pty,
            dir: Some(process_dir.dir.clone()),
        },
        tree: ProcessTree::new(pid, start_time, id),
        terminal: near,
        stdin_closed: AtomicBool::new(false),
        end,
        process_dir,
    };
    let keeping = log.try_clone().map_err(could_not())?;
    let notes = log.try_clone().map_err(could_not())?;
    let watched_dir = ProcessDir {
        dir: background.process_dir.dir.clone(),
    };
    let name = format!("process {id}");
    task::spawn(&name, async move {
        let copying = copy_terminal(terminal, log);
        tokio::pin!(copying);
        let mut copied = false;
        let keeping = trim_log(keeping);
        tokio::pin!(keeping);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                () = &mut copying, if !copied => copied = true,
                never = &mut keeping => match never {},
                // Files that would be executed later are quarantined before a process ends that may never end.
                () = tokio::time::sleep(QUARANTINE_INTERVAL) => quarantine_and_log(&watch, Some(&notes)),
            }
        };
        quarantine_and_log(&watch, Some(&notes));
        watched_dir.remove_watch();
        if !copied {
            // The last output; a grandchild that keeps the terminal open is not waited for.
            let _ = tokio::time::timeout(DRAIN, copying).await;
        }
        let exit = match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Some(ProcessExit::Code(code)),
                (None, Some(signal)) => Some(ProcessExit::Signal(signal)),
                (None, None) => None,
            },
            Err(error) => {
                tracing::warn!("a background process was lost: {error}");
                None
            }
        };
        ended.send_replace(ProcessPhase::Ended(exit));
    });
    Ok(background)
}

/// Quarantines files that would be executed later and mentions them in the log.
fn quarantine_and_log(watch: &QuarantineWatch, log: Option<&File>) {
    if let (Some(words), Some(mut log)) = (watch.quarantine(), log) {
        // If the log cannot be written, more than this is lost.
        let _ = log.write_all(words.as_bytes());
    }
}

/// Finds a process again by its pid and start time.
pub(super) fn adopt(record: BackgroundRecord, processes: &Path) -> Option<LocalBackground> {
    let dir = record
        .dir
        .clone()
        .unwrap_or_else(|| processes.join(&record.id));
    let process_dir = ProcessDir { dir };
    let alive =
        record.start_time.is_some() && process_tree::is_alive(record.pid, record.start_time);
    let recorded = process_dir.recorded_exit();
    let watch = process_dir.load_watch();
    // What it created while nobody checked.
    quarantine_and_log(&watch, process_dir.open_log().ok().as_ref());
    if !alive {
        process_dir.remove_watch();
    }
    if !alive && recorded.is_none() {
        return None;
    }
    let (ended, end) = watch::channel(ProcessPhase::Running);
    if alive {
        let (pid, start_time) = (record.pid, record.start_time);
        let exit = ProcessDir {
            dir: process_dir.dir.clone(),
        };
        let log = process_dir.open_log().ok();
        let name = format!("process {}", record.id);
        task::spawn(&name, async move {
            let notes = exit.open_log().ok();
            let note_all = || quarantine_and_log(&watch, notes.as_ref());
            let keep = async {
                match log {
                    Some(log) => trim_log(log).await,
                    None => std::future::pending().await,
                }
            };
            let gone = wait_until_gone(pid, start_time);
            tokio::pin!(keep, gone);
            loop {
                tokio::select! {
                    () = &mut gone => break,
                    never = &mut keep => match never {},
                    () = tokio::time::sleep(QUARANTINE_INTERVAL) => note_all(),
                }
            }
            note_all();
            exit.remove_watch();
            ended.send_replace(ProcessPhase::Ended(exit.recorded_exit()));
        });
    } else {
        ended.send_replace(ProcessPhase::Ended(recorded));
    }
    Some(LocalBackground {
        tree: ProcessTree::new(record.pid, record.start_time, &record.id),
        record,
        terminal: None,
        stdin_closed: AtomicBool::new(false),
        end,
        process_dir,
    })
}

fn start_time(pid: u32) -> Option<u64> {
    let stat = process_tree::stat(i32::try_from(pid).ok()?)?;
    Some(stat.start_time)
}

/// Waits for the end of a process that is not our child.
async fn wait_until_gone(pid: u32, start_time: Option<u64>) {
    let handle = Pid::from_raw(pid as i32)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .and_then(|fd| async_fd(fd, tokio::io::Interest::READABLE).ok());
    if !process_tree::is_alive(pid, start_time) {
        return;
    }
    if let Some(handle) = handle
        && handle.readable().await.is_ok()
    {
        return;
    }
    while process_tree::is_alive(pid, start_time) {
        tokio::time::sleep(ALIVE_POLL_INTERVAL).await;
    }
}

enum Never {}

/// Copies terminal output to the log while the terminal is open.
async fn copy_terminal(source: Option<OutputSource>, mut log: File) {
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

/// Frees the disk space of the beginning of a long log. Offsets stay valid.
async fn trim_log(log: File) -> Never {
    loop {
        tokio::time::sleep(LOG_CHECK_INTERVAL).await;
        let Ok(meta) = log.metadata() else { continue };
        if meta.blocks() * 512 > MAX_LOG {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file system without hole punching keeps the whole log.
            let _ = fallocate(log.as_fd(), flags, 0, meta.len() - KEEP_LOG);
        }
    }
}

/// Life cycle of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessPhase {
    Running,
    /// `None`: the exit status is unknown.
    Ended(Option<ProcessExit>),
}

pub(super) struct LocalBackground {
    record: BackgroundRecord,
    tree: ProcessTree,
    terminal: Option<TerminalMaster>,
    stdin_closed: AtomicBool,
    end: watch::Receiver<ProcessPhase>,
    process_dir: ProcessDir,
}

impl LocalBackground {
    fn read_log(&self, from: u64, max: usize) -> Result<OutputChunk, ExecError> {
        let path = self.process_dir.log();
        let wrong = |error| ExecError::file(&path, error);
        let file = match safe_open::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(OutputChunk::default());
            }
            Err(error) => return Err(wrong(error)),
        };
        let total = file.metadata().map_err(wrong)?.len();
        // Freed parts read as zeros: start behind them.
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
        Ok(OutputChunk {
            bytes: Bytes::from(bytes),
            total,
            from,
        })
    }

    /// Right after the start the other end may not be open yet.
    async fn open_input(&self) -> io::Result<pipe::Sender> {
        loop {
            let opened = safe_open::open_pipe(&self.process_dir.input());
            match opened.and_then(pipe::Sender::from_file) {
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
                        && *self.end.borrow() == ProcessPhase::Running =>
                {
                    tokio::time::sleep(OPEN_RETRY_INTERVAL).await;
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
        match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(result) => result.map_err(ExecError::io("its input cannot be written")),
            Err(_) => Err(ExecError::Unavailable(format!(
                "it did not read its input for {} s; some of it may have arrived",
                WRITE_TIMEOUT.as_secs()
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
        if !process_tree::is_alive(self.record.pid, self.record.start_time) {
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

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<OutputChunk, ExecError>> {
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
            self.tree.terminate(grace).await;
            Ok(())
        })
    }

    fn wait(&self) -> BoxFuture<'_, Option<ProcessExit>> {
        let mut end = self.end.clone();
        Box::pin(async move {
            if let Ok(end) = end.wait_for(|end| *end != ProcessPhase::Running).await {
                return match *end {
                    ProcessPhase::Running => None,
                    ProcessPhase::Ended(exit) => exit,
                };
            }
            // The watching task is gone because this program ends. The process stays for the next one.
            wait_until_gone(self.record.pid, self.record.start_time).await;
            None
        })
    }
}
