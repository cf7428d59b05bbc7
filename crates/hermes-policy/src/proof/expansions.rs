//! Words of the modelled language: quotes and expansions.

use super::reader::{ReadResult, SubsetReader, UnprovenReason, read_at};
use super::syntax::{RawWord, ScriptNode, WordPiece};
use super::words::is_plain_arithmetic;

impl SubsetReader {
    pub(super) fn word(&mut self) -> ReadResult<RawWord> {
        let mut word = RawWord::default();
        let start = self.at;
        while let Some(c) = self.peek() {
            match c {
                '<' if self.starts("<(") && word.pieces.is_empty() => {
                    self.only_in_bash()?;
                    self.at += 2;
                    let body = self.closed()?;
                    word.pieces.push(WordPiece::PipePath { body });
                }
                '<' if self.starts("<(") => {
                    return Err("a substitution stands within a word");
                }
                ' ' | '\t' | '\n' | '|' | '&' | ';' | ')' | '>' | '<' | '(' => break,
                '\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') => self.at += 1,
                        Some(next) => {
                            self.at += 1;
                            word.push_text(next, true);
                        }
                        None => return Err("it ends in a backslash"),
                    }
                }
                '\'' => self.single(&mut word)?,
                '"' => {
                    self.at += 1;
                    word.quoted = true;
                    while self.peek() != Some('"') {
                        if self.peek().is_none() {
                            return Err("a quotation is not closed");
                        }
                        self.quoted_piece(&mut word, true)?;
                    }
                    self.at += 1;
                    // "" is an empty word.
                    if word.pieces.is_empty() {
                        word.pieces.push(WordPiece::Text {
                            text: String::new(),
                            quoted: true,
                        });
                    }
                }
                '$' => self.dollar(&mut word, false)?,
                '`' => self.backticks(&mut word, false)?,
                '~' if self.at == start => {
                    self.at += 1;
                    match self.peek() {
                        None | Some('/' | ' ' | '\t' | '\n' | ';' | '|' | '&' | ')') => {
                            word.pieces.push(WordPiece::Home);
                        }
                        _ => return Err("it names the directory of another user"),
                    }
                }
                '~' if matches!(self.source[self.at - 1], '=' | ':') => {
                    return Err("a tilde stands within a word");
                }
                '{' | '}'
                    if self
                        .source
                        .get(self.at + 1)
                        .is_some_and(|c| "<>".contains(*c)) =>
                {
                    return Err("a redirection names its descriptor by a variable");
                }
                c => {
                    self.at += 1;
                    word.push_text(c, false);
                }
            }
        }
        if self.at == start {
            return Err("it has a construct that is not modelled");
        }
        Ok(word)
    }

    fn single(&mut self, word: &mut RawWord) -> ReadResult<()> {
        self.at += 1;
        word.quoted = true;
        let mut text = String::new();
        loop {
            let Some(c) = self.peek() else {
                return Err("a quotation is not closed");
            };
            self.at += 1;
            if c == '\'' {
                break;
            }
            text.push(c);
        }
        word.pieces.push(WordPiece::Text { text, quoted: true });
        Ok(())
    }

    /// One character or expansion of quoted text. `string`: in double quotes, not in a here document.
    pub(super) fn quoted_piece(&mut self, word: &mut RawWord, string: bool) -> ReadResult<()> {
        match self.peek() {
            Some('\\') => {
                self.at += 1;
                match self.peek() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '\\')) => word.push_text(c, true),
                    Some('"') if string => word.push_text('"', true),
                    Some(c) => {
                        word.push_text('\\', true);
                        word.push_text(c, true);
                    }
                    None => return Err("it ends in a backslash"),
                }
                self.at += 1;
                Ok(())
            }
            Some('$') => self.dollar(word, true),
            Some('`') => self.backticks(word, true),
            Some(c) => {
                self.at += 1;
                word.push_text(c, true);
                Ok(())
            }
            None => Err("a quotation is not closed"),
        }
    }

    fn closed(&mut self) -> ReadResult<Vec<ScriptNode>> {
        let waiting = self.waiting.len();
        let body = self.list(&[])?;
        if !self.eat(")") || self.waiting.len() != waiting {
            return Err("a substitution is not closed");
        }
        Ok(body)
    }

    fn dollar(&mut self, word: &mut RawWord, quoted: bool) -> ReadResult<()> {
        self.at += 1;
        if self.eat("((") {
            let start = self.at;
            while !self.starts("))") {
                if self.peek().is_none_or(|c| !is_plain_arithmetic(c)) {
                    return Err("arithmetic may run commands");
                }
                self.at += 1;
            }
            if self.source[start..self.at]
                .iter()
                .filter(|c| **c == '(')
                .count()
                != self.source[start..self.at]
                    .iter()
                    .filter(|c| **c == ')')
                    .count()
            {
                return Err("arithmetic may run commands");
            }
            self.at += 2;
            word.pieces.push(WordPiece::Unknown { quoted });
            return Ok(());
        }
        if self.eat("(") {
            let body = self.closed()?;
            word.pieces.push(WordPiece::Substitution { body, quoted });
            return Ok(());
        }
        if self.eat("{") {
            return self.braced(word, quoted);
        }
        match self.peek() {
            Some('\'') if !quoted => {
                self.only_in_bash()?;
                self.ansi(word)
            }
            Some('"') if !quoted => Err("a translated text is not modelled"),
            Some('[') => Err("arithmetic may run commands"),
            Some('?' | '#' | '$' | '!') => {
                // A number.
                self.at += 1;
                word.push_text('0', true);
                Ok(())
            }
            Some('@' | '*' | '-' | '0'..='9') => {
                self.at += 1;
                word.pieces.push(WordPiece::Unknown { quoted });
                Ok(())
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let name = self.name();
                word.pieces.push(WordPiece::Variable { name, quoted });
                Ok(())
            }
            _ => {
                word.push_text('$', true);
                Ok(())
            }
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self
            .peek()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        {
            name.push(c);
            self.at += 1;
        }
        name
    }

    /// `${…}` in the forms that only read a variable.
    fn braced(&mut self, word: &mut RawWord, quoted: bool) -> ReadResult<()> {
        const ODD: UnprovenReason = "an expansion may run commands or change variables";
        let length = self.eat("#");
        let name = self.name();
        if name.is_empty() {
            return Err(ODD);
        }
        if self.eat("}") {
            word.pieces.push(
                if length || name.starts_with(|c: char| c.is_ascii_digit()) {
                    WordPiece::Unknown { quoted }
                } else {
                    WordPiece::Variable { name, quoted }
                },
            );
            return Ok(());
        }
        let known = [":-", ":+", "-", "+", "%%", "%", "##", "#"]
            .into_iter()
            .any(|operator| self.eat(operator));
        if length || !known {
            return Err(ODD);
        }
        loop {
            match self.peek() {
                Some('}') => break,
                Some(c) if c.is_ascii_alphanumeric() || " _./:*?-".contains(c) => self.at += 1,
                _ => return Err(ODD),
            }
        }
        self.at += 1;
        word.pieces.push(WordPiece::Unknown { quoted });
        Ok(())
    }

    fn ansi(&mut self, word: &mut RawWord) -> ReadResult<()> {
        self.at += 1;
        word.quoted = true;
        let mut text = String::new();
        loop {
            let Some(c) = self.peek() else {
                return Err("a quotation is not closed");
            };
            self.at += 1;
            match c {
                '\'' => break,
                '\\' => {
                    text.push(match self.peek() {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('r') => '\r',
                        Some(c @ ('\\' | '\'' | '"')) => c,
                        _ => return Err("a text has an escape that is not modelled"),
                    });
                    self.at += 1;
                }
                c => text.push(c),
            }
        }
        word.pieces.push(WordPiece::Text { text, quoted: true });
        Ok(())
    }

    fn backticks(&mut self, word: &mut RawWord, quoted: bool) -> ReadResult<()> {
        self.at += 1;
        let mut inner = String::new();
        loop {
            match self.peek() {
                None => return Err("a substitution is not closed"),
                Some('\\') => return Err("a substitution has escapes that are not modelled"),
                Some('`') => break,
                Some(c) => inner.push(c),
            }
            self.at += 1;
        }
        self.at += 1;
        if quoted && inner.contains('"') {
            return Err("a substitution has quotes that are not modelled");
        }
        let body = read_at(&inner, self.depth + 1, self.posix)?;
        word.pieces.push(WordPiece::Substitution { body, quoted });
        Ok(())
    }
}
