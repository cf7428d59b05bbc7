//! Whatever the model would like: what comes out parses, and is what the schema says.

use std::rc::Rc;

use hermes_local::engine::Constraint as _;
use hermes_local::grammar::{
    CallChoice, CallStyle, Callable, GrammarGuide, MaskedGrammar, SchemaError, Vocabulary, calls,
    value,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::check::valid;

const END: u32 = 0;

/// A vocabulary of all bytes and of what often goes together.
fn vocabulary() -> (Rc<Vocabulary>, Vec<Vec<u8>>) {
    let mut pieces = vec![b"<end>".to_vec()];
    pieces.extend((0..=255_u8).map(|byte| vec![byte]));
    let longer = [
        "\": ",
        "\", \"",
        "\"}",
        "{\"",
        "[\"",
        "]}",
        "}}",
        ", ",
        "\",",
        "null",
        "true",
        "10",
        "-1",
        "0.",
        "<tool",
        "_call>",
        "\n{\"name\": ",
        "arguments",
        "é",
        "日本",
        "\\u00",
        "\\\"",
        "   ",
        "}\n</tool_call>",
        "hello",
        " world",
        "[[",
        "{}",
        "<tool_call>",
    ];
    pieces.extend(longer.map(|piece| piece.as_bytes().to_vec()));
    let vocabulary = Vocabulary::new(pieces.len(), &[END], |id| &pieces[id as usize]);
    (Rc::new(vocabulary), pieces)
}

/// A model without any sense: each logit comes from the seed.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What comes out, and whether it was complete before the tokens were used up.
fn write(
    guided: &Rc<MaskedGrammar>,
    pieces: &[Vec<u8>],
    tokens: usize,
    seed: u64,
) -> (Vec<u8>, bool) {
    let mut guide = GrammarGuide::new(guided, tokens);
    let mut noise = Noise(seed | 1);
    let mut out = Vec::new();
    for _ in 0..tokens {
        if guide.finished() {
            break;
        }
        let mut logits: Vec<f32> = pieces.iter().map(|_| noise.next() as f32).collect();
        guide.mask(&mut logits);
        let best = (0..logits.len())
            .max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
            .unwrap();
        assert!(logits[best] > f32::NEG_INFINITY, "nothing is possible");
        guide.accept(best as u32);
        if best as u32 != END {
            out.extend_from_slice(&pieces[best]);
        }
    }
    assert!(!guide.lost(), "{}", String::from_utf8_lossy(&out));
    (out, guide.complete())
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "type": "string" })),
        (0_u32..4, 0_u32..30).prop_map(|(min, more)| {
            json!({ "type": "string", "minLength": min, "maxLength": min + more })
        }),
        Just(json!({ "type": "boolean", "description": "a \"remark\"" })),
        Just(json!({ "type": "null" })),
        Just(json!({ "type": "number" })),
        Just(json!({ "type": ["integer", "null"] })),
        (-1500_i64..1500, 0_i64..4000).prop_map(|(min, more)| {
            json!({ "type": "integer", "minimum": min, "maximum": min + more })
        }),
        (-100_i32..100, 1_i32..50).prop_map(|(min, more)| {
            let min = f64::from(min) / 8.0;
            json!({ "type": "number", "exclusiveMinimum": min, "maximum": min + f64::from(more) / 8.0 })
        }),
        Just(json!({ "enum": ["a", "ab", "é\"\\", 1, 12, null, { "k": [1] }] })),
        Just(json!({ "type": "string", "enum": ["one", "only", 7] })),
        Just(json!({ "const": { "x": [1, "y"], "z": null } })),
        Just(json!({})),
        Just(json!(true)),
        Just(json!({ "$ref": "#/$defs/tree" })),
        Just(json!({ "type": "string", "pattern": "never looked at", "format": "uri" })),
    ]
}

pub(crate) fn schema() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        let names = prop::sample::subsequence(
            vec!["a", "ab", "abc", "b c", "n\n\"", "日本", "日曜", ""],
            0..=6,
        );
        prop_oneof![
            (inner.clone(), 0_u32..3, prop::option::of(0_u32..4)).prop_map(|(items, min, more)| {
                let mut schema = json!({ "type": "array", "items": items, "minItems": min });
                if let Some(more) = more {
                    schema["maxItems"] = json!(min + more);
                }
                schema
            }),
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|branches| json!({ "anyOf": branches })),
            (
                names,
                prop::collection::vec((inner.clone(), any::<bool>()), 6),
                prop::option::of(prop_oneof![
                    inner.boxed(),
                    any::<bool>().prop_map(Value::Bool)
                ]),
            )
                .prop_map(|(names, values, extra): (Vec<&str>, _, _)| object(
                    &names, values, extra
                )),
        ]
    })
}

fn object(names: &[&str], values: Vec<(Value, bool)>, extra: Option<Value>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, (value, needed)) in names.iter().zip(values) {
        properties.insert((*name).to_owned(), value);
        if needed {
            required.push(*name);
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties, "required": required });
    if let Some(extra) = extra {
        schema["additionalProperties"] = extra;
    }
    schema
}

/// With what references lead to: a tree that holds itself.
pub(crate) fn rooted(schema: &Value) -> Value {
    let tree = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "children": { "type": "array", "items": { "$ref": "#/$defs/tree" } },
        },
        "required": ["children"],
    });
    json!({ "$defs": { "tree": tree }, "allOf": [schema] })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_comes_out_is_what_the_schema_says(
        schema in schema().prop_map(|schema| rooted(&schema)),
        seed in any::<u64>(),
        extra in 0_usize..120,
    ) {
        let grammar = match value(&schema) {
            Ok(grammar) => grammar,
            Err(SchemaError::Impossible) => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        let (vocabulary, pieces) = vocabulary();
        let tokens = grammar.shortest() as usize + extra;
        let guided = MaskedGrammar::new(vocabulary, grammar);
        let (out, complete) = write(&guided, &pieces, tokens, seed);
        prop_assert!(complete, "{}", String::from_utf8_lossy(&out));
        let written: Value = serde_json::from_slice(&out)
            .map_err(|error| TestCaseError::fail(format!("{error}: {}", String::from_utf8_lossy(&out))))?;
        prop_assert!(valid(&schema, &schema, &written), "{written}");
    }

    #[test]
    fn calls_are_calls_of_the_tools(
        schemas in prop::collection::vec(schema(), 1..4),
        seed in any::<u64>(),
        tagged in any::<bool>(),
        parallel in any::<bool>(),
    ) {
        let style = if tagged { CallStyle::Tagged } else { CallStyle::Bare };
        let tools: Vec<Callable> = schemas.iter().enumerate().map(|(index, schema)| Callable {
            name: format!("tool_{index}"),
            parameters: Some(rooted(&json!({ "type": "object", "properties": { "it": schema } }))),
        }).collect();
        let grammar = calls(style, &tools, CallChoice::Required, parallel).unwrap();
        let (vocabulary, pieces) = vocabulary();
        let tokens = grammar.shortest() as usize + 150;
        let (out, complete) = write(&MaskedGrammar::new(vocabulary, grammar), &pieces, tokens, seed);
        prop_assert!(complete);
        let out = String::from_utf8(out).unwrap();
        let inside: Vec<&str> = match style {
            CallStyle::Tagged => out
                .split("</tool_call>")
                .map(|call| call.trim().trim_start_matches("<tool_call>"))
                .filter(|call| !call.is_empty())
                .collect(),
            CallStyle::Bare => vec![&out],
        };
        // A string may hold the closing tag, too.
        if out.matches("</tool_call>").count() == out.matches("}\n</tool_call>").count() {
            for call in inside {
                let call: Value = serde_json::from_str(call).unwrap();
                let tool = tools.iter().find(|tool| call["name"] == *tool.name).unwrap();
                let schema = tool.parameters.as_ref().unwrap();
                let arguments = if tagged { &call["arguments"] } else { &call["parameters"] };
                prop_assert!(valid(schema, schema, arguments), "{}", arguments);
            }
        }
    }
}

fn follows(guided: &Rc<MaskedGrammar>, pieces: &[Vec<u8>], text: &str) -> bool {
    let mut guide = GrammarGuide::new(guided, 10_000);
    for byte in text.bytes() {
        let mut logits = vec![0.0; pieces.len()];
        guide.mask(&mut logits);
        let token = u32::from(byte) + 1;
        if logits[token as usize] < 0.0 {
            return false;
        }
        guide.accept(token);
    }
    guide.complete()
}

fn admits(schema: &Value, text: &str) -> bool {
    let (vocabulary, pieces) = vocabulary();
    follows(
        &MaskedGrammar::new(vocabulary, value(schema).unwrap()),
        &pieces,
        text,
    )
}

#[test]
fn properties_come_in_any_order_and_once() {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "limit": { "type": "integer" } },
        "required": ["path"],
    });
    assert!(admits(&schema, r#"{"path": "a"}"#));
    assert!(admits(&schema, r#"{"limit":3, "path":"a\n\u00e9"}"#));
    assert!(!admits(&schema, r#"{"limit":3}"#));
    assert!(!admits(&schema, r#"{"path":"a","path":"b"}"#));
    assert!(!admits(&schema, r#"{"path":"a","other":1}"#));
    assert!(!admits(&schema, r#"{"path":  "a"}"#), "blanks are bounded");
    assert!(
        !admits(&schema, "{\"path\":\"\\ud83d\"}"),
        "no half of a pair"
    );
    assert!(admits(&schema, "{\"path\":\"😀\"}"));
}

#[test]
fn choices_merge_with_what_stands_beside_them() {
    let schema = json!({
        "type": "object",
        "properties": { "url": { "type": "string" }, "path": { "type": "string" } },
        "oneOf": [{ "required": ["url"] }, { "required": ["path"] }],
    });
    assert!(admits(&schema, r#"{"url":"x"}"#));
    assert!(admits(&schema, r#"{"path":"x"}"#));
    assert!(!admits(&schema, "{}"));
}

#[test]
fn a_reference_to_itself_adds_nothing() {
    let schema = json!({
        "$defs": { "it": { "anyOf": [{ "$ref": "#/$defs/it" }, { "type": "null" }] } },
        "$ref": "#/$defs/it",
    });
    assert!(admits(&schema, "null"));
    let nothing = json!({ "$ref": "#" });
    assert!(matches!(value(&nothing), Err(SchemaError::Impossible)));
    let nowhere = json!({ "$ref": "http://example.com/schema" });
    assert!(matches!(value(&nowhere), Err(SchemaError::Reference(_))));
}

fn weather() -> Vec<Callable> {
    vec![Callable {
        name: "weather".to_owned(),
        parameters: Some(
            json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] }),
        ),
    }]
}

#[test]
fn text_goes_on_until_a_call_begins() {
    let (vocabulary, pieces) = vocabulary();
    let call =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Bern\"}}\n</tool_call>";
    let auto = calls(CallStyle::Tagged, &weather(), CallChoice::Auto, true).unwrap();
    let auto = MaskedGrammar::new(Rc::clone(&vocabulary), auto);
    assert!(follows(&auto, &pieces, "Hello <tool> there < it is"));
    assert!(follows(&auto, &pieces, &format!("Let me see. {call}")));
    assert!(follows(&auto, &pieces, &format!("{call}\n{call}")));
    assert!(!follows(&auto, &pieces, &format!("{call} and more")));
    assert!(!follows(&auto, &pieces, &call.replace("weather", "wether")));
    let single = calls(CallStyle::Tagged, &weather(), CallChoice::Auto, false).unwrap();
    let single = MaskedGrammar::new(Rc::clone(&vocabulary), single);
    assert!(!follows(&single, &pieces, &format!("{call}\n{call}")));
    let none = calls(CallStyle::Tagged, &weather(), CallChoice::None, true).unwrap();
    let none = MaskedGrammar::new(Rc::clone(&vocabulary), none);
    assert!(follows(&none, &pieces, "Hello <tool_call"));
    assert!(!follows(&none, &pieces, call));
    let required = calls(CallStyle::Tagged, &weather(), CallChoice::Required, true).unwrap();
    let required = MaskedGrammar::new(vocabulary, required);
    assert!(follows(&required, &pieces, call));
    assert!(!follows(&required, &pieces, "Hello"));
}

#[test]
fn a_bare_call_is_the_whole_answer() {
    let (vocabulary, pieces) = vocabulary();
    let auto = calls(CallStyle::Bare, &weather(), CallChoice::Auto, true).unwrap();
    let auto = MaskedGrammar::new(vocabulary, auto);
    assert!(follows(&auto, &pieces, "Hello {there}"));
    let call = "{\"name\": \"weather\", \"parameters\": {\"city\":\"Bern\"}}";
    assert!(follows(&auto, &pieces, call));
    assert!(!follows(&auto, &pieces, &format!(" {call}")));
    assert!(!follows(&auto, &pieces, "{\"x\""));
}

#[test]
fn odd_names_and_schemas_are_refused_with_words() {
    let odd = |name: &str, parameters: Value| {
        let tool = Callable {
            name: name.to_owned(),
            parameters: Some(parameters),
        };
        calls(CallStyle::Tagged, &[tool], CallChoice::Auto, true).unwrap_err()
    };
    assert!(matches!(odd("a\"b", json!({})), SchemaError::ToolName(_)));
    let error = odd("a", json!({ "properties": { "x": 3 } }));
    assert_eq!(
        error.to_string(),
        "a schema is an object or a boolean, not 3"
    );
    let impossible = json!({ "properties": { "x": false }, "required": ["x"] });
    assert!(matches!(odd("a", impossible), SchemaError::Impossible));
}

#[test]
fn numbers_that_no_counter_holds_are_just_too_many() {
    for (keyword, schema) in [
        (
            "minItems",
            json!({ "type": "array", "items": { "type": "null" } }),
        ),
        ("minItems", json!({ "type": "array", "items": false })),
        ("minLength", json!({ "type": "string" })),
        ("minimum", json!({ "type": "integer" })),
        ("exclusiveMinimum", json!({ "type": "number" })),
    ] {
        for many in [
            json!(4_294_967_294_u64),
            json!(4_294_967_295_u64),
            json!(1e40),
        ] {
            if keyword.ends_with("inimum") && many != json!(1e40) {
                continue;
            }
            let mut schema = schema.clone();
            schema[keyword] = many;
            let refused = value(&schema).unwrap_err();
            assert!(matches!(refused, SchemaError::Impossible), "{schema}");
            let optional = json!({ "type": "object", "properties": { "x": schema } });
            assert!(admits(&optional, "{}"));
            assert!(!admits(&optional, "{\"x\":"));
        }
    }
    let name = "n".repeat(70_000);
    let named = json!({ "type": "object", "properties": { name: { "type": "null" } } });
    assert!(matches!(value(&named), Err(SchemaError::TooLarge)));
}

#[test]
fn null_is_admitted_where_a_schema_is_nullable() {
    for schema in [
        json!({ "type": "string", "nullable": true }),
        json!({ "type": "string", "const": null, "nullable": true }),
        json!({ "type": "string", "enum": ["a", null], "nullable": true }),
        json!({ "allOf": [{ "type": "string", "nullable": true }, { "nullable": true }] }),
    ] {
        assert!(admits(&schema, "null"), "{schema}");
        assert!(!admits(&schema, "1"), "{schema}");
    }
    let both = json!({ "allOf": [{ "type": "string", "nullable": true }, { "type": "string" }] });
    assert!(admits(&both, "\"\"") && !admits(&both, "null"));
}

#[test]
fn arguments_are_an_object_whatever_the_schema_allows() {
    let tool = |parameters: &Value| {
        let tool = Callable {
            name: "go".to_owned(),
            parameters: Some(parameters.clone()),
        };
        calls(CallStyle::Tagged, &[tool], CallChoice::Required, false)
    };
    let text = json!({ "type": "string" });
    let object = json!({ "type": "object", "properties": { "a": { "type": "null" } } });
    for never in [
        text.clone(),
        json!({ "anyOf": [text] }),
        json!({ "oneOf": [text, { "type": "array" }] }),
        json!({ "allOf": [text] }),
        json!({ "$ref": "#/$defs/text", "$defs": { "text": text } }),
        json!({ "const": "x" }),
        json!({ "enum": ["x", 1, null] }),
    ] {
        let refused = tool(&never).unwrap_err();
        assert!(matches!(refused, SchemaError::Impossible), "{never}");
    }
    let (vocabulary, pieces) = vocabulary();
    let mut nullable = object.clone();
    nullable["nullable"] = json!(true);
    for parameters in [
        json!({ "anyOf": [text, object] }),
        json!({ "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/it" }], "$defs": { "it": nullable } }),
        json!({ "type": ["object", "null"], "properties": { "a": { "type": "null" } } }),
        json!({ "enum": ["x", null, { "a": null }, {}] }),
        json!({ "properties": { "a": { "type": "null" } }, "nullable": true }),
        nullable.clone(),
    ] {
        let guided = MaskedGrammar::new(Rc::clone(&vocabulary), tool(&parameters).unwrap());
        let call = |arguments: &str| {
            let call = format!(
                "<tool_call>\n{{\"name\": \"go\", \"arguments\": {arguments}}}\n</tool_call>"
            );
            follows(&guided, &pieces, &call)
        };
        assert!(call("{\"a\":null}") && call("{}"), "{parameters}");
        assert!(
            !call("null") && !call("\"x\"") && !call("[]"),
            "{parameters}"
        );
    }
}

/// Schemas nobody meant well with end soon.
#[test]
fn a_schema_that_explodes_is_refused() {
    let choice = json!({ "anyOf": [{ "minLength": 1 }, { "maxLength": 9 }, { "minLength": 2 }] });
    let all: Vec<Value> = (0..24).map(|_| choice.clone()).collect();
    let exploding: Vec<Value> = all
        .into_iter()
        .enumerate()
        .map(|(index, mut choice)| {
            choice["anyOf"][0]["minLength"] = json!(index);
            choice
        })
        .collect();
    let error = value(&json!({ "allOf": exploding })).unwrap_err();
    assert!(matches!(error, SchemaError::TooLarge));
}
