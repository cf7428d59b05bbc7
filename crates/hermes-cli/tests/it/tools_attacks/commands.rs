//! Commands that take more than they should: processes, memory, output, time.

use std::time::Duration;

use serde_json::{Value, json};

use super::{commands, turn};
use crate::CliHarness;

/// Living processes one of whose arguments is `word`.
fn living(word: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| {
            let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            text.split(|&byte| byte == 0)
                .any(|one| one == word.as_bytes())
        })
        .collect()
}

/// Waits until none is left. What is being killed may need a moment under load.
#[track_caller]
fn assert_gone(word: &str, result: &Value) {
    for _ in 0..600 {
        if living(word).is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = living(word);
    assert!(
        left.is_empty(),
        "{} are left: {left:?} after {result}",
        left.len()
    );
}

/// An argument for `sleep` that no other test uses.
fn unique(number: u32) -> String {
    format!("600.{number}{}", std::process::id())
}

/// Runs a script from a file, with so many seconds.
fn script(setup: &CliHarness, text: &str, seconds: u32) -> Value {
    std::fs::write(setup.home.work().join("it.sh"), text).unwrap();
    let call = json!({"command": "bash it.sh", "timeout": seconds});
    let after = json!({"command": "echo still here"});
    let seen = turn(setup, &[], &[("terminal", call), ("terminal", after)]);
    assert_eq!(seen[1]["output"], "still here");
    seen[0].clone()
}

#[test]
fn three_hundred_processes_are_gone_after_the_timeout() {
    let setup = CliHarness::new();
    let word = unique(1);
    let text = format!("echo begun\nfor i in $(seq 300); do sleep {word} & done\nwait\n");
    let result = script(&setup, &text, 5);
    assert_eq!(result["exit_code"], 124, "{result}");
    assert!(
        result["output"].as_str().unwrap().starts_with("begun"),
        "{result}"
    );
    assert_gone(&word, &result);
}

#[test]
fn processes_that_leave_the_session_are_gone_too() {
    let setup = CliHarness::new();
    let word = unique(2);
    let text = format!(
        "echo begun\nfor i in $(seq 20); do\n  setsid sleep {word} &\n  (setsid nohup sleep {word} > /dev/null 2>&1 &)\n  \
         (env -i /usr/bin/setsid /bin/sleep {word} > /dev/null 2>&1 &)\ndone\nwait\n"
    );
    let result = script(&setup, &text, 5);
    assert_eq!(result["exit_code"], 124, "{result}");
    assert_gone(&word, &result);
}

#[test]
fn what_forks_without_end_is_ended() {
    let setup = CliHarness::new();
    let word = unique(3);
    // Two children each, seven times over: the same as a bomb, but it cannot hurt.
    let text = format!(
        "echo begun\nf() {{ if [ $1 -le 0 ]; then exec sleep {word}; fi; f $(($1-1)) & f $(($1-1)) & wait; }}\nf 7\n"
    );
    let result = script(&setup, &text, 5);
    assert_eq!(result["exit_code"], 124, "{result}");
    assert_gone(&word, &result);
    // As one writes it, it never runs.
    let bomb =
        json!({"command": "bomb() { bomb | bomb & }; [ -e allowed ] && bomb", "background": true});
    let seen = turn(&setup, &["--yolo"], &[("terminal", bomb)]);
    let said = seen[0].to_string();
    assert!(said.contains("Refused for good"), "{said}");
}

#[test]
fn what_does_not_listen_to_the_end_is_killed() {
    let setup = CliHarness::new();
    let word = unique(4);
    let text = format!("trap '' TERM INT HUP\necho begun\nwhile :; do sleep {word}; done\n");
    let result = script(&setup, &text, 1);
    assert_eq!(result["exit_code"], 124, "{result}");
    assert!(
        result["output"]
            .as_str()
            .unwrap()
            .contains("timed out after 1 s"),
        "{result}"
    );
    assert_gone(&word, &result);
}

#[test]
fn memory_is_limited_and_the_program_lives() {
    let setup = CliHarness::with_config("terminal:\n  sandbox_max_memory_mb: 512\n");
    let hog = "x = []\ntry:\n    for i in range(64):\n        x.append(bytearray(64 << 20))\n    print('took it all')\nexcept MemoryError:\n    print('stopped at', len(x) < 9)\n";
    std::fs::write(setup.home.work().join("hog.py"), hog).unwrap();
    let seen = turn(
        &setup,
        &[],
        &[
            ("terminal", json!({"command": "python3 hog.py"})),
            ("execute_code", json!({"code": hog})),
            ("terminal", json!({"command": "echo still here"})),
        ],
    );
    assert_eq!(seen[0]["output"], "stopped at True", "{}", seen[0]);
    assert_eq!(seen[1]["output"], "stopped at True\n", "{}", seen[1]);
    assert_eq!(seen[2]["output"], "still here");
}

#[test]
fn a_hundred_megabytes_are_counted_and_not_kept() {
    let setup = CliHarness::new();
    let seen = commands(
        &setup,
        &[],
        &[
            "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last",
            "yes 123456789 | head -n 10000000",
        ],
    );
    for (result, chars) in seen.iter().zip([100_000_012_u64, 100_000_000]) {
        assert_eq!(result["exit_code"], 0, "{result}");
        let output = result["output"].as_str().unwrap();
        assert!(output.len() < 52_000, "{}", output.len());
        let note = output
            .lines()
            .find(|line| line.contains("cut here"))
            .unwrap();
        assert!(note.contains(&format!("of {chars} characters")), "{note}");
    }
    let first = seen[0]["output"].as_str().unwrap();
    assert!(first.starts_with("first\n") && first.ends_with("\nlast"));
    let lines = seen[1]["output"].as_str().unwrap();
    let kept = lines
        .lines()
        .filter(|line| line.starts_with("1234"))
        .count();
    let note = lines
        .lines()
        .find(|line| line.contains("cut here"))
        .unwrap();
    let cut: u64 = note
        .split(", ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        (9_999_998..=10_000_002).contains(&(cut + kept as u64)),
        "{note} {kept}"
    );
}

#[test]
fn bytes_that_are_no_text_do_no_harm() {
    let setup = CliHarness::new();
    let seen = commands(
        &setup,
        &[],
        &[
            "python3 -c \"import sys; sys.stdout.buffer.write(bytes(range(256)) * 400)\"",
            // The same each time: by chance it could be text that is fenced as suspicious.
            "python3 -c \"import random, sys; random.seed(1); sys.stdout.buffer.write(random.randbytes(100000))\"",
            "printf '\\033]0;title\\007\\033[2J\\033[31mred\\033[0m\\xff\\xfe\\x00\\n'",
        ],
    );
    for result in &seen {
        let Some(output) = result["output"].as_str() else {
            panic!("no output: {result}");
        };
        assert_eq!(result["exit_code"], 0, "{result}");
        let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!output.contains(bad), "{output:?}");
        assert!(output.len() < 60_000);
    }
    assert!(seen[2]["output"].as_str().unwrap().contains("red"));
}
