use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

const DOCUMENT: &str =
    "---\nname: notes\ndescription: Write notes\n---\n\nStep one in ${HERMES_SESSION_ID}.\n";

#[tokio::test]
async fn a_skill_is_made_listed_viewed_patched_and_deleted() {
    let bench = Bench::new();
    let tools = bench.tools();
    assert_eq!(
        tools.ok("skills_list", json!({})).await["skills"],
        json!([])
    );
    tools
        .ok(
            "skill_manage",
            json!({"action": "create", "name": "notes", "category": "office", "content": DOCUMENT}),
        )
        .await;
    tools
        .ok("skill_manage", json!({"action": "write_file", "name": "notes", "file_path": "references/a.md", "file_content": ""}))
        .await;
    let listed = tools.ok("skills_list", json!({"category": "office"})).await;
    assert_eq!(listed["skills"][0]["name"], "notes");
    let view = tools.ok("skill_view", json!({"name": "notes"})).await;
    assert!(
        view["content"]
            .as_str()
            .unwrap()
            .ends_with("Step one in s1.\n")
    );
    assert_eq!(
        view["linked_files"],
        json!({"references": ["references/a.md"]})
    );
    tools
        .ok(
            "skill_view",
            json!({"name": "notes", "file_path": "references/a.md"}),
        )
        .await;
    tools
        .ok("skill_manage", json!({"action": "patch", "name": "notes", "old_string": "Step one", "new_string": "Begin"}))
        .await;
    let usage = &bench.deps.skills.usage().read().unwrap()["notes"];
    assert_eq!(
        (
            &usage["view_count"],
            &usage["use_count"],
            &usage["patch_count"]
        ),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!(usage["created_by"], Value::Null);
    tools
        .ok(
            "skill_manage",
            json!({"action": "delete", "name": "notes", "absorbed_into": ""}),
        )
        .await;
    assert!(!bench.path("home/skills/office").exists());
}

#[tokio::test]
async fn errors_tell_what_to_pass() {
    let bench = Bench::new();
    bench.put("home/skills/notes/SKILL.md", DOCUMENT);
    let tools = bench.tools();
    for (tool, args, expected) in [
        ("skill_view", json!({}), "name is missing"),
        ("skill_manage", json!({"name": "x"}), "action is missing"),
        (
            "skill_manage",
            json!({"action": "burn", "name": "x"}),
            "use create, patch",
        ),
        (
            "skill_manage",
            json!({"action": "create", "name": "x"}),
            "content is missing",
        ),
        (
            "skill_manage",
            json!({"action": "patch", "name": "notes", "old_string": "a"}),
            "new_string is missing",
        ),
        (
            "skill_manage",
            json!({"action": "write_file", "name": "notes", "file_path": "references/a.md"}),
            "file_content is missing",
        ),
        (
            "skill_manage",
            json!({"action": "create", "name": "Bad Name", "content": DOCUMENT}),
            "a-z, 0-9",
        ),
    ] {
        let (kind, text) = tools.err(tool, args.clone()).await;
        assert_eq!(kind, ToolErrorKind::BadArguments, "{args}");
        assert!(text.contains(expected), "{args}: {text}");
    }
    let (kind, value) = tools.err_json("skill_view", json!({"name": "none"})).await;
    assert_eq!(kind, ToolErrorKind::Failed);
    assert_eq!(value["available_skills"], json!(["notes"]));
    let (_, value) = tools
        .err_json(
            "skill_manage",
            json!({"action": "patch", "name": "notes", "old_string": "zzz", "new_string": ""}),
        )
        .await;
    assert!(
        value["file_preview"]
            .as_str()
            .unwrap()
            .starts_with("---\nname: notes")
    );
}

#[tokio::test]
async fn changes_wait_for_approval_when_asked_to() {
    let mut bench = Bench::new();
    bench.deps.skills_approval = true;
    let args = json!({"action": "create", "name": "notes", "content": DOCUMENT, "category": null});
    let staged = bench.tools().ok("skill_manage", args).await;
    assert_eq!(staged["staged"], true);
    assert!(!bench.path("home/skills/notes").exists());
    let pending = bench
        .deps
        .pending()
        .list(hermes_store::Subsystem::Skills)
        .unwrap();
    assert_eq!(
        pending[0].payload,
        json!({"action": "create", "name": "notes", "content": DOCUMENT})
    );
    apply_pending_skill(&bench.deps.skills, &pending[0].payload).unwrap();
    assert_eq!(bench.text("home/skills/notes/SKILL.md"), DOCUMENT);
    assert!(apply_pending_skill(&bench.deps.skills, &json!({"action": "burn"})).is_err());
}

#[tokio::test]
async fn skills_of_a_review_are_marked() {
    let mut bench = Bench::new();
    bench.deps.background = true;
    let args = json!({"action": "create", "name": "notes", "content": DOCUMENT});
    bench.tools().ok("skill_manage", args).await;
    let usage = bench.deps.skills.usage().read().unwrap();
    assert_eq!(usage["notes"]["created_by"], "agent");
}
