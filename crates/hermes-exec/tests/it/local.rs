//! The local environment: what all environments do, and what only it does.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_exec::local::{LocalEnvironment, LoginScripts, VariablePolicy};
use hermes_exec::output::OutputCollector;
use hermes_exec::{BackgroundStart, Environment, Exec, OutputSink, OutputStream, ProcessExit};

use crate::behaviour;
use crate::support::{self, local, run, settings, unconfined};

fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            let (_dir, path) = place();
            behaviour::$name(&local(&path), &path).await;
        }
    )*};
}

behaviours!(
    output_and_exit_code,
    exports_and_directory_are_reported,
    a_missing_directory_is_126,
    input_is_closed_or_given,
    a_timeout_ends_the_whole_tree,
    an_interrupt_ends_the_whole_tree,
    a_dropped_call_ends_its_command,
    a_background_process_runs_to_its_end,
    a_background_process_takes_input,
    killing_a_background_process_kills_its_tree,
    a_background_process_is_found_again,
    files_are_written_whole,
);

#[tokio::test]
async fn a_terminal_is_given_when_asked_for() {
    let (_dir, path) = place();
    let env = local(&path);
    let script =
        "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty; stty size; echo x > /dev/tty; cat; echo end";
    let command = Exec {
        pty: true,
        ..Exec::new(script, &path)
    };
    let (finished, text) = run(&env, command).await;
    assert_eq!(finished.exit, ProcessExit::Code(0), "{text}");
    assert_eq!(text, "tty\n30 120\nx\nend\n");
    let (_, text) = run(&env, Exec::new("tty; : < /dev/tty", &path)).await;
    assert!(
        text.contains("not a tty") && text.contains("/dev/tty"),
        "{text}"
    );
}

/// What is typed at a pager passes no gate.
#[tokio::test]
async fn pagers_at_a_terminal_run_no_commands() {
    let (_dir, path) = place();
    let env = local(&path);
    std::fs::write(path.join("text"), "a\n").unwrap();
    let script = "command -v less >/dev/null && timeout -k 1 3 less '+!echo ran > made' text";
    let command = Exec {
        pty: true,
        ..Exec::new(script, &path)
    };
    let (_, text) = run(&env, command).await;
    assert!(!path.join("made").exists(), "{text}");
    let command = Exec {
        pty: true,
        ..Exec::new("echo $LESSSECURE $PAGERSECURE $GIT_MERGE_AUTOEDIT", &path)
    };
    let (_, text) = run(&env, command).await;
    assert_eq!(text, "1 1 no\n");
}

#[tokio::test]
async fn a_terminal_in_the_background_talks() {
    let (_dir, path) = place();
    let env = local(&path);
    let process = env
        .spawn(BackgroundStart {
            id: "proc_pty".to_owned(),
            script: "read -r -p 'name? ' name; echo \"hello $name\"; cat; echo end".to_owned(),
            cwd: path.clone(),
            exports: None,
            extra_env: [].into(),
            pty: true,
            confinement: hermes_exec::Confinement::Off,
        })
        .await
        .unwrap();
    behaviour::until(process.as_ref(), "name? ").await;
    process.write("you\n".into()).await.unwrap();
    behaviour::until(process.as_ref(), "hello you").await;
    process.close_stdin().await.unwrap();
    assert_eq!(process.wait().await, Some(ProcessExit::Code(0)));
    behaviour::until(process.as_ref(), "end").await;
}

#[derive(Default)]
struct Both(String, String);

impl OutputSink for Both {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        match stream {
            OutputStream::Out => self.0.push_str(&text),
            OutputStream::Err => self.1.push_str(&text),
        }
    }
}

/// The shell around it has something to say of a job that is over before it looks.
#[tokio::test]
async fn a_background_process_that_ends_at_once_says_only_what_it_says() {
    let (_dir, path) = place();
    let env = local(&path);
    for round in 0..40 {
        let command = behaviour::start(&format!("proc_{round}"), "echo out; exit 5", &path);
        let process = env.spawn(command).await.unwrap();
        assert_eq!(process.wait().await, Some(ProcessExit::Code(5)));
        let said = process.read(0, 1 << 20).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&said.bytes), "out\n");
    }
}

#[tokio::test]
async fn the_streams_can_be_told_apart() {
    let (_dir, path) = place();
    let command = Exec {
        split: true,
        ..Exec::new("echo out; echo err >&2", &path)
    };
    let mut both = Both::default();
    local(&path).exec(command, &mut both).await.unwrap();
    assert_eq!((both.0.as_str(), both.1.as_str()), ("out\n", "err\n"));
}

#[tokio::test]
async fn a_grandchild_that_holds_the_output_ends_with_its_command() {
    let (_dir, path) = place();
    let script = "sleep 600 & echo $! > pid; echo done";
    let command = Exec {
        timeout: Duration::from_secs(500),
        ..Exec::new(script, &path)
    };
    let (finished, text) = run(&local(&path), command).await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::Code(0), "done\n")
    );
    let (_, text) = run(
        &local(&path),
        Exec::new("kill -0 $(cat pid) 2>/dev/null || echo ended", &path),
    )
    .await;
    assert_eq!(text, "ended\n");
}

#[tokio::test]
async fn a_flood_of_output_is_counted_and_bounded() {
    let (_dir, path) = place();
    let mut collector = OutputCollector::new(50_000);
    let script = "head -c 200000000 /dev/zero | tr '\\0' x";
    let finished = local(&path)
        .exec(Exec::new(script, &path), &mut collector)
        .await
        .unwrap();
    assert_eq!(finished.exit, ProcessExit::Code(0));
    let kept = collector.finish().kept;
    assert_eq!(kept.total_bytes, 200_000_000);
    assert!(kept.head.len() + kept.tail.len() <= 50_000);
}

#[tokio::test]
async fn a_long_command_is_no_problem() {
    let (_dir, path) = place();
    let long = "x".repeat(300_000);
    let (finished, text) = run(
        &local(&path),
        Exec::new(format!("echo {long} | wc -c"), &path),
    )
    .await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::Code(0), "300001\n")
    );
}

#[tokio::test]
async fn the_login_shell_is_read_once() {
    let (_dir, path) = place();
    std::fs::write(
        path.join("rc"),
        "echo loaded >> $HOME/loads\nexport FROM_LOGIN=yes\ngreet() { echo \"hi $1\"; }\n_hidden() { :; }\nalias ll='echo listed'\n",
    )
    .unwrap();
    let mut settings = settings(&path);
    settings.login = LoginScripts {
        files: vec![path.join("rc"), path.join("absent")],
        login: false,
    };
    let env = LocalEnvironment::new(settings, unconfined()).unwrap();
    for _ in 0..2 {
        let (_, text) = run(&env, Exec::new("echo $FROM_LOGIN; greet you; ll", &path)).await;
        assert_eq!(text, "yes\nhi you\nlisted\n");
    }
    let (_, text) = run(&env, Exec::new("_hidden", &path)).await;
    assert!(text.contains("command not found"), "{text}");
    let loads = std::fs::read_to_string(path.join("loads")).unwrap();
    assert_eq!(loads, "loaded\n");
}

/// The login scripts are not confined, and commands may have installed programs in an environment of a project.
#[tokio::test]
async fn login_scripts_run_nothing_of_a_project() {
    let (_dir, path) = place();
    let bin = path.join("work/node_modules/.bin");
    std::fs::create_dir_all(&bin).unwrap();
    let planted = "#!/bin/sh\necho planted >> \"$HOME/planted\"\n";
    std::fs::write(bin.join("id"), planted).unwrap();
    std::fs::set_permissions(bin.join("id"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(
        path.join("rc"),
        "id -u >/dev/null; export SEEN=$PERL5LIB PATH=/mine:$PATH\n",
    )
    .unwrap();
    let mut variables = support::variables(&path);
    let given = format!("{}:.:/usr/bin:/bin", bin.display());
    variables.insert("PATH".to_owned(), given.clone());
    variables.insert("PERL5LIB".to_owned(), "/lib/of/project".to_owned());
    let mut settings = settings(&path);
    settings.variables = VariablePolicy::fixed(variables);
    settings.login = LoginScripts {
        files: vec![path.join("rc")],
        login: false,
    };
    let env = LocalEnvironment::new(settings, unconfined()).unwrap();
    let (_, text) = run(&env, Exec::new("echo $PATH; echo $PERL5LIB:$SEEN", &path)).await;
    assert_eq!(text, format!("/mine:{given}\n/lib/of/project:\n"));
    assert!(!path.join("planted").exists());
}

#[tokio::test]
async fn commands_see_nothing_of_our_environment() {
    let (_dir, path) = place();
    let (_, text) = run(&local(&path), Exec::new("env | cut -d= -f1 | sort", &path)).await;
    let names: Vec<&str> = text.lines().collect();
    assert_eq!(
        names,
        ["HOME", "LC_ALL", "PATH", "PWD", "SHLVL", "_", "_HERMES_RUN"]
    );
}

#[tokio::test]
async fn a_process_of_another_number_is_not_adopted() {
    let (_dir, path) = place();
    let env = local(&path);
    let mut record = hermes_exec::BackgroundRecord {
        id: "proc_stranger".to_owned(),
        pid: std::process::id(),
        start_time: Some(1),
        ..Default::default()
    };
    assert!(env.adopt(record.clone()).await.unwrap().is_none());
    record.start_time = None;
    assert!(env.adopt(record).await.unwrap().is_none());
}

#[tokio::test]
async fn sessions_of_one_environment_run_side_by_side() {
    let (_dir, path) = place();
    let env = Arc::new(local(&path));
    let one = |n: usize, env: Arc<LocalEnvironment>, path: PathBuf| async move {
        let script = format!("export N={n}; sleep 0.05; echo $N");
        let (finished, text) = run(env.as_ref(), Exec::new(script, &path)).await;
        (text, finished.state.unwrap().exports["N"].clone())
    };
    let all = (0..8).map(|n| one(n, env.clone(), path.clone()));
    for (n, (text, export)) in futures_util::future::join_all(all)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(text, format!("{n}\n"));
        assert_eq!(export, n.to_string());
    }
}
