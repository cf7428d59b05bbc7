mod memory;
mod schema;
mod session_search;
mod skills;
mod todo;

use std::path::PathBuf;

use hermes_core::approval::DenyAll;
use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::event::ProgressSink;
use hermes_core::ids::TurnId;
use hermes_core::tool::{Registry, ToolContext};
use hermes_store::MemoryLimits;
use hermes_store::skills::Settings;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;

/// A home in a temporary directory, and its tools.
struct Bench {
    dir: tempfile::TempDir,
    deps: StoreTools,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        std::fs::create_dir_all(home.skills_dir()).unwrap();
        let limits = MemoryLimits {
            memory: 60,
            user: 60,
        };
        let deps = StoreTools {
            memory: MemoryFiles::new(home.memories_dir(), limits),
            memory_targets: vec![MemoryTarget::Memory, MemoryTarget::User],
            memory_approval: false,
            skills: SkillLibrary::new(Settings::new(home.skills_dir())),
            skills_approval: false,
            store: None,
            todos: TodoList::default(),
            background: false,
            rng: Arc::new(SystemRng),
            declare: None,
            inline: None,
            home,
        };
        Self { dir, deps }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    fn tools(&self) -> Tools {
        Tools {
            registry: Registry::new(store_backed(self.deps.clone())),
            cx: self.cx(1),
        }
    }

    fn cx(&self, turn: u64) -> ToolContext {
        ToolContext {
            session: "s1".into(),
            turn: TurnId(turn),
            call_id: "c1".to_owned(),
            cwd: self.dir.path().to_path_buf(),
            cancel: CancellationToken::new(),
            clock: Arc::new(SystemClock),
            approver: Arc::new(DenyAll),
            asker: Arc::new(hermes_core::ask::DeclineAll),
            progress: ProgressSink::none(),
            registry: hermes_core::tool::Registry::default(),
            taint: hermes_core::tool::Taint::default(),
        }
    }
}

struct Tools {
    registry: Registry,
    cx: ToolContext,
}

impl Tools {
    async fn call(&self, name: &str, args: Value) -> ToolOutcome {
        let Value::Object(args) = args else {
            panic!("arguments are an object")
        };
        let tool = self.registry.get(name).unwrap();
        tool.call(args, &self.cx).await
    }

    /// The JSON of a result that must be a success.
    async fn ok(&self, name: &str, args: Value) -> Value {
        match self.call(name, args).await {
            ToolOutcome::Done(content) => serde_json::from_str(&content.text()).unwrap(),
            ToolOutcome::Error { kind, text } => panic!("{kind:?}: {text}"),
        }
    }

    /// Kind and text of a result that must be an error.
    async fn err(&self, name: &str, args: Value) -> (ToolErrorKind, String) {
        match self.call(name, args).await {
            ToolOutcome::Error { kind, text } => (kind, text),
            ToolOutcome::Done(content) => panic!("{}", content.text()),
        }
    }

    /// The same for errors that carry JSON.
    async fn err_json(&self, name: &str, args: Value) -> (ToolErrorKind, Value) {
        let (kind, text) = self.err(name, args).await;
        (kind, serde_json::from_str(&text).unwrap())
    }
}
