//! stdio: children that misbehave. The server is a shell script.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_mcp::{Certainty, Children, Connector, Era, FailureClass, Op, ServerTarget};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Bench, ask, nothing, stdio, text, tool, within};

/// Answers in plain shell. The name of a tool selects its misbehaviour.
const SERVER: &str = r#"
echo "starting" >&2
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
say() { answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"shell","version":"1"}}' ;;
    *'"ping"'*) answer '{}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"no-schema"},{"name":"pid","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"pid"'*) say "$$" ;;
    *'"name":"die"'*) echo "last words" >&2; exit 3 ;;
    *'"name":"answer-and-die"'*) say "still here"; exit 0 ;;
    *'"name":"mute"'*) ;;
    *'"name":"deaf"'*) say "from now on"; exec sleep 1000 ;;
    *'"name":"garbage"'*) printf 'hello\n\001\377\376 not json\n\n[INFO] busy\n{\n  "a": 1\n}\n{"level":30}\n'; say "after garbage" ;;
    *'"name":"half"'*) printf '{"jsonrpc":"2.0","id":%s,"resu\n' "$id" ;;
    *'"name":"foreign"'*) id=4711; say "for whom?" ;;
    *'"name":"bom"'*) printf '\357\273\277'; say "marked" ;;
    *'"name":"no-id"'*) printf '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"whose?"}}\n' ;;
    *'"name":"long"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"; head -c 17825792 /dev/zero | tr '\0' x; printf '"}]}}\n' ;;
    *'"name":"flood"'*) head -c 20000000 /dev/zero | tr '\0' '!' >&2; say "flooded" ;;
    *'"name":"changed"'*) printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'; say "told" ;;
    *'"name":"grandchild"'*) sleep 1000 & say "$!" ;;
    *'"name":"environment"'*) say "$(env | cut -d= -f1 | sort | tr '\n' ' ')" ;;
    *'"notifications/cancelled"'*) echo "cancelled" >&2 ;;
  esac
done
"#;

pub(super) fn script(home: &Path, lines: &str) -> ServerTarget {
    ServerTarget::Stdio(stdio("/bin/sh", &["-c", lines], home))
}

fn alive(pid: &str) -> bool {
    // A zombie counts as ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The processes of a group. Without an init process, zombies of it may remain.
fn running_in_group(group: u32) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|one| std::fs::read_to_string(one.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let after_name = stat.rsplit(") ").next().unwrap_or_default();
            let fields: Vec<&str> = after_name.split(' ').collect();
            fields[0] != "Z" && fields[2] == group.to_string()
        })
        .collect()
}

async fn until(what: &str, wanted: impl Fn() -> bool) {
    let waiting = async {
        while !wanted() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(super::TEST_TIMEOUT, waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}

#[tokio::test]
async fn a_child_is_started_asked_and_stopped() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    assert_eq!(link.facts().era, Era::Legacy);
    assert_eq!(link.facts().server_name, "shell");
    assert_eq!(link.facts().protocol_version, "2025-11-25");
    let tools = ask(&*link, Op::ListTools).await.unwrap();
    assert_eq!(super::names(&tools, "tools"), ["no-schema", "pid"]);
    ask(&*link, Op::Probe).await.unwrap();
    let result = ask(&*link, tool("pid", nothing())).await.unwrap();
    let pid = text(&result).to_owned();
    assert_eq!(link.facts().child_pid, pid.parse().ok());
    let registry = home.path().join("mcp-children.json");
    assert!(std::fs::read_to_string(&registry).unwrap().contains(&pid));
    link.close().await;
    assert!(!alive(&pid));
    assert!(!std::fs::read_to_string(&registry).unwrap().contains(&pid));
    let failure = ask(&*link, Op::ListTools).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NotSent);
}

#[tokio::test]
async fn the_exit_of_a_child_is_reported_at_once_with_its_last_output() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let failure = ask(&*link, tool("die", nothing())).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Ambiguous);
    assert_eq!(failure.certainty, Certainty::MaybeExecuted);
    assert!(failure.text.contains("exited with code 3"), "{failure}");
    assert!(failure.text.contains("last words"), "{failure}");
    assert!(link.closed().await.text.contains("code 3"));
    let after = ask(&*link, Op::ListTools).await.unwrap_err();
    assert_eq!(after.class, FailureClass::NotSent);
    let tail = bench.connector.details().stderr_tail.unwrap();
    assert_eq!(tail, "starting\nlast words\n");
    let log = std::fs::read_to_string(home.path().join("logs/mcp-stderr.log")).unwrap();
    assert_eq!(log, "[bench] starting\n[bench] last words\n");
}

/// Written, but certainly never read, so it may be sent again.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_request_that_a_dead_child_never_read_was_not_sent() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    ask(&*link, tool("deaf", nothing())).await.unwrap();
    let pid = link.facts().child_pid.unwrap();
    let kill = async {
        // The request is in the pipe by then; if not, it is certainly unread as well.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let (result, ()) = tokio::join!(ask(&*link, tool("pid", nothing())), kill);
    let failure = result.unwrap_err();
    assert_eq!(failure.class, FailureClass::NotSent, "{failure}");
    assert_eq!(failure.certainty, Certainty::NotSent);
    assert!(failure.text.contains("signal 9"), "{failure}");
}

#[tokio::test]
async fn an_answer_given_before_the_end_counts() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let result = ask(&*link, tool("answer-and-die", nothing()))
        .await
        .unwrap();
    assert_eq!(text(&result), "still here");
    assert!(link.closed().await.text.contains("code 0"));
}

#[tokio::test]
async fn an_idle_child_that_is_killed_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let pid = i32::try_from(link.facts().child_pid.unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(link.closed().await.text.contains("signal 9"));
}

#[tokio::test]
async fn garbage_and_errors_without_an_id_do_not_hang_anybody() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let result = ask(&*link, tool("garbage", nothing())).await.unwrap();
    assert_eq!(text(&result), "after garbage");
    let failure = ask(&*link, tool("no-id", nothing())).await.unwrap_err();
    assert_eq!(
        (failure.class, failure.rpc_code),
        (FailureClass::Rpc, Some(-32000))
    );
    ask(&*link, tool("changed", nothing())).await.unwrap();
    assert_eq!(bench.event().await, hermes_mcp::LinkEvent::ToolsChanged);
    link.close().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_the_one_request_that_waits() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    for (name, why) in [("half", "broken JSON"), ("foreign", "was not asked")] {
        let failure = ask(&*link, tool(name, nothing())).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Ambiguous, "{name}: {failure}");
        assert!(failure.text.contains(why), "{name}: {failure}");
    }
    let marked = ask(&*link, tool("bom", nothing())).await.unwrap();
    assert_eq!(text(&marked), "marked");
    link.close().await;
    // The same in the handshake.
    let bench = Bench::new(script(
        home.path(),
        "read -r line; echo '{\"half'; sleep 1000",
    ));
    let failure = bench.connect().await.err().unwrap();
    assert!(failure.text.contains("broken JSON"), "{failure}");
}

#[tokio::test]
async fn of_several_requests_none_is_blamed_for_a_broken_line() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let (mute, half) = (tool("mute", nothing()), tool("half", nothing()));
    let mut one = std::pin::pin!(ask(&*link, mute));
    // It is sent before the other one.
    assert!(futures_util::poll!(&mut one).is_pending());
    let mut two = std::pin::pin!(ask(&*link, half));
    let event = tokio::select! {
        event = bench.event() => event,
        done = &mut one => panic!("{done:?}"),
        done = &mut two => panic!("{done:?}"),
    };
    let suspected = matches!(event, hermes_mcp::LinkEvent::Suspect(_));
    assert!(suspected, "{event:?}");
    link.close().await;
}

#[tokio::test]
async fn too_long_a_line_fails_its_call_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let (pid, long) = (tool("pid", nothing()), tool("long", nothing()));
    let (before, failed, after) = tokio::join!(
        ask(&*link, pid.clone()),
        ask(&*link, long),
        ask(&*link, pid),
    );
    assert_eq!(before.unwrap(), after.unwrap());
    let failure = failed.unwrap_err();
    assert!(failure.text.contains("too large"), "{failure}");
    assert_eq!(failure.class, FailureClass::Ambiguous);
    let flooded = ask(&*link, tool("flood", nothing())).await.unwrap();
    assert_eq!(text(&flooded), "flooded");
    link.close().await;
}

#[tokio::test]
async fn a_cancelled_call_returns_at_once_and_the_server_is_notified() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let cancel = CancellationToken::new();
    let mut call = within(super::TEST_TIMEOUT);
    call.cancel = cancel.clone();
    let mute = tool("mute", nothing());
    let stop = async {
        // The call was sent if a later request is answered.
        ask(&*link, Op::Probe).await.unwrap();
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(link.request(&mute, call), stop);
    assert_eq!(outcome.unwrap_err().class, FailureClass::Cancelled);
    let is_cancelled = || bench.connector.stderr.tail().contains("cancelled");
    until("the server is told", is_cancelled).await;
    let late = link.request(&mute, within(Duration::from_millis(50))).await;
    assert_eq!(late.unwrap_err().class, FailureClass::TimedOut);
    ask(&*link, Op::Probe).await.unwrap();
    link.close().await;
}

#[tokio::test]
async fn stubborn_children_and_their_children_end_too() {
    let home = tempfile::tempdir().unwrap();
    let stubborn = format!(
        "trap '' TERM\n(trap '' TERM; while :; do sleep 1; done) &\n{SERVER}\nwhile :; do sleep 1; done"
    );
    let bench = Bench::new(script(home.path(), &stubborn));
    let link = bench.connect().await.unwrap();
    let pid = link.facts().child_pid.unwrap();
    link.close().await;
    assert_eq!(running_in_group(pid), Vec::<String>::new());
}

/// A call may be waiting for the next child: a child that failed to answer gets no time to exit by
/// itself.
#[tokio::test]
async fn a_child_that_gave_no_answer_is_ended_at_once() {
    let home = tempfile::tempdir().unwrap();
    let tidied = home.path().join("tidied");
    let slow_to_end = format!("{SERVER}\nsleep 1\ntouch {}", tidied.display());
    for (name, tidies) in [("mute", false), ("pid", true)] {
        let bench = Bench::new(script(home.path(), &slow_to_end));
        let link = bench.connect().await.unwrap();
        let call = within(Duration::from_millis(200));
        let answered = link.request(&tool(name, nothing()), call).await.is_ok();
        assert_eq!(answered, tidies);
        link.close().await;
        assert_eq!(tidied.exists(), tidies, "{name}");
    }
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_does_not_hide_the_death() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let result = ask(&*link, tool("grandchild", nothing())).await.unwrap();
    let grandchild = text(&result).to_owned();
    assert!(alive(&grandchild));
    let failure = ask(&*link, tool("die", nothing())).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Ambiguous);
    // The next start waits for the whole group.
    let next = bench.connect().await.unwrap();
    assert!(!alive(&grandchild));
    next.close().await;
}

#[tokio::test]
async fn a_link_that_is_dropped_leaves_no_child() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let pid = link.facts().child_pid.unwrap().to_string();
    drop(link);
    until("the child ends", || !alive(&pid)).await;
}

#[tokio::test]
async fn a_handshake_that_gets_no_answer_ends_in_time_and_leaves_no_child() {
    let home = tempfile::tempdir().unwrap();
    let pid_file = home.path().join("pid");
    let mute = format!(
        "echo $$ > {}; echo downloading >&2; cat > /dev/null",
        pid_file.display()
    );
    let bench = Bench::new(script(home.path(), &mute));
    let connecting = bench.connect_within(Duration::from_millis(500)).await;
    let failure = connecting.err().unwrap();
    assert_eq!(failure.class, FailureClass::TimedOut);
    assert!(failure.text.contains("downloading"), "{failure}");
    let pid = std::fs::read_to_string(&pid_file)
        .unwrap()
        .trim()
        .to_owned();
    until("the child ends", || !alive(&pid)).await;
}

#[tokio::test]
async fn a_child_that_ends_during_the_handshake_says_why() {
    let home = tempfile::tempdir().unwrap();
    let broken = "echo 'Error: no API key' >&2; exit 1";
    let bench = Bench::new(script(home.path(), broken));
    let failure = bench.connect().await.err().unwrap();
    assert_eq!(failure.class, FailureClass::NotSent);
    assert!(failure.text.contains("no API key"), "{failure}");
    let missing = Bench::new(ServerTarget::Stdio(stdio(
        "no-such-server",
        &[],
        home.path(),
    )));
    let failure = missing.connect().await.err().unwrap();
    assert_eq!(failure.class, FailureClass::Permanent);
    assert!(failure.text.contains("install it"), "{failure}");
}

#[tokio::test]
async fn children_see_the_allowed_environment_only() {
    let home = tempfile::tempdir().unwrap();
    let mut target = stdio("/bin/sh", &["-c", SERVER], home.path());
    let own = [
        ("PATH", "/usr/bin:/bin"),
        ("SECRET_KEY", "x"),
        ("LANG", "C"),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    target.children = Children::new(home.path(), own);
    target.env.insert("MINE".to_owned(), "1".to_owned());
    let bench = Bench::new(ServerTarget::Stdio(target));
    let link = bench.connect().await.unwrap();
    let result = ask(&*link, tool("environment", json!({}))).await.unwrap();
    let names = text(&result);
    assert!(names.contains("MINE") && names.contains("LANG"), "{names}");
    assert!(!names.contains("SECRET_KEY"), "{names}");
    link.close().await;
}

#[tokio::test]
async fn orphans_of_a_dead_process_are_reaped() {
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let link = bench.connect().await.unwrap();
    let pid = link.facts().child_pid.unwrap();
    let children = Children::new(home.path(), []);
    // Its owner still runs, so it must not be ended.
    assert_eq!(children.reap_orphans().await.ended, []);
    // As if the owner had been another process that no longer runs.
    let registry = home.path().join("mcp-children.json");
    let text = std::fs::read_to_string(&registry).unwrap();
    let mut entries: serde_json::Value = serde_json::from_str(&text).unwrap();
    entries[0]["owner_started"] = json!("long ago");
    std::fs::write(&registry, entries.to_string()).unwrap();
    assert_eq!(
        children.reap_orphans().await.ended,
        [("bench".to_owned(), pid)]
    );
    assert!(link.closed().await.text.contains("signal"));
    let again = Arc::clone(&children);
    assert_eq!(again.reap_orphans().await.ended, []);
}

/// A process of ours that is killed without a chance to clean up.
#[tokio::test]
async fn children_and_grandchildren_end_when_we_are_killed() {
    let home = tempfile::tempdir().unwrap();
    let pids = home.path().join("pids");
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "links::children::one_that_is_killed",
        ])
        .env("HERMES_TEST_HOME", home.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("it has children", || pids.exists()).await;
    let text = std::fs::read_to_string(&pids).unwrap();
    let pids: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| alive(pid)));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("they end", || !pids.iter().any(|pid| alive(pid))).await;
}

#[tokio::test]
#[ignore = "the process of the test above, which kills it"]
async fn one_that_is_killed() {
    let Some(home) = std::env::var_os("HERMES_TEST_HOME") else {
        return;
    };
    let home = Path::new(&home);
    // Ignores the end of its stdin.
    let deaf = format!("{SERVER}\nwhile :; do sleep 1; done");
    let bench = Bench::new(script(home, &deaf));
    let link = bench.connect().await.unwrap();
    let result = ask(&*link, tool("grandchild", nothing())).await.unwrap();
    let pids = format!("{} {}", link.facts().child_pid.unwrap(), text(&result));
    let unfinished = home.join("pids.tmp");
    std::fs::write(&unfinished, pids).unwrap();
    std::fs::rename(&unfinished, home.join("pids")).unwrap();
    std::future::pending::<()>().await;
}

/// The open files of this process, by the targets of its descriptors.
fn open_files() -> Vec<String> {
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let targets = descriptors.flatten().filter_map(|one| {
        let target = std::fs::read_link(one.path()).ok()?;
        Some(target.to_string_lossy().into_owned())
    });
    let mut targets: Vec<String> = targets.collect();
    targets.sort_unstable();
    targets
}

/// Between children only these stay open: the pipe to the guard, and the log.
const MAX_KEPT_OPEN: usize = 2;

async fn until_closed(before: &[String]) {
    let closed = || open_files().len() <= before.len() + MAX_KEPT_OPEN;
    let waiting = async {
        while !closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(super::TEST_TIMEOUT, waiting).await;
    let now = open_files();
    assert!(waited.is_ok(), "open at first: {before:#?}\nnow: {now:#?}");
}

#[tokio::test]
async fn many_children_leave_nothing_open() {
    let before = open_files();
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let mut pids = Vec::new();
    for round in 0..30 {
        let link = bench.connect().await.unwrap();
        pids.push(link.facts().child_pid.unwrap().to_string());
        if round % 2 == 0 {
            link.close().await;
        } else {
            ask(&*link, tool("die", nothing())).await.unwrap_err();
        }
    }
    until_closed(&before).await;
    assert!(!pids.iter().any(|pid| Path::new("/proc").join(pid).exists()));
}

/// The owner of the link may drop it late, and need not close it.
#[tokio::test]
async fn a_child_that_ended_by_itself_leaves_nothing_open_while_its_link_is_held() {
    let before = open_files();
    let home = tempfile::tempdir().unwrap();
    let bench = Bench::new(script(home.path(), SERVER));
    let mut links = Vec::new();
    for _ in 0..3 {
        let link = bench.connect().await.unwrap();
        ask(&*link, tool("die", nothing())).await.unwrap_err();
        links.push(link);
    }
    until_closed(&before).await;
    drop(links);
}
