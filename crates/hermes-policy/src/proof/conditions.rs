//! `[[ … ]]` and `test`.

use super::syntax::{RawWord, WordPiece};
use super::{ProofResult, Prover, construct};
use crate::shell::ShellWord;

const UNARY: [&str; 20] = [
    "-n", "-z", "-f", "-d", "-e", "-r", "-w", "-x", "-s", "-L", "-h", "-p", "-S", "-b", "-c", "-g",
    "-k", "-u", "-O", "-G",
];
const BINARY: [&str; 8] = ["=", "==", "!=", "=~", "-nt", "-ot", "-ef", "<"];
const NUMBERS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

const NOT_MODELLED: &str = "a test may evaluate text";

impl Prover<'_, '_> {
    /// `[[ … ]]`: operators are literal, operands are not split. Numbers are evaluated as arithmetic there, so
    /// they must be digits.
    pub(super) fn condition(&mut self, words: &[RawWord]) -> ProofResult {
        let mut at = 0;
        while at < words.len() {
            let text = words[at].bare().unwrap_or_default();
            if matches!(text, "!" | "&&" | "||" | "(" | ")") {
                at += 1;
                continue;
            }
            let rest = &words[at..];
            let operator = rest.get(1).and_then(RawWord::bare).unwrap_or_default();
            if UNARY.contains(&text)
                && rest.len() > 1
                && !matches!(operator, "&&" | "||" | ")")
                && !BINARY.contains(&operator)
            {
                self.words_of(&rest[1])?;
                at += 2;
            } else if BINARY.contains(&operator) || operator == ">" {
                let (Some(left), Some(right)) = (rest.first(), rest.get(2)) else {
                    return construct(NOT_MODELLED);
                };
                self.words_of(left)?;
                self.pattern(right)?;
                at += 3;
            } else if NUMBERS.contains(&operator) {
                let digits = |word: Option<&RawWord>| {
                    word.is_some_and(|word| match word.pieces.as_slice() {
                        [WordPiece::Text { text, .. }] => {
                            !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
                        }
                        _ => false,
                    })
                };
                if !digits(rest.first()) || !digits(rest.get(2)) {
                    return construct("a comparison of numbers evaluates text");
                }
                at += 3;
            } else if !text.starts_with('-')
                && matches!(operator, "" | "&&" | "||" | ")")
                && rest.get(1).is_none_or(|word| word.bare().is_some())
            {
                self.words_of(&rest[0])?;
                at += 1;
            } else {
                return construct(NOT_MODELLED);
            }
        }
        Ok(())
    }

    /// The right side of a comparison is a pattern: braces are literal.
    fn pattern(&mut self, word: &RawWord) -> ProofResult {
        for piece in &word.pieces {
            if !matches!(piece, WordPiece::Text { .. }) {
                let only = RawWord {
                    pieces: vec![piece.clone()],
                    quoted: true,
                };
                self.words_of(&only)?;
            }
        }
        Ok(())
    }

    /// `test` and `[`: which words are operators must not depend on run-time values.
    pub(super) fn test(args: &[ShellWord]) -> ProofResult {
        let args = match args.split_first() {
            Some((first, rest)) if first.text == "!" && rest.len() > 1 => rest,
            _ => args,
        };
        // An unquoted expansion may become several words, or none.
        if args
            .iter()
            .any(|word| word.glob || word.text.is_empty() && word.dynamic)
        {
            return construct(NOT_MODELLED);
        }
        let known =
            |word: &ShellWord, list: &[&str]| !word.dynamic && list.contains(&word.text.as_str());
        match args {
            [] | [_] => Ok(()),
            [operator, _] if known(operator, &UNARY) || known(operator, &["-t"]) => Ok(()),
            [_, operator, _]
                if known(operator, &BINARY)
                    || known(operator, &NUMBERS)
                    || known(operator, &[">"]) =>
            {
                Ok(())
            }
            _ => construct(NOT_MODELLED),
        }
    }
}
