//! `hermes help` and `hermes man`.

use hermes_testkit::home::TempHome;
use pretty_assertions::assert_eq;

use crate::hermes;

#[test]
fn the_first_page_fits_one_screen_and_leads_on() {
    let home = TempHome::new();
    let page = hermes(&home).args(["help"]).run().ok().stdout;
    assert!(page.lines().count() <= 24, "{page}");
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    for word in [
        "hermes -z",
        "sessions",
        "insights",
        "doctor",
        "hermes help --all",
    ] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let all = hermes(&home).args(["help", "--all"]).run().ok().stdout;
    assert!(all.contains("approvals") && all.contains("rename"), "{all}");
    assert!(!all.contains("__"), "{all}");
}

/// Without the line of usage, which names the program as it was called.
fn options(page: &str) -> &str {
    let (_, options) = page.split_once("Options:").unwrap();
    options.trim_end()
}

#[test]
fn help_of_a_command_is_that_of_its_flag() {
    let home = TempHome::new();
    let flag = hermes(&home)
        .args(["sessions", "export", "--help"])
        .run()
        .ok();
    let command = hermes(&home)
        .args(["help", "sessions", "export"])
        .run()
        .ok();
    assert_eq!(options(&command.stdout), options(&flag.stdout));
    let done = hermes(&home).args(["help", "nosuch"]).run();
    assert_eq!((done.code, done.stdout.as_str()), (Some(64), ""));
    assert!(done.stderr.contains("help --all"), "{}", done.stderr);
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let home = TempHome::new();
    let page = hermes(&home).args(["man"]).run().ok().stdout;
    assert!(page.contains(".TH hermes 1"), "{page}");
    let dir = home.work().join("man1");
    drop(
        hermes(&home)
            .args(["man", "--dir", dir.to_str().unwrap()])
            .run()
            .ok(),
    );
    for name in ["hermes.1", "hermes-sessions.1", "hermes-sessions-export.1"] {
        assert!(dir.join(name).is_file(), "{name}");
    }
    let hidden = std::fs::read_dir(&dir)
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_string_lossy().contains("__"));
    assert!(!hidden);
    // A directory that cannot be made.
    let file = home.write("x", "");
    let done = hermes(&home)
        .args(["man", "--dir", file.join("man1").to_str().unwrap()])
        .run();
    assert_eq!(done.code, Some(1), "{}", done.stderr);
}

/// Every command of the original is known: it is here, or what to do instead is said.
#[test]
fn commands_of_the_original_are_here_or_answered() {
    let home = TempHome::new();
    for path in ORIGINAL {
        let words: Vec<&str> = path.split(' ').collect();
        let help = hermes(&home).args(&words).args(["--help"]).run();
        if help.code == Some(0) && help.stdout.contains(&format!("hermes {path}")) {
            continue;
        }
        let run = hermes(&home).args(&words).run();
        assert_eq!(run.code, Some(64), "{path}: {}", run.stderr);
        assert!(
            run.stderr
                .contains("is a command of Hermes Agent that is not available here; "),
            "{path}: {}",
            run.stderr
        );
    }
}

const ORIGINAL: &[&str] = &[
    "chat",
    "model",
    "moa",
    "moa list",
    "moa configure",
    "moa delete",
    "fallback",
    "fallback list",
    "fallback add",
    "fallback remove",
    "fallback clear",
    "secrets",
    "secrets bitwarden",
    "secrets onepassword",
    "migrate",
    "migrate xai",
    "gateway",
    "gateway run",
    "gateway start",
    "gateway stop",
    "gateway restart",
    "gateway status",
    "gateway install",
    "gateway uninstall",
    "gateway list",
    "gateway setup",
    "gateway migrate-legacy",
    "gateway enroll",
    "proxy",
    "proxy start",
    "proxy status",
    "proxy providers",
    "lsp",
    "setup",
    "postinstall",
    "whatsapp",
    "whatsapp-cloud",
    "slack",
    "slack manifest",
    "send",
    "logout",
    "auth",
    "auth add",
    "auth list",
    "auth remove",
    "auth reset",
    "auth status",
    "auth logout",
    "auth spotify",
    "status",
    "cron",
    "cron list",
    "cron create",
    "cron edit",
    "cron pause",
    "cron resume",
    "cron run",
    "cron remove",
    "cron status",
    "cron tick",
    "webhook",
    "webhook subscribe",
    "webhook list",
    "webhook remove",
    "webhook test",
    "portal",
    "portal login",
    "portal info",
    "portal open",
    "portal tools",
    "kanban",
    "project",
    "hooks",
    "hooks list",
    "hooks test",
    "hooks revoke",
    "hooks doctor",
    "doctor",
    "security",
    "dump",
    "debug",
    "debug share",
    "debug delete",
    "backup",
    "checkpoints",
    "import",
    "config",
    "config show",
    "config edit",
    "config get",
    "config set",
    "config unset",
    "config path",
    "config env-path",
    "config check",
    "config migrate",
    "console",
    "pairing",
    "pairing list",
    "pairing approve",
    "pairing revoke",
    "pairing clear-pending",
    "skills",
    "skills browse",
    "skills search",
    "skills install",
    "skills inspect",
    "skills list",
    "skills check",
    "skills update",
    "skills audit",
    "skills uninstall",
    "skills reset",
    "skills list-modified",
    "skills diff",
    "skills opt-out",
    "skills opt-in",
    "skills repair-official",
    "skills publish",
    "skills snapshot",
    "skills tap",
    "skills config",
    "bundles",
    "bundles list",
    "bundles show",
    "bundles create",
    "bundles delete",
    "bundles reload",
    "plugins",
    "plugins install",
    "plugins update",
    "plugins remove",
    "plugins list",
    "plugins enable",
    "plugins disable",
    "curator",
    "pets",
    "journey",
    "journey list",
    "journey delete",
    "journey edit",
    "memory",
    "memory setup",
    "memory status",
    "memory off",
    "memory reset",
    "tools",
    "tools list",
    "tools disable",
    "tools enable",
    "tools post-setup",
    "computer-use",
    "computer-use install",
    "computer-use status",
    "computer-use doctor",
    "computer-use permissions",
    "mcp",
    "mcp serve",
    "mcp add",
    "mcp remove",
    "mcp list",
    "mcp test",
    "mcp configure",
    "mcp login",
    "mcp reauth",
    "mcp picker",
    "mcp catalog",
    "mcp install",
    "sessions",
    "sessions list",
    "sessions export",
    "sessions delete",
    "sessions prune",
    "sessions archive",
    "sessions optimize",
    "sessions repair",
    "sessions stats",
    "sessions rename",
    "sessions browse",
    "insights",
    "claw",
    "claw migrate",
    "claw cleanup",
    "version",
    "update",
    "uninstall",
    "acp",
    "profile",
    "profile list",
    "profile use",
    "profile create",
    "profile delete",
    "profile describe",
    "profile show",
    "profile alias",
    "profile rename",
    "profile export",
    "profile import",
    "profile install",
    "profile update",
    "profile info",
    "completion",
    "dashboard",
    "dashboard register",
    "serve",
    "desktop",
    "logs",
    "prompt-size",
    "kanban create",
    "kanban boards list",
    "project list",
    "pets show",
    "lsp status",
    "curator run",
    "login",
];
