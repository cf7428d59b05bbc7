//! Programs whose text is an argument: sed, awk, jq, SQL.

use super::table::{OptionModel, parse_arguments};
use super::{ProofResult, Prover, refuse};
use crate::shell::ShellWord;

impl Prover<'_, '_> {
    pub(super) fn sed(&mut self, args: &[ShellWord]) -> ProofResult {
        // `-i` takes its suffix only within the same word.
        let mut rest = Vec::new();
        let mut suffixes = Vec::new();
        for word in args {
            match word
                .text
                .strip_prefix("-i")
                .or_else(|| word.text.strip_prefix("--in-place"))
            {
                Some(suffix)
                    if suffix
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || ".=".contains(c)) =>
                {
                    suffixes.push(suffix.trim_start_matches('=').to_owned());
                }
                _ => rest.push(word.clone()),
            }
        }
        let options = OptionModel::new(
            "nErsuz",
            "e",
            "--quiet --silent --regexp-extended --expression: --posix",
        );
        let found = parse_arguments(&rest, &options).or_else(refuse)?;
        let mut scripts: Vec<&ShellWord> = found.values(&["-e", "--expression"]).collect();
        let mut files = found.operands.as_slice();
        if scripts.is_empty() {
            let Some((script, others)) = files.split_first() else {
                return Ok(());
            };
            scripts.push(script);
            files = others;
        }
        for script in scripts {
            if script.dynamic || script.glob || !is_harmless_sed(&script.text) {
                return refuse("the sed script is not known to be harmless");
            }
        }
        for file in files {
            self.may_read(file)?;
            for suffix in &suffixes {
                self.may_write(file)?;
                // The old text is kept under this name.
                self.may_write(&ShellWord {
                    text: format!("{}{suffix}", file.text),
                    ..(*file).clone()
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn awk(&mut self, args: &[ShellWord]) -> ProofResult {
        let found = parse_arguments(args, &OptionModel::new("", "Fv", "")).or_else(refuse)?;
        let Some((program, files)) = found.operands.split_first() else {
            return refuse("awk without a program");
        };
        let acts = [
            "system", "getline", "|", ">", "ARGV", "@", "\\\n", "ENVIRON", "close", "fflush",
            "printf >", "SYMTAB", "FUNCTAB", "PROCINFO",
        ];
        if program.dynamic || program.glob || acts.iter().any(|act| program.text.contains(act)) {
            return refuse("the awk program may write files or run commands");
        }
        files.iter().try_for_each(|word| self.may_read(word))
    }

    pub(super) fn jq(&mut self, args: &[ShellWord]) -> ProofResult {
        // `--arg name value` takes two words.
        let mut rest = Vec::new();
        let mut at = 0;
        while let Some(word) = args.get(at) {
            if matches!(word.text.as_str(), "--arg" | "--argjson") && args.len() > at + 2 {
                at += 3;
                continue;
            }
            rest.push(word.clone());
            at += 1;
        }
        let options = OptionModel::new(
            "nrcCMSsaejR",
            "",
            "--null-input --raw-output --compact-output --color-output --monochrome-output --sort-keys --slurp --exit-status --tab --join-output --raw-input",
        );
        let found = parse_arguments(&rest, &options).or_else(refuse)?;
        let Some((filter, files)) = found.operands.split_first() else {
            return Ok(());
        };
        if filter.dynamic
            || filter.glob
            || ["import", "include", "input_filename"]
                .iter()
                .any(|word| filter.text.contains(word))
        {
            return refuse("the jq program is not known to be harmless");
        }
        files.iter().try_for_each(|word| self.may_read(word))
    }

    /// A query of a database file: functions of SQLite's shell read and write files.
    pub(super) fn sqlite(&mut self, args: &[ShellWord]) -> ProofResult {
        let flags = [
            "-readonly",
            "-safe",
            "-header",
            "-csv",
            "-json",
            "-column",
            "-line",
            "-list",
            "-batch",
            "-table",
            "-box",
        ];
        let operands: Vec<&ShellWord> = args
            .iter()
            .filter(|word| !flags.contains(&word.text.as_str()))
            .collect();
        let [file, query] = operands.as_slice() else {
            return refuse("sqlite3 with arguments that are not modelled");
        };
        if args.iter().any(|word| word.dynamic || word.glob)
            || file.text.starts_with('-')
            || file.text.starts_with("file:")
        {
            return refuse("sqlite3 with arguments that are not modelled");
        }
        if !is_plain_select(&query.text.to_lowercase()) {
            return refuse("the SQL is not known to be harmless");
        }
        // A view in the file may call the function of the shell that runs an editor.
        if file.text != ":memory:" && !args.iter().any(|word| word.text == "-safe") {
            return refuse("what is in a database may run programs; sqlite3 -safe prevents that");
        }
        self.may_read(file)?;
        // It is created if it does not exist.
        if !args.iter().any(|word| word.text == "-readonly") {
            self.may_write(file)?;
        }
        Ok(())
    }
}

/// What may precede an opening bracket: functions that only compute, and keywords.
const SQL_CALLS: &str = "count sum min max avg total length lower upper coalesce ifnull nullif substr substring trim ltrim rtrim replace instr \
    round abs date time datetime julianday strftime typeof printf format group_concat json_extract in and or not where from select on as \
    values exists case when then else union all distinct having by join over";
/// Tables and functions of SQLite's shell that access files and programs, with or without a bracket.
const SQL_REACHES: [&str; 9] = [
    "fsdir",
    "zipfile",
    "readfile",
    "writefile",
    "edit",
    "load_extension",
    "lsmode",
    "sqlite_dbpage",
    "shell_add_schema",
];

/// One `select` that calls only known functions. Comments and other quotes could hide a call.
fn is_plain_select(text: &str) -> bool {
    let hidden = ["--", "/*", ";", "[", "`", "pragma_"];
    if !text.trim_start().starts_with("select") || hidden.iter().any(|mark| text.contains(mark)) {
        return false;
    }
    let mut rest = text;
    let mut before = "";
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\'' | '"' => match rest[1..].find(c) {
                Some(end) => end + 2,
                None => return false,
            },
            c if c.is_alphanumeric() || c == '_' => rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        rest = behind;
        if SQL_REACHES.contains(&token.trim_matches(['\'', '"'])) {
            return false;
        }
        let is_word = before.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_quoted = before.starts_with(['\'', '"']);
        if token == "("
            && (is_quoted || is_word && !SQL_CALLS.split_whitespace().any(|known| known == before))
        {
            return false;
        }
        if !c.is_whitespace() {
            before = token;
        }
    }
    true
}

/// A sed script without commands that write files or run programs.
pub(crate) fn is_harmless_sed(script: &str) -> bool {
    script
        .split([';', '\n'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .all(is_harmless_part)
}

fn is_harmless_part(part: &str) -> bool {
    let part = part.trim_start_matches(|c: char| c.is_ascii_digit() || ",$+~! ".contains(c));
    // A pattern as address.
    let part = match part.strip_prefix('/') {
        Some(rest) => match rest.find('/') {
            Some(end) if !rest[..end].contains(['\\', '[']) => rest[end + 1..]
                .trim_start_matches(|c: char| c.is_ascii_digit() || ",$I! ".contains(c)),
            _ => return false,
        },
        None => part,
    };
    let mut letters = part.chars();
    match letters.next() {
        Some('p' | 'd' | 'q' | '=' | 'n' | 'N' | 'P' | 'D' | 'g' | 'G' | 'h' | 'H' | 'x' | 'l') => {
            letters.all(|c| c.is_ascii_digit() || "p ".contains(c))
        }
        Some(kind @ ('s' | 'y')) => {
            let Some(mark) = letters.next() else {
                return false;
            };
            if mark.is_alphanumeric() || mark == '\\' || mark.is_whitespace() {
                return false;
            }
            let pieces: Vec<&str> = part[1 + mark.len_utf8()..].split(mark).collect();
            // An escaped delimiter or a bracket could move the end of the pattern.
            let [pattern, replacement, flags] = pieces.as_slice() else {
                return false;
            };
            let ends_escaped = pattern.ends_with('\\') || replacement.ends_with('\\');
            let open = pattern.matches('[').count() > pattern.matches(']').count();
            !ends_escaped
                && !open
                && (kind == 'y' && flags.is_empty()
                    || kind == 's' && flags.chars().all(|c| "gpiI0123456789".contains(c)))
        }
        // Text up to the end of the line, which was not split.
        Some('a' | 'i' | 'c') => part[1..].starts_with([' ', '\\']),
        _ => false,
    }
}
