//! `hermes tools`.

use crate::CliHarness;

fn enabled(setup: &CliHarness, platform: &str) -> Vec<String> {
    let value = setup
        .run(["tools", "list", "--platform", platform, "--json"])
        .ok()
        .json();
    value["toolsets"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|set| set["enabled"] == true)
        .map(|set| set["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn toolsets_are_switched_per_platform_and_comments_stay() {
    let setup = CliHarness::with_config("# mine\nagent:\n  disabled_toolsets: [memory]\n");
    let before = enabled(&setup, "cli");
    assert!(before.contains(&"todo".to_owned()) && !before.contains(&"memory".to_owned()));
    let _ = setup.run(["tools", "disable", "todo"]).ok();
    let _ = setup.run(["tools", "enable", "memory", "moa"]).ok();
    let after = enabled(&setup, "cli");
    assert!(!after.contains(&"todo".to_owned()));
    assert!(after.contains(&"memory".to_owned()) && after.contains(&"moa".to_owned()));
    assert!(enabled(&setup, "telegram").contains(&"todo".to_owned()));
    assert!(setup.home.read("config.yaml").contains("# mine"));
}

#[test]
fn unknown_names_are_refused_with_what_there_is() {
    let setup = CliHarness::new();
    let done = setup.run(["tools", "disable", "everything"]);
    assert_eq!(done.code, Some(64));
    assert!(
        done.stderr
            .contains("no toolset everything on cli; there are: web")
    );
    assert_eq!(
        setup.run(["tools", "list", "--platform", "fax"]).code,
        Some(64)
    );
    // Discord's own tools make no sense elsewhere.
    assert_eq!(
        setup.run(["tools", "enable", "discord_admin"]).code,
        Some(64)
    );
    assert_eq!(
        setup.run(["tools", "disable", "nowhere:tool"]).code,
        Some(4)
    );
}

#[test]
fn switching_off_and_on_again_leaves_nothing_behind() {
    let setup = crate::CliHarness::new();
    let before = setup.home.read("config.yaml");
    let _ = setup.run(["tools", "disable", "web"]).ok();
    assert_ne!(setup.home.read("config.yaml"), before);
    let _ = setup.run(["tools", "enable", "web"]).ok();
    assert_eq!(setup.home.read("config.yaml").trim_end(), before.trim_end());
}

/// A set that has only a tool of another has nothing of its own, and nowhere counts as on.
#[test]
fn a_set_with_nothing_of_its_own_is_not_shown_as_on() {
    let setup = crate::CliHarness::new();
    let listed = setup.run(["tools", "list"]).ok().stdout;
    let line = listed
        .lines()
        .find(|line| line.contains("browser"))
        .unwrap();
    assert!(
        line.starts_with("none") && line.contains("not built yet"),
        "{line}"
    );
    let standing = setup.run(["setup", "--non-interactive"]);
    let standing = format!("{}{}", standing.stdout, standing.stderr);
    assert!(!standing.contains("browser"), "{standing}");
    let mut terminal = crate::tui::at(&setup.home)
        .size(100, 30)
        .args(["tools"])
        .start();
    terminal.wait_for("Tools at a terminal");
    terminal.wait_for("the task list");
    assert!(!terminal.screen_text().contains("driving a browser"));
    terminal.press("\x1b");
}
