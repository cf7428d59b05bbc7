//! A home on a disk without room: what cannot be stored says so, and nothing is called damaged.

use std::process::Command;

use hermes_testkit::model_server::Reply;
use hermes_testkit::oracle::skip;

use crate::CliHarness;

/// Fills a small disk that holds the home, then runs each line of `$COMMANDS`.
const STORY: &str = r#"
cp "$HERMES_HOME/config.yaml" "$WORK/config.yaml"
mount -t tmpfs -o size=2500k tmpfs "$HERMES_HOME" 2>/dev/null || exit 200
cp "$WORK/config.yaml" "$HERMES_HOME/config.yaml"
"$HERMES" -z hello >/dev/null 2>&1 || exit 201
head -c 4000000 /dev/zero >"$HERMES_HOME/filler" 2>/dev/null
# SQLite needs its side files even to read.
rm -f "$HERMES_HOME/state.db-wal" "$HERMES_HOME/state.db-shm"
head -c 4000000 /dev/zero >"$HERMES_HOME/filler2" 2>/dev/null
while IFS= read -r line; do
    echo "== $line"
    eval "$HERMES $line" </dev/null 2>&1
    echo "rc=$?"
done <"$WORK/commands"
ls "$HERMES_HOME"
"#;

/// These only read, which a full disk does not prevent.
const READING: &[&str] = &[
    "sessions list",
    "sessions show hello",
    "sessions search hello",
    "sessions export - --format md",
    "insights",
    "status",
];

/// Every one of these stores something.
const COMMANDS: &[&str] = &[
    "-z again",
    "chat -q again",
    "config set agent.max_turns 50",
    "config set OPENROUTER_API_KEY sk-or-v1-0123456789abcdef",
    "cron create 'every 30m' 'look at the mail'",
    "memory add 'likes boats'",
    "sessions rename hello Boats",
    "sessions prune --newer-than 1d --yes",
    "sessions archive --newer-than 1d --yes",
    "sessions optimize",
    "sessions repair",
    "tools disable web",
    "auth add openrouter --api-key sk-or-v1-0123456789abcdef --no-test",
    "fallback add gpt-5 --provider openai-api",
    "model set another-model",
    "approvals add 'rm -rf build'",
    "mcp add files --command true --no-test",
    "backup -o $HERMES_HOME/backup.zip",
    "doctor --offline",
];

#[test]
fn every_command_says_that_the_disk_is_full() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("fine"));
    let home = &setup.home;
    let all = [READING, COMMANDS].concat();
    std::fs::write(home.work().join("commands"), all.join("\n") + "\n").unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", STORY])
        .env_clear()
        .envs(home.vars())
        .env("HERMES", env!("CARGO_BIN_EXE_hermes"))
        .env("WORK", home.work())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir(home.work())
        .output();
    let Some(output) = output.ok().filter(|output| output.status.code() == Some(0)) else {
        skip("mount namespaces", "full_disk::every_command_says");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let parts: Vec<&str> = said.split("== ").skip(1).collect();
    assert_eq!(parts.len(), all.len(), "{said}");
    let (read, stored) = parts.split_at(READING.len());
    for part in read {
        assert!(part.contains("rc=0"), "{part}");
    }
    for part in stored {
        assert!(part.contains("disk is full"), "{part}");
        assert!(part.contains("rc=1"), "{part}");
        for wrong in [
            "disk I/O error",
            "sessions repair\n",
            "ZipWriter",
            "panicked",
        ] {
            let advice = part.split_once('\n').map_or("", |(_, advice)| advice);
            assert!(!advice.contains(wrong), "{wrong}: {part}");
        }
    }
    // A copy that could not be made leaves nothing behind.
    assert!(!said.contains("malformed-backup"), "{said}");
}
