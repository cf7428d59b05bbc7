//! The completion scripts, in the shells themselves.

use std::path::{Path, PathBuf};

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle::skip;
use hermes_testkit::process::{FinishedProgram, Program};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::hermes;

/// A home with a session, a skill, profiles and an MCP server. `hermes` is on the PATH.
fn home() -> TempHome {
    let home = TempHome::new();
    home.config("model:\n  default: qwen3:8b\n  provider: anthropic\nmcp_servers:\n  github:\n    command: x\n");
    home.write(
        "skills/cat/weather/SKILL.md",
        "---\nname: weather\ndescription: tells it\n---\nbody\n",
    );
    home.write(
        "profiles/work/config.yaml",
        "mcp_servers:\n  jira:\n    command: x\n",
    );
    home.write(
        "cron/jobs.json",
        json!({"jobs": [{"id": "abcdef123456", "name": "digest"}]}).to_string(),
    );
    let session = json!({"id": "20250101_talk", "source": "cli", "title": "About: tea",
        "started_at": 1_735_700_000.0, "messages": [{"role": "user", "content": "hi", "timestamp": 1.0}]});
    let file = home.write("in.jsonl", session.to_string());
    drop(
        hermes(&home)
            .args(["sessions", "import", file.to_str().unwrap()])
            .run()
            .ok(),
    );
    let bin = home.user().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hermes"), bin.join("hermes")).unwrap();
    home
}

fn script(home: &TempHome, shell: &str) -> PathBuf {
    let text = hermes(home).args(["completion", shell]).run().ok().stdout;
    let path = home.work().join(format!("hermes.{shell}"));
    std::fs::write(&path, text).unwrap();
    path
}

fn shell(program: &Path, home: &TempHome, text: &str) -> FinishedProgram {
    let name = program.file_name().unwrap();
    let args: &[&str] = if name == "fish" {
        &["--no-config", "-c"]
    } else if name == "zsh" {
        &["-f", "-c"]
    } else {
        &["--norc", "--noprofile", "-c"]
    };
    Program::new(program, home)
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", home.user().join("bin").display()),
        )
        .env("LD_LIBRARY_PATH", unpacked().join("usr/lib").join(triple()))
        .env("TERM", "xterm")
        .args(args)
        .args([text])
        .run()
}

/// Where `cargo xtask setup` unpacks packages.
fn unpacked() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    workspace.unwrap().join("target/exec/root")
}

fn triple() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// The shell of the system, or the one that was unpacked for the tests.
fn find(name: &str, test: &str) -> Option<PathBuf> {
    let root = unpacked();
    let places = [
        root.join("bin").join(name),
        root.join("usr/bin").join(name),
        PathBuf::from("/usr/bin").join(name),
        PathBuf::from("/bin").join(name),
    ];
    let found = places.into_iter().find(|place| place.is_file());
    if found.is_none() {
        skip(name, test);
    }
    found
}

/// What is typed, and what must be among the offers.
const CASES: &[(&str, &str)] = &[
    ("hermes sess", "sessions"),
    ("hermes sessions ex", "export"),
    ("hermes sessions show 2025", "20250101_talk"),
    ("hermes --resume 2025", "20250101_talk"),
    ("hermes --prof", "--profile"),
    ("hermes -p w", "work"),
    ("hermes -s wea", "weather"),
    ("hermes mcp test gi", "github"),
    ("hermes -p work mcp test ji", "jira"),
    ("hermes config get terminal.back", "terminal.backend"),
    ("hermes logs --level warning --comp", "--component"),
    ("hermes -m qw", "qwen3:8b"),
    ("hermes completion fi", "fish"),
];

#[test]
fn bash_completes_words_of_the_home() {
    let Some(bash) = find("bash", "bash_completes_words_of_the_home") else {
        return;
    };
    let home = home();
    let script = script(&home, "bash");
    // bash cuts the line where its word breaks are, and so do we for it.
    let ask = |line: &str| {
        let words: Vec<String> = line
            .split(' ')
            .flat_map(|word| match word.split_once(':') {
                Some((left, right)) => vec![left.to_owned(), ":".to_owned(), right.to_owned()],
                None => vec![word.to_owned()],
            })
            .filter(|word| !word.is_empty() || line.ends_with(' '))
            .map(|word| format!("'{word}'"))
            .collect();
        let program = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
             _hermes_complete hermes; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.join(" "),
            words.len() - 1,
        );
        let done = shell(&bash, &home, &program);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{line}");
        done.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for (line, word) in CASES {
        let offers = ask(line);
        assert!(
            offers.iter().any(|offer| offer == word),
            "{line}: {offers:?}"
        );
    }
    // After a colon, bash wants only what follows it.
    assert_eq!(ask("hermes -m qwen3:8"), ["8b"]);
    assert!(ask("hermes ").len() > 10);
}

#[test]
fn fish_completes_words_of_the_home() {
    let Some(fish) = find("fish", "fish_completes_words_of_the_home") else {
        return;
    };
    let home = home();
    let script = script(&home, "fish");
    for (line, word) in CASES {
        let program = format!("source {}; complete -C '{line}'", script.display());
        let done = shell(&fish, &home, &program);
        let found = done
            .stdout
            .lines()
            .any(|offer| offer.split('\t').next() == Some(word));
        assert!(found, "{line}: {}{}", done.stdout, done.stderr);
    }
    let program = format!(
        "source {}; complete -C 'hermes --resume 2025'",
        script.display()
    );
    let done = shell(&fish, &home, &program);
    assert!(
        done.stdout.contains("20250101_talk\tAbout: tea"),
        "{}",
        done.stdout
    );
}

/// An interactive zsh on a pseudo-terminal: the line is typed, Tab is pressed, and what then stands
/// on the line is what was completed.
const ZSH: &str = r#"
module_path=(MODULES $module_path)
zmodload zsh/zpty || exit 9
zpty z "zsh -f -i"
zpty -w z "PS1=; PS2=; module_path=(MODULES \$module_path); fpath=(FUNCTIONS \$fpath)"
zpty -w z "autoload -Uz compinit && compinit -u -D; source SCRIPT; bindkey '^I' complete-word; zstyle ':completion:*' list-prompt ''"
zpty -w z "show() { print -r -- \"<<\$BUFFER>>\"; BUFFER=; zle accept-line }; zle -N show; bindkey '^T' show; print READY"
zpty -r z line '*READY*READY*'
zpty -w -n z "LINE"$'\t\x14'
zpty -r z line '*>>*'
print -r -- "${${line##*<<}%%>>*}"
zpty -d z
"#;

#[test]
fn zsh_completes_words_of_the_home() {
    let Some(zsh) = find("zsh", "zsh_completes_words_of_the_home") else {
        return;
    };
    let home = home();
    let script = script(&home, "zsh");
    let root = unpacked();
    let functions = root.join("usr/share/zsh/functions");
    let mut below = vec![functions.display().to_string()];
    for dir in [
        "Completion",
        "Completion/Base",
        "Completion/Unix",
        "Completion/Zsh",
        "Misc",
        "Zle",
    ] {
        below.push(functions.join(dir).display().to_string());
    }
    let modules = root.join("usr/lib").join(triple()).join("zsh/5.9");
    let bin = home.user().join("bin/zsh");
    std::os::unix::fs::symlink(&zsh, &bin).unwrap();
    for (line, word) in CASES {
        let program = ZSH
            .replace("MODULES", &modules.display().to_string())
            .replace("FUNCTIONS", &below.join(" "))
            .replace("SCRIPT", &script.display().to_string())
            .replace("LINE", line);
        let done = shell(&zsh, &home, &program);
        let typed = done.stdout.trim_end();
        let last = typed
            .rsplit(' ')
            .next()
            .unwrap_or_default()
            .replace('\\', "");
        assert_eq!(&last, word, "{line}: {typed}\n{}", done.stderr);
    }
}

#[test]
fn a_home_that_cannot_be_read_offers_nothing_and_breaks_nothing() {
    let home = home();
    home.config("model: [unclosed\n");
    std::fs::write(home.join("state.db"), "no database").unwrap();
    for words in [
        vec!["hermes", "--resume", ""],
        vec!["hermes", "config", "get", ""],
        vec!["hermes", "-m", ""],
    ] {
        let done = hermes(&home)
            .env("HERMES_COMPLETE", "fish")
            .args(["--"])
            .args(&words)
            .run();
        assert_eq!(
            (done.code, done.stderr.as_str()),
            (Some(0), ""),
            "{words:?}"
        );
    }
    let done = hermes(&home)
        .env("HERMES_COMPLETE", "fish")
        .args(["--", "hermes", "sess"])
        .run();
    assert!(done.stdout.contains("sessions"), "{}", done.stdout);
    // An ordinary call is not mistaken for a question of a shell.
    let done = hermes(&home)
        .env("HERMES_COMPLETE", "")
        .args(["version"])
        .run()
        .ok();
    assert!(done.stdout.starts_with("hermes "), "{}", done.stdout);
}

#[test]
fn scripts_are_installed_where_shells_look() {
    let home = home();
    for (shell, place) in [
        ("bash", ".local/share/bash-completion/completions/hermes"),
        ("zsh", ".local/share/zsh/site-functions/_hermes"),
        ("fish", ".config/fish/completions/hermes.fish"),
    ] {
        drop(
            hermes(&home)
                .args(["completion", shell, "--install"])
                .run()
                .ok(),
        );
        let text = std::fs::read_to_string(home.user().join(place)).unwrap();
        assert!(text.contains("hermes"), "{text}");
        assert_eq!(shell == "zsh", text.starts_with("#compdef hermes\n"));
    }
    assert_eq!(
        hermes(&home)
            .args(["completion", "elvish", "--install"])
            .run()
            .code,
        Some(64)
    );
    assert_eq!(
        hermes(&home).args(["completion", "csh"]).run().code,
        Some(64)
    );
}
