//! Programs that run others: the inner command must be proven too.

use super::evaluate::StdinFeed;
use super::paths::BELOW;
use super::table::{OptionModel, is_split, parse_arguments};
use super::words::is_inert_for_programs;
use super::{ProofResult, Prover, construct, refuse};
use crate::shell::{ShellWord, UNKNOWN};

impl Prover<'_, '_> {
    pub(super) fn wrapper(
        &mut self,
        name: &str,
        args: &[ShellWord],
        feed: &StdinFeed,
    ) -> Option<ProofResult> {
        self.direct = false;
        Some(match name {
            "command" => match args.first().map(|word| word.text.as_str()) {
                Some("-v" | "-V") => Ok(()),
                Some(text) if !text.starts_with('-') => self.run(args, feed),
                _ => refuse("command with options that are not modelled"),
            },
            "builtin" | "nohup" => match args.first() {
                Some(word) if !word.text.starts_with('-') => self.run(args, feed),
                _ => refuse("a wrapper with options that are not modelled"),
            },
            "timeout" => self.behind_options(
                args,
                &OptionModel::new(
                    "v",
                    "ks",
                    "--preserve-status --foreground --signal: --kill-after:",
                ),
                1,
                feed,
            ),
            "nice" => self.behind_options(
                args,
                &OptionModel::new("0123456789", "n", "--adjustment:"),
                0,
                feed,
            ),
            "stdbuf" => self.behind_options(
                args,
                &OptionModel::new("", "ioe", "--output: --input: --error:"),
                0,
                feed,
            ),
            "env" => self.env(args, feed),
            "watch" => self.watch(args),
            "xargs" => self.xargs(args, feed),
            "flock" => self.flock(args, feed),
            "sh" | "dash" => self.shell(args, true),
            "bash" => self.shell(args, false),
            _ => return None,
        })
    }

    /// The command after the options of a wrapper and `skip` words of its own.
    fn behind_options(
        &mut self,
        args: &[ShellWord],
        options: &OptionModel,
        skip: usize,
        feed: &StdinFeed,
    ) -> ProofResult {
        let start = own_options(args, options)?;
        let own = args.get(start..start + skip).unwrap_or_default();
        if own.len() < skip || own.iter().any(|word| word.dynamic) {
            return refuse("the arguments of a wrapper are not known");
        }
        match args.get(start + skip..) {
            Some(words) if !words.is_empty() => self.run(words, feed),
            _ => refuse("a wrapper has nothing to run"),
        }
    }

    fn env(&mut self, args: &[ShellWord], feed: &StdinFeed) -> ProofResult {
        let start = own_options(
            args,
            &OptionModel::new("i0", "u", "--ignore-environment --unset: --null"),
        )?;
        let mut at = start;
        while let Some((word, name)) = args
            .get(at)
            .and_then(|word| Some((word, word.text.split_once('=')?.0)))
        {
            if !is_inert_for_programs(name) || is_split(word) {
                return construct("it sets a variable that changes what programs do");
            }
            at += 1;
        }
        self.run(args.get(at..).unwrap_or_default(), feed)
    }

    fn watch(&mut self, args: &[ShellWord]) -> ProofResult {
        let start = own_options(
            args,
            &OptionModel::new(
                "dtcgepx",
                "n",
                "--interval: --differences --no-title --color",
            ),
        )?;
        let words = args.get(start..).unwrap_or_default();
        if words.iter().any(|word| word.dynamic || word.glob) {
            return construct("a script is only known when it runs");
        }
        let line: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        self.other_shell(&ShellWord::plain(line.join(" ")), true)
    }

    fn flock(&mut self, args: &[ShellWord], feed: &StdinFeed) -> ProofResult {
        let start = own_options(
            args,
            &OptionModel::new("nsxue", "wE", "--nonblock --shared --exclusive --timeout:"),
        )?;
        let Some((file, words)) = args.get(start..).unwrap_or_default().split_first() else {
            return refuse("flock without a file");
        };
        self.may_write(file)?;
        match words {
            [option, script] if option.text == "-c" => self.other_shell(script, true),
            words => self.run(words, feed),
        }
    }

    /// `sh -c 'script'`. Its arguments are already unknown in the script.
    fn shell(&mut self, args: &[ShellWord], posix: bool) -> ProofResult {
        let mut at = 0;
        let mut inline = false;
        while let Some(word) = args.get(at).filter(|word| word.text.starts_with('-')) {
            if word.dynamic
                || word.text.starts_with("--")
                || word.text[1..].chars().any(|c| !"ceulox".contains(c))
            {
                return refuse("options of a shell that are not modelled");
            }
            inline |= word.text.contains('c');
            at += 1;
            if word.text.contains('o') {
                if args.get(at).is_none_or(|word| word.text != "pipefail") {
                    return refuse("options of a shell that are not modelled");
                }
                at += 1;
            }
        }
        match args.get(at) {
            Some(script) if inline => self.other_shell(script, posix),
            _ => refuse("a shell runs a file or its input"),
        }
    }

    fn xargs(&mut self, args: &[ShellWord], feed: &StdinFeed) -> ProofResult {
        let options = OptionModel::new(
            "0rt",
            "nPILd",
            "--null --no-run-if-empty --max-args: --max-procs: --delimiter:",
        );
        let start = own_options(args, &options)?;
        let own = parse_arguments(&args[..start], &options).or_else(refuse)?;
        let exact = own.has(&["-0", "--null"]);
        let mark = own.values(&["-I"]).next().map(|word| word.text.clone());
        let mut words = args.get(start..).unwrap_or_default().to_vec();
        if words.is_empty() {
            return Ok(());
        }
        if let StdinFeed::Below { starts, .. } = feed
            && !exact
        {
            self.names_are_single_words(starts)?;
        }
        let operands = fed_operands(feed, exact, &words[0].text);
        let words = if let Some(mark) = mark.filter(|mark| !mark.is_empty()) {
            // Each line replaces the placeholder, wherever it is.
            let [operand] = operands.as_slice() else {
                return refuse("xargs takes its arguments from what is only known when it runs");
            };
            for word in &mut words {
                if word.text == mark {
                    *word = operand.clone();
                } else if word.text.contains(&mark) {
                    word.text = word.text.replace(&mark, &UNKNOWN.to_string());
                    word.dynamic = true;
                }
            }
            words
        } else {
            words.extend(operands);
            words
        };
        let narrowed = std::mem::replace(
            &mut self.narrowed,
            matches!(feed, StdinFeed::Below { narrowed: true, .. }),
        );
        let result = self.run(&words, &StdinFeed::Unknown);
        self.narrowed = narrowed;
        result
    }
}

/// Programs whose options are all harmless, so that any file name is.
fn accepts_any_file_name(program: &str) -> bool {
    super::table::find(program).is_some_and(|found| found.options.all_harmless())
        || program == "grep"
}

fn fed_operands(feed: &StdinFeed, exact: bool, program: &str) -> Vec<ShellWord> {
    match feed {
        StdinFeed::Below { starts, .. } if exact || accepts_any_file_name(program) => {
            starts.iter().map(below).collect()
        }
        _ => vec![ShellWord {
            text: UNKNOWN.to_string(),
            dynamic: true,
            expanded: true,
            ..ShellWord::default()
        }],
    }
}

/// Any path below `start`.
pub(super) fn below(start: &ShellWord) -> ShellWord {
    ShellWord {
        text: format!("{}/{BELOW}", start.text.trim_end_matches('/')),
        dynamic: true,
        expanded: true,
        ..start.clone()
    }
}

/// Where the options of a wrapper end: the first word that is not one.
fn own_options(args: &[ShellWord], options: &OptionModel) -> Result<usize, super::Unproven> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        if word.dynamic || word.glob {
            break;
        }
        let text = word.text.as_str();
        if text == "--" {
            return Ok(at + 1);
        }
        if text.len() < 2 || !text.starts_with('-') {
            break;
        }
        let alone = parse_arguments(&args[at..=at], options).is_ok();
        let paired = args.get(at..at + 2).is_some_and(|pair| {
            parse_arguments(pair, options).is_ok_and(|found| found.operands.is_empty())
        });
        match (alone, paired) {
            (true, _) => at += 1,
            (false, true) => at += 2,
            (false, false) => {
                return refuse(format!("the option {text} is not known to be harmless"));
            }
        }
    }
    Ok(at)
}
