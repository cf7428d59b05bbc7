//! The helper that starts commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_exec::local::{LocalEnvironment, LocalSettings, LoginScripts};
use hermes_exec::sandbox::{Sandbox, SandboxChoice};
use hermes_exec::{Confine as _, Environment as _, Exec, ProcessExit, Stdin};
use rustix::process::{Pid, Signal, kill_process};

use crate::contract::confined::{outside, settings as sandbox_settings};
use crate::support::{local, run, settings};

/// How often something is looked for, ten milliseconds apart: half a minute.
const LOOKS: usize = 3000;

/// Our children, also those that have ended and that nobody has taken note of.
fn children() -> Vec<u32> {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
    // Any thread may have started them.
    let mut found: Vec<u32> = std::fs::read_dir(format!("/proc/{own}/task"))
        .unwrap()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .chain(children)
        .flat_map(|text| {
            let pids: Vec<u32> = text.split_whitespace().flat_map(str::parse).collect();
            pids
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Those that wait for a command.
fn waiting() -> Vec<u32> {
    let mut found = children();
    found.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"--wait")
    });
    found
}

/// The group of a process: a helper leads one, and a copy that has no command yet is in it.
fn group(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(2)?.parse().ok()
}

/// The helper that waits, once no command is on its way.
async fn helper() -> u32 {
    for _ in 0..LOOKS {
        if let [pid] = helpers()[..] {
            return pid;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("no helper waits: {:?}", waiting());
}

/// Dead, whether or not anybody has looked at how it ended.
async fn until_gone(pid: u32) {
    for _ in 0..LOOKS {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => {}
            _ => return,
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{pid} lives on");
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

#[tokio::test]
async fn all_commands_come_from_one_helper_and_are_our_children() {
    let (_dir, path) = place();
    let env = local(&path);
    run(&env, Exec::new("true", &path)).await;
    let pid = helper().await;
    for split in [false, true] {
        // The process between us and the command reaps its orphans.
        let script = "read -r _ _ _ ours _ session _ </proc/$PPID/stat; echo $ours $PPID $session";
        let mut command = Exec::new(script, &path);
        command.split = split;
        let (_, text) = run(&env, command).await;
        let [ours, parent, session] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{text:?}");
        };
        assert_eq!(ours, std::process::id().to_string());
        // It leads a session of its own.
        assert_eq!(parent, session);
        assert_eq!(helper().await, pid);
    }
    env.close().await.unwrap();
    // It is killed, and gone once it was waited for.
    for _ in 0..LOOKS {
        if waiting().is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("left behind: {:?}", waiting());
}

#[tokio::test]
async fn many_at_once_get_what_is_theirs() {
    let (_dir, path) = place();
    let env = local(&path);
    let one = |number: usize| {
        let (env, path) = (&env, &path);
        async move {
            let mut command = Exec::new(format!("cat; exit {number}"), path);
            command.stdin = Stdin::Bytes(number.to_string().into());
            let (finished, text) = run(env, command).await;
            assert_eq!(
                (finished.exit.code(), text),
                (number as i32, number.to_string())
            );
        }
    };
    futures_util::future::join_all((0..12).map(one)).await;
}

/// Processes with this word on their command line.
fn with_word(word: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| {
            line.split(|byte| *byte == 0)
                .any(|one| one == word.as_bytes())
        })
        .count()
}

#[tokio::test]
async fn a_call_that_is_dropped_on_its_way_leaves_nothing() {
    let (_dir, path) = place();
    let env = local(&path);
    run(&env, Exec::new("true", &path)).await;
    let word = format!("54321.{}", std::process::id());
    for step in 0..20 {
        let mut sink = hermes_exec::output::OutputCollector::new(1000);
        let call = env.exec(Exec::new(format!("sleep {word}"), &path), &mut sink);
        let limit = std::time::Duration::from_micros(step * 200);
        assert!(tokio::time::timeout(limit, call).await.is_err());
    }
    for _ in 0..LOOKS {
        if with_word(&word) == 0 && waiting().len() <= 1 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{} of them live on", with_word(&word));
}

#[tokio::test]
async fn a_helper_that_died_costs_nothing() {
    let (_dir, path) = place();
    let env = local(&path);
    run(&env, Exec::new("true", &path)).await;
    let pid = helper().await;
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    until_gone(pid).await;
    let (finished, text) = run(&env, Exec::new("echo once | tee -a said", &path)).await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::Code(0), "once\n")
    );
    let said = std::fs::read_to_string(path.join("said")).unwrap();
    assert_eq!(said, "once\n");
}

#[tokio::test]
async fn input_and_environment_arrive_whole() {
    let (_dir, path) = place();
    let env = local(&path);
    let long = "x".repeat(90_000);
    for _ in 0..2 {
        let mut command = Exec::new("wc -c; echo ${#LONG}", &path);
        command.stdin = Stdin::Bytes(vec![b'y'; 1_000_000].into());
        command.extra_env.insert("LONG".to_owned(), long.clone());
        let (_, text) = run(&env, command).await;
        assert_eq!(text, "1000000\n90000\n");
        let (_, text) = run(&env, Exec::new("readlink /proc/self/fd/0", &path)).await;
        assert_eq!(text, "/dev/null\n");
    }
}

pub(crate) struct Confined {
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) env: LocalEnvironment,
}

/// In the kernel's sandbox, with a login that defines a function.
pub(crate) fn confined(test: &str) -> Option<Confined> {
    let dir = outside();
    let path = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(path.join("home/.hermes/cache")).unwrap();
    std::fs::create_dir(path.join("work")).unwrap();
    std::fs::write(path.join("rc"), "greet() { echo hello; }\n").unwrap();
    let sandbox = Arc::new(Sandbox::detect(sandbox_settings(
        SandboxChoice::Landlock,
        &path,
    )));
    if !sandbox.enforces() {
        hermes_testkit::oracle::skip(&sandbox.posture(), test);
        return None;
    }
    let env = LocalEnvironment::new(confined_settings(&path), sandbox.clone()).unwrap();
    Some(Confined {
        _dir: dir,
        path,
        sandbox,
        env,
    })
}

fn confined_settings(path: &Path) -> LocalSettings {
    let mut settings = settings(path);
    settings.own = path.join("home/.hermes/cache/exec");
    settings.login = LoginScripts {
        files: vec![path.join("rc")],
        login: false,
    };
    settings
}

impl Confined {
    /// The same place with another shell.
    pub(crate) fn with_bash(&self, bash: &Path) -> LocalEnvironment {
        let mut settings = confined_settings(&self.path);
        bash.clone_into(&mut settings.bash);
        LocalEnvironment::new(settings, self.sandbox.clone()).unwrap()
    }

    pub(crate) async fn run(&self, script: &str, cwd: &Path) -> String {
        let mut command = Exec::new(script, cwd);
        command.confinement = self.sandbox.confinement(cwd);
        run(&self.env, command).await.1
    }
}

#[tokio::test]
async fn what_came_since_it_was_started_is_there() {
    let Some(place) = confined("what_came_since_it_was_started_is_there") else {
        return;
    };
    let work = place.path.join("work");
    place.run("true", &work).await;
    helper().await;
    // Beside the home, where every entry is permitted by itself.
    std::fs::create_dir(place.path.join("home/new")).unwrap();
    std::fs::write(place.path.join("home/new/file"), "seen\n").unwrap();
    let text = place.run("cat ../home/new/file", &work).await;
    assert_eq!(text, "seen\n");
}

/// The copy that waits for the next command.
async fn spare(helper: u32) -> u32 {
    for _ in 0..LOOKS {
        let is_spare = |pid: &u32| *pid != helper && group(*pid) == Some(helper);
        if let [pid] = waiting().into_iter().filter(is_spare).collect::<Vec<_>>()[..] {
            return pid;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("no copy waits: {:?}", waiting());
}

/// Helpers that wait for a command.
fn helpers() -> Vec<u32> {
    let mut found = waiting();
    found.retain(|pid| group(*pid) == Some(*pid));
    found
}

#[tokio::test]
async fn a_copy_that_waits_gets_the_next_command_and_leaves_nothing_behind() {
    // Files of tests that run at the same time belong to the rules: if they change in the middle, another helper
    // starts, and what this test asserts of one helper does not hold.
    for _ in 0..20 {
        let Some(place) = confined("a_copy_that_waits_gets_the_next_command") else {
            return;
        };
        let kept_one_helper = copies_that_wait_are_used_and_replaced(&place).await;
        place.env.close().await.unwrap();
        drop(place);
        until_no_child_is_left().await;
        if kept_one_helper {
            return;
        }
    }
    panic!("the rules changed twenty times");
}

/// `false`: another helper started in the middle.
async fn copies_that_wait_are_used_and_replaced(place: &Confined) -> bool {
    let work = place.path.join("work");
    place.run("true", &work).await;
    let helper = helper().await;
    if !place.sandbox.describe().weaker.is_empty() {
        return true;
    }
    let first = spare(helper).await;
    let text = place.run("echo $$; ls -d /proc/[0-9]*", &work).await;
    // The second process of a table in which nobody else is.
    assert!(text.starts_with("2\n"), "{text}");
    if helpers() != [helper] {
        return false;
    }
    let second = spare(helper).await;
    assert_ne!(first, second);
    // One that was killed is replaced.
    kill_process(Pid::from_raw(second.cast_signed()).unwrap(), Signal::KILL).unwrap();
    until_gone(second).await;
    assert_eq!(place.run("echo on", &work).await, "on\n");
    if helpers() != [helper] {
        return false;
    }
    let third = spare(helper).await;
    assert!(!waiting().contains(&second));
    // It ends with the helper.
    kill_process(Pid::from_raw(helper.cast_signed()).unwrap(), Signal::KILL).unwrap();
    until_gone(third).await;
    assert_eq!(place.run("echo on", &work).await, "on\n");
    true
}

async fn until_no_child_is_left() {
    for _ in 0..LOOKS {
        if children().is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let stats = children()
        .iter()
        .map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default())
        .collect::<String>();
    panic!("left behind: {stats}");
}

#[tokio::test]
async fn rules_that_served_before_fit_what_is_there_now() {
    let Some(place) = confined("rules_that_served_before_fit_what_is_there_now") else {
        return;
    };
    let work = place.path.join("work");
    let secret = place.path.join("home/.hermes/.env");
    for round in 0..3 {
        place.run("true", &work).await;
        // Another directory of the same name is the workspace.
        std::fs::rename(&work, place.path.join(format!("was-{round}"))).unwrap();
        std::fs::create_dir(&work).unwrap();
        let text = place.run("echo mine > made && cat made", &work).await;
        assert_eq!(text, "mine\n");
        let before = format!("{{ echo >../was-{round}/more; }} 2>/dev/null || echo refused");
        assert_eq!(place.run(&before, &work).await, "refused\n");
        // A secret that came since, and one that came in its place.
        std::fs::write(place.path.join("home/.hermes/next"), "key").unwrap();
        std::fs::rename(place.path.join("home/.hermes/next"), &secret).unwrap();
        let text = place
            .run("cat ../home/.hermes/.env 2>&1 | grep -c denied", &work)
            .await;
        assert_eq!(text, "1\n");
    }
}

#[tokio::test]
async fn a_directory_whose_name_is_no_text_is_a_workspace_like_any_other() {
    use std::os::unix::ffi::OsStrExt as _;

    let test = "a_directory_whose_name_is_no_text_is_a_workspace_like_any_other";
    let Some(place) = confined(test) else {
        return;
    };
    let work = place.path.join(std::ffi::OsStr::from_bytes(b"w\xe4rk"));
    std::fs::create_dir(&work).unwrap();
    let script =
        "echo mine > made && cat made; { echo > ../home/evil; } 2>/dev/null || echo refused";
    assert_eq!(place.run(script, &work).await, "mine\nrefused\n");
}

#[tokio::test]
async fn a_link_in_place_of_the_workspace_opens_nothing() {
    let Some(place) = confined("a_link_in_place_of_the_workspace_opens_nothing") else {
        return;
    };
    let repo = place.path.join("work");
    std::fs::create_dir_all(repo.join(".git")).unwrap();
    std::fs::create_dir_all(place.path.join("home/.ssh")).unwrap();
    let start = repo.join("sub");
    std::fs::create_dir(&start).unwrap();
    let swap = format!(
        "cd .. && mv sub was && ln -s {}/home/.ssh sub && echo swapped",
        place.path.display()
    );
    assert_eq!(place.run(&swap, &start).await, "swapped\n");
    let script = "{ echo key > authorized_keys; } 2>/dev/null || echo refused";
    assert_eq!(place.run(script, &start).await, "refused\n");
    assert!(!place.path.join("home/.ssh/authorized_keys").exists());
}

#[tokio::test]
async fn a_confined_command_cannot_stop_the_helper() {
    let Some(place) = confined("a_confined_command_cannot_stop_the_helper") else {
        return;
    };
    let work = place.path.join("work");
    place.run("true", &work).await;
    let pid = helper().await;
    let script = format!("kill -STOP {pid} 2>/dev/null || echo refused");
    assert_eq!(place.run(&script, &work).await, "refused\n");
}

#[tokio::test]
async fn a_confined_command_prepares_nothing_for_one_without_limits() {
    let test = "a_confined_command_prepares_nothing_for_one_without_limits";
    let Some(place) = confined(test) else {
        return;
    };
    let work = place.path.join("work");
    assert_eq!(place.run("greet", &work).await, "hello\n");
    let attack = format!(
        "for file in $(find /tmp/hermes-exec-* {}/home -name prelude 2>/dev/null); do \
         echo 'touch {}/home/evil' >> $file; done 2>/dev/null; echo tried",
        place.path.display(),
        place.path.display()
    );
    assert_eq!(place.run(&attack, &work).await, "tried\n");
    let (_, text) = run(&place.env, Exec::new("greet", &work)).await;
    assert_eq!(text, "hello\n");
    assert!(!place.path.join("home/evil").exists());
}
