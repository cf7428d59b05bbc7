use std::path::Path;

use clap::error::ErrorKind;

use super::*;

/// The words of a command line; quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for ch in line.chars() {
        match (ch, quote) {
            ('"' | '\'', None) => quote = Some(ch),
            (_, Some(open)) if ch == open => {
                quote = None;
                word.push('x');
            }
            (' ', None) => words.extend(Some(std::mem::take(&mut word)).filter(|w| !w.is_empty())),
            _ => word.push(ch),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// The command lines that a line of the docs stands for: `hermes config get|set` is two.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ");
    let line = line.split(" #").next().unwrap_or_default();
    if !line.starts_with("hermes ") || line.contains("hermes __") || line.contains("hermes …") {
        return Vec::new();
    }
    let mut lines = vec![Vec::new()];
    for word in words(line) {
        if matches!(&*word, "|" | "\\") {
            break;
        }
        let word = word.replace(['[', ']'], "").replace("\\|", "|");
        let choices: Vec<&str> = word.split('|').filter(|choice| *choice != "…").collect();
        let choices = if choices.is_empty() {
            vec!["x"]
        } else {
            choices
        };
        lines = lines
            .iter()
            .flat_map(|line: &Vec<String>| {
                choices.iter().map(|choice| {
                    let mut line = line.clone();
                    line.push((*choice).to_owned());
                    line
                })
            })
            .collect();
    }
    lines
}

/// Every command and flag in the README and docs/ can be typed as it is written.
#[test]
fn the_docs_name_commands_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    files.extend(
        docs.map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let indented = text.lines().filter(|line| line.starts_with("    "));
        // Code between backticks, inline and fenced.
        let spans = text.split('`').skip(1).step_by(2).flat_map(str::lines);
        for args in spans.chain(indented).flat_map(command_lines) {
            seen += 1;
            let Err(error) = Cli::try_parse_from(&args) else {
                continue;
            };
            if matches!(
                error.kind(),
                ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand
            ) {
                wrong.push(format!("{}: {}", file.display(), args.join(" ")));
            }
        }
    }
    assert!(seen > 100, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn plain_lines_are_asked_for_before_or_after_the_command() {
    for line in [
        "hermes --plain setup",
        "hermes setup --plain",
        "hermes chat --cli",
    ] {
        let cli = parse(line.split(' ').map(OsString::from)).unwrap();
        assert!(cli.global.plain, "{line}");
    }
    let both = ["hermes", "--plain", "--tui"].map(OsString::from);
    assert_eq!(parse(both).unwrap_err().exit, Exit::Usage);
}

#[test]
fn a_wrong_number_is_explained_in_words() {
    for (line, told) in [
        ("insights --days banana", "expected a whole number"),
        ("insights --days 0", "expected 1 or more"),
        ("chat --max-turns 99999999999999", "expected 1 or more"),
    ] {
        let args = format!("hermes {line}");
        let failure = parse(args.split(' ').map(OsString::from)).unwrap_err();
        assert!(failure.message.contains(told), "{}", failure.message);
        assert!(!failure.message.contains(".."), "{}", failure.message);
    }
}
