//! Decoding that follows a grammar: whatever the model would like, only tokens are chosen that
//! keep the text inside a JSON schema, or inside the format of a call of one of the tools.
//!
//! A grammar is made of nodes ([`node`]), followed byte by byte ([`state`]). The vocabulary is a
//! trie; the mask of a state is made by walking it once and is kept.

mod call;
mod guide;
mod merge;
mod node;
mod number;
mod object;
mod schema;
mod state;
mod text;
mod trie;

pub use call::{CallChoice, CallStyle, Callable, calls, value};
pub use guide::{GrammarGuide, MaskedGrammar};
pub use node::Grammar;
pub use schema::SchemaError;
pub use trie::Vocabulary;
