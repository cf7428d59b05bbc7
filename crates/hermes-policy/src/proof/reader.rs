//! A parser for the modelled part of the shell language.
//!
//! It is independent of the grammar that finds dangerous commands: what either of the two does not understand
//! asks. Everything that is not handled explicitly is an error with a reason.

use super::syntax::{RawCommand, RawRedirect, RawWord, ScriptNode, WordPiece};
use super::words::is_name;

/// Maximum nesting.
const DEPTH: usize = 24;

pub(super) type UnprovenReason = &'static str;
pub(super) type ReadResult<T> = Result<T, UnprovenReason>;

pub(super) struct SubsetReader {
    pub(super) source: Vec<char>,
    pub(super) at: usize,
    pub(super) depth: usize,
    /// Bash extensions are errors.
    pub(super) posix: bool,
    /// Here documents whose bodies follow the current line: delimiter, whether tabs are removed, whether the
    /// body is literal.
    pub(super) waiting: Vec<(String, bool, bool)>,
    /// Bodies in order of their operators.
    pub(super) bodies: Vec<RawWord>,
}

/// The statements of `source`.
pub(super) fn read(source: &str, posix: bool) -> ReadResult<Vec<ScriptNode>> {
    read_at(source, 0, posix)
}

/// Other shells parse the same text differently, and run what was taken for a word.
pub(super) const ONLY_BASH: UnprovenReason = "a shell other than bash reads it otherwise";

pub(super) fn read_at(source: &str, depth: usize, posix: bool) -> ReadResult<Vec<ScriptNode>> {
    let mut reader = SubsetReader {
        source: source.chars().collect(),
        at: 0,
        depth,
        posix,
        waiting: Vec::new(),
        bodies: Vec::new(),
    };
    let nodes = reader.list(&[])?;
    if reader.at < reader.source.len() {
        return Err("it has an operator where none belongs");
    }
    reader.finish(nodes)
}

impl SubsetReader {
    pub(super) fn peek(&self) -> Option<char> {
        self.source.get(self.at).copied()
    }

    pub(super) fn starts(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(offset, c)| self.source.get(self.at + offset) == Some(&c))
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.starts(text);
        if found {
            self.at += text.chars().count();
        }
        found
    }

    /// Skips blanks, continued lines and comments up to the next token of the line.
    fn skip_blanks(&mut self) {
        loop {
            if self.eat("\\\n") {
                continue;
            }
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('#') if self.at == 0 || is_boundary(self.source[self.at - 1]) => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Skips line ends, with the here documents that follow them.
    fn lines(&mut self) -> ReadResult<()> {
        loop {
            self.skip_blanks();
            if self.peek() != Some('\n') {
                return Ok(());
            }
            self.at += 1;
            for (end, tabs, literal) in std::mem::take(&mut self.waiting) {
                let body = self.document(&end, tabs, literal)?;
                self.bodies.push(body);
            }
        }
    }

    /// Statements up to one of the keywords in `ends`, a closing bracket or the end.
    pub(super) fn list(&mut self, ends: &[&str]) -> ReadResult<Vec<ScriptNode>> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("it is nested deeper than is looked at");
        }
        let mut nodes = Vec::new();
        loop {
            self.lines()?;
            if self.peek().is_none() || self.peek() == Some(')') || self.starts(";;") {
                break;
            }
            if ends.iter().any(|end| self.at_keyword(end)) {
                break;
            }
            let node = self.chain()?;
            let background = matches!(
                node,
                ScriptNode::Chain {
                    background: true,
                    ..
                }
            );
            nodes.push(node);
            if self.starts(";;") {
                break;
            }
            if background || self.eat(";") {
                continue;
            }
            match self.peek() {
                None | Some('\n' | ')') => {}
                Some(_) => return Err("it has an operator where none belongs"),
            }
        }
        self.depth -= 1;
        Ok(nodes)
    }

    /// Pipelines joined by `&&` and `||`, up to the operator that ends them; an `&` is included.
    fn chain(&mut self) -> ReadResult<ScriptNode> {
        let mut nodes = vec![self.pipeline()?];
        let mut certain = None;
        loop {
            self.skip_blanks();
            if self.starts("||") {
                certain = certain.or(Some(nodes.len()));
            }
            if !(self.eat("&&") || self.eat("||")) {
                break;
            }
            self.lines()?;
            if self.peek().is_none() {
                return Err("an operator has nothing behind it");
            }
            nodes.push(self.pipeline()?);
        }
        let background = self.eat("&");
        if nodes.len() == 1 && !background {
            return Ok(nodes.remove(0));
        }
        Ok(ScriptNode::Chain {
            certain: certain.unwrap_or(nodes.len()),
            nodes,
            background,
        })
    }

    fn at_keyword(&self, word: &str) -> bool {
        let end = self.at + word.chars().count();
        self.starts(word)
            && self
                .source
                .get(end)
                .is_none_or(|c| is_boundary(*c) || "<>".contains(*c))
    }

    fn keyword(&mut self, word: &str) -> ReadResult<()> {
        self.lines()?;
        if !self.at_keyword(word) {
            return Err("a statement is not complete");
        }
        self.at += word.chars().count();
        Ok(())
    }

    fn pipeline(&mut self) -> ReadResult<ScriptNode> {
        let mut stages = vec![self.command()?];
        let mut with_errors = false;
        loop {
            self.skip_blanks();
            if self.starts("||") || self.peek() != Some('|') {
                break;
            }
            self.at += 1;
            if self.eat("&") {
                with_errors = true;
                self.only_in_bash()?;
            }
            self.lines()?;
            stages.push(self.command()?);
        }
        Ok(if stages.len() == 1 {
            stages.remove(0)
        } else {
            ScriptNode::Pipeline {
                stages,
                with_errors,
            }
        })
    }

    pub(super) fn only_in_bash(&self) -> ReadResult<()> {
        if self.posix { Err(ONLY_BASH) } else { Ok(()) }
    }

    fn command(&mut self) -> ReadResult<ScriptNode> {
        self.skip_blanks();
        while self.at_keyword("!") || self.at_keyword("time") {
            self.at += if self.peek() == Some('!') { 1 } else { 4 };
            self.skip_blanks();
        }
        for word in [
            "select", "coproc", "function", "}", "]]", "then", "do", "fi", "done", "esac", "else",
            "elif", "in",
        ] {
            if self.at_keyword(word) {
                return Err("it has a construct that is not modelled");
            }
        }
        if self.starts("((") {
            return Err("arithmetic may run commands");
        }
        if self.eat("(") {
            let body = self.list(&[])?;
            if !self.eat(")") {
                return Err("a bracket is not closed");
            }
            let redirects = self.redirects()?;
            return Ok(ScriptNode::Group(body, redirects));
        }
        if self.at_keyword("{") {
            self.at += 1;
            let body = self.list(&["}"])?;
            self.keyword("}")?;
            let redirects = self.redirects()?;
            return Ok(ScriptNode::Group(body, redirects));
        }
        if self.at_keyword("[[") {
            self.only_in_bash()?;
            self.at += 2;
            return self.test();
        }
        if self.at_keyword("if") {
            self.at += 2;
            return self.conditional();
        }
        if self.at_keyword("while") || self.at_keyword("until") {
            self.at += 5;
            let mut body = self.list(&["do"])?;
            self.keyword("do")?;
            body.extend(self.list(&["done"])?);
            self.keyword("done")?;
            let redirects = self.redirects()?;
            return Ok(ScriptNode::Branch(body, redirects));
        }
        if self.at_keyword("for") {
            self.at += 3;
            return self.for_loop();
        }
        if self.at_keyword("case") {
            self.at += 4;
            return self.case();
        }
        self.simple()
    }

    fn conditional(&mut self) -> ReadResult<ScriptNode> {
        let mut body = self.list(&["then"])?;
        self.keyword("then")?;
        body.extend(self.list(&["elif", "else", "fi"])?);
        loop {
            self.lines()?;
            if self.at_keyword("elif") {
                self.at += 4;
                body.extend(self.list(&["then"])?);
                self.keyword("then")?;
                body.extend(self.list(&["elif", "else", "fi"])?);
            } else if self.at_keyword("else") {
                self.at += 4;
                body.extend(self.list(&["fi"])?);
            } else {
                break;
            }
        }
        self.keyword("fi")?;
        let redirects = self.redirects()?;
        Ok(ScriptNode::Branch(body, redirects))
    }

    fn for_loop(&mut self) -> ReadResult<ScriptNode> {
        self.skip_blanks();
        let name = self.word()?;
        let name = name.bare().filter(|name| is_name(name)).unwrap_or_default();
        if name.is_empty() {
            return Err("arithmetic may run commands");
        }
        let name = name.to_owned();
        self.keyword("in")?;
        let mut values = Vec::new();
        loop {
            self.skip_blanks();
            match self.peek() {
                Some(';' | '\n') => break,
                None => return Err("a statement is not complete"),
                Some(_) => values.push(self.word()?),
            }
        }
        self.at += 1;
        if self.source[self.at - 1] == '\n' && !self.waiting.is_empty() {
            return Err("a here document stands in a list of values");
        }
        self.keyword("do")?;
        let body = self.list(&["done"])?;
        self.keyword("done")?;
        let redirects = self.redirects()?;
        Ok(ScriptNode::For {
            name,
            values,
            body,
            redirects,
        })
    }

    fn case(&mut self) -> ReadResult<ScriptNode> {
        self.skip_blanks();
        let mut choice = vec![self.word()?];
        self.keyword("in")?;
        let mut body = Vec::new();
        loop {
            self.lines()?;
            if self.at_keyword("esac") {
                break;
            }
            self.eat("(");
            loop {
                self.skip_blanks();
                choice.push(self.word()?);
                self.skip_blanks();
                if self.eat(")") {
                    break;
                }
                if self.starts("||") || !self.eat("|") {
                    return Err("a pattern is not understood");
                }
            }
            body.extend(self.list(&["esac"])?);
            self.lines()?;
            if self.starts(";;&") || !self.eat(";;") {
                break;
            }
        }
        self.keyword("esac")?;
        let redirects = self.redirects()?;
        body.insert(0, ScriptNode::Choice(choice));
        Ok(ScriptNode::Branch(body, redirects))
    }

    fn test(&mut self) -> ReadResult<ScriptNode> {
        let mut words = Vec::new();
        loop {
            self.lines()?;
            if self.at_keyword("]]") {
                self.at += 2;
                return Ok(ScriptNode::Test(words));
            }
            let operator = ["&&", "||", "(", ")", "<", ">"]
                .into_iter()
                .find(|operator| self.eat(operator));
            if let Some(operator) = operator {
                let mut word = RawWord::default();
                operator.chars().for_each(|c| word.push_text(c, false));
                words.push(word);
                continue;
            }
            if self.peek().is_none() {
                return Err("a test is not closed");
            }
            words.push(self.word()?);
        }
    }

    fn redirects(&mut self) -> ReadResult<Vec<RawRedirect>> {
        let mut found = Vec::new();
        loop {
            self.skip_blanks();
            match self.redirect()? {
                Some(redirect) => found.extend(redirect),
                None => return Ok(found),
            }
        }
    }

    /// `None`: no redirection. The inner value is empty for duplicated descriptors.
    fn redirect(&mut self) -> ReadResult<Option<Vec<RawRedirect>>> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let both = self.at == start && (self.eat("&>>") || self.eat("&>"));
        if !both && !matches!(self.peek(), Some('<' | '>')) {
            self.at = start;
            return Ok(None);
        }
        if !both && (self.starts("<(") || self.starts(">(")) {
            self.at = start;
            return Ok(None);
        }
        if both {
            self.only_in_bash()?;
            return Ok(Some(vec![RawRedirect::Write(self.target()?)]));
        }
        if self.starts("<>") {
            return Err("it opens a file for reading and writing");
        }
        if self.eat("<<<") {
            self.only_in_bash()?;
            return Ok(Some(vec![RawRedirect::Input(self.target()?)]));
        }
        if self.eat("<<") {
            let tabs = self.eat("-");
            let start = self.at;
            let word = self.target()?;
            // Looks like an expansion, but is none there.
            if self.source[start..self.at]
                .iter()
                .any(|c| "$`\n".contains(*c))
            {
                return Err("the end of a here document is not a plain word");
            }
            let mut end = String::new();
            for piece in &word.pieces {
                match piece {
                    WordPiece::Text { text, .. } => end.push_str(text),
                    _ => return Err("the end of a here document is not a plain word"),
                }
            }
            self.waiting.push((end, tabs, word.quoted));
            let number = self.bodies.len() + self.waiting.len() - 1;
            return Ok(Some(vec![RawRedirect::Pending(number)]));
        }
        if self.eat("<&") || self.eat(">&") {
            let reads = self.source[self.at - 2] == '<';
            let target = self.target()?;
            let duplicate = target.bare().is_some_and(|text| {
                text == "-" || (!text.is_empty() && text.chars().all(|c| c.is_ascii_digit()))
            });
            return match (duplicate, reads) {
                (true, _) => Ok(Some(Vec::new())),
                (false, false) => {
                    self.only_in_bash()?;
                    Ok(Some(vec![RawRedirect::Write(target)]))
                }
                (false, true) => Err("it duplicates a descriptor that is not known"),
            };
        }
        if self.eat("<") {
            return Ok(Some(vec![RawRedirect::Read(self.target()?)]));
        }
        let _ = self.eat(">>") || self.eat(">|") || self.eat(">");
        Ok(Some(vec![RawRedirect::Write(self.target()?)]))
    }

    fn target(&mut self) -> ReadResult<RawWord> {
        self.skip_blanks();
        let word = self.word()?;
        if word.pieces.is_empty() {
            return Err("a redirection has no target");
        }
        Ok(word)
    }

    fn simple(&mut self) -> ReadResult<ScriptNode> {
        let mut command = RawCommand::default();
        loop {
            self.skip_blanks();
            if let Some(redirects) = self.redirect()? {
                command.redirects.extend(redirects);
                continue;
            }
            match self.peek() {
                None | Some('\n' | ';' | '&' | '|' | ')') => break,
                Some('(') => {
                    return match command.words.as_slice() {
                        [name] if command.assigns.is_empty() && command.redirects.is_empty() => {
                            let name = name.bare().filter(|name| is_name(name)).map(str::to_owned);
                            self.function(name.ok_or("a bracket stands within a word")?)
                        }
                        _ => Err("a bracket stands within a word"),
                    };
                }
                Some(_) => {}
            }
            let word = self.word()?;
            if command.words.is_empty()
                && let Some((name, value)) = split_assignment(&word)?
            {
                command.assigns.push((name, value));
                continue;
            }
            command.words.push(word);
        }
        if command.words.is_empty() && command.assigns.is_empty() && command.redirects.is_empty() {
            return Err("an operator has nothing before it");
        }
        Ok(ScriptNode::Simple(command))
    }

    fn function(&mut self, name: String) -> ReadResult<ScriptNode> {
        self.at += 1;
        self.skip_blanks();
        if !self.eat(")") {
            return Err("a bracket stands within a word");
        }
        self.lines()?;
        if !self.at_keyword("{") {
            return Err("a function has a body that is not modelled");
        }
        self.at += 1;
        let body = self.list(&["}"])?;
        self.keyword("}")?;
        Ok(ScriptNode::Function { name, body })
    }
}

fn is_boundary(c: char) -> bool {
    c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')')
}

/// `NAME=value` at the start of a command.
fn split_assignment(word: &RawWord) -> ReadResult<Option<(String, RawWord)>> {
    let Some(WordPiece::Text {
        text,
        quoted: false,
    }) = word.pieces.first()
    else {
        return Ok(None);
    };
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if !is_name(name) {
        return Ok(None);
    }
    if rest.starts_with('[') || rest.starts_with("+=") {
        return Err("an assignment may run commands or change more than a plain variable");
    }
    let Some(value) = rest.strip_prefix('=') else {
        return Ok(None);
    };
    let mut pieces = word.pieces.clone();
    if value.is_empty() {
        pieces.remove(0);
    } else if let Some(first) = pieces.first_mut() {
        *first = WordPiece::Text {
            text: value.to_owned(),
            quoted: false,
        };
    }
    let value = RawWord {
        pieces,
        quoted: word.quoted,
    };
    Ok(Some((name.to_owned(), value)))
}
