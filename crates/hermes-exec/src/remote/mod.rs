//! Environments on a far side that is reached by starting a local program (`ssh`, `docker exec`):
//! commands, files and background processes there, over nothing but bash.
//!
//! Every call sends its program through standard input, so that no variable shows in a table of
//! processes, and ends with a trailer on standard error that carries the exit code. Without a
//! trailer the link broke, and nothing is concluded about the command.

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
    Background, BackgroundRecord, Environment, EnvironmentInfo, Exec, ExecError, Files, Finished,
    Sink, Start, Variables,
};
use crate::local::Declared;
use crate::shell::{quote_path, read_report};

/// How long the far side may take for something small.
const SMALL: Duration = Duration::from_mins(1);

/// How the far side is reached.
pub(crate) trait Transport: Send + Sync {
    fn info(&self) -> EnvironmentInfo;

    /// Connects, creates, starts: whatever is missing.
    fn ready(&self) -> BoxFuture<'_, Result<(), ExecError>>;

    /// The local program that runs `script` in a bash on the far side.
    fn command(&self, script: &str, terminal: bool) -> Command;

    /// A call ended without its trailer; `said` is what the local program wrote. True: what was there
    /// is gone, and a second try makes it anew.
    fn lost(&self, said: &str) -> bool;

    /// `close`: for good.
    fn leave(&self, close: bool) -> BoxFuture<'_, Result<(), ExecError>>;
}

/// What the far side is like.
#[derive(Clone, Debug)]
struct Far {
    home: PathBuf,
    /// Ours, readable by nobody else.
    dir: PathBuf,
    /// Functions and aliases of the login shell.
    prelude: Option<PathBuf>,
    /// Variables of the login shell.
    login: Variables,
}

/// An environment behind a transport.
pub(crate) struct Remote {
    link: Arc<dyn Transport>,
    far: OnceCell<Far>,
    /// Names this environment's directory on the far side.
    name: String,
    /// What skills may ask for, and where the values are.
    declared: Option<(Declared, Env)>,
}

impl Remote {
    pub(crate) fn new(link: Arc<dyn Transport>) -> Self {
        Self {
            link,
            far: OnceCell::new(),
            name: token(),
            declared: None,
        }
    }

    /// Commands there get what skills declare.
    pub(crate) fn with_declared(mut self, declared: Declared, env: Env) -> Self {
        self.declared = Some((declared, env));
        self
    }

    async fn far(&self) -> Result<&Far, ExecError> {
        self.far.get_or_try_init(|| self.greet()).await
    }

    /// The first call: makes our directory and reads the login shell.
    async fn greet(&self) -> Result<Far, ExecError> {
        self.link.ready().await?;
        let dir = PathBuf::from(format!("/tmp/hermes-{}", self.name));
        let prelude = dir.join("prelude");
        let text = script::greeting(&dir, &prelude);
        let reply = call::ask(&self.link, &text, Bytes::new(), 1 << 20).await?;
        let state = read_report(&reply.out).ok_or_else(|| {
            ExecError::Unavailable(format!(
                "the far side has no usable bash or /tmp: {}",
                reply.said()
            ))
        })?;
        let home = state.exports.get("HOME").map_or("/", String::as_str).into();
        Ok(Far {
            home,
            dir,
            prelude: (reply.code == 10).then_some(prelude),
            login: state.exports,
        })
    }

    /// A small program on the far side.
    pub(crate) async fn ask(
        &self,
        text: &str,
        stdin: Bytes,
        limit: usize,
    ) -> Result<call::Reply, ExecError> {
        self.far().await?;
        call::ask(&self.link, text, stdin, limit).await
    }
}

impl Environment for Remote {
    fn info(&self) -> EnvironmentInfo {
        self.link.info()
    }

    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn Sink,
    ) -> BoxFuture<'a, Result<Finished, ExecError>> {
        Box::pin(self.run(command, sink))
    }

    fn spawn(&self, command: Start) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
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

/// A name that nobody else has.
fn token() -> String {
    format!("{:016x}", rand::random::<u64>())
}
