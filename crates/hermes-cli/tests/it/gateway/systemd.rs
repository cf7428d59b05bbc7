//! The service under a systemd that runs for real: a user instance of its own, in a mount namespace
//! of its own. Where the machine has none or lets nobody make namespaces, the test says so.

use std::path::Path;
use std::process::Command;

use hermes_testkit::home::TempHome;
use hermes_testkit::process::Program;

use super::webhook::port;
use crate::CliHarness;

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Starts systemd and goes through the life of the service; each fact is a line of its own.
const STORY: &str = r#"
mount -t tmpfs tmpfs /run || exit 200
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" && chmod 700 "$XDG_RUNTIME_DIR"
timeout 100 /lib/systemd/systemd --user --unit=basic.target </dev/null >"$WORK/systemd.log" 2>&1 &
until_ok() { for _ in $(seq 600); do "$@" && return 0; sleep 0.05; done; echo "gave up: $*"; return 1; }
until_ok test -S "$XDG_RUNTIME_DIR/systemd/private" || exit 200
U=hermes-gateway
value() { systemctl --user show $U -p "$1" --value; }
# One look at all three: between two of them the service may change.
running() {
  shown=$(systemctl --user show $U -p ActiveState -p SubState -p MainPID)
  grep -qx ActiveState=active <<<"$shown" && grep -qx SubState=running <<<"$shown" \
    && ! grep -qxE "MainPID=(0|$1)" <<<"$shown"
}
life() { grep -o '"started_at": *[^,}]*' "$HERMES_HOME/gateway_state.json"; }
other_life() { [ "$(life)" != "$1" ] && running 0; }
ends() { [ "$(value ActiveState)" = "$1" ]; }

"$HERMES" gateway install; echo "install $?"
U=$(basename "$(ls "$HOME"/.config/systemd/user/*.service)")
echo "ready $(value ActiveState) $(value StatusText)"
"$HERMES" gateway status | head -1

pid=$(value MainPID); before=$(life)
systemctl --user reload $U; echo "reload $?"
until_ok other_life "$before"; [ "$(value MainPID)" = "$pid" ] && echo "reloaded in place"

kill -9 "$pid"; until_ok running "$pid" && echo "back after kill, $(value NRestarts) restarts"

pid=$(value MainPID); kill -STOP "$pid"
until_ok running "$pid" && echo "back after a hang, $(value NRestarts) restarts"

"$HERMES" gateway stop; echo "stop $?"; until_ok ends inactive && echo "stopped"
"$HERMES" gateway start; echo "start $?"
systemctl --user stop $U
echo "TELEGRAM_ALLOWED_USERS=" >"$HERMES_HOME/.env"; echo "API_SERVER_KEY=short" >>"$HERMES_HOME/.env"
"$HERMES" gateway start; echo "bad start $?"
echo "stays $(value ActiveState), $(value NRestarts) restarts"
"$HERMES" gateway uninstall; echo "uninstall $?"; ls "$HOME/.config/systemd/user"
systemctl --user exit
wait
"#;

fn namespaces() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/run"])
        .output();
    Path::new(SYSTEMD).exists() && tried.is_ok_and(|output| output.status.success())
}

#[test]
fn a_real_systemd_starts_reloads_and_revives_it() {
    if !namespaces() {
        eprintln!("SKIPPED(systemd): a_real_systemd_starts_reloads_and_revives_it");
        return;
    }
    let setup = CliHarness::with_config("gateway: {systemd_watchdog_seconds: 2}\n");
    let home = &setup.home;
    let key = "API_SERVER_KEY=0123456789abcdef0123456789abcdef\n";
    home.env_file(&format!("{key}API_SERVER_PORT={}\n", port()));
    let said = story(home);
    for fact in [
        "install 0",
        "ready active 1 platform",
        "(systemd --user)",
        "reload 0",
        "reloaded in place",
        "back after kill, 1 restarts",
        "back after a hang, 2 restarts",
        "stop 0",
        "stopped",
        "start 0",
        "bad start 1",
        "stays failed, 0 restarts",
        "uninstall 0",
    ] {
        assert!(said.contains(fact), "{fact}: {said}");
    }
    assert!(
        said.contains("the gateway did not start: api_server"),
        "why: {said}"
    );
    assert!(!said.contains("gave up"), "{said}");
}

fn story(home: &TempHome) -> String {
    let finished = Program::new("unshare", home)
        .args(["--mount", "bash", "-c", STORY])
        .env("HERMES", env!("CARGO_BIN_EXE_hermes"))
        .env("HERMES_HOME", home.path())
        .env("WORK", home.work())
        .env("XDG_RUNTIME_DIR", "/run/user/hermes-test")
        .env("HERMES_GATEWAY_LOCK_DIR", home.work().join("locks"))
        .run();
    format!("{}\n{}", finished.stdout, finished.stderr)
}
