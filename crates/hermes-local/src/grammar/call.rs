//! Grammar for the choice between text and calls.

use serde_json::{Map, Value, json};

use super::merge;
use super::node::{Builder, Grammar, GrammarNode, GrammarNodeId, Text, UNREACHABLE};
use super::schema::{Compiler, SchemaError};

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 4;
const MAX_NAME_BYTES: usize = 128;

/// How a model family writes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStyle {
    /// `<tool_call>` around an object with `name` and `arguments`.
    Tagged,
    /// The answer is an object with `name` and `parameters`.
    Bare,
}

impl CallStyle {
    /// Begins a call after text.
    pub fn marker(self) -> &'static str {
        match self {
            CallStyle::Tagged => "<tool_call>",
            CallStyle::Bare => "",
        }
    }

    /// Precedes the name.
    pub fn open(self) -> &'static str {
        match self {
            CallStyle::Tagged => "\n{\"name\": \"",
            CallStyle::Bare => "{\"name\": \"",
        }
    }

    /// Between the name and the arguments.
    pub fn middle(self) -> &'static str {
        match self {
            CallStyle::Tagged => "\", \"arguments\": ",
            CallStyle::Bare => "\", \"parameters\": ",
        }
    }

    /// Follows the arguments.
    pub fn close(self) -> &'static str {
        match self {
            CallStyle::Tagged => "}\n</tool_call>",
            CallStyle::Bare => "}",
        }
    }

    /// Between two calls.
    pub fn between(self) -> &'static str {
        match self {
            CallStyle::Tagged => "\n",
            CallStyle::Bare => "",
        }
    }

    fn parallel(self) -> bool {
        self == CallStyle::Tagged
    }
}

/// A tool that may be called.
#[derive(Clone, Debug)]
pub struct Callable {
    pub name: String,
    /// The schema of the arguments; `None`: there are no arguments.
    pub parameters: Option<Value>,
}

/// Whether the model may, must or must not call a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallChoice {
    Auto,
    /// A call of one of the tools, and no text.
    Required,
    /// Text only.
    None,
}

/// Text or calls of `tools`.
pub fn calls(
    style: CallStyle,
    tools: &[Callable],
    choice: CallChoice,
    parallel: bool,
) -> Result<Grammar, SchemaError> {
    let mut builder = Builder::default();
    let text = Text {
        marker: style.marker().as_bytes().into(),
        continues_after_marker: choice == CallChoice::Auto,
        not_first: (style == CallStyle::Bare).then_some(b'{'),
    };
    if choice == CallChoice::None {
        let root = builder.add(GrammarNode::Text(text));
        return Ok(builder.finish(root));
    }
    let mut bodies = Vec::with_capacity(tools.len());
    for tool in tools {
        let (with_tool, body) = body(builder, style, tool)?;
        builder = with_tool;
        bodies.push(body);
    }
    let body = builder.either(&bodies);
    let open = builder.literal(style.open());
    let close = builder.literal(style.close());
    let marker = builder.literal(style.marker());
    let end = builder.literal("");
    // From the last call to the first: what may follow each.
    let mut after = end;
    if parallel && style.parallel() {
        let between = builder.literal(style.between());
        for _ in 1..MAX_CALLS {
            let next = builder.sequence(&[between, marker, open, body, close, after]);
            after = builder.either(&[end, next]);
        }
    }
    let call = [open, body, close, after];
    let root = match (choice, style) {
        (CallChoice::Auto, CallStyle::Tagged) => {
            let text = builder.add(GrammarNode::Text(text));
            builder.sequence(&[text, open, body, close, after])
        }
        (CallChoice::Auto, CallStyle::Bare) => {
            let text = builder.add(GrammarNode::Text(text));
            let call = builder.sequence(&call);
            builder.either(&[text, call])
        }
        (CallChoice::Required | CallChoice::None, _) => {
            builder.sequence(&[marker, open, body, close, after])
        }
    };
    finish(builder, root, body)
}

/// A value by a schema, and nothing else.
pub fn value(schema: &Value) -> Result<Grammar, SchemaError> {
    let mut compiler = Compiler::new(schema, Builder::default());
    let root = compiler.compile(schema)?;
    finish(compiler.builder, root, root)
}

fn finish(
    builder: Builder,
    root: GrammarNodeId,
    needed: GrammarNodeId,
) -> Result<Grammar, SchemaError> {
    let grammar = builder.finish(root);
    if grammar.shortest[needed as usize] >= UNREACHABLE {
        return Err(SchemaError::Impossible);
    }
    Ok(grammar)
}

fn body(
    builder: Builder,
    style: CallStyle,
    tool: &Callable,
) -> Result<(Builder, GrammarNodeId), SchemaError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let length = tool.name.len();
    if length == 0 || length > MAX_NAME_BYTES || !tool.name.bytes().all(plain) {
        return Err(SchemaError::ToolName(tool.name.clone()));
    }
    let schema = arguments(tool.parameters.as_ref());
    let mut compiler = Compiler::new(&schema, builder);
    let arguments = compiler.compile(&schema)?;
    let mut builder = compiler.builder;
    let name = builder.literal(format!("{}{}", tool.name, style.middle()));
    let body = builder.sequence(&[name, arguments]);
    Ok((builder, body))
}

/// Arguments are an object. Without a word about its properties it has none.
fn arguments(parameters: Option<&Value>) -> Value {
    let mut schema = match parameters {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::new(),
    };
    let says = [
        "properties",
        "additionalProperties",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
    ];
    if !says.iter().any(|keyword| schema.contains_key(*keyword)) {
        schema.insert("properties".to_owned(), json!({}));
    }
    // Even if a choice allows other values: the call parser relies on the braces.
    merge::both(&Value::Object(schema), &json!({ "type": "object" }))
}
