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
