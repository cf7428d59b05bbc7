//! Converts the tree to commands whose words are known as far as their text determines them.

use super::reader;
use super::syntax::{RawCommand, RawRedirect, RawWord, ScriptNode, WordPiece};
use super::words::{is_inert_for_programs, is_inert_variable};
use super::{KnownValue, ProofResult, Prover, STEPS, Unproven, construct, refuse};
use crate::shell::text::braces;
use crate::shell::{ShellWord, UNKNOWN};

/// Markers of unquoted braces and commas.
const OPEN: char = '\u{E002}';
const CLOSE: char = '\u{E003}';
const COMMA: char = '\u{E004}';
/// Maximum number of words from one word with braces, and of checked loop values.
const ALTERNATIVES: usize = 32;

impl Prover<'_, '_> {
    /// Counts how often each variable is assigned anywhere.
    pub(super) fn count_assignments(&mut self, nodes: &[ScriptNode]) {
        for node in nodes {
            match node {
                ScriptNode::Simple(command) => {
                    for (name, _) in &command.assigns {
                        *self.assigned.entry(name.clone()).or_default() += 1;
                    }
                    // `read x`, `export x=1`: every bare word may be a name.
                    let setter =
                        command
                            .words
                            .first()
                            .and_then(RawWord::bare)
                            .is_some_and(|name| {
                                matches!(name, "read" | "export" | "local" | "readonly" | "unset")
                            });
                    for word in command.words.iter().filter(|_| setter) {
                        if let Some(WordPiece::Text { text, .. }) = word.pieces.first() {
                            let name = text.split('=').next().unwrap_or(text);
                            *self.assigned.entry(name.to_owned()).or_default() += 2;
                        }
                    }
                    let values = command.assigns.iter().map(|(_, value)| value);
                    for word in command.words.iter().chain(values) {
                        self.count_in_word(word);
                    }
                }
                ScriptNode::Pipeline { stages: body, .. }
                | ScriptNode::Chain { nodes: body, .. }
                | ScriptNode::Group(body, _)
                | ScriptNode::Branch(body, _)
                | ScriptNode::Function { body, .. } => {
                    self.count_assignments(body);
                }
                ScriptNode::For {
                    name, body, values, ..
                } => {
                    *self.assigned.entry(name.clone()).or_default() += 1;
                    for word in values {
                        self.count_in_word(word);
                    }
                    self.count_assignments(body);
                }
                ScriptNode::Test(words) | ScriptNode::Choice(words) => {
                    for word in words {
                        self.count_in_word(word);
                    }
                }
            }
        }
    }

    fn count_in_word(&mut self, word: &RawWord) {
        for piece in &word.pieces {
            if let WordPiece::Substitution { body, .. } | WordPiece::PipePath { body } = piece {
                self.count_assignments(body);
            }
        }
    }

    pub(super) fn body(&mut self, nodes: &[ScriptNode]) -> ProofResult {
        nodes.iter().try_for_each(|node| self.node(node, None))
    }

    fn conditional_body(&mut self, nodes: &[ScriptNode]) -> ProofResult {
        let straight = std::mem::replace(&mut self.straight, false);
        let result = self.body(nodes);
        self.straight = straight;
        result
    }

    /// `before`: the previous stage of the pipeline.
    fn node(&mut self, node: &ScriptNode, before: Option<&ScriptNode>) -> ProofResult {
        self.steps += 1;
        if self.steps > STEPS {
            return refuse("it has more parts than are looked at");
        }
        match node {
            ScriptNode::Simple(command) => self.simple(command, before),
            ScriptNode::Chain {
                nodes,
                certain,
                background,
            } => self.chain(nodes, *certain, *background),
            ScriptNode::Pipeline {
                stages,
                with_errors,
            } => {
                let straight = std::mem::replace(&mut self.straight, false);
                let mut before = None;
                let mut result = Ok(());
                for stage in stages {
                    result = self.node(stage, before);
                    if result.is_err() {
                        break;
                    }
                    before = Some(stage).filter(|_| !with_errors);
                }
                self.straight = straight;
                result
            }
            ScriptNode::Group(body, redirects) => {
                self.redirects(redirects)?;
                // A subshell has its own variables; what it sets is unknown afterwards.
                let variables = self.variables.clone();
                let functions = self.functions.clone();
                let result = self.body(body);
                self.variables = variables;
                self.functions = functions;
                result
            }
            ScriptNode::Branch(body, redirects) => {
                self.redirects(redirects)?;
                self.conditional_body(body)
            }
            ScriptNode::For {
                name,
                values,
                body,
                redirects,
            } => {
                self.redirects(redirects)?;
                self.for_loop(name, values, body)
            }
            ScriptNode::Function { name, body } => {
                if super::table::is_modelled(name) {
                    return construct("a function takes the name of a command");
                }
                self.conditional_body(body)?;
                // If it may not have been defined, the name is a program.
                if self.straight {
                    self.functions.insert(name.clone());
                } else {
                    self.functions.remove(name);
                }
                Ok(())
            }
            ScriptNode::Test(words) => self.condition(words),
            ScriptNode::Choice(words) => words
                .iter()
                .try_for_each(|word| self.words_of(word).map(drop)),
        }
    }

    /// Statements joined by `&&` and `||`: the first is always executed, the next ones while they succeed. What
    /// they set is unknown afterwards.
    fn chain(&mut self, nodes: &[ScriptNode], certain: usize, background: bool) -> ProofResult {
        let mut variables = self.variables.clone();
        let mut functions = self.functions.clone();
        for (place, node) in nodes.iter().enumerate() {
            if place >= certain || background {
                self.conditional_body(std::slice::from_ref(node))?;
            } else {
                self.node(node, None)?;
            }
            if place == 0 && !background {
                variables.clone_from(&self.variables);
                functions.clone_from(&self.functions);
            }
        }
        // A value from before the chain may have been replaced in it.
        variables.retain(|name, value| {
            self.variables
                .get(name)
                .is_some_and(|now| now.text == value.text)
        });
        self.variables = variables;
        self.functions = functions;
        Ok(())
    }

    fn for_loop(&mut self, name: &str, values: &[RawWord], body: &[ScriptNode]) -> ProofResult {
        if !is_inert_variable(name) {
            return construct("a loop sets a variable that changes what programs do");
        }
        let mut words = Vec::new();
        for value in values {
            words.extend(self.words_of(value)?);
        }
        let once = self.assigned.get(name).copied().unwrap_or(0) <= 1;
        let known = once
            && words.len() <= ALTERNATIVES
            && words.iter().all(|word| word.known() && !word.dynamic);
        if !known {
            return self.conditional_body(body);
        }
        let before = self.variables.remove(name);
        for word in words {
            let value = KnownValue {
                text: word.text,
                glob: word.glob,
            };
            self.variables.insert(name.to_owned(), value);
            self.conditional_body(body)?;
        }
        self.variables.remove(name);
        if let Some(before) = before {
            self.variables.insert(name.to_owned(), before);
        }
        Ok(())
    }

    fn redirects(&mut self, redirects: &[RawRedirect]) -> ProofResult {
        for redirect in redirects {
            match redirect {
                RawRedirect::Read(target) => {
                    let target = self.one(target)?;
                    self.may_read(&target)?;
                }
                RawRedirect::Write(target) => {
                    let target = self.one(target)?;
                    self.may_write(&target)?;
                }
                RawRedirect::Input(word) => drop(self.words_of(word)?),
                RawRedirect::Pending(_) => return construct("a here document has no end"),
            }
        }
        Ok(())
    }

    fn simple(&mut self, command: &RawCommand, before: Option<&ScriptNode>) -> ProofResult {
        self.redirects(&command.redirects)?;
        let mut words = Vec::new();
        for word in &command.words {
            words.extend(self.words_of(word)?);
        }
        let reads = words.first().is_some_and(|word| word.text == "read");
        for (name, value) in &command.assigns {
            let value = self.one(value)?;
            let is_inert = if words.is_empty() {
                is_inert_variable(name)
            } else {
                is_inert_for_programs(name) || (reads && name == "IFS")
            };
            if !is_inert {
                return construct("it sets a variable that changes what programs do");
            }
            let certain = self.straight
                && words.is_empty()
                && self.assigned.get(name).copied().unwrap_or(0) <= 1
                && value.known()
                && !value.dynamic;
            if certain {
                self.variables.insert(
                    name.clone(),
                    KnownValue {
                        text: value.text,
                        glob: false,
                    },
                );
            } else if words.is_empty() {
                self.variables.remove(name);
            }
        }
        if words.is_empty() {
            // If a word expands to nothing, the next one is the command.
            return if command.words.is_empty() {
                Ok(())
            } else {
                refuse("which program runs is only known when it runs")
            };
        }
        let fed = self.feed(before);
        let first = self.found.len();
        self.direct = !self.posix
            && command
                .words
                .first()
                .is_some_and(|word| word.bare().is_some());
        if let Err(doubt) = self.run(&words, &fed) {
            self.note(doubt, &words);
        }
        // What a nested script does counts for this command.
        let argv = argv_of(&words);
        for doubt in self.found.iter_mut().skip(first) {
            doubt.argv.clone_from(&argv);
        }
        Ok(())
    }

    /// The output of the previous stage as operands: directories whose files it names.
    fn feed(&mut self, before: Option<&ScriptNode>) -> StdinFeed {
        let Some(ScriptNode::Simple(command)) = before else {
            return StdinFeed::Unknown;
        };
        let mut words = Vec::new();
        for word in &command.words {
            match self.words_of(word) {
                Ok(more) => words.extend(more),
                Err(_) => return StdinFeed::Unknown,
            }
        }
        let mut texts = words.iter().map(|word| word.text.as_str());
        match (texts.next(), texts.next()) {
            (Some("find"), _) if super::special::prints_only_names(&words[1..]) => {
                let (starts, narrowed) = super::special::find_starts(&words[1..]);
                StdinFeed::Below { starts, narrowed }
            }
            (Some("git"), Some("ls-files")) if words.len() == 2 => StdinFeed::Below {
                starts: vec![ShellWord::plain(".")],
                narrowed: false,
            },
            _ => StdinFeed::Unknown,
        }
    }

    /// A word that the shell does not split.
    fn one(&mut self, word: &RawWord) -> Result<ShellWord, Unproven> {
        let mut words = self.words_of(word)?;
        match (words.pop(), words.is_empty()) {
            (Some(word), true) => Ok(word),
            (None, _) => Ok(ShellWord::default()),
            _ => construct("a word becomes several where one is expected"),
        }
    }

    /// The words that `raw` expands to. Substitutions in it are proven too.
    pub(super) fn words_of(&mut self, raw: &RawWord) -> Result<Vec<ShellWord>, Unproven> {
        let mut word = ShellWord::default();
        let plain = raw
            .pieces
            .iter()
            .all(|piece| matches!(piece, WordPiece::Text { .. } | WordPiece::Home));
        for piece in &raw.pieces {
            match piece {
                WordPiece::Text { text, quoted: true } => word.text.push_str(text),
                WordPiece::Text {
                    text,
                    quoted: false,
                } => {
                    for c in text.chars() {
                        word.glob |= matches!(c, '*' | '?' | '[');
                        word.text.push(match c {
                            '{' => OPEN,
                            '}' => CLOSE,
                            ',' => COMMA,
                            c => c,
                        });
                    }
                }
                WordPiece::Home => {
                    word.text
                        .push_str(&self.classifier.user_home().to_string_lossy());
                }
                WordPiece::Unknown { quoted } => unknown(&mut word, *quoted),
                WordPiece::Variable { name, quoted } => self.variable(name, *quoted, &mut word),
                WordPiece::Substitution { body, quoted } => {
                    self.inner(body)?;
                    unknown(&mut word, *quoted);
                }
                WordPiece::PipePath { body } => {
                    self.inner(body)?;
                    word.text.push_str("/dev/fd/63");
                    word.expanded = true;
                }
            }
        }
        alternatives(&word, plain)
    }

    fn inner(&mut self, body: &[ScriptNode]) -> ProofResult {
        let variables = self.variables.clone();
        let result = self.conditional_body(body);
        self.variables = variables;
        result
    }

    fn variable(&mut self, name: &str, quoted: bool, word: &mut ShellWord) {
        word.expanded = true;
        let path = |path: &std::path::Path| KnownValue {
            text: path.to_string_lossy().into_owned(),
            glob: false,
        };
        let value = match self.variables.get(name) {
            Some(value) => Some(value.clone()),
            None if self.assigned.contains_key(name) => None,
            None if name == "HOME" => Some(path(self.classifier.user_home())),
            None if name == "PWD" => self.classifier.only_directory().map(path),
            None => None,
        };
        match value {
            Some(value) if quoted => {
                word.glob |= value.glob;
                word.text.push_str(&value.text);
            }
            Some(value)
                if !value.glob
                    && !value.text.is_empty()
                    && !value.text.contains([' ', '\t', '\n', '*', '?', '[']) =>
            {
                word.text.push_str(&value.text);
            }
            _ => unknown(word, quoted),
        }
    }

    /// A text that a builtin executes in this shell, later or elsewhere.
    pub(super) fn deferred(&mut self, script: &ShellWord) -> ProofResult {
        if !script.is_static() {
            return construct("a script is only known when it runs");
        }
        let nodes = match reader::read(&script.text, self.posix) {
            Ok(nodes) => nodes,
            Err(why) => return construct(why),
        };
        let variables = std::mem::take(&mut self.variables);
        self.count_assignments(&nodes);
        let result = self.conditional_body(&nodes);
        self.variables = variables;
        result
    }
}

/// What standard input contains, for a program that takes words from it.
pub(super) enum StdinFeed {
    Unknown,
    Below {
        starts: Vec<ShellWord>,
        narrowed: bool,
    },
}

/// The words of a command, if they are all known.
pub(super) fn argv_of(words: &[ShellWord]) -> Option<Vec<String>> {
    words
        .iter()
        .all(ShellWord::is_static)
        .then(|| words.iter().map(|word| word.text.clone()).collect())
}

/// Without quotes it may become several words, or none, and contain wildcards.
fn unknown(word: &mut ShellWord, quoted: bool) {
    word.glob |= !quoted;
    word.expanded = true;
    word.dynamic = true;
    word.text.push(UNKNOWN);
}

/// Expands braces. `plain`: the word contains only text.
fn alternatives(word: &ShellWord, plain: bool) -> Result<Vec<ShellWord>, Unproven> {
    if !word.text.contains([OPEN, CLOSE]) {
        let text = word.text.replace(COMMA, ",");
        return Ok(vec![ShellWord {
            text,
            ..word.clone()
        }]);
    }
    let empty: String = [OPEN, CLOSE].iter().collect();
    if word.text.replace(&empty, "").contains([OPEN, CLOSE]) && !plain {
        return construct("braces stand around an expansion");
    }
    if word.text.matches(OPEN).count() > 4 {
        return construct("it has more braces than are looked at");
    }
    let texts = braces(&word.text, OPEN, CLOSE, COMMA, ALTERNATIVES + 1);
    if texts.len() > ALTERNATIVES {
        return construct("it has more braces than are looked at");
    }
    let several = texts.len() > 1;
    let mut words = Vec::new();
    for text in texts {
        let left = text.replace(&empty, "");
        if left.contains(OPEN) && (left.contains("..") || left.starts_with(OPEN)) {
            return construct("braces that are not modelled");
        }
        words.push(ShellWord {
            text: text
                .replace(OPEN, "{")
                .replace(CLOSE, "}")
                .replace(COMMA, ","),
            expanded: word.expanded || several,
            ..word.clone()
        });
    }
    Ok(words)
}
