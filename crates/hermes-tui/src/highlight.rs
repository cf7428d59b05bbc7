//! Syntax highlighting.
//!
//! The grammars are loaded when code is first shown. Colours come from the theme: a grammar only
//! classifies words.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use ratatui_core::text::Span;
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use crate::theme::{StyleRole, Theme};

/// Limit per block; the rest is shown without colours.
const MAX_BYTES: usize = 512 * 1024;
const MAX_LINES: usize = 10_000;
/// Longer lines are data rather than code, and slow to parse.
const MAX_LINE: usize = 2_000;

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// Roles of scopes, the first match wins; within a stack the innermost scope with a role.
const MEANINGS: &[(&str, StyleRole)] = &[
    ("comment", StyleRole::Comment),
    ("string", StyleRole::String),
    ("constant.character", StyleRole::String),
    ("constant.other.color", StyleRole::Number),
    ("constant", StyleRole::Number),
    ("keyword.operator", StyleRole::Text),
    ("keyword", StyleRole::Keyword),
    ("storage", StyleRole::Keyword),
    ("entity.name.function", StyleRole::Function),
    ("support.function", StyleRole::Function),
    ("variable.function", StyleRole::Function),
    ("entity.name.tag", StyleRole::Keyword),
    ("entity.other.attribute-name", StyleRole::Attribute),
    ("meta.annotation", StyleRole::Attribute),
    ("variable.annotation", StyleRole::Attribute),
    ("entity.name.section", StyleRole::Heading),
    ("entity.name", StyleRole::Type),
    ("entity.other.inherited-class", StyleRole::Type),
    ("support.type.property-name", StyleRole::Attribute),
    ("support", StyleRole::Type),
    ("variable.language", StyleRole::Keyword),
    ("markup.heading", StyleRole::Heading),
    ("markup.inserted", StyleRole::Success),
    ("markup.deleted", StyleRole::Error),
    ("meta.diff.range", StyleRole::Info),
    ("meta.diff.header", StyleRole::Strong),
    ("meta.mapping.key", StyleRole::Attribute),
];

fn meanings() -> &'static [(Scope, StyleRole)] {
    static TABLE: OnceLock<Vec<(Scope, StyleRole)>> = OnceLock::new();
    TABLE.get_or_init(|| {
        MEANINGS
            .iter()
            .filter_map(|(name, role)| Some((Scope::new(name).ok()?, *role)))
            .collect()
    })
}

/// Common names that no grammar has.
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
pub(crate) fn language_of(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => extension,
        _ => name,
    }
}

/// The lines of one block of code, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Highlighter {
    parser: Option<LineParser>,
    bytes: usize,
    lines: usize,
}

#[derive(Clone, Debug)]
struct LineParser {
    state: ParseState,
    stack: ScopeStack,
    known: HashMap<Scope, Option<StyleRole>>,
}

impl Highlighter {
    /// `label` is the text after a fence; an unknown one gives no colours.
    pub(crate) fn new(label: &str) -> Self {
        let parser = syntax(label).map(|syntax| LineParser {
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
    pub(crate) fn line(&mut self, text: &str, theme: &Theme) -> Vec<Span<'static>> {
        self.bytes += text.len() + 1;
        self.lines += 1;
        let plain = || vec![Span::styled(text.to_owned(), theme.style(StyleRole::Text))];
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
        // A grammar that fails once is not used again.
        self.parser = None;
        plain()
    }
}

impl LineParser {
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

    /// The role of the innermost scope that has one.
    fn role(&mut self) -> StyleRole {
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
        StyleRole::Text
    }
}

fn push(spans: &mut Vec<Span<'static>>, text: &str, role: StyleRole, theme: &Theme) {
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

    fn roles(label: &str, text: &str) -> Vec<(String, StyleRole)> {
        let theme = Theme::named("dark").unwrap();
        let mut highlighter = Highlighter::new(label);
        let mut out = Vec::new();
        for line in text.lines() {
            for span in highlighter.line(line, &theme) {
                let role = [
                    StyleRole::Text,
                    StyleRole::Comment,
                    StyleRole::String,
                    StyleRole::Keyword,
                    StyleRole::Function,
                    StyleRole::Type,
                    StyleRole::Number,
                    StyleRole::Attribute,
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
            ("fn", StyleRole::Keyword),
            ("main", StyleRole::Function),
            ("42", StyleRole::Number),
            ("// end", StyleRole::Comment),
            ("/* over", StyleRole::Comment),
            ("lines */", StyleRole::Comment),
        ] {
            assert!(
                rust.contains(&(expected.0.to_owned(), expected.1)),
                "{expected:?} in {rust:?}"
            );
        }
        let python = roles("py", "def f():\n    return \"x\"");
        assert!(python.contains(&("def".to_owned(), StyleRole::Keyword)));
        assert!(python.contains(&("\"x\"".to_owned(), StyleRole::String)));
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
