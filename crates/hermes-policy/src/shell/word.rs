//! Evaluates words.

use tree_sitter::Node;

use super::text::{braces, output_of, unescape};
use super::walk::ScriptWalker;
use super::{ScriptProblem, ShellWord, UNKNOWN};

/// Markers in a word under construction: field separators, and unquoted braces and commas.
const BREAK: char = '\u{E001}';
const OPEN: char = '\u{E002}';
const CLOSE: char = '\u{E003}';
const COMMA: char = '\u{E004}';

/// Maximum number of words from one word with braces.
const ALTERNATIVES: usize = 64;
/// Maximum number of brace groups expanded in one word.
const GROUPS: usize = 8;

impl ScriptWalker<'_> {
    /// The words that `node` expands to: usually one.
    pub(super) fn evaluate(&mut self, node: Node<'_>) -> Vec<ShellWord> {
        let mut word = ShellWord::default();
        let first = self.script.commands.len();
        self.piece(node, false, &mut word);
        let last = self.script.commands.len();
        if last > first {
            word.inner = Some(first..last);
        }
        split(&word)
    }

    /// Like [`Self::evaluate`] without word splitting: one word.
    pub(super) fn joined(&mut self, node: Node<'_>) -> ShellWord {
        let mut words = self.evaluate(node).into_iter();
        let Some(mut word) = words.next() else {
            return ShellWord::default();
        };
        for more in words {
            word.text.push(' ');
            word.text.push_str(&more.text);
            word.dynamic |= more.dynamic;
        }
        word
    }

    fn piece(&mut self, node: Node<'_>, quoted: bool, word: &mut ShellWord) {
        self.with_depth(|walker| walker.piece_here(node, quoted, word));
    }

    fn piece_here(&mut self, node: Node<'_>, quoted: bool, word: &mut ShellWord) {
        match node.kind() {
            "word" | "variable_name" | "special_variable_name" | "number" | "test_operator"
                if node.named_child_count() == 0 =>
            {
                self.bare(self.text(node), word);
            }
            "raw_string" => word.text.push_str(self.text(node).trim_matches('\'')),
            "ansi_c_string" => {
                let text = self.text(node);
                let inside = text.strip_prefix("$'").unwrap_or(text);
                let inside = inside.strip_suffix('\'').unwrap_or(inside);
                word.text.push_str(&unescape(inside));
            }
            "string" | "heredoc_body" => self.spans(node, word),
            "translated_string" | "concatenation" | "command_name" | "array" => {
                let mut cursor = node.walk();
                let parts: Vec<Node<'_>> = node.children(&mut cursor).collect();
                for part in parts {
                    if part.is_named() || node.kind() == "concatenation" {
                        self.piece(part, quoted, word);
                    }
                    if node.kind() == "array" {
                        word.text.push(' ');
                    }
                }
            }
            "simple_expansion" | "expansion" => self.variable(node, quoted, word),
            "command_substitution" | "process_substitution" => {
                self.substitution(node, quoted, word);
            }
            "arithmetic_expansion" => {
                self.children(node);
                word.dynamic = true;
                word.expanded = true;
                word.text.push(UNKNOWN);
            }
            "brace_expression" | "extglob_pattern" | "regex" => {
                word.glob = true;
                word.text.push_str(self.text(node));
                self.children(node);
            }
            _ if !node.is_named() => word.text.push_str(self.text(node)),
            "number" => self.children(node),
            "subscript" => {
                word.dynamic = true;
                word.text.push(UNKNOWN);
                self.children(node);
            }
            _ => {
                self.script.add_problem(ScriptProblem::Unparsed);
                word.dynamic = true;
                word.text.push_str(self.text(node));
                self.children(node);
            }
        }
    }

    /// Unquoted text.
    fn bare(&self, text: &str, word: &mut ShellWord) {
        let mut rest = text;
        if word.text.is_empty() && text.starts_with('~') {
            let end = text.find('/').unwrap_or(text.len());
            if let Some(home) = self.tilde(&text[..end]) {
                word.text.push_str(&home);
                rest = &text[end..];
            }
        }
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(next) => word.text.push(next),
                },
                '*' | '?' | '[' => {
                    word.glob = true;
                    word.text.push(c);
                }
                '{' => word.text.push(OPEN),
                '}' => word.text.push(CLOSE),
                ',' => word.text.push(COMMA),
                c => word.text.push(c),
            }
        }
    }

    fn tilde(&self, prefix: &str) -> Option<String> {
        let home = self.around.user_home.to_string_lossy();
        match &prefix[1..] {
            "" => Some(home.into_owned()),
            "+" => Some(self.around.cwd.to_string_lossy().into_owned()),
            "root" => Some("/root".to_owned()),
            name if name
                .chars()
                .all(|c| c.is_alphanumeric() || "_-.".contains(c)) =>
            {
                Some(format!("/home/{name}"))
            }
            _ => None,
        }
    }

    /// Quoted text with expansions. The grammar omits blanks between them.
    fn spans(&mut self, node: Node<'_>, word: &mut ShellWord) {
        let (start, end) = if node.kind() == "string" {
            (node.start_byte() + 1, node.end_byte().saturating_sub(1))
        } else {
            (node.start_byte(), node.end_byte())
        };
        let mut at = start;
        let mut cursor = node.walk();
        let parts: Vec<Node<'_>> = node
            .named_children(&mut cursor)
            .filter(|part| !matches!(part.kind(), "string_content" | "heredoc_content"))
            .collect();
        for part in parts {
            self.quoted(at, part.start_byte(), word);
            self.piece(part, true, word);
            at = part.end_byte();
        }
        self.quoted(at, end, word);
    }

    fn quoted(&self, from: usize, to: usize, word: &mut ShellWord) {
        let text = self.source.get(from..to).unwrap_or_default();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, chars.peek()) {
                ('\\', Some('\n')) => drop(chars.next()),
                ('\\', Some(&next @ ('"' | '\\' | '$' | '`'))) => {
                    word.text.push(next);
                    chars.next();
                }
                _ => word.text.push(c),
            }
        }
    }

    fn variable(&mut self, node: Node<'_>, quoted: bool, word: &mut ShellWord) {
        word.expanded = true;
        let mut cursor = node.walk();
        let parts: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        let name = parts
            .iter()
            .find(|part| {
                matches!(
                    part.kind(),
                    "variable_name" | "special_variable_name" | "subscript"
                )
            })
            .map(|part| self.text(*part))
            .unwrap_or_default();
        let operator = node
            .child_by_field_name("operator")
            .map(|operator| self.text(operator));
        let mut inside = ShellWord::default();
        for part in parts
            .iter()
            .filter(|part| !part.kind().ends_with("variable_name"))
        {
            inside.text.clear();
            self.piece(*part, true, &mut inside);
        }
        let (text, certain) = self.lookup(name);
        let text = match operator {
            Some("#") => Some("0".to_owned()),
            Some("!") => None,
            // A default or replacement is the best guess if the variable is unknown.
            Some(_) if text.is_none() && !inside.text.is_empty() => Some(inside.text.clone()),
            _ => text,
        };
        word.dynamic |= operator.is_some() || !certain;
        match text {
            Some(text) if quoted => word.text.push_str(&text),
            Some(text) => {
                word.glob |= text.contains(['*', '?', '[']);
                let broken = text
                    .chars()
                    .map(|c| if c.is_whitespace() { BREAK } else { c });
                word.text.extend(broken);
            }
            None => word.text.push(UNKNOWN),
        }
    }

    /// The value of a variable, and whether it is certain.
    fn lookup(&self, name: &str) -> (Option<String>, bool) {
        if let Some((text, certain)) = self.variables.get(name) {
            return (Some(text.to_owned()), certain);
        }
        if self.variables.is_assigned(name) {
            return (None, false);
        }
        let path = |path: &std::path::Path| (Some(path.to_string_lossy().into_owned()), true);
        match name {
            "HOME" => path(&self.around.user_home),
            "PWD" => path(&self.around.cwd),
            "HERMES_HOME" => path(&self.around.hermes_home),
            "IFS" => (Some(" ".to_owned()), false),
            // Exit status, number of arguments, process ids.
            "?" | "#" | "$" | "!" => (None, true),
            _ => (None, false),
        }
    }

    fn substitution(&mut self, node: Node<'_>, quoted: bool, word: &mut ShellWord) {
        word.expanded = true;
        word.dynamic = true;
        let first = self.script.commands.len();
        let text = self.text(node);
        if text.starts_with('`') {
            self.backticks(text.trim_matches('`'));
        } else {
            self.children(node);
        }
        let printed = if node.kind() == "command_substitution" {
            output_of(&self.script.commands[first..])
        } else {
            None
        };
        match printed {
            Some(text) if quoted => word.text.push_str(text.trim_end_matches('\n')),
            Some(text) => {
                let broken = text
                    .trim()
                    .chars()
                    .map(|c| if c.is_whitespace() { BREAK } else { c });
                word.text.extend(broken);
            }
            None => word.text.push(UNKNOWN),
        }
    }

    /// The text between backticks is a separate script with one level of escapes removed.
    fn backticks(&mut self, text: &str) {
        let mut script = String::with_capacity(text.len());
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, chars.peek()) {
                ('\\', Some(&next @ ('`' | '\\' | '$'))) => {
                    script.push(next);
                    chars.next();
                }
                _ => script.push(c),
            }
        }
        let Some(tree) = super::tree::parse(&script) else {
            self.script.add_problem(ScriptProblem::Unparsed);
            return;
        };
        let mut inner = ScriptWalker::new(&script, self.around);
        inner.inherit(self);
        let inner = inner.walk_nested(&tree);
        let base = self.script.commands.len();
        for mut command in inner.commands {
            for word in command.words.iter_mut().chain(command.input.as_mut()) {
                if let Some(range) = &mut word.inner {
                    *range = range.start + base..range.end + base;
                }
            }
            self.script.commands.push(command);
        }
        self.script.functions.extend(inner.functions);
        for problem in inner.problems {
            self.script.add_problem(problem);
        }
    }
}

/// Splits a finished word into fields and expands its braces.
fn split(word: &ShellWord) -> Vec<ShellWord> {
    let fields: Vec<&str> = word.text.split(BREAK).collect();
    let several = fields.len() > 1;
    let mut words = Vec::new();
    for field in fields {
        if several && field.is_empty() {
            continue;
        }
        let groups = field.matches(OPEN).count();
        let texts = if groups == 0 {
            vec![field.to_owned()]
        } else if groups > GROUPS {
            // Too many to check one by one.
            vec![UNKNOWN.to_string()]
        } else {
            braces(field, OPEN, CLOSE, COMMA, ALTERNATIVES)
        };
        let branched = texts.len() > 1;
        for text in texts {
            words.push(ShellWord {
                text: text
                    .replace(OPEN, "{")
                    .replace(CLOSE, "}")
                    .replace(COMMA, ","),
                expanded: word.expanded || branched,
                dynamic: word.dynamic || groups > GROUPS,
                ..word.clone()
            });
        }
    }
    words
}
