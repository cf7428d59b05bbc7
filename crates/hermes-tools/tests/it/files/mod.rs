//! The file tools on real directories.

mod attack;
mod checkpoints;
mod oracle;
mod patch;
mod properties;
mod read;
mod remote;
mod search;
mod side_by_side;
mod write;

use hermes_testkit::directories::beyond_temporary;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_config::Config;
use hermes_config::home::Home;
use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Approver, DenyAll, Verdict};
use hermes_core::clock::SystemClock;
use hermes_core::event::ProgressSink;
use hermes_core::ids::TurnId;
use hermes_core::tool::{Registry, Taint, ToolContext, ToolErrorKind, ToolOutcome};
use hermes_exec::local::{LocalEnvironment, LocalSettings, LoginScripts, VariablePolicy};
use hermes_exec::{Confine, Confinement, Environment, ExecError, Launch, Variables, Workspaces};
use hermes_policy::{Gate, PolicyConfig};
use hermes_tools::files::{self, Checkpoints, FileDeps};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A directory with a home and a project, and the file tools in the project.
struct FilesHarness {
    dir: tempfile::TempDir,
    deps: FileDeps,
    registry: Registry,
    cx: ToolContext,
}

impl FilesHarness {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut FileDeps)) -> Self {
        Self::with_config(&Config::default(), change)
    }

    fn with_config(config: &Config, change: impl FnOnce(&mut FileDeps)) -> Self {
        let dir = beyond_temporary(env!("CARGO_TARGET_TMPDIR"));
        let root = dir.path().canonicalize().unwrap();
        let home = Home::at(root.join("home"));
        std::fs::create_dir_all(root.join("home")).unwrap();
        std::fs::create_dir_all(root.join("project")).unwrap();
        let checkpoints = Checkpoints::from_config(&home, config, Arc::new(SystemClock));
        let mut deps = FileDeps::from_config(
            &home,
            config,
            local(&root),
            Workspaces::default(),
            Gate::new(PolicyConfig::from_config(&home, config)),
            checkpoints,
        );
        // Only the project: the directory of this test is a temporary one itself.
        deps.confining = Arc::new(|cwd| Confinement::Workspace {
            writable: vec![cwd.to_owned()],
            unreadable: Vec::new(),
            network: false,
        });
        change(&mut deps);
        let registry = Registry::new(files::tools(deps.clone()));
        let cx = context(&root.join("project"), "s1");
        Self {
            dir,
            deps,
            registry,
            cx,
        }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root().join("project").join(path)
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path)).unwrap()
    }

    async fn call(&self, name: &str, args: Value) -> ToolOutcome {
        self.call_in(name, args, &self.cx).await
    }

    async fn call_in(&self, name: &str, args: Value, cx: &ToolContext) -> ToolOutcome {
        let Value::Object(args) = args else {
            panic!("arguments are an object")
        };
        self.registry.get(name).unwrap().call(args, cx).await
    }

    /// The JSON of a result that must be a success.
    async fn ok(&self, name: &str, args: Value) -> Value {
        success(self.call(name, args).await)
    }

    /// Kind and JSON of a result that must be an error.
    async fn err(&self, name: &str, args: Value) -> (ToolErrorKind, Value) {
        failure(self.call(name, args).await)
    }
}

fn success(outcome: ToolOutcome) -> Value {
    match outcome {
        ToolOutcome::Done(content) => serde_json::from_str(&content.text()).unwrap(),
        ToolOutcome::Error { kind, text } => panic!("{kind:?}: {text}"),
    }
}

fn failure(outcome: ToolOutcome) -> (ToolErrorKind, Value) {
    match outcome {
        ToolOutcome::Error { kind, text } => {
            let value = serde_json::from_str(&text);
            (kind, value.unwrap_or_else(|_| Value::String(text)))
        }
        ToolOutcome::Done(content) => panic!("{}", content.text()),
    }
}

/// The words of an error.
fn error_of(value: &Value) -> &str {
    value["error"].as_str().or(value.as_str()).unwrap_or("")
}

fn context(cwd: &Path, session: &str) -> ToolContext {
    ToolContext {
        session: session.into(),
        turn: TurnId(1),
        call_id: "c1".to_owned(),
        cwd: cwd.to_owned(),
        cancel: CancellationToken::new(),
        clock: Arc::new(SystemClock),
        approver: Arc::new(DenyAll),
        asker: Arc::new(hermes_core::ask::DeclineAll),
        progress: ProgressSink::none(),
        registry: Registry::default(),
        taint: Taint::default(),
    }
}

/// Answers every question the same way and remembers them.
struct Answers {
    verdict: Verdict,
    asked: Mutex<Vec<ApprovalRequest>>,
}

impl Answers {
    fn new(verdict: Verdict) -> Arc<Self> {
        Arc::new(Self {
            verdict,
            asked: Mutex::default(),
        })
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Approver for Answers {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        self.asked.lock().unwrap().push(request);
        Box::pin(std::future::ready(self.verdict.clone()))
    }
}

/// Commands of these tests are checks of syntax: they get a session and no more.
struct OwnSession;

impl Confine for OwnSession {
    fn wrap(&self, mut launch: Launch, _: &Confinement) -> Result<Launch, ExecError> {
        launch.args.insert(0, launch.program.clone());
        launch.program = "setsid".into();
        Ok(launch)
    }

    fn posture(&self) -> String {
        "not confined".to_owned()
    }

    fn enforces(&self) -> bool {
        false
    }

    fn blocked(&self, _: i32, _: &str, _: &Confinement) -> Option<String> {
        None
    }
}

fn local(root: &Path) -> Arc<dyn Environment> {
    let variables = Variables::from([
        ("PATH".to_owned(), std::env::var("PATH").unwrap()),
        ("HOME".to_owned(), root.display().to_string()),
    ]);
    let settings = LocalSettings {
        bash: "/bin/bash".into(),
        variables: VariablePolicy::fixed(variables),
        login: LoginScripts {
            files: Vec::new(),
            login: false,
        },
        grace: Duration::from_secs(1),
        processes: root.join("processes"),
        own: root.join("own"),
    };
    Arc::new(LocalEnvironment::new(settings, Arc::new(OwnSession)).unwrap())
}
