use std::fs;

use super::super::ComposerOutcome;
use super::*;

/// Lets the thread tell everything it found.
fn settled(c: &mut Composer, arrived: &mut mpsc::Receiver<ComposerResult>) {
    while c.completion.popup().is_some_and(|popup| popup.waiting) {
        let arrival = arrived.blocking_recv().unwrap();
        c.on_result(arrival);
    }
}

fn labels(c: &Composer) -> Vec<String> {
    c.completion
        .popup()
        .map(|popup| popup.rows.iter().map(|row| row.label.clone()).collect())
        .unwrap_or_default()
}

fn project() -> (tempfile::TempDir, Composer, mpsc::Receiver<ComposerResult>) {
    let dir = tempfile::tempdir().unwrap();
    for path in ["src/parser", "target", ".git", ".github", "my docs"] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    for path in [
        "src/main.rs",
        "src/parser/mod.rs",
        "src/parser/lexer.rs",
        "target/main.rs",
        ".git/config",
        ".github/ci.yml",
        "my docs/read me.md",
        "README.md",
    ] {
        fs::write(dir.path().join(path), "x").unwrap();
    }
    fs::write(dir.path().join(".gitignore"), "target\n").unwrap();
    let (c, arrived) = with(ComposerSetup {
        project: dir.path().to_path_buf(),
        ..ComposerSetup::default()
    });
    (dir, c, arrived)
}

#[test]
fn files_are_found_by_letters_without_what_git_ignores() {
    let (_dir, mut c, mut arrived) = project();
    write(&mut c, "see @");
    settled(&mut c, &mut arrived);
    let all = labels(&c);
    assert!(all.contains(&"src/".to_owned()) && all.contains(&".github/ci.yml".to_owned()));
    assert!(
        !all.iter()
            .any(|path| path.contains("target/") || path.contains(".git/")),
        "{all:?}"
    );
    write(&mut c, "lexer");
    assert_eq!(labels(&c), ["src/parser/lexer.rs"]);
    press(&mut c, "tab");
    assert_eq!(state(&c), "see @src/parser/lexer.rs |");
    write(&mut c, "and @mars");
    settled(&mut c, &mut arrived);
    assert_eq!(labels(&c)[0], "src/main.rs");
    assert_eq!(press(&mut c, "enter"), ComposerOutcome::Redraw);
    assert_eq!(state(&c), "see @src/parser/lexer.rs and @src/main.rs |");
    assert_eq!(
        sent(press(&mut c, "enter")).text,
        "see @src/parser/lexer.rs and @src/main.rs"
    );
}

#[test]
fn a_directory_goes_on_and_blanks_are_quoted() {
    let (_dir, mut c, mut arrived) = project();
    write(&mut c, "@parser/");
    settled(&mut c, &mut arrived);
    press(&mut c, "tab");
    assert_eq!(state(&c), "@src/parser/|");
    assert!(c.is_open());
    press(&mut c, "ctrl+u");
    write(&mut c, "@mydocs");
    settled(&mut c, &mut arrived);
    assert_eq!(labels(&c)[0], "my docs/");
    press(&mut c, "tab");
    assert_eq!(state(&c), "@\"my docs/|\"");
    write(&mut c, "read");
    settled(&mut c, &mut arrived);
    press(&mut c, "tab");
    assert_eq!(state(&c), "@\"my docs/read me.md\" |");
}

#[test]
fn what_is_complete_is_sent() {
    let (_dir, mut c, mut arrived) = project();
    write(&mut c, "@README.md");
    settled(&mut c, &mut arrived);
    assert!(c.is_open());
    assert_eq!(sent(press(&mut c, "enter")).text, "@README.md");
}

#[test]
fn paths_that_lead_outside_are_listed() {
    let (dir, mut c, mut arrived) = project();
    let outside = format!("@{}/src/", dir.path().display());
    c.paste(&outside);
    assert!(c.is_open());
    settled(&mut c, &mut arrived);
    assert_eq!(
        labels(&c),
        [
            format!("{}main.rs", &outside[1..]),
            format!("{}parser/", &outside[1..])
        ]
    );
    c.clear();
    write(&mut c, "@./src/ma");
    settled(&mut c, &mut arrived);
    assert_eq!(labels(&c), ["./src/main.rs"]);
}

#[test]
fn a_file_that_came_is_found_the_next_time() {
    let (dir, mut c, mut arrived) = project();
    write(&mut c, "@");
    settled(&mut c, &mut arrived);
    press(&mut c, "backspace");
    fs::write(dir.path().join("zebra.txt"), "x").unwrap();
    write(&mut c, "@zebra");
    settled(&mut c, &mut arrived);
    assert_eq!(labels(&c), ["zebra.txt"]);
}
