//! Parsing with a bound.

use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

/// How often the parser may report progress before it is stopped. It reports every hundred steps or
/// so; 128 kB of ordinary script needs a few thousand.
const STEPS: u32 = 60_000;

/// The tree of `source`; `None` where it would take too long.
pub(super) fn parse(source: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .ok()?;
    let mut steps = 0_u32;
    let mut progress = |_: &ParseState| {
        steps += 1;
        if steps > STEPS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let bytes = source.as_bytes();
    parser.parse_with_options(
        &mut |at, _| bytes.get(at..).unwrap_or_default(),
        None,
        Some(ParseOptions::new().progress_callback(&mut progress)),
    )
}

/// `source` without the comments of its tree.
pub(super) fn uncommented(source: &str, tree: &Tree) -> String {
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.kind() == "comment" {
            out.push_str(source.get(at..node.start_byte()).unwrap_or_default());
            at = node.end_byte();
        }
        if cursor.goto_first_child() || cursor.goto_next_sibling() {
            continue;
        }
        loop {
            if !cursor.goto_parent() {
                out.push_str(source.get(at..).unwrap_or_default());
                return out;
            }
            if cursor.goto_next_sibling() {
                break;
            }
        }
    }
}
