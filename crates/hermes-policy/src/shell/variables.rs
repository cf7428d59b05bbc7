//! Values of variables, as far as the script itself determines them.

use std::collections::HashMap;

use tree_sitter::{Node, Tree};

/// Commands that assign to the variables they name.
const ASSIGNERS: [&str; 6] = ["read", "mapfile", "readarray", "getopts", "printf", "let"];

#[derive(Clone, Debug)]
struct Variable {
    text: String,
    certain: bool,
}

#[derive(Debug, Default)]
pub(super) struct ScriptVariables {
    values: HashMap<String, Variable>,
    /// How often each name is assigned anywhere in the script.
    assigned: HashMap<String, usize>,
}

impl ScriptVariables {
    /// Counts assignments anywhere.
    pub(super) fn scan(source: &str, tree: &Tree) -> Self {
        let mut found = Self::default();
        let mut cursor = tree.walk();
        loop {
            found.note(source, cursor.node());
            if cursor.goto_first_child() || cursor.goto_next_sibling() {
                continue;
            }
            loop {
                if !cursor.goto_parent() {
                    return found;
                }
                if cursor.goto_next_sibling() {
                    break;
                }
            }
        }
    }

    fn note(&mut self, source: &str, node: Node<'_>) {
        let text = |node: Node<'_>| source.get(node.byte_range()).unwrap_or_default().to_owned();
        match node.kind() {
            "variable_assignment" => {
                if let Some(name) = node.child_by_field_name("name") {
                    *self.assigned.entry(text(name)).or_default() += 1;
                }
            }
            // A loop assigns more than once.
            "for_statement" => {
                if let Some(name) = node.child_by_field_name("variable") {
                    *self.assigned.entry(text(name)).or_default() += 2;
                }
            }
            "command" => {
                let name = node.child_by_field_name("name").map(text);
                if name.is_some_and(|name| ASSIGNERS.contains(&name.as_str())) {
                    let mut cursor = node.walk();
                    for argument in node.children_by_field_name("argument", &mut cursor) {
                        *self.assigned.entry(text(argument)).or_default() += 2;
                    }
                }
            }
            _ => {}
        }
    }

    /// `straight`: the assignment is executed in every run.
    pub(super) fn set(&mut self, name: &str, text: &str, dynamic: bool, straight: bool) {
        let once = self.assigned.get(name).copied().unwrap_or(0) <= 1;
        let variable = Variable {
            text: text.to_owned(),
            certain: once && straight && !dynamic,
        };
        self.values.insert(name.to_owned(), variable);
    }

    /// The text and whether it is certain.
    pub(super) fn get(&self, name: &str) -> Option<(&str, bool)> {
        self.values
            .get(name)
            .map(|variable| (variable.text.as_str(), variable.certain))
    }

    pub(super) fn is_assigned(&self, name: &str) -> bool {
        self.assigned.contains_key(name)
    }
}
