//! Options and operands.

use crate::shell::ShellWord;

/// Whether one of `options` (names separated by spaces) is among `args`. Long options may be abbreviated and
/// carry a value; short ones may be combined. A name that starts with `=` must match exactly.
pub(super) fn has(args: &[ShellWord], options: &str) -> bool {
    let mut rest = args.iter();
    rest.by_ref()
        .take_while(|word| word.text != "--")
        .any(|word| {
            options
                .split(' ')
                .any(|option| is_option(&word.text, option))
        })
}

fn is_option(word: &str, option: &str) -> bool {
    if let Some(exact) = option.strip_prefix('=') {
        return word == exact;
    }
    if let Some(long) = option.strip_prefix("--") {
        let Some(given) = word.strip_prefix("--") else {
            return false;
        };
        let given = given.split('=').next().unwrap_or(given);
        return given == long || (given.len() > 1 && long.starts_with(given));
    }
    let Some(short) = option.strip_prefix('-') else {
        return word == option;
    };
    word.len() > 1 && word.starts_with('-') && !word.starts_with("--") && word[1..].contains(short)
}

/// The value of an option: `-o x`, `-ox`, `--output x`, `--output=x`.
pub(super) fn value<'w>(args: &'w [ShellWord], options: &str) -> Option<ShellWord> {
    let cut = |word: &'w ShellWord, from: usize| ShellWord {
        text: word.text[from..].to_owned(),
        ..word.clone()
    };
    for (at, word) in args.iter().enumerate() {
        for option in options.split(' ') {
            let text = word.text.as_str();
            if text == option {
                return args.get(at + 1).cloned();
            }
            if option.starts_with("--") {
                if let Some(rest) = text.strip_prefix(option)
                    && rest.starts_with('=')
                {
                    return Some(cut(word, option.len() + 1));
                }
                continue;
            }
            let letter = option.trim_start_matches('-');
            if letter.len() != 1 || !text.starts_with('-') || text.starts_with("--") {
                continue;
            }
            // In a cluster the letter takes the rest, else the next word.
            if let Some(found) = text[1..].find(letter) {
                let end = 1 + found + letter.len();
                return if text.len() > end {
                    Some(cut(word, end))
                } else {
                    args.get(at + 1).cloned()
                };
            }
        }
    }
    None
}

/// Words that are not options. `with_value` names the options that take the next word.
pub(super) fn operands<'w>(args: &'w [ShellWord], with_value: &str) -> Vec<&'w ShellWord> {
    let mut out = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if text == "--" {
            out.extend(words);
            break;
        }
        if text.len() > 1 && text.starts_with('-') {
            let takes = with_value.split(' ').any(|option| {
                option == text
                    || (option.len() == 2
                        && !text.starts_with("--")
                        && text.len() > 2
                        && text.ends_with(&option[1..])
                        && option.starts_with('-'))
            });
            if takes {
                words.next();
            }
            continue;
        }
        out.push(word);
    }
    out
}

/// Whether `args` begin with options that are neither among `known` nor carry their value: then the subcommand
/// may be another word.
pub(super) fn unsure(args: &[ShellWord], known: &str) -> bool {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_str();
        if !text.starts_with('-') {
            return word.dynamic;
        }
        let takes = known.split_whitespace().any(|option| option == text);
        let flag = known
            .split_whitespace()
            .any(|option| option.strip_prefix('=') == Some(text));
        if !takes && !flag && !text.contains('=') {
            return true;
        }
        at += if takes { 2 } else { 1 };
    }
    false
}

/// The first word that is not an option: the subcommand, and what follows it.
pub(super) fn subcommand<'w>(
    args: &'w [ShellWord],
    with_value: &str,
) -> Option<(&'w str, &'w [ShellWord])> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_str();
        if !text.starts_with('-') {
            return Some((text, &args[at + 1..]));
        }
        at += if with_value.split(' ').any(|option| option == text) {
            2
        } else {
            1
        };
    }
    None
}
