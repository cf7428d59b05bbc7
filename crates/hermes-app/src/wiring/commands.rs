//! The command environment, shared by all conversations of the process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::home::store_tools::Declare;
use hermes_agent::{SessionHandle, WeakSession};
use hermes_config::Config;
use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::command_host::CommandHost;
use hermes_core::event::AgentCommand;
use hermes_core::ids::SessionId;
use hermes_core::model::ModelRouter;
use hermes_core::task;
use hermes_core::tool::Tool;
use hermes_exec::local::{Declared, LocalEnvironment, LocalSettings};
use hermes_exec::process::{Notice, Notices, ProcessRegistry, ProcessRouting, RegistryOptions};
use hermes_exec::sandbox::{Sandbox, SandboxSettings};
use hermes_exec::{Environment, ExecError, Workspaces, backend};
use hermes_policy::{Gate, ModelJudge, PolicyConfig};
use hermes_tools::files::{Checkpoints, FileLedger};
use hermes_tools::terminal::{self, TerminalDeps, TerminalSettings};
use tokio::sync::OnceCell;

use crate::context::AppContext;
use crate::failure::Failure;

/// Notices that wait for their session to be opened.
const MAX_WAITING: usize = 64;

/// The environment of this home's commands.
pub struct CommandEnvironment {
    pub environment: Arc<dyn Environment>,
    /// The sandbox on this machine; none for other environments.
    pub sandbox: Option<Arc<Sandbox>>,
    pub workspaces: Workspaces,
    pub processes: ProcessRegistry,
    /// SharedResources by everything that runs commands, so that an answer counts everywhere.
    pub gate: Gate,
    pub ledger: FileLedger,
    pub checkpoints: Checkpoints,
    /// Variables declared by skills.
    declared: Declared,
    settings: TerminalSettings,
    bell: Arc<ProcessNotifier>,
    /// This machine, for homes whose commands run elsewhere.
    here: OnceCell<LocalMachine>,
}

/// This machine and its sandbox.
#[derive(Clone)]
pub struct LocalMachine {
    pub environment: Arc<dyn Environment>,
    pub sandbox: Arc<Sandbox>,
}

impl LocalMachine {
    pub fn new(cx: &AppContext, config: &Config, declared: &Declared) -> Result<Self, ExecError> {
        let sandbox = Arc::new(Sandbox::detect(SandboxSettings::from_config(
            &cx.home, config,
        )));
        let settings = LocalSettings::from_config(
            &cx.home,
            config,
            &cx.env,
            &cx.process_env(),
            declared.clone(),
        );
        let confine = Arc::clone(&sandbox) as Arc<dyn hermes_exec::Confine>;
        let environment = Arc::new(LocalEnvironment::new(settings, confine)?);
        Ok(Self {
            environment,
            sandbox,
        })
    }
}

impl CommandEnvironment {
    /// As configured. If the configured environment is not available, a message says so and there
    /// are no commands: they never run elsewhere.
    pub fn for_chat(
        cx: &AppContext,
        config: &Config,
        router: Arc<dyn ModelRouter>,
    ) -> Option<Arc<Self>> {
        match Self::new(cx, config, router) {
            Ok(commands) => {
                reap_containers(cx, config);
                if config.checkpoints.enabled && !is_on_path("git") {
                    cx.process.remark(
                        "no checkpoints are taken: git is not installed (checkpoints.enabled: false turns this \
                         remark off)",
                    );
                }
                Some(Arc::new(commands))
            }
            Err(error) => {
                cx.process
                    .remark(&format!("terminal and file tools are unavailable: {error}"));
                None
            }
        }
    }

    pub(super) fn new(
        cx: &AppContext,
        config: &Config,
        router: Arc<dyn ModelRouter>,
    ) -> Result<Self, ExecError> {
        let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let declared = Declared::default();
        let far = backend::select(&cx.home, config, &cx.env, &cwd, &declared)?;
        let (environment, sandbox) = if let Some(environment) = far {
            (environment, None)
        } else {
            let here = LocalMachine::new(cx, config, &declared)?;
            (here.environment, Some(here.sandbox))
        };
        let workspaces = Workspaces::for_environment(&environment, config, &cx.env);
        let bell = Arc::new(ProcessNotifier::default());
        let grace = config.terminal.daemon_term_grace_seconds;
        let processes = ProcessRegistry::new(RegistryOptions {
            checkpoint: Some(cx.home.join("processes.json")),
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            notices: Arc::clone(&bell) as Arc<dyn Notices>,
            grace: Duration::try_from_secs_f64(grace).unwrap_or(Duration::from_secs(2)),
        });
        let mut settings = TerminalSettings::from_config(config, &cx.env);
        settings.inside_gateway |= cx.is_gateway;
        let mut policy = PolicyConfig::from_config(&cx.home, config);
        // Chats have a limit of their own, `approvals.gateway_timeout`.
        policy.timeout = cx.approval_limit().filter(|_| !cx.is_gateway);
        Ok(Self {
            environment,
            sandbox,
            workspaces,
            processes,
            gate: Gate::new(policy).with_judge(Arc::new(judge(config, router))),
            ledger: FileLedger::new(),
            checkpoints: Checkpoints::from_config(&cx.home, config, Arc::new(SystemClock)),
            declared,
            settings,
            bell,
            here: OnceCell::new(),
        })
    }

    /// `terminal` and `process`. `host`: an editor that runs commands in its terminals.
    pub fn tools(&self, host: Option<Arc<dyn CommandHost>>) -> Vec<Arc<dyn Tool>> {
        terminal::tools(TerminalDeps {
            checkpoints: Some(self.checkpoints.clone()),
            environment: Arc::clone(&self.environment),
            sandbox: self.sandbox.clone(),
            workspaces: self.workspaces.clone(),
            processes: self.processes.clone(),
            gate: self.gate.clone(),
            settings: self.settings.clone(),
            routing: ProcessRouting::default(),
            host,
        })
    }

    /// This machine, wherever the commands of the agent run: scripts and skills lie here.
    pub async fn local_machine(
        &self,
        cx: &AppContext,
        config: &Config,
    ) -> Result<LocalMachine, Failure> {
        if let Some(sandbox) = &self.sandbox {
            return Ok(LocalMachine {
                environment: Arc::clone(&self.environment),
                sandbox: Arc::clone(sandbox),
            });
        }
        let made = self.here.get_or_try_init(|| async {
            let made = LocalMachine::new(cx, config, &Declared::default());
            made.map_err(|error| Failure::failed(error.to_string()))
        });
        Ok(made.await?.clone())
    }

    /// Declares variables of skills for all later commands.
    pub fn declare(&self) -> Declare {
        let declared = self.declared.clone();
        Arc::new(move |name| declared.declare(name))
    }

    /// Adopts background processes of an earlier run of hermes.
    pub async fn adopt(&self) {
        self.processes.adopt(self.environment.as_ref()).await;
    }

    /// Background processes notify this session when they end.
    pub async fn attach(&self, session: &SessionHandle) {
        self.bell.attach(session).await;
    }

    /// Background processes continue; other resources of the environment are released.
    pub async fn close(&self) {
        if let Err(error) = self.environment.close().await {
            tracing::warn!("closing the environment of commands: {error}");
        }
    }
}

/// Whether a program of this name can be started.
pub fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Removes containers left by old runs of hermes, in the background.
fn reap_containers(cx: &AppContext, config: &Config) {
    let (home, config, env) = (cx.home.clone(), config.clone(), cx.env.clone());
    task::spawn("container reaper", async move {
        match backend::reap(&home, &config, &env, &SystemClock).await {
            Ok(0) => {}
            Ok(count) => tracing::info!("{count} old containers were removed"),
            Err(error) => tracing::warn!("old containers stay: {error}"),
        }
    });
}

/// Who judges in `approvals.mode: smart`.
fn judge(config: &Config, router: Arc<dyn ModelRouter>) -> ModelJudge {
    let seconds = config.auxiliary.task(hermes_policy::judge::TASK).timeout;
    ModelJudge::new(router, Duration::from_secs(seconds.max(1)))
}

/// Delivers notices about background processes to their sessions.
#[derive(Default)]
struct ProcessNotifier(Mutex<NotifierState>);

#[derive(Default)]
struct NotifierState {
    sessions: HashMap<SessionId, WeakSession>,
    /// For sessions that are not open.
    waiting: VecDeque<Notice>,
}

impl ProcessNotifier {
    async fn attach(&self, session: &SessionHandle) {
        let id = session.id().clone();
        let waiting = {
            let mut known = self.lock();
            known.sessions.retain(|_, open| open.upgrade().is_some());
            known.sessions.insert(id.clone(), session.downgrade());
            let (ours, others) = std::mem::take(&mut known.waiting)
                .into_iter()
                .partition(|notice| notice.session == id);
            known.waiting = others;
            let ours: VecDeque<Notice> = ours;
            ours
        };
        for notice in waiting {
            send_notice(session, &notice).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, NotifierState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, session: &SessionId) -> Option<SessionHandle> {
        self.lock().sessions.get(session)?.upgrade()
    }
}

async fn send_notice(session: &SessionHandle, notice: &Notice) {
    if !notice.is_stale() {
        let command = AgentCommand::Inform {
            headline: notice.headline(),
            text: notice.text(),
            wakes: true,
        };
        // a session that ended needs no notices
        let _ = session.send(command).await;
    }
}

impl Notices for ProcessNotifier {
    fn deliver(&self, notice: Notice) {
        let Some(session) = self.open(&notice.session) else {
            let mut known = self.lock();
            if known.waiting.len() == MAX_WAITING {
                known.waiting.pop_front();
            }
            known.waiting.push_back(notice);
            return;
        };
        task::spawn(
            "notice",
            async move { send_notice(&session, &notice).await },
        );
    }

    fn can_reach(&self, session: &SessionId) -> bool {
        self.open(session).is_some()
    }
}
