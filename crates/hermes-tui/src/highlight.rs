//! Colours for code.
//!
//! The grammars are loaded when the first code is shown. Colours are those of the theme: a grammar
//! only says what a word is.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use ratatui_core::text::Span;
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use crate::theme::{Role, Theme};

/// Of one block: what comes after is shown without colours.
const MAX_BYTES: usize = 512 * 1024;
const MAX_LINES: usize = 10_000;
/// Longer lines are data rather than code, and slow to read.
const MAX_LINE: usize = 2_000;

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// What scopes mean, the first that fits; within a stack the innermost that means something.
const MEANINGS: &[(&str, Role)] = &[
    ("comment", Role::Comment),
    ("string", Role::String),
    ("constant.character", Role::String),
    ("constant.other.color", Role::Number),
    ("constant", Role::Number),
    ("keyword.operator", Role::Text),
    ("keyword", Role::Keyword),
    ("storage", Role::Keyword),
    ("entity.name.function", Role::Function),
    ("support.function", Role::Function),
    ("variable.function", Role::Function),
    ("entity.name.tag", Role::Keyword),
    ("entity.other.attribute-name", Role::Attribute),
    ("meta.annotation", Role::Attribute),
    ("variable.annotation", Role::Attribute),
    ("entity.name.section", Role::Heading),
    ("entity.name", Role::Type),
    ("entity.other.inherited-class", Role::Type),
    ("support.type.property-name", Role::Attribute),
    ("support", Role::Type),
    ("variable.language", Role::Keyword),
    ("markup.heading", Role::Heading),
    ("markup.inserted", Role::Success),
    ("markup.deleted", Role::Error),
    ("meta.diff.range", Role::Info),
    ("meta.diff.header", Role::Strong),
    ("meta.mapping.key", Role::Attribute),
];

fn meanings() -> &'static [(Scope, Role)] {
    static TABLE: OnceLock<Vec<(Scope, Role)>> = OnceLock::new();
    TABLE.get_or_init(|| {
        MEANINGS
            .iter()
            .filter_map(|(name, role)| Some((Scope::new(name).ok()?, *role)))
            .collect()
    })
}

/// Names that people write and no grammar has.
fn alias(token: &str) -> &str {
    match token {
        "console" | "shell-session" | "shellsession" | "terminal" => "bash",
        "jsx" | "mjs" | "cjs" | "node" => "js",
        "jsonc" | "json5" | "ndjson" | "jsonl" => "json",
        "py3" | "python3" | "pycon" => "py",
        "golang" => "go",
        "patch" => "diff",
        "docker" => "dockerfile",
        "hcl" | "tf" => "terraform",
        other => other,
    }
}

fn syntax(label: &str) -> Option<&'static SyntaxReference> {
    let token = label
        .split([' ', ',', '{', ':'])
        .next()
        .unwrap_or_default()
        .to_lowercase();
    if token.is_empty() || matches!(token.as_str(), "text" | "txt" | "plain" | "plaintext") {
        return None;
    }
    SYNTAXES.find_syntax_by_token(alias(&token))
}

/// The grammar for a file, by its name.
pub fn language_of(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => extension,
        _ => name,
    }
}

/// The lines of one block of code, in their order.
#[derive(Clone, Debug)]
pub struct Highlighter {
    parser: Option<Parser>,
    bytes: usize,
    lines: usize,
}

#[derive(Clone, Debug)]
struct Parser {
    state: ParseState,
    stack: ScopeStack,
    known: HashMap<Scope, Option<Role>>,
}

impl Highlighter {
    /// `label` is what stands behind a fence; one that no grammar knows gives no colours.
    pub fn new(label: &str) -> Self {
        let parser = syntax(label).map(|syntax| Parser {
            state: ParseState::new(syntax),
            stack: ScopeStack::new(),
            known: HashMap::new(),
        });
        Self {
            parser,
            bytes: 0,
            lines: 0,
        }
    }

    /// The next line, without its end.
    pub fn line(&mut self, text: &str, theme: &Theme) -> Vec<Span<'static>> {
        self.bytes += text.len() + 1;
        self.lines += 1;
        let plain = || vec![Span::styled(text.to_owned(), theme.style(Role::Text))];
        if text.len() > MAX_LINE || !theme.keeps_color() {
            return plain();
        }
        if self.bytes > MAX_BYTES || self.lines > MAX_LINES {
            self.parser = None;
        }
        let Some(parser) = &mut self.parser else {
            return plain();
        };
        if let Some(spans) = parser.line(text, theme) {
            return spans;
        }
        // A grammar that fails once is not asked again.
        self.parser = None;
        plain()
    }
}

impl Parser {
    fn line(&mut self, text: &str, theme: &Theme) -> Option<Vec<Span<'static>>> {
        let line = format!("{text}\n");
        let changes = self.state.parse_line(&line, &SYNTAXES).ok()?;
        let mut spans: Vec<Span<'static>> = Vec::new();
        let mut at = 0;
        for (index, change) in changes {
            let index = index.min(text.len());
            if index > at {
                push(&mut spans, text.get(at..index)?, self.role(), theme);
                at = index;
            }
            self.stack.apply(&change).ok()?;
        }
        push(&mut spans, text.get(at..)?, self.role(), theme);
        Some(spans)
    }

    /// What the innermost scope that means something means.
    fn role(&mut self) -> Role {
        for scope in self.stack.scopes.iter().rev() {
            let known = self.known.entry(*scope).or_insert_with(|| {
                meanings()
                    .iter()
                    .find(|(prefix, _)| prefix.is_prefix_of(*scope))
                    .map(|(_, role)| *role)
            });
            if let Some(role) = known {
                return *role;
            }
        }
        Role::Text
    }
}

fn push(spans: &mut Vec<Span<'static>>, text: &str, role: Role, theme: &Theme) {
    if text.is_empty() {
        return;
    }
    let style = theme.style(role);
    match spans.last_mut() {
        Some(last) if last.style == style => last.content.to_mut().push_str(text),
        _ => spans.push(Span::styled(text.to_owned(), style)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(label: &str, text: &str) -> Vec<(String, Role)> {
        let theme = Theme::named("dark").unwrap();
        let mut highlighter = Highlighter::new(label);
        let mut out = Vec::new();
        for line in text.lines() {
            for span in highlighter.line(line, &theme) {
                let role = [
                    Role::Text,
                    Role::Comment,
                    Role::String,
                    Role::Keyword,
                    Role::Function,
                    Role::Type,
                    Role::Number,
                    Role::Attribute,
                ]
                .into_iter()
                .find(|role| theme.style(*role) == span.style)
                .unwrap();
                out.push((span.content.trim().to_owned(), role));
            }
        }
        out
    }

    #[test]
    fn words_of_code_have_their_meaning() {
        let rust = roles(
            "rust",
            "fn main() { let x = 42; } // end\n/* over\nlines */",
        );
        for expected in [
            ("fn", Role::Keyword),
            ("main", Role::Function),
            ("42", Role::Number),
            ("// end", Role::Comment),
            ("/* over", Role::Comment),
            ("lines */", Role::Comment),
        ] {
            assert!(
                rust.contains(&(expected.0.to_owned(), expected.1)),
                "{expected:?} in {rust:?}"
            );
        }
        let python = roles("py", "def f():\n    return \"x\"");
        assert!(python.contains(&("def".to_owned(), Role::Keyword)));
        assert!(python.contains(&("\"x\"".to_owned(), Role::String)));
    }

    #[test]
    fn languages_people_use_are_known() {
        for label in [
            "rust",
            "toml",
            "ts",
            "typescript",
            "tsx",
            "jsx",
            "dockerfile",
            "console",
            "sh",
            "json",
            "jsonc",
            "yaml",
            "go",
            "sql",
            "diff",
            "c++",
            "kotlin",
            "swift",
            "rust,ignore",
            "Python",
            "nix",
            "zig",
        ] {
            assert!(syntax(label).is_some(), "{label}");
        }
        for label in ["", "text", "no such language"] {
            assert!(syntax(label).is_none(), "{label}");
        }
        assert_eq!(language_of("/a/b.c/Dockerfile"), "Dockerfile");
        assert_eq!(language_of("src/main.rs"), "rs");
        assert_eq!(language_of(".bashrc"), ".bashrc");
    }

    #[test]
    fn long_code_ends_without_colours_and_loses_nothing() {
        let theme = Theme::default();
        let mut highlighter = Highlighter::new("rust");
        let long = "x".repeat(MAX_LINE + 1);
        assert_eq!(highlighter.line(&long, &theme).len(), 1);
        assert!(highlighter.line("let a = 1;", &theme).len() > 1);
        highlighter.lines = MAX_LINES;
        let spans = highlighter.line("let a = 1;", &theme);
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].content, "let a = 1;");
    }
}
