//! Here documents: their bodies follow the line with the operator.

use super::reader::{ReadResult, SubsetReader};
use super::syntax::{RawRedirect, RawWord, ScriptNode, WordPiece};

impl SubsetReader {
    pub(super) fn document(&mut self, end: &str, tabs: bool, literal: bool) -> ReadResult<RawWord> {
        let mut body = String::new();
        loop {
            if self.at >= self.source.len() {
                return Err("a here document has no end");
            }
            let mut line = String::new();
            while let Some(c) = self.peek() {
                self.at += 1;
                if c == '\n' {
                    break;
                }
                line.push(c);
            }
            let line = if tabs {
                line.trim_start_matches('\t')
            } else {
                &line
            };
            if line == end {
                break;
            }
            if !literal && line.ends_with('\\') {
                return Err("a here document continues a line");
            }
            body.push_str(line);
            body.push('\n');
        }
        let mut word = RawWord {
            quoted: true,
            ..RawWord::default()
        };
        if literal {
            body.chars().for_each(|c| word.push_text(c, true));
            return Ok(word);
        }
        let mut inner = SubsetReader {
            source: body.chars().collect(),
            at: 0,
            depth: self.depth + 1,
            posix: self.posix,
            waiting: Vec::new(),
            bodies: Vec::new(),
        };
        while inner.peek().is_some() {
            inner.quoted_piece(&mut word, false)?;
        }
        if !inner.waiting.is_empty() || !inner.bodies.is_empty() {
            return Err("here documents within here documents");
        }
        Ok(word)
    }

    /// Fills in the bodies of here documents.
    pub(super) fn finish(mut self, mut nodes: Vec<ScriptNode>) -> ReadResult<Vec<ScriptNode>> {
        if !self.waiting.is_empty() {
            return Err("a here document has no end");
        }
        let bodies = std::mem::take(&mut self.bodies);
        if !bodies.is_empty() {
            for node in &mut nodes {
                fill_node(node, &bodies);
            }
        }
        Ok(nodes)
    }
}

fn fill_node(node: &mut ScriptNode, bodies: &[RawWord]) {
    let fill = |redirects: &mut Vec<RawRedirect>| {
        for redirect in redirects {
            if let RawRedirect::Pending(number) = redirect {
                let body = bodies.get(*number).cloned().unwrap_or_default();
                *redirect = RawRedirect::Input(body);
            }
        }
    };
    match node {
        ScriptNode::Simple(command) => {
            fill(&mut command.redirects);
            let values = command.assigns.iter_mut().map(|(_, value)| value);
            for word in command.words.iter_mut().chain(values) {
                fill_word(word, bodies);
            }
        }
        ScriptNode::Group(body, redirects) | ScriptNode::Branch(body, redirects) => {
            fill(redirects);
            for node in body.iter_mut() {
                fill_node(node, bodies);
            }
        }
        ScriptNode::For {
            values,
            body,
            redirects,
            ..
        } => {
            fill(redirects);
            for word in values.iter_mut() {
                fill_word(word, bodies);
            }
            for node in body.iter_mut() {
                fill_node(node, bodies);
            }
        }
        ScriptNode::Pipeline { stages: body, .. }
        | ScriptNode::Chain { nodes: body, .. }
        | ScriptNode::Function { body, .. } => {
            for node in body.iter_mut() {
                fill_node(node, bodies);
            }
        }
        ScriptNode::Test(words) | ScriptNode::Choice(words) => {
            for word in words.iter_mut() {
                fill_word(word, bodies);
            }
        }
    }
}

fn fill_word(word: &mut RawWord, bodies: &[RawWord]) {
    for piece in &mut word.pieces {
        if let WordPiece::Substitution { body, .. } | WordPiece::PipePath { body } = piece {
            for node in body.iter_mut() {
                fill_node(node, bodies);
            }
        }
    }
}
