use std::fs;
use std::os::unix::fs::symlink;

use pretty_assertions::assert_eq;

use super::*;

fn document(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n\n# Title\n\nDo it.\n")
}

struct SkillsHarness {
    _dir: tempfile::TempDir,
    home: PathBuf,
    external: PathBuf,
}

impl SkillsHarness {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let external = dir.path().join("shared");
        fs::create_dir_all(home.join("skills")).unwrap();
        fs::create_dir_all(&external).unwrap();
        Self {
            _dir: dir,
            home,
            external,
        }
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.home.join("skills").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn put_external(&self, path: &str, text: &str) {
        let path = self.external.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn settings(&self) -> Settings {
        Settings {
            external: vec![self.external.clone()],
            has_env: Arc::new(|name| name == "SET"),
            ..Settings::new(self.home.join("skills"))
        }
    }

    fn library(&self) -> SkillLibrary {
        SkillLibrary::new(self.settings())
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.home.join("skills").join(path)).unwrap()
    }
}

fn names(value: &Value) -> Vec<&str> {
    let skills = value["skills"].as_array().unwrap();
    skills
        .iter()
        .map(|skill| skill["name"].as_str().unwrap())
        .collect()
}

#[test]
fn the_list_is_sorted_by_category_and_the_home_wins_over_others() {
    let f = SkillsHarness::new();
    f.put("b/zeta/SKILL.md", &document("zeta", "last"));
    f.put("b/alpha/SKILL.md", &document("alpha", "first"));
    f.put("top/SKILL.md", "# Heading\n\nFirst line counts.\n");
    f.put_external("a/alpha/SKILL.md", &document("alpha", "other"));
    f.put_external("a/extra/SKILL.md", &document("extra", "x"));
    f.put(
        "a/mac/SKILL.md",
        "---\nname: mac\ndescription: d\nplatforms: [plan9]\n---\nx\n",
    );
    let list = f.library().list(None, None);
    assert_eq!(names(&list), ["top", "extra", "alpha", "zeta"]);
    assert_eq!(list["skills"][0]["description"], "First line counts.");
    assert_eq!(list["skills"][0]["category"], Value::Null);
    assert_eq!(list["skills"][2]["description"], "first");
    assert_eq!(list["categories"], json!(["a", "b"]));
    assert_eq!(list["count"], 4);
    assert_eq!(names(&f.library().list(Some("b"), None)), ["alpha", "zeta"]);
    let off = Settings {
        disabled: vec!["alpha".to_owned()],
        ..f.settings()
    };
    assert_eq!(
        names(&SkillLibrary::new(off.clone()).list(Some("b"), None)),
        ["zeta"]
    );
    assert!(matches!(
        SkillLibrary::new(off)
            .view("b/alpha", None, None)
            .unwrap_err(),
        SkillError::Disabled(_)
    ));
}

#[test]
fn an_empty_library_says_so() {
    let f = SkillsHarness::new();
    let list = f.library().list(None, None);
    assert_eq!(list["skills"], json!([]));
    assert!(list["message"].as_str().unwrap().contains("no skills"));
    assert_eq!(f.library().index(&Offer::default()).render(), None);
}

#[test]
fn a_skill_is_found_by_path_directory_head_name_category_and_flat_file() {
    let f = SkillsHarness::new();
    f.put("cat/dir/SKILL.md", &document("Head Name", "d"));
    f.put("notes/flat.md", "---\ndescription: d\n---\nflat body\n");
    let library = f.library();
    for name in ["cat/dir", "cat:dir", "dir", "Head Name", " dir "] {
        let SkillOrFile::Skill(view) = library.view(name, None, None).unwrap() else {
            panic!()
        };
        assert_eq!(view.name, "Head Name", "{name}");
        assert_eq!(view.path, "cat/dir/SKILL.md");
    }
    for name in ["flat", "notes/flat", "notes:flat"] {
        let SkillOrFile::Skill(view) = library.view(name, None, None).unwrap() else {
            panic!()
        };
        assert_eq!((view.name.as_str(), &view.dir), ("flat", &None), "{name}");
    }
    for name in [
        "",
        "../dir",
        "cat/../cat/dir",
        "/etc",
        "C:\\x",
        "b ad:dir",
        "cat:",
        "cat:/etc",
    ] {
        let error = library.view(name, None, None).unwrap_err();
        assert!(matches!(error, SkillError::Invalid(_)), "{name}: {error}");
    }
    let error = library.view("none", None, None).unwrap_err();
    assert_eq!(error.to_json()["available_skills"], json!(["Head Name"]));
}

#[test]
fn two_skills_of_one_name_are_refused_and_links_to_one_are_not() {
    let f = SkillsHarness::new();
    f.put("a/same/SKILL.md", &document("same", "1"));
    symlink(f.home.join("skills/a/same"), f.home.join("skills/same")).unwrap();
    f.library().view("same", None, None).unwrap();
    f.put_external("b/same/SKILL.md", &document("same", "2"));
    let error = f.library().view("same", None, None).unwrap_err();
    assert_eq!(error.to_json()["matches"].as_array().unwrap().len(), 2);
    f.library().view("a/same", None, None).unwrap();
    let change = ("Do it.", "Done.");
    let error = f.library().patch("same", change, None, false).unwrap_err();
    assert!(matches!(error, SkillError::Ambiguous { .. }), "{error}");
    f.library().patch("a/same", change, None, false).unwrap();
    assert!(f.text("a/same/SKILL.md").ends_with("Done.\n"));
    assert!(f.library().patch("../x", change, None, false).is_err());
}

#[test]
fn a_view_has_the_shared_keys() {
    let f = SkillsHarness::new();
    f.put(
        "cat/one/SKILL.md",
        "---\nname: one\ndescription: d\ncompatibility: any\nrequired_environment_variables:\n  - name: SET\n  - {name: UNSET, help: ask, required_for: all}\n  - {name: MAYBE, optional: true}\nrequired_credential_files: [token.json]\nprerequisites:\n  env_vars: [LEGACY, SET]\nmetadata:\n  hermes:\n    tags: [a, b]\n    related_skills: [two]\n---\nAt ${HERMES_SKILL_DIR} in ${HERMES_SESSION_ID}\n",
    );
    f.put("cat/one/references/b.md", "x");
    f.put("cat/one/references/a.md", "x");
    f.put("cat/one/references/deep/c.md", "x");
    f.put("cat/one/templates/deep/t.yaml", "x");
    f.put("cat/one/assets/logo.bin", "x");
    f.put("cat/one/scripts/run.sh", "x");
    f.put("cat/one/scripts/data.csv", "x");
    let value = f.library().view("one", None, Some("s1")).unwrap().to_json();
    let keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "success",
            "name",
            "description",
            "tags",
            "related_skills",
            "content",
            "path",
            "skill_dir",
            "linked_files",
            "usage_hint",
            "required_environment_variables",
            "required_commands",
            "missing_required_environment_variables",
            "missing_credential_files",
            "missing_required_commands",
            "setup_needed",
            "setup_skipped",
            "readiness_status",
            "setup_help",
            "setup_note",
            "compatibility",
            "metadata",
        ]
    );
    assert_eq!(value["tags"], json!(["a", "b"]));
    assert_eq!(
        value["linked_files"],
        json!({
            "references": ["references/a.md", "references/b.md"],
            "templates": ["templates/deep/t.yaml"],
            "assets": ["assets/logo.bin"],
            "scripts": ["scripts/run.sh"],
        })
    );
    assert_eq!(
        value["required_environment_variables"],
        json!([
            {"name": "SET", "prompt": "Enter value for SET"},
            {"name": "UNSET", "prompt": "Enter value for UNSET", "help": "ask", "required_for": "all"},
            {"name": "MAYBE", "prompt": "Enter value for MAYBE", "optional": true},
            {"name": "LEGACY", "prompt": "Enter value for LEGACY"},
        ])
    );
    assert_eq!(
        value["missing_required_environment_variables"],
        json!(["UNSET", "LEGACY"])
    );
    assert_eq!(value["missing_credential_files"], json!(["token.json"]));
    assert_eq!(value["readiness_status"], "setup_needed");
    let dir = f.home.join("skills/cat/one");
    let content = value["content"].as_str().unwrap();
    assert!(
        content.ends_with(&format!("At {} in s1\n", dir.display())),
        "{content}"
    );
}

#[test]
fn files_of_a_skill_are_shown_and_nothing_else() {
    let f = SkillsHarness::new();
    f.put("one/SKILL.md", &document("one", "d"));
    f.put("one/references/a.md", "text");
    fs::write(f.home.join("skills/one/references/b.bin"), [0xff, 0xfe, 0]).unwrap();
    fs::write(f.home.join("secret"), "s").unwrap();
    symlink(
        f.home.join("secret"),
        f.home.join("skills/one/references/link.md"),
    )
    .unwrap();
    let library = f.library();
    let value = library
        .view("one", Some("references/a.md"), None)
        .unwrap()
        .to_json();
    assert_eq!(
        value,
        json!({"success": true, "name": "one", "file": "references/a.md", "content": "text", "file_type": ".md"})
    );
    let value = library
        .view("one", Some("references/b.bin"), None)
        .unwrap()
        .to_json();
    assert_eq!(value["is_binary"], true);
    let error = library
        .view("one", Some("references/no.md"), None)
        .unwrap_err();
    assert_eq!(
        error.to_json()["available_files"]["references"],
        json!(["references/a.md", "references/b.bin", "references/link.md"])
    );
    for file in ["../../secret", "references/link.md", "/etc/passwd"] {
        let error = library.view("one", Some(file), None).unwrap_err();
        assert!(matches!(error, SkillError::Invalid(_)), "{file}: {error}");
    }
}

#[test]
fn skills_are_made_changed_and_deleted() {
    let f = SkillsHarness::new();
    let library = f.library();
    let made = library
        .create("new-one", &document("new-one", "d"), Some("cat"))
        .unwrap();
    assert_eq!(made.path, Some(f.home.join("skills/cat/new-one")));
    assert!(matches!(
        library
            .create("new-one", &document("x", "d"), None)
            .unwrap_err(),
        SkillError::Exists { .. }
    ));
    library
        .patch("new-one", ("Do it.", "Do  that."), None, false)
        .unwrap();
    library
        .patch(
            "new-one",
            ("Do that.", "Done."),
            Some("new-one/SKILL.md"),
            false,
        )
        .unwrap();
    assert!(f.text("cat/new-one/SKILL.md").ends_with("Done.\n"));
    let error = library
        .patch("new-one", ("---\nname", "name"), None, false)
        .unwrap_err();
    assert!(error.to_string().contains("would break"), "{error}");
    let error = library
        .patch("new-one", ("absent", "x"), None, false)
        .unwrap_err();
    assert!(
        error.to_json()["file_preview"]
            .as_str()
            .unwrap()
            .starts_with("---")
    );
    library
        .edit("new-one", &document("new-one", "other"))
        .unwrap();
    library
        .write_file("new-one", "references/deep/a.md", "text")
        .unwrap();
    assert_eq!(f.text("cat/new-one/references/deep/a.md"), "text");
    library
        .remove_file("new-one", "references/deep/a.md")
        .unwrap();
    assert!(!f.home.join("skills/cat/new-one/references/deep").exists());
    assert_eq!(library.usage().read().unwrap()["new-one"]["patch_count"], 5);
    library.delete("new-one", None).unwrap();
    assert!(
        !f.home.join("skills/cat").exists(),
        "the empty category goes too"
    );
    assert!(library.usage().read().unwrap().is_empty());
}

#[test]
fn bad_changes_are_refused_with_a_reason() {
    let f = SkillsHarness::new();
    f.put("one/SKILL.md", &document("one", "d"));
    let library = f.library();
    let good = document("x", "d");
    for (name, category) in [
        ("", None),
        ("Upper", None),
        ("a/b", None),
        ("..", None),
        ("ok", Some("a/b")),
        ("ok", Some("..")),
    ] {
        assert!(
            library.create(name, &good, category).is_err(),
            "{name} {category:?}"
        );
    }
    for content in [
        "",
        "no head",
        "---\nname: x\n---\nbody",
        "---\nname: x\ndescription: d\nbody",
        "---\nname: x\ndescription: d\n---\n\n",
        "---\n- a\n---\nbody",
        "---\na: [\n---\nbody",
        &document("x", &"d".repeat(1_025)),
        &format!("{good}{}", "x".repeat(100_000)),
    ] {
        assert!(
            library.create("ok", content, None).is_err(),
            "{content:.40}"
        );
        assert!(library.edit("one", content).is_err());
    }
    for file in [
        "",
        "notes.md",
        "references",
        "references/",
        "other/x.md",
        "../x",
        "references/../../x",
        "/etc/x",
    ] {
        assert!(library.write_file("one", file, "x").is_err(), "{file}");
        assert!(library.remove_file("one", file).is_err(), "{file}");
    }
    assert!(library.write_file("one", "SKILL.md", "no head").is_err());
    assert!(library.remove_file("one", "SKILL.md").is_err());
    assert!(library.write_file("none", "references/a.md", "x").is_err());
    assert_eq!(f.text("one/SKILL.md"), document("one", "d"));
    assert!(!f.home.join("skills/ok").exists());
}

#[test]
fn deletion_is_guarded() {
    let f = SkillsHarness::new();
    for name in ["pinned", "heir", "gone"] {
        f.put(&format!("{name}/SKILL.md"), &document(name, "d"));
    }
    let library = f.library();
    library.usage().set_pinned("pinned", true).unwrap();
    assert!(matches!(
        library.delete("pinned", None).unwrap_err(),
        SkillError::Pinned(_)
    ));
    assert!(library.delete("gone", Some("nobody")).is_err());
    assert!(library.delete("gone", Some("gone")).is_err());
    let done = library.delete("gone", Some("heir")).unwrap();
    assert!(done.message.contains("heir"));
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("SKILL.md"), document("linked", "d")).unwrap();
    symlink(elsewhere.path(), f.home.join("skills/linked")).unwrap();
    assert!(library.delete("linked", None).is_err());
    assert!(elsewhere.path().join("SKILL.md").exists());
}

#[test]
fn the_index_follows_conditions_and_cuts_descriptions() {
    let f = SkillsHarness::new();
    let long = "x".repeat(70);
    f.put("cat/long/SKILL.md", &document("long", &long));
    f.put("cat/sub/deep/SKILL.md", &document("deep", "'quoted'"));
    f.put("alone/SKILL.md", "---\nname: alone\n---\nbody\n");
    f.put(
        "cat/DESCRIPTION.md",
        "---\ndescription: All the cats\n---\n",
    );
    f.put("cat/needs/SKILL.md", "---\nname: needs\ndescription: d\nmetadata:\n  hermes:\n    requires_tools: [terminal]\n    requires_toolsets: web\n---\nx\n");
    f.put("cat/spare/SKILL.md", "---\nname: spare\ndescription: d\nmetadata:\n  hermes:\n    fallback_for_tools: [terminal]\n---\nx\n");
    f.put_external("cat/long/SKILL.md", &document("long", "other"));
    f.put_external("new/ext/SKILL.md", &document("ext", "e"));
    f.put("new/DESCRIPTION.md", "---\ndescription: New things\n---\n");
    let library = f.library();
    let bare = library.index(&Offer::default()).render().unwrap();
    assert_eq!(
        bare,
        format!(
            "<available_skills>\n  alone:\n    - alone\n  cat: All the cats\n    - long: {}...\n    - spare: d\n  cat/sub:\n    - deep: quoted\n  new: New things\n    - ext: e\n</available_skills>",
            "x".repeat(57)
        )
    );
    let offer = Offer {
        tools: ["terminal"].into(),
        toolsets: ["web"].into(),
    };
    let index = library.index(&offer);
    let cat: Vec<&String> = index.categories["cat"].skills.keys().collect();
    assert_eq!(cat, ["long", "needs"]);
    assert!(
        index
            .render_names_only()
            .unwrap()
            .contains("\n  cat: long, needs\n")
    );
}

/// The list goes along with every request: it is bounded, and the rest can be found.
#[test]
fn the_list_in_the_prompt_is_bounded_and_the_rest_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..3000 {
        let skill = dir.path().join(format!("cat{}/skill-number-{n:04}", n % 7));
        std::fs::create_dir_all(&skill).unwrap();
        let text = format!(
            "---\nname: skill-number-{n:04}\ndescription: does the thing called {n} in fifty words\n---\nx"
        );
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
    }
    let library = SkillLibrary::new(Settings::new(dir.path()));
    let shown = library.index(&Offer::default()).render().unwrap();
    assert!(shown.len() <= 16_000, "{} bytes", shown.len());
    assert!(shown.contains("more: skills_list(category)"), "{shown}");
    let found = library.list(None, Some("CALLED 2999"));
    assert_eq!(found["skills"][0]["name"], "skill-number-2999");
    let all = library.list(None, Some(""));
    assert_eq!(library.list(None, None)["count"], 3000);
    assert_eq!(all["count"], 200);
    assert!(
        all["hint"].as_str().unwrap().contains("200 of 3000"),
        "{}",
        all["hint"]
    );
}
