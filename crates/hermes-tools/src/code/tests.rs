use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_config::{Config, Env, Home, ProcessEnv};
use hermes_core::BoxFuture;
use hermes_core::approval::{Approver, DenyAll, Presence, Verdict};
use hermes_core::ask::DeclineAll;
use hermes_core::clock::SystemClock;
use hermes_core::event::ProgressSink;
use hermes_core::ids::{SessionId, TurnId};
use hermes_core::tool::{
    Effects, Registry, Taint, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_exec::local::{Declared, LocalEnvironment, LocalSettings};
use hermes_exec::{Confine, Confinement, ExecError, Launch, Workspaces};
use hermes_policy::{Gate, PolicyConfig};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::module::{CallTransport, command, module};
use super::rpc::{self, ProgramCalls};
use super::{CodeDeps, CodeMode, HELPERS, tools};

/// Confines nothing, but gives every program a session of its own.
struct Plain;

impl Confine for Plain {
    fn wrap(&self, mut launch: Launch, _: &Confinement) -> Result<Launch, ExecError> {
        let program = std::mem::replace(&mut launch.program, "setsid".into());
        launch.args.insert(0, program);
        Ok(launch)
    }

    fn posture(&self) -> String {
        "not confined".into()
    }

    fn enforces(&self) -> bool {
        false
    }

    fn blocked(&self, _: i32, _: &str, _: &Confinement) -> Option<String> {
        None
    }
}

/// Everything is approved beforehand.
struct AllowAll;

impl Approver for AllowAll {
    fn decide(&self, _: hermes_core::approval::ApprovalRequest) -> BoxFuture<'_, Verdict> {
        Box::pin(std::future::ready(Verdict::Once))
    }

    fn presence(&self) -> Presence {
        Presence::Standing
    }
}

/// A helper that says what it was given, and how many run at once.
struct Echo {
    spec: ToolSpec,
    running: AtomicUsize,
    most: AtomicUsize,
    seen: Mutex<Vec<Value>>,
    meet: Option<tokio::sync::Barrier>,
}

impl Echo {
    fn new(name: &str, untrusted: bool, meet: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            spec: ToolSpec {
                untrusted,
                ..ToolSpec::new(name, "test", Effects::ReadOnly, "", json!({}))
            },
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            seen: Mutex::default(),
            meet: meet.map(tokio::sync::Barrier::new),
        })
    }
}

impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, _: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            if let Some(meet) = &self.meet {
                meet.wait().await;
            }
            self.running.fetch_sub(1, Ordering::SeqCst);
            let args = Value::Object(args);
            self.seen.lock().unwrap().push(args.clone());
            if args["path"] == "missing" {
                return ToolOutcome::error(ToolErrorKind::Failed, "no such file");
            }
            ToolOutcome::json(&json!({ "echo": args }))
        })
    }
}

struct CodeHarness {
    dir: tempfile::TempDir,
    deps: CodeDeps,
    context: ToolContext,
}

impl CodeHarness {
    fn new(helpers: Vec<Arc<dyn Tool>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let config = Config::default();
        let path = std::env::var("PATH").unwrap();
        let process = ProcessEnv::from_vars([
            ("PATH", path.as_str()),
            ("HOME", "/nowhere"),
            ("LANG", "C.UTF-8"),
        ]);
        let env = Env::from_process(&process);
        let mut settings =
            LocalSettings::from_config(&home, &config, &env, &process, Declared::default());
        settings.login.files.clear();
        settings.login.login = false;
        settings.grace = Duration::from_millis(300);
        let environment = LocalEnvironment::new(settings, Arc::new(Plain)).unwrap();
        let policy = PolicyConfig::from_config(&home, &config);
        let deps = CodeDeps::from_config(
            &config,
            Arc::new(environment),
            Workspaces::default(),
            Gate::new(policy),
            None,
        );
        let context = ToolContext {
            session: SessionId::from("s1"),
            turn: TurnId(1),
            call_id: "c1".into(),
            cwd: dir.path().into(),
            cancel: CancellationToken::new(),
            clock: Arc::new(SystemClock),
            approver: Arc::new(AllowAll),
            asker: Arc::new(DeclineAll),
            progress: ProgressSink::none(),
            registry: Registry::new(helpers),
            taint: Taint::default(),
        };
        Self { dir, deps, context }
    }

    async fn run(&self, code: &str) -> Value {
        match self.outcome(code).await {
            ToolOutcome::Done(content) => serde_json::from_str(&content.text()).unwrap(),
            ToolOutcome::Error { text, .. } => panic!("{text}"),
        }
    }

    async fn outcome(&self, code: &str) -> ToolOutcome {
        let path = std::env::var("PATH").unwrap();
        let tool = tools(self.deps.clone(), &path).unwrap().remove(0);
        let args = json!({ "code": code }).as_object().unwrap().clone();
        tool.call(args, &self.context).await
    }
}

#[tokio::test]
async fn thirty_calls_with_logic_between_them() {
    let read = Echo::new("read_file", false, None);
    let harness = CodeHarness::new(vec![read.clone()]);
    let result = harness
        .run(
            r#"
from hermes_tools import read_file
total = 0
for n in range(30):
    answer = read_file("file %d" % n, offset=n + 1)
    total += answer["echo"]["offset"]
print("total", total)
print(read_file("missing"))
"#,
        )
        .await;
    assert_eq!(result["status"], "success", "{result}");
    assert_eq!(result["output"], "total 465\n{'error': 'no such file'}\n");
    assert_eq!(result["tool_calls_made"], 31);
    assert_eq!(result["stdout_truncated"], false);
}

#[tokio::test]
async fn threads_call_side_by_side() {
    // Nobody leaves before all eight are there.
    let read = Echo::new("read_file", false, Some(8));
    let harness = CodeHarness::new(vec![read.clone()]);
    let result = harness
        .run(
            r#"
from concurrent.futures import ThreadPoolExecutor
from hermes_tools import read_file
with ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(lambda n: read_file("f", offset=n)["echo"]["offset"], range(16)))
print(answers == list(range(16)))
"#,
        )
        .await;
    assert_eq!(result["output"], "True\n", "{result}");
    assert_eq!(read.most.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_program_gets_the_helpers_of_its_session_and_no_others() {
    let harness = CodeHarness::new(Vec::new());
    let result = harness
        .run("import hermes_tools\nprint([n for n in ('read_file', 'terminal', 'patch') if hasattr(hermes_tools, n)])\nprint(hermes_tools._call('terminal', command='true'))")
        .await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("[]\n"), "{output}");
    assert!(output.contains("there are none"), "{output}");
}

#[tokio::test]
async fn the_model_is_told_of_helpers_that_are_there() {
    let harness = CodeHarness::new(Vec::new());
    let path = std::env::var("PATH").unwrap();
    let tool = tools(harness.deps.clone(), &path).unwrap().remove(0);
    let told = |helpers: Vec<Arc<dyn Tool>>| tool.offered(&Registry::new(helpers)).description;
    let one = told(vec![Echo::new("read_file", false, None)]);
    assert!(one.contains("import read_file;"), "{one}");
    let none = told(Vec::new());
    assert!(!none.contains("hermes_tools"), "{none}");
}

#[tokio::test]
async fn the_limit_of_calls_holds() {
    let mut harness = CodeHarness::new(vec![Echo::new("read_file", false, None)]);
    harness.deps.max_calls = 3;
    let result = harness
        .run("from hermes_tools import read_file\nfor n in range(5): print('error' in read_file('x'))")
        .await;
    assert_eq!(result["output"], "False\nFalse\nFalse\nTrue\nTrue\n");
    assert_eq!(result["tool_calls_made"], 3);
}

#[tokio::test]
async fn commands_of_programs_cannot_outlive_them() {
    let terminal = Echo::new("terminal", false, None);
    let harness = CodeHarness::new(vec![terminal.clone()]);
    harness
        .run("import hermes_tools\nhermes_tools._call('terminal', command='x', background=True, pty=True, notify_on_complete=True, watch_patterns=['a'], timeout=5)")
        .await;
    assert_eq!(
        *terminal.seen.lock().unwrap(),
        [json!({ "command": "x", "timeout": 5 })]
    );
}

#[tokio::test]
async fn what_comes_from_outside_taints_and_is_fenced() {
    let harness = CodeHarness::new(vec![
        Echo::new("web_search", true, None),
        Echo::new("read_file", false, None),
    ]);
    let plain = harness
        .run("from hermes_tools import read_file\nprint(read_file('a file that is at home here'))")
        .await;
    assert!(!plain["output"].as_str().unwrap().contains("untrusted"));
    assert!(!harness.context.taint.is_marked());
    assert!(plain.get("from_outside").is_none());
    let result = harness
        .run("from hermes_tools import web_search\nprint(web_search('what is there out in the world'))")
        .await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("<untrusted_tool_result"), "{output}");
    assert!(harness.context.taint.is_marked());
}

/// Whatever way a program takes to the network, it is not known to stay off it.
#[tokio::test]
async fn a_program_that_could_fetch_taints() {
    for code in [
        "import urllib.request",
        "import os\nos.getpid()",
        "__import__('sock' + 'et')",
        "import random\nrandom._os.getpid()",
        "exec('import ' + 'http')",
        "import re\nre.enum.sys.modules",
        "from importlib import import_module",
    ] {
        let harness = CodeHarness::new(Vec::new());
        let result = harness.run(code).await;
        assert!(harness.context.taint.is_marked(), "{code}: {result}");
        assert_eq!(result["from_outside"], true, "{code}");
    }
    for code in [
        "print(1 + 1)",
        "import json, re\nprint(json.dumps(re.findall('a', 'aa')))",
    ] {
        let harness = CodeHarness::new(Vec::new());
        let result = harness.run(code).await;
        assert!(!harness.context.taint.is_marked(), "{code}: {result}");
    }
}

#[tokio::test]
async fn errors_and_floods_of_output() {
    let harness = CodeHarness::new(Vec::new());
    let result = harness
        .run("import sys\nprint('x' * 200000)\nprint('\\x1b[31mred\\x1b[0m')\nsys.stderr.write('oh\\n')\nraise ValueError('no')")
        .await;
    assert_eq!(result["status"], "error");
    assert_eq!(result["exit_code"], 1);
    assert_eq!(result["error"], "ValueError: no");
    assert_eq!(result["stdout_truncated"], true);
    let output = result["output"].as_str().unwrap();
    assert!(output.len() < 65_000);
    assert!(output.contains("red\n") && !output.contains('\u{1b}'));
    assert!(
        output.contains("--- stderr ---\noh"),
        "{}",
        &output[output.len() - 400..]
    );
    assert!(result["warning"].is_string());
    assert!(!output.contains("main.py"), "{output}");
    assert_eq!(harness.run("exit(3)").await["exit_code"], 3);
    let wrong = harness.run("print('a'\n").await;
    assert!(
        wrong["error"].as_str().unwrap().starts_with("SyntaxError"),
        "{wrong}"
    );
}

#[tokio::test]
async fn a_runaway_program_is_killed_with_its_children() {
    let mut harness = CodeHarness::new(Vec::new());
    harness.deps.timeout = Duration::from_millis(1500);
    let mark = harness.dir.path().join("alive");
    let code = format!(
        r#"
import subprocess, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["bash", "-c", "trap '' TERM; while true; do date +%s%N > {}; sleep 0.05; done"], start_new_session=True)
print(child.pid, flush=True)
while True: time.sleep(1)
"#,
        mark.display()
    );
    let result = harness.run(&code).await;
    assert_eq!(result["status"], "timeout", "{result}");
    let output = result["output"].as_str().unwrap();
    assert!(output.contains("was killed after"), "{output}");
    let pid: u32 = output.lines().next().unwrap().parse().unwrap();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(
        state.is_empty() || state.contains(") Z "),
        "the child still runs: {state}"
    );
}

#[tokio::test]
async fn an_interrupt_stops_the_program_and_keeps_what_it_said() {
    let read = Echo::new("read_file", false, None);
    let harness = CodeHarness::new(vec![read]);
    let cancel = harness.context.cancel.clone();
    let mut context = harness.context.clone();
    context.progress = ProgressSink::new(move |_| cancel.cancel());
    let harness = CodeHarness { context, ..harness };
    let result = harness
        .run("from hermes_tools import read_file\nimport time\nprint('begun', flush=True)\nread_file('x')\ntime.sleep(600)")
        .await;
    assert_eq!(result["status"], "interrupted");
    assert!(result["output"].as_str().unwrap().starts_with("begun"));
}

#[tokio::test]
async fn nothing_of_ours_reaches_the_interpreter() {
    let mut harness = CodeHarness::new(Vec::new());
    harness.deps.passthrough = vec!["WANTED".into()];
    let planted = harness.dir.path().join("planted");
    std::fs::create_dir(&planted).unwrap();
    std::fs::write(planted.join("json.py"), "raise SystemExit(9)").unwrap();
    let state = hermes_exec::ShellState {
        cwd: harness.dir.path().into(),
        exports: [
            ("PATH", std::env::var("PATH").unwrap().as_str()),
            ("PYTHONPATH", planted.to_str().unwrap()),
            ("PYTHONSTARTUP", "/nowhere"),
            ("OPENAI_API_KEY", "sk-1"),
            ("SOME_SETTING", "1"),
            ("WANTED", "yes"),
            ("LANG", "C.UTF-8"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
    };
    harness.deps.workspaces.update(
        &harness.context.session,
        state,
        &hermes_exec::Confinement::Off,
    );
    let result = harness
        .run("import hermes_tools, os, sys\nprint(sorted(n for n in os.environ if not n.startswith('_')))\nprint(os.getcwd())")
        .await;
    let output = result["output"].as_str().unwrap().to_owned();
    let names = output.lines().next().unwrap();
    assert!(
        names.contains("'WANTED'") && names.contains("'LANG'"),
        "{result}"
    );
    for name in ["PYTHON", "OPENAI", "SOME_SETTING"] {
        assert!(!names.contains(name), "{names}");
    }
    let here = harness.dir.path().canonicalize().unwrap();
    assert_eq!(output.lines().nth(1), here.to_str());
    harness.deps.mode = CodeMode::Strict;
    let result = harness
        .run("import os\nprint(os.getcwd(), 'WANTED' in os.environ)")
        .await;
    let output = result["output"].as_str().unwrap();
    assert!(
        output.contains("hermes-code-") && output.ends_with("False\n"),
        "{output}"
    );
}

#[tokio::test]
async fn the_interpreter_of_the_project_is_taken() {
    let harness = CodeHarness::new(Vec::new());
    let bin = harness.dir.path().join(".venv/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let fake = bin.join("python");
    std::fs::write(&fake, "#!/bin/sh\necho the project\n").unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(harness.run("print(1)").await["output"], "the project\n");
}

#[tokio::test]
async fn a_program_that_is_not_allowed_does_not_run() {
    let mut harness = CodeHarness::new(Vec::new());
    harness.context.approver = Arc::new(DenyAll);
    let made = harness.dir.path().join("made");
    let code = format!("import os\nos.system('touch {}')", made.display());
    let outcome = harness.outcome(&code).await;
    assert!(
        matches!(
            &outcome,
            ToolOutcome::Error {
                kind: ToolErrorKind::Denied,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert!(!made.exists());
    let outcome = harness.outcome("  ").await;
    assert!(matches!(
        outcome,
        ToolOutcome::Error {
            kind: ToolErrorKind::BadArguments,
            ..
        }
    ));
}

#[tokio::test]
async fn the_socket_is_private_and_wants_the_token() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let harness = CodeHarness::new(vec![Echo::new("read_file", false, None)]);
    let path = harness.dir.path().join("rpc");
    let listener = rpc::listen(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let calls = ProgramCalls::new(
        harness.context.clone(),
        vec!["read_file"],
        "secret".into(),
        50,
    );
    let talk = async {
        let ask = async |request: &str| {
            let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).await.unwrap();
            line
        };
        let wrong = [
            r#"{"id":1,"token":"guess","tool":"read_file","args":{}}"#,
            r#"{"id":1,"tool":"read_file","args":{}}"#,
            "not json",
        ];
        for request in wrong {
            assert_eq!(ask(&format!("{request}\n")).await, "", "{request}");
        }
        let right =
            ask("{\"id\":9,\"token\":\"secret\",\"tool\":\"read_file\",\"args\":{}}\n").await;
        let right: Value = serde_json::from_str(&right).unwrap();
        assert_eq!(
            (right["id"].as_u64(), right["ok"].as_bool()),
            (Some(9), Some(true))
        );
    };
    tokio::select! {
        () = rpc::serve(listener, &calls) => panic!("the server ended"),
        () = talk => {}
    }
    assert_eq!(calls.made(), 1);
}

#[test]
fn without_python_the_tool_is_not_offered() {
    let harness = CodeHarness::new(Vec::new());
    let why = tools(harness.deps, "/nowhere").err().unwrap();
    assert!(why.contains("python3"), "{why}");
}

#[test]
fn generated_text_survives_odd_paths() {
    let socket = "/tmp/it's \"odd\"\\x/rpc";
    let text = module(&HELPERS, &CallTransport::Socket(socket), "t");
    assert!(text.contains(r#"_SOCKET = "/tmp/it's \"odd\"\\x/rpc""#));
    for helper in HELPERS {
        assert!(text.contains(&format!("def {helper}(")));
    }
    let script = command("/tmp/it's", true, &["GOOD_1".into(), "bad;rm".into()]);
    assert!(script.contains("GOOD_1)") && !script.contains("bad;rm"));
    assert!(script.contains(r"'/tmp/it'\''s/main.py'"));
}

/// An environment on another machine, as far as this tool can tell.
struct RemoteStub(LocalEnvironment);

impl hermes_exec::Environment for RemoteStub {
    fn info(&self) -> hermes_exec::EnvironmentInfo {
        hermes_exec::EnvironmentInfo {
            kind: "far",
            isolated: true,
            posture: "elsewhere".into(),
        }
    }

    fn exec<'a>(
        &'a self,
        command: hermes_exec::Exec,
        sink: &'a mut dyn hermes_exec::OutputSink,
    ) -> BoxFuture<'a, Result<hermes_exec::ExecOutcome, ExecError>> {
        self.0.exec(command, sink)
    }

    fn spawn(
        &self,
        command: hermes_exec::BackgroundStart,
    ) -> BoxFuture<'_, Result<Box<dyn hermes_exec::Background>, ExecError>> {
        self.0.spawn(command)
    }

    fn adopt(
        &self,
        record: hermes_exec::BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn hermes_exec::Background>>, ExecError>> {
        self.0.adopt(record)
    }

    fn files(&self) -> &dyn hermes_exec::Files {
        self.0.files()
    }

    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.0.suspend()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.0.close()
    }
}

#[tokio::test]
async fn elsewhere_calls_travel_as_files() {
    let read = Echo::new("read_file", false, Some(4));
    let mut harness = CodeHarness::new(vec![read.clone()]);
    let home = Home::at(harness.dir.path().join("far"));
    let process = ProcessEnv::from_vars([("PATH", std::env::var("PATH").unwrap())]);
    let env = Env::from_process(&process);
    let mut settings = LocalSettings::from_config(
        &home,
        &Config::default(),
        &env,
        &process,
        Declared::default(),
    );
    settings.login.files.clear();
    settings.login.login = false;
    harness.deps.environment = Arc::new(RemoteStub(
        LocalEnvironment::new(settings, Arc::new(Plain)).unwrap(),
    ));
    let result = harness
        .run(
            r#"
from concurrent.futures import ThreadPoolExecutor
import hermes_tools
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(lambda n: hermes_tools.read_file("f", offset=n)["echo"]["offset"], range(4))))
print(hermes_tools._DIRECTORY)
"#,
        )
        .await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("[0, 1, 2, 3]\n"), "{result}");
    assert_eq!(read.most.load(Ordering::SeqCst), 4);
    let dir = Path::new(output.lines().nth(1).unwrap());
    assert!(
        dir.is_absolute() && !PathBuf::from(dir).exists(),
        "left behind: {dir:?}"
    );
}
