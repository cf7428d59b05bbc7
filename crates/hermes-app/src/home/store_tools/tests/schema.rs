//! The schemas are shared with the original: names, types, enums and required fields must not
//! drift, or resumed conversations hold calls that no longer fit.

use pretty_assertions::assert_eq;
use serde_json::json;

use hermes_core::tool::Effects;

use super::*;
use hermes_agent::lean::trimmed_schema;

/// Name, toolset, effects, properties, required fields.
type Row = (&'static str, &'static str, Effects, Value, Value);

fn expected() -> [Row; 6] {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let changes = json!({"type": "string", "enum": ["add", "replace", "remove"]});
    [
        (
            "memory",
            "memory",
            Effects::Exclusive,
            json!({
                "action": changes, "target": {"type": "string", "enum": ["memory", "user"]},
                "content": text, "old_text": text,
                "operations": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"action": changes, "content": text, "old_text": text},
                    "required": ["action"],
                }},
            }),
            json!(["target"]),
        ),
        (
            "session_search",
            "session_search",
            Effects::ReadOnly,
            json!({
                "query": text, "limit": number, "sort": {"type": "string", "enum": ["newest", "oldest"]},
                "session_id": text, "around_message_id": number, "window": number,
                "role_filter": text, "profile": text,
            }),
            json!([]),
        ),
        (
            "skill_manage",
            "skills",
            Effects::Exclusive,
            json!({
                "action": {"type": "string", "enum": ["create", "patch", "edit", "delete", "write_file", "remove_file"]},
                "name": text, "content": text, "old_string": text, "new_string": text,
                "replace_all": {"type": "boolean"}, "category": text, "file_path": text,
                "file_content": text, "absorbed_into": text,
            }),
            json!(["action", "name"]),
        ),
        (
            "skill_view",
            "skills",
            Effects::ReadOnly,
            json!({"name": text, "file_path": text}),
            json!(["name"]),
        ),
        (
            "skills_list",
            "skills",
            Effects::ReadOnly,
            json!({"category": text}),
            json!([]),
        ),
        (
            "todo",
            "todo",
            Effects::Exclusive,
            json!({
                "todos": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"id": text, "content": text, "status": {
                        "type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"],
                    }},
                    "required": ["id", "content", "status"],
                }},
                "merge": {"type": "boolean"},
            }),
            json!([]),
        ),
    ]
}

#[tokio::test]
async fn schemas_have_the_shared_shape() {
    let mut bench = Bench::new();
    let store = Store::open(bench.deps.home.state_db(), Arc::new(SystemClock)).unwrap();
    bench.deps.store = Some(store);
    let tools = bench.tools();
    let expected = expected();
    let names: Vec<&str> = tools.registry.names().collect();
    assert_eq!(names, expected.each_ref().map(|row| row.0));
    for (name, toolset, effects, properties, required) in expected {
        let spec = tools.registry.get(name).unwrap().spec();
        assert_eq!((spec.toolset, spec.effects), (toolset, effects), "{name}");
        let schema = json!({"type": "object", "properties": properties, "required": required});
        assert_eq!(trimmed_schema(&spec.parameters), schema, "{name}");
    }
}

#[tokio::test]
async fn the_first_sentence_of_each_description_stands_alone() {
    let bench = Bench::new();
    for tool in bench.tools().registry.iter() {
        let spec = tool.spec();
        let first = spec.description.split(". ").next().unwrap();
        let length = first.chars().count();
        assert!((10..90).contains(&length), "{}: {first}", spec.name);
    }
}
