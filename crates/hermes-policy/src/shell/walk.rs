//! Converts the syntax tree to simple commands.

use tree_sitter::{Node, Tree};

use super::variables::ScriptVariables;
use super::{
    RedirectDirection, ScriptContext, ScriptProblem, ShellRedirect, ShellScript, ShellWord,
    SimpleCommand,
};

/// Maximum depth of the tree.
const DEPTH: usize = 120;
/// Maximum length of a command in a finding.
const EXCERPT: usize = 200;

pub(super) struct ScriptWalker<'a> {
    pub(super) source: &'a str,
    pub(super) around: &'a ScriptContext,
    pub(super) script: ShellScript,
    pub(super) variables: ScriptVariables,
    depth: usize,
    pipes: Vec<(usize, usize)>,
    next_pipe: usize,
    /// The current node is executed in every run.
    straight: bool,
}

impl<'a> ScriptWalker<'a> {
    pub(super) fn new(source: &'a str, around: &'a ScriptContext) -> Self {
        Self {
            source,
            around,
            script: ShellScript::default(),
            variables: ScriptVariables::default(),
            depth: 0,
            pipes: Vec::new(),
            next_pipe: 0,
            straight: true,
        }
    }

    pub(super) fn walk(mut self, tree: &Tree) -> ShellScript {
        self.variables = ScriptVariables::scan(self.source, tree);
        let root = tree.root_node();
        if root.has_error() {
            self.script.add_problem(ScriptProblem::Unparsed);
        }
        self.visit(root);
        self.script
    }

    /// Continues with the depth, pipelines and certainty of another walker.
    pub(super) fn inherit(&mut self, outer: &ScriptWalker<'_>) {
        self.depth = outer.depth;
        self.pipes.clone_from(&outer.pipes);
        self.next_pipe = outer.next_pipe + 1_000;
        self.straight = false;
    }

    pub(super) fn walk_nested(self, tree: &Tree) -> ShellScript {
        if self.depth >= DEPTH {
            let mut script = self.script;
            script.add_problem(ScriptProblem::TooDeep);
            return script;
        }
        self.walk(tree)
    }

    pub(super) fn text(&self, node: Node<'_>) -> &'a str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    /// Descends one level, unless that is too deep.
    pub(super) fn with_depth(&mut self, go: impl FnOnce(&mut Self)) {
        if self.depth >= DEPTH {
            self.script.add_problem(ScriptProblem::TooDeep);
            return;
        }
        self.depth += 1;
        go(self);
        self.depth -= 1;
    }

    pub(super) fn visit(&mut self, node: Node<'_>) {
        self.with_depth(|walker| walker.statement(node));
    }

    pub(super) fn children(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for child in children {
            self.visit(child);
        }
    }

    fn statement(&mut self, node: Node<'_>) {
        match node.kind() {
            "comment" => {}
            "command" => self.command(node),
            "redirected_statement" => self.redirected(node),
            "pipeline" => {
                let pipe = self.start_pipeline();
                self.stages(node, pipe, 0);
            }
            "variable_assignment" => {
                let assign = self.assignment(node);
                self.alone(node, vec![assign]);
            }
            "variable_assignments" => {
                let assigns = self.assignments(node);
                self.alone(node, assigns);
            }
            "declaration_command" | "unset_command" => self.declaration(node),
            "function_definition" => self.function(node),
            "for_statement" => self.for_loop(node),
            "command_substitution" | "process_substitution" => {
                let _ = self.evaluate(node);
            }
            "file_redirect" | "herestring_redirect" => {
                let mut command = self.simple(node);
                self.redirect(node, &mut command);
                self.script.commands.push(command);
            }
            "program" | "compound_statement" => self.children(node),
            "ERROR" => {
                self.script.add_problem(ScriptProblem::Unparsed);
                self.branch(node);
            }
            _ => self.branch(node),
        }
    }

    /// Visits something that may or may not be executed.
    fn branch(&mut self, node: Node<'_>) {
        let straight = std::mem::replace(&mut self.straight, false);
        self.children(node);
        self.straight = straight;
    }

    fn simple(&self, node: Node<'_>) -> SimpleCommand {
        let mut excerpt = self.text(node).to_owned();
        if let Some((cut, _)) = excerpt.char_indices().nth(EXCERPT) {
            excerpt.truncate(cut);
            excerpt.push('…');
        }
        SimpleCommand {
            pipes: self.pipes.clone(),
            excerpt,
            ..SimpleCommand::default()
        }
    }

    fn alone(&mut self, node: Node<'_>, assigns: Vec<(String, ShellWord)>) {
        let mut command = self.simple(node);
        command.assigns = assigns;
        self.script.commands.push(command);
    }

    fn start_pipeline(&mut self) -> usize {
        self.next_pipe += 1;
        self.next_pipe
    }

    /// The stages of a pipeline from position `at` on.
    fn stages(&mut self, node: Node<'_>, pipe: usize, mut at: usize) {
        let straight = std::mem::replace(&mut self.straight, false);
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        for child in children {
            if matches!(child.kind(), "|" | "|&") {
                at += 1;
            } else if child.is_named() {
                self.pipes.push((pipe, at));
                self.visit(child);
                self.pipes.pop();
            }
        }
        self.straight = straight;
    }

    fn command(&mut self, node: Node<'_>) {
        let mut command = self.simple(node);
        let mut cursor = node.walk();
        let mut children: Vec<(Option<&str>, Node<'_>)> = Vec::new();
        if cursor.goto_first_child() {
            loop {
                children.push((cursor.field_name(), cursor.node()));
                if !cursor.goto_next_sibling() {
                    break;
                }
            }
        }
        for (field, child) in children {
            match (field, child.kind()) {
                (Some("redirect"), _) => self.redirect(child, &mut command),
                (_, "variable_assignment") => {
                    let assign = self.prefix(child);
                    command.assigns.push(assign);
                }
                (_, "subshell") => {
                    // `name(…)` is not a call but a pattern or an error.
                    self.script.add_problem(ScriptProblem::Unparsed);
                    self.visit(child);
                }
                (_, "comment") => {}
                (Some("name"), "command_name") => {
                    let mut cursor = child.walk();
                    let parts: Vec<Node<'_>> = child.children(&mut cursor).collect();
                    for part in parts {
                        command.words.extend(self.evaluate(part));
                    }
                }
                _ => command.words.extend(self.evaluate(child)),
            }
        }
        self.strip_keywords(node, &mut command);
        self.script.commands.push(command);
    }

    /// The grammar parses `! { x; }` and `! if x; then y; fi` as commands named `{`, `if` and `then`. The shell
    /// does not: what follows is executed.
    fn strip_keywords(&self, node: Node<'_>, command: &mut SimpleCommand) {
        const SYNTAX: [&str; 10] = [
            "!", "{", "if", "then", "elif", "else", "while", "until", "do", "time",
        ];
        let leading = self
            .text(node)
            .split_whitespace()
            .take_while(|token| SYNTAX.contains(token))
            .count();
        let is_word = |(word, token): &(&ShellWord, &str)| word.text == *token;
        let words = command.words.iter().zip(self.text(node).split_whitespace());
        let count = words.take(leading).take_while(is_word).count();
        command.words.drain(..count);
    }

    /// `A=b` before a command: not a variable of the script.
    fn prefix(&mut self, node: Node<'_>) -> (String, ShellWord) {
        let name = node
            .child_by_field_name("name")
            .map(|name| self.text(name).to_owned())
            .unwrap_or_default();
        let value = node
            .child_by_field_name("value")
            .map(|value| self.joined(value))
            .unwrap_or_default();
        (name, value)
    }

    fn assignment(&mut self, node: Node<'_>) -> (String, ShellWord) {
        let (name, value) = self.prefix(node);
        let plain = !name.contains('[') && !self.text(node)[name.len()..].starts_with("+=");
        let straight = self.straight && self.pipes.is_empty() && plain;
        self.variables
            .set(&name, &value.text, value.dynamic, straight);
        (name, value)
    }

    fn assignments(&mut self, node: Node<'_>) -> Vec<(String, ShellWord)> {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        children
            .into_iter()
            .filter(|child| child.kind() == "variable_assignment")
            .map(|child| self.assignment(child))
            .collect()
    }

    /// `export`, `declare`, `local`, `readonly`, `typeset`, `unset`.
    fn declaration(&mut self, node: Node<'_>) {
        let mut command = self.simple(node);
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        for child in children {
            if child.kind() == "variable_assignment" {
                let assign = self.assignment(child);
                command.assigns.push(assign);
            } else if child.is_named() {
                command.words.extend(self.evaluate(child));
            } else {
                command.words.push(ShellWord::plain(self.text(child)));
            }
        }
        self.script.commands.push(command);
    }

    fn function(&mut self, node: Node<'_>) {
        let name = node
            .child_by_field_name("name")
            .map(|name| self.text(name).to_owned())
            .unwrap_or_default();
        self.script.functions.push(name.clone());
        let before = self.script.commands.len();
        self.branch(node);
        let own = &self.script.commands[before..];
        let calls: Vec<&SimpleCommand> = own
            .iter()
            .filter(|command| command.words.first().is_some_and(|word| word.text == name))
            .collect();
        let body = self.text(node);
        let background = body.replace("&&", "").contains('&');
        let piped = calls.iter().any(|call| call.pipes.len() > self.pipes.len());
        if !calls.is_empty() && (background || piped) {
            self.script.add_problem(ScriptProblem::ForkBomb);
        }
    }

    fn for_loop(&mut self, node: Node<'_>) {
        let name = node
            .child_by_field_name("variable")
            .map(|name| self.text(name).to_owned());
        let mut cursor = node.walk();
        let values: Vec<Node<'_>> = node.children_by_field_name("value", &mut cursor).collect();
        let words: Vec<ShellWord> = values
            .into_iter()
            .flat_map(|value| self.evaluate(value))
            .collect();
        if let (Some(name), Some(first)) = (name, words.first()) {
            self.variables.set(&name, &first.text, true, false);
        }
        if let Some(body) = node.child_by_field_name("body") {
            let straight = std::mem::replace(&mut self.straight, false);
            self.visit(body);
            self.straight = straight;
        }
    }

    fn redirected(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let redirects: Vec<Node<'_>> = node
            .named_children(&mut cursor)
            .filter(|child| child.kind().ends_with("_redirect"))
            .collect();
        let body = node.child_by_field_name("body");
        let pipe = redirects
            .iter()
            .any(|redirect| has_pipeline(*redirect))
            .then(|| self.start_pipeline());
        if let Some(pipe) = pipe {
            self.pipes.push((pipe, 0));
        }
        let before = self.script.commands.len();
        let mut joins = false;
        if let Some(body) = body {
            joins = matches!(
                body.kind(),
                "command" | "pipeline" | "list" | "negated_command" | "redirected_statement"
            );
            self.visit(body);
        }
        let mut command = if self.script.commands.len() > before && joins {
            self.script.commands.pop().unwrap_or_default()
        } else {
            self.simple(node)
        };
        let mut cursor = node.walk();
        let others: Vec<Node<'_>> = node
            .named_children(&mut cursor)
            .filter(|child| Some(*child) != body && !child.kind().ends_with("_redirect"))
            .collect();
        for redirect in &redirects {
            self.redirect(*redirect, &mut command);
        }
        command.excerpt = self.simple(node).excerpt;
        self.script.commands.push(command);
        if pipe.is_some() {
            self.pipes.pop();
        }
        for redirect in redirects {
            self.after_heredoc(redirect, pipe);
        }
        for other in others {
            self.visit(other);
        }
    }

    /// The rest of the line after a here document operator.
    fn after_heredoc(&mut self, node: Node<'_>, pipe: Option<usize>) {
        if node.kind() != "heredoc_redirect" {
            return;
        }
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for child in children {
            match (child.kind(), pipe) {
                ("pipeline", Some(pipe)) => self.stages(child, pipe, 0),
                (
                    "heredoc_body"
                    | "heredoc_start"
                    | "heredoc_end"
                    | "file_redirect"
                    | "herestring_redirect"
                    | "file_descriptor"
                    | "word"
                    | "string"
                    | "raw_string"
                    | "concatenation"
                    | "number",
                    _,
                ) => {}
                _ => self.visit(child),
            }
        }
    }

    fn redirect(&mut self, node: Node<'_>, command: &mut SimpleCommand) {
        match node.kind() {
            "herestring_redirect" => {
                let mut cursor = node.walk();
                let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
                for child in children
                    .into_iter()
                    .filter(|child| child.kind() != "file_descriptor")
                {
                    let word = self.joined(child);
                    command.input = Some(word);
                }
            }
            "heredoc_redirect" => self.heredoc(node, command),
            _ => self.file_redirect(node, command),
        }
    }

    fn heredoc(&mut self, node: Node<'_>, command: &mut SimpleCommand) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        let literal = children
            .iter()
            .find(|child| child.kind() == "heredoc_start")
            .is_some_and(|start| self.text(*start).contains(['\'', '"', '\\']));
        for child in children {
            match child.kind() {
                "heredoc_body" if literal => {
                    command.input = Some(ShellWord::plain(self.text(child)));
                }
                "heredoc_body" => {
                    let word = self.joined(child);
                    command.input = Some(word);
                }
                "file_redirect" | "herestring_redirect" => self.redirect(child, command),
                "word" | "string" | "raw_string" | "concatenation" | "number" => {
                    command.words.extend(self.evaluate(child));
                }
                _ => {}
            }
        }
    }

    fn file_redirect(&mut self, node: Node<'_>, command: &mut SimpleCommand) {
        let mut operator = "";
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let mut target = None;
        for child in children {
            match child.kind() {
                "file_descriptor" => {}
                "ERROR" => operator = "<>",
                kind if !child.is_named() => {
                    if operator.is_empty() {
                        operator = kind;
                    }
                }
                // What follows the target are words of the command.
                _ if target.is_some() => command.words.extend(self.evaluate(child)),
                _ => target = Some(self.joined(child)),
            }
        }
        let Some(target) = target else { return };
        let duplicates = matches!(operator, ">&" | "<&" | ">&-" | "<&-")
            && (target.text == "-" || target.text.chars().all(|c| c.is_ascii_digit() || c == '-'));
        if duplicates && !target.text.is_empty() {
            return;
        }
        let flow = match operator {
            "<" | "<&" => RedirectDirection::In,
            _ => RedirectDirection::Out,
        };
        command.redirects.push(ShellRedirect { flow, target });
    }
}

fn has_pipeline(node: Node<'_>) -> bool {
    let mut cursor = node.walk();
    node.kind() == "heredoc_redirect"
        && node
            .named_children(&mut cursor)
            .any(|child| child.kind() == "pipeline")
}
