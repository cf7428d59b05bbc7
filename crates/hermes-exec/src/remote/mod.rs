//! Environments that are reached by starting a local program (`ssh`, `docker exec`): commands, files and
//! background processes there need nothing but bash.
//!
//! Every call sends its script through standard input, so that no variable shows up in a process list, and ends
//! with a trailer on standard error that carries the exit code. Without a trailer the connection broke, and
//! nothing is concluded about the command.

mod background;
pub(crate) mod call;
mod exec;
mod files;
mod script;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hermes_config::Env;
use hermes_core::BoxFuture;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::environment::{
    Background, BackgroundRecord, BackgroundStart, Environment, EnvironmentInfo, Exec, ExecError,
    ExecOutcome, Files, OutputSink, Variables,
};
use crate::local::Declared;
use crate::shell::{parse_report, quote_path};

/// Timeout of small scripts.
const SMALL: Duration = Duration::from_mins(1);

/// How the remote side is reached.
pub(crate) trait RemoteTransport: Send + Sync {
    fn info(&self) -> EnvironmentInfo;

    /// Connects, creates or starts whatever is missing.
    fn ready(&self) -> BoxFuture<'_, Result<(), ExecError>>;

    /// The local program that runs `script` in a remote bash.
    fn command(&self, script: &str, terminal: bool) -> Command;

    /// A call ended without its trailer; `said` is the local program's output. True: the remote side is gone,
    /// and a second attempt sets it up again.
    fn lost(&self, said: &str) -> bool;

    /// `close`: permanently.
    fn leave(&self, close: bool) -> BoxFuture<'_, Result<(), ExecError>>;
}

/// Result of the first call to the remote side.
#[derive(Clone, Debug)]
struct RemoteSetup {
    home: PathBuf,
    /// Our private directory.
    dir: PathBuf,
    /// Functions and aliases of the login shell.
    prelude: Option<PathBuf>,
    /// Variables of the login shell.
    login: Variables,
}

/// An environment behind a transport.
pub(crate) struct RemoteEnvironment {
    link: Arc<dyn RemoteTransport>,
    far: OnceCell<RemoteSetup>,
    /// Names this environment's remote directory.
    name: String,
    /// What skills may declare, and the values.
    declared: Option<(Declared, Env)>,
}

impl RemoteEnvironment {
    pub(crate) fn new(link: Arc<dyn RemoteTransport>) -> Self {
        Self {
            link,
            far: OnceCell::new(),
            name: token(),
            declared: None,
        }
    }

    /// Commands get the variables that skills declare.
    pub(crate) fn with_declared(mut self, declared: Declared, env: Env) -> Self {
        self.declared = Some((declared, env));
        self
    }

    async fn far(&self) -> Result<&RemoteSetup, ExecError> {
        self.far.get_or_try_init(|| self.run_setup()).await
    }

    /// The first call: creates our directory and reads the login shell.
    async fn run_setup(&self) -> Result<RemoteSetup, ExecError> {
        self.link.ready().await?;
        let dir = PathBuf::from(format!("/tmp/hermes-{}", self.name));
        let prelude = dir.join("prelude");
        let text = script::setup_script(&dir, &prelude);
        let reply = call::ask(&self.link, &text, Bytes::new(), 1 << 20).await?;
        let state = parse_report(&reply.out).ok_or_else(|| {
            ExecError::Unavailable(format!(
                "the far side has no usable bash or /tmp: {}",
                reply.stderr_text()
            ))
        })?;
        let home = state.exports.get("HOME").map_or("/", String::as_str).into();
        Ok(RemoteSetup {
            home,
            dir,
            prelude: (reply.code == 10).then_some(prelude),
            login: state.exports,
        })
    }

    /// Runs a small script on the remote side.
    pub(crate) async fn ask(
        &self,
        text: &str,
        stdin: Bytes,
        limit: usize,
    ) -> Result<call::CallReply, ExecError> {
        self.far().await?;
        call::ask(&self.link, text, stdin, limit).await
    }
}

impl Environment for RemoteEnvironment {
    fn info(&self) -> EnvironmentInfo {
        self.link.info()
    }

    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn OutputSink,
    ) -> BoxFuture<'a, Result<ExecOutcome, ExecError>> {
        Box::pin(self.run(command, sink))
    }

    fn spawn(
        &self,
        command: BackgroundStart,
    ) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
        Box::pin(self.start(command))
    }

    fn adopt(
        &self,
        record: BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Background>>, ExecError>> {
        Box::pin(self.find(record))
    }

    fn files(&self) -> &dyn Files {
        self
    }

    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.link.leave(false)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async {
            if let Some(far) = self.far.get() {
                let text = format!("rm -rf -- {}", quote_path(&far.dir));
                if let Err(error) = call::ask(&self.link, &text, Bytes::new(), 1024).await {
                    tracing::debug!("leaving {}: {error}", far.dir.display());
                }
            }
            self.link.leave(true).await
        })
    }
}

/// A unique name.
fn token() -> String {
    format!("{:016x}", rand::random::<u64>())
}
