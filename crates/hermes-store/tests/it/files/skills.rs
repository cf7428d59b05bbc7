use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hermes_store::skills::{Offer, Settings, SkillLibrary};
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// What the original makes of the skills of a home.
const READ: &str = "
import json, sys
from tools.skills_tool import skills_list, skill_view
from agent.prompt_builder import build_skills_system_prompt
prompt = build_skills_system_prompt(available_tools={'terminal'}, available_toolsets={'web'})
start, end = prompt.index('<available_skills>'), prompt.index('</available_skills>')
print(json.dumps({
    'list': json.loads(skills_list()),
    'views': {n: json.loads(skill_view(n)) for n in sys.argv[1:]},
    'index': prompt[start:end] + '</available_skills>',
}))
";

/// Lets the original make changes; prints its results.
const CHANGE: &str = "
import json, sys
from tools.skill_manager_tool import skill_manage
print(json.dumps([json.loads(skill_manage(**c)) for c in json.loads(sys.argv[1])]))
";

fn library(home: &TempHome) -> SkillLibrary {
    SkillLibrary::new(Settings {
        has_env: std::sync::Arc::new(|_| false),
        environments: Settings::detect_environments(),
        external: vec![home.user().join("shared")],
        ..Settings::new(home.join("skills"))
    })
}

fn document(name: &str, description: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n{more}---\n\n# {name}\n\nDo it.\n")
}

fn fill(home: &TempHome) {
    let shared = home.user().join("shared");
    std::fs::create_dir_all(shared.join("team/oncall")).unwrap();
    std::fs::write(
        shared.join("team/oncall/SKILL.md"),
        document("oncall", "'Who to call'", ""),
    )
    .unwrap();
    home.config(&format!(
        "skills:\n  external_dirs: [{}]\n",
        shared.display()
    ));
    home.write(
        "skills/office/notes/SKILL.md",
        document("notes", &"long ".repeat(20), "tags: [a, b]\n"),
    );
    home.write("skills/office/notes/references/a.md", "x");
    home.write("skills/office/notes/.hidden", "y");
    home.write("skills/office/notes/a-b/x.txt", "z");
    home.write("skills/office/notes/a/x.txt", "z");
    home.write(
        "skills/office/DESCRIPTION.md",
        "---\ndescription: At the desk\n---\n",
    );
    home.write(
        "skills/deep/er/kettle/SKILL.md",
        document(
            "Kettle Name",
            "d",
            "metadata:\n  hermes:\n    tags: [x]\n    requires_tools: [terminal]\n",
        ),
    );
    home.write(
        "skills/alone/SKILL.md",
        "# Just text\n\nThe first line counts.\n",
    );
    home.write(
        "skills/office/spare/SKILL.md",
        document(
            "spare",
            "d",
            "metadata:\n  hermes:\n    fallback_for_toolsets: [web]\n",
        ),
    );
    home.write(
        "skills/office/mac/SKILL.md",
        document("mac", "d", "platforms: [plan9]\n"),
    );
    home.write(
        "skills/office/broken/SKILL.md",
        "---\nname: broken\ndescription: a: b: [c\n---\nText\n",
    );
    home.write("skills/office/env/SKILL.md", document("env", "d", "required_environment_variables:\n  - name: KETTLE_TOKEN\n    help: ask\nsetup:\n  help: see docs\n  collect_secrets:\n    - env_var: OTHER_KEY\n      url: https://x.example\nprerequisites:\n  env_vars: [THIRD]\n"));
}

const VIEWED: [&str; 7] = [
    "notes",
    "kettle",
    "Kettle Name",
    "alone",
    "oncall",
    "office/broken",
    "env",
];

/// The parts of a view that are facts; hints are each program's own words.
fn facts(view: &Value) -> Value {
    let mut view = view.clone();
    let fields = view.as_object_mut().unwrap();
    for words in ["usage_hint", "setup_note", "hint", "error"] {
        fields.remove(words);
    }
    view
}

fn compare(oracle: &oracle::Oracle, home: &TempHome) {
    let theirs = oracle.json(home, READ, VIEWED);
    let library = library(home);
    let mut list = library.list(None, None);
    list["hint"] = theirs["list"]["hint"].clone();
    assert_eq!(list, theirs["list"]);
    for name in VIEWED {
        let view = match library.view(name, None, None) {
            Ok(view) => view.to_json(),
            Err(error) => error.to_json(),
        };
        assert_eq!(facts(&view), facts(&theirs["views"][name]), "{name}");
    }
    let offer = Offer {
        tools: ["terminal"].into(),
        toolsets: ["web"].into(),
    };
    let index = library.index(&offer).render().unwrap();
    assert_eq!(index, theirs["index"].as_str().unwrap());
}

#[test]
fn both_see_the_same_skills() {
    let Some(oracle) = oracle::require("files::skills::both_see_the_same_skills") else {
        return;
    };
    let home = TempHome::new();
    fill(&home);
    compare(&oracle, &home);
}

/// The paths and contents of all files in a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            let inner = files(&path).into_iter();
            found.extend(inner.map(|(path, text)| (name.join(path), text)));
        } else {
            found.insert(name, std::fs::read_to_string(&path).unwrap());
        }
    }
    found
}

#[test]
fn both_make_and_change_the_same_files() {
    let Some(oracle) = oracle::require("files::skills::both_make_and_change_the_same_files") else {
        return;
    };
    let (ours, theirs) = (TempHome::new(), TempHome::new());
    fill(&ours);
    fill(&theirs);
    let made = document("fresh", "d", "");
    let calls = json!([
        {"action": "create", "name": "fresh", "category": "office", "content": made},
        {"action": "write_file", "name": "fresh", "file_path": "scripts/run.sh", "file_content": "echo"},
        {"action": "patch", "name": "fresh", "old_string": "Do it.", "new_string": "Done."},
        {"action": "patch", "name": "notes", "old_string": "#  notes", "new_string": "# Notes"},
        {"action": "remove_file", "name": "notes", "file_path": "references/a.md"},
        {"action": "delete", "name": "spare", "absorbed_into": "notes"},
        {"action": "create", "name": "Bad", "content": made},
        {"action": "create", "name": "fresh", "content": made},
        {"action": "edit", "name": "fresh", "content": "no head"},
        {"action": "write_file", "name": "fresh", "file_path": "../x", "file_content": "x"},
        {"action": "patch", "name": "fresh", "old_string": "zzz", "new_string": "x"},
        {"action": "delete", "name": "fresh", "absorbed_into": "nobody"},
    ]);
    let results = oracle.json(&theirs, CHANGE, [calls.to_string().as_str()]);
    let library = library(&ours);
    for (call, result) in calls
        .as_array()
        .unwrap()
        .iter()
        .zip(results.as_array().unwrap())
    {
        let text = |key: &str| call[key].as_str().unwrap_or_default();
        let name = text("name");
        let done = match text("action") {
            "create" => library.create(name, text("content"), call["category"].as_str()),
            "edit" => library.edit(name, text("content")),
            "patch" => library.patch(name, (text("old_string"), text("new_string")), None, false),
            "delete" => library.delete(name, call["absorbed_into"].as_str()),
            "write_file" => library.write_file(name, text("file_path"), text("file_content")),
            _ => library.remove_file(name, text("file_path")),
        };
        assert_eq!(
            json!(done.is_ok()),
            result["success"],
            "{call}: {result} {done:?}"
        );
    }
    for skill in ["office/fresh", "office/notes"] {
        let files = |home: &TempHome| files(&home.join("skills").join(skill));
        assert_eq!(files(&ours), files(&theirs), "{skill}");
    }
    assert!(!ours.exists("skills/office/spare") && !theirs.exists("skills/office/spare"));
    let counts = |home: &TempHome| -> Value {
        let usage: Value = serde_json::from_str(&home.read("skills/.usage.json")).unwrap();
        let mut counts = json!({});
        for (name, record) in usage.as_object().unwrap() {
            let keys: Vec<&String> = record.as_object().unwrap().keys().collect();
            counts[name] = json!({"patches": record["patch_count"], "keys": keys});
        }
        counts
    };
    assert_eq!(counts(&ours), counts(&theirs));
}
