//! A shell that was started in advance does what a new one does.

use hermes_exec::shell::{quote, quote_path};
use hermes_exec::{Exec, ProcessExit, ShellState, Stdin};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::helper::{Confined, confined};
use crate::support::run;

/// A shell is prepared again, or not, when another test changes a directory that the rules depend on.
const TRIES: usize = 500;

/// A place with namespaces; without them there is no spare process, and so no prepared shell.
fn place(test: &str) -> Option<Confined> {
    let place = confined(test)?;
    place.sandbox.describe().weaker.is_empty().then_some(place)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shell {
    New,
    Prepared,
}

struct Observed {
    shell: Shell,
    exit: ProcessExit,
    text: String,
    state: Option<ShellState>,
}

/// Runs a command and finds out in which shell it ran: only a prepared one begins with a group.
async fn observe(place: &Confined, command: &Exec) -> Observed {
    let kind = place.path.join("work/kind");
    let script = format!(
        "case $BASH_EXECUTION_STRING in '{{ : '*) echo prepared;; *) echo new;; esac >{}; eval {}",
        quote_path(&kind),
        quote(&command.script)
    );
    let command = Exec {
        script,
        confinement: place.sandbox.confinement(&command.cwd),
        ..command.clone()
    };
    let (outcome, text) = run(&place.env, command).await;
    Observed {
        shell: match std::fs::read_to_string(kind).unwrap().as_str() {
            "prepared\n" => Shell::Prepared,
            _ => Shell::New,
        },
        exit: outcome.exit,
        text,
        state: outcome.state,
    }
}

/// Repeats a command until it ran in such a shell.
async fn observe_in(place: &Confined, shell: Shell, command: Exec) -> Observed {
    for _ in 0..TRIES {
        let observed = observe(place, &command).await;
        if observed.shell == shell {
            return observed;
        }
        if shell == Shell::New {
            // The next shell is prepared for another environment.
            place.run("true", &place.path.join("work")).await;
        }
    }
    panic!("{shell:?} shells are not used");
}

/// The same command in a new shell and in a prepared one.
async fn compare(place: &Confined, script: &str) {
    let work = place.path.join("work");
    let mut other = Exec::new(script, &work);
    other.extra_env.insert("OTHER".to_owned(), "1".to_owned());
    let in_new = observe_in(place, Shell::New, other).await;
    let in_prepared = observe_in(place, Shell::Prepared, Exec::new(script, &work)).await;
    assert_eq!(in_prepared.exit, in_new.exit, "{script:?}");
    assert_eq!(in_prepared.text, in_new.text, "{script:?}");
    let without_other = |observed: Observed| {
        observed.state.map(|mut state| {
            state.exports.remove("OTHER");
            (state.cwd, state.exports)
        })
    };
    assert_eq!(
        without_other(in_prepared),
        without_other(in_new),
        "{script:?}"
    );
}

#[tokio::test]
async fn it_behaves_like_a_new_shell() {
    let Some(place) = place("it_behaves_like_a_new_shell") else {
        return;
    };
    for script in [
        "nosuch",
        "echo a\nnosuch\nif then",
        "echo $LINENO $- $0 $# $SHLVL $OPTIND; echo \"$@\"",
        "return 3",
        "set -euo pipefail; false; echo unreached",
        "trap 'echo bye $?' EXIT; exit 4",
        "kill -TERM $$",
        "kill -KILL $$",
        "exec sh -c 'echo replaced; exit 5'",
        "cd /usr; export A=1; unset HOME; readonly B=2",
        "f() { nosuch; caller; echo ${FUNCNAME[@]}; }; f",
        "greet; alias; type greet",
        "env | grep -v -e _HERMES_RUN -e OTHER | sort",
        "echo out; echo err >&2; exec 2>&1; echo both >&2",
        "ls -l /proc/self/fd | grep -c ' -> '",
        "readlink /proc/self/fd/0; cat; read x; echo $?",
        "set -o; shopt; umask; ulimit -a | grep -v pending",
        "printf 'a\\001b\\177c\\n'; echo \"\u{1}\u{7f}\u{e9}\u{1f600}\"",
        "compgen -v | grep -v -e OTHER -e PIPESTATUS -e SECONDS | sort",
        "(sleep 77 &); sleep 78 & echo left",
    ] {
        compare(&place, script).await;
    }
}

#[tokio::test]
async fn each_command_has_its_own_mark_streams_and_input() {
    let Some(place) = place("each_command_has_its_own_mark_streams_and_input") else {
        return;
    };
    let work = place.path.join("work");
    let mark = Exec::new("sh -c 'echo $_HERMES_RUN'", &work);
    let first = observe_in(&place, Shell::Prepared, mark.clone()).await;
    let second = observe_in(&place, Shell::Prepared, mark).await;
    assert_ne!(first.text, second.text);
    for split in [false, true] {
        let mut command = Exec::new("wc -c; echo err >&2", &work);
        command.split = split;
        command.stdin = Stdin::Bytes(vec![b'x'; 300_000].into());
        let observed = observe_in(&place, Shell::Prepared, command).await;
        let mut lines: Vec<&str> = observed.text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["300000", "err"]);
    }
}

#[tokio::test]
async fn variables_that_act_when_a_shell_starts_get_a_new_one() {
    let Some(place) = place("variables_that_act_when_a_shell_starts_get_a_new_one") else {
        return;
    };
    let work = place.path.join("work");
    let start = place.path.join("start");
    std::fs::write(&start, "echo started\n").unwrap();
    for _ in 0..3 {
        let mut command = Exec::new("echo run", &work);
        let start = start.display().to_string();
        command.extra_env.insert("BASH_ENV".to_owned(), start);
        let observed = observe(&place, &command).await;
        assert_eq!(
            (observed.shell, observed.text.as_str()),
            (Shell::New, "started\nrun\n")
        );
        let mut command = Exec::new("[ -t 0 ] && echo terminal", &work);
        command.pty = true;
        let observed = observe(&place, &command).await;
        assert_eq!(observed.shell, Shell::New);
        assert!(observed.text.contains("terminal"));
    }
}

#[tokio::test]
async fn it_runs_where_the_command_is_to_run() {
    let Some(place) = place("it_runs_where_the_command_is_to_run") else {
        return;
    };
    let work = place.path.join("work");
    std::fs::create_dir(work.join(".git")).unwrap();
    let other = work.join("it's other");
    std::fs::create_dir(&other).unwrap();
    let command = Exec::new("pwd; ls; cd - 2>/dev/null || echo no earlier", &other);
    let expected = |files: &str| format!("{}\n{files}no earlier\n", other.display());
    let observed = observe_in(&place, Shell::Prepared, command.clone()).await;
    assert_eq!(observed.text, expected(""));
    // Another directory of the same name, while the shell is prepared.
    std::fs::rename(&other, work.join("was")).unwrap();
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("here"), "").unwrap();
    let observed = observe_in(&place, Shell::Prepared, command).await;
    assert_eq!(observed.text, expected("here\n"));
}

#[tokio::test]
async fn a_shell_that_is_gone_is_replaced() {
    let Some(mut place) = place("a_shell_that_is_gone_is_replaced") else {
        return;
    };
    let work = place.path.join("work");
    let bash = work.join("sh");
    // Exits at once when it is started in advance.
    let text = "#!/bin/bash\ncase $2 in '{ : '*) exit;; esac\nexec /bin/bash \"$@\"\n";
    std::fs::write(&bash, text).unwrap();
    std::fs::set_permissions(&bash, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    place.env = place.with_bash(&bash);
    for _ in 0..10 {
        let observed = observe(&place, &Exec::new("echo run", &work)).await;
        assert_eq!(observed.shell, Shell::New);
        assert_eq!(
            (observed.exit, observed.text.as_str()),
            (ProcessExit::Code(0), "run\n")
        );
    }
}

#[tokio::test]
async fn text_arrives_unchanged() {
    let Some(place) = place("text_arrives_unchanged") else {
        return;
    };
    let work = place.path.join("work");
    let texts = any::<String>().prop_map(|text| text.replace('\0', ""));
    let mut runner = TestRunner::deterministic();
    for _ in 0..60 {
        let text = texts.new_tree(&mut runner).unwrap().current();
        let script = format!("printf %s {} >text", quote(&text));
        observe_in(&place, Shell::Prepared, Exec::new(script, &work)).await;
        assert_eq!(std::fs::read_to_string(work.join("text")).unwrap(), text);
    }
}
