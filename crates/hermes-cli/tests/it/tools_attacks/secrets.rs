//! Keys of the home and of the program: no way to the model, in no disguise.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hermes_testkit::model_server::Reply;
use serde_json::json;

use super::turn;
use crate::CliHarness;

/// Of no known form: only its value tells that it is a secret.
const IN_FILE: &str = "vokjatz-plemming-quorrel-4417";
const IN_ENVIRONMENT: &str = "drixible-manoffery-tuskole-9023";

/// How a value may be written so that a search for it does not find it.
fn disguises(secret: &str) -> Vec<String> {
    let hex: Vec<String> = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut all = vec![
        secret.to_owned(),
        secret.to_uppercase(),
        secret.chars().rev().collect(),
        hex.concat(),
    ];
    // Whatever stands before it, the middle of its base64 is one of these three.
    for before in 0..3 {
        let text = format!("{}{secret}", "x".repeat(before));
        let coded = STANDARD.encode(text);
        all.push(coded[4..coded.len() - 4].to_owned());
    }
    all
}

fn assert_hidden(setup: &CliHarness) {
    for request in setup.server.model_requests() {
        let body = request.body_text();
        for secret in [IN_FILE, IN_ENVIRONMENT] {
            for form in disguises(secret) {
                assert!(!body.contains(&form), "{form} in {body}");
            }
        }
    }
}

/// A home with a key in its file; the program has another one in its environment.
fn setup() -> CliHarness {
    let setup = CliHarness::new();
    setup
        .home
        .env_file(&format!("LAB_ACCESS={IN_FILE}\nOTHER_API_KEY={IN_FILE}\n"));
    setup.home.write(
        "auth.json",
        json!({"lab": {"access_token": IN_FILE}}).to_string(),
    );
    setup
}

#[test]
fn the_environment_of_commands_and_of_the_program_says_nothing() {
    let setup = setup();
    let home = setup.home.path().display().to_string();
    let every = "for f in /proc/[0-9]*/environ; do cat $f; done 2>/dev/null";
    let scripts = [
        "env".to_owned(),
        "export -p; set; declare -p; compgen -v".to_owned(),
        "env | rev; env | base64 -w0; env | od -An -tx1 -v | tr -d ' \\n'".to_owned(),
        "tr '\\0' '\\n' < /proc/self/environ; cat /proc/$PPID/environ; cat /proc/$PPID/cmdline"
            .to_owned(),
        format!("{{ {every}; }} | rev; {{ {every}; }} | base64 -w0"),
        format!("cat {home}/.env | rev; base64 -w0 {home}/auth.json; cat {home}/.e??"),
        format!("cp -r {home} copied; cat copied/.env copied/auth.json | rev"),
        format!("ln {home}/.env hard; rev hard; ln -s {home} soft; rev soft/.env"),
        "cat /proc/$PPID/root/$HERMES_HOME/.env | rev; cat /proc/$PPID/mem | head -c 1".to_owned(),
    ];
    std::fs::write(setup.home.work().join("where.txt"), &home).unwrap();
    // Names are put together, so that looking at the text tells nothing.
    let code = "import os, base64, glob\n\
         def show(text):\n    print(text[::-1], base64.b64encode(text.encode()).decode(), text.encode().hex(), text.upper())\n\
         show(repr(dict(os.environ)))\n\
         home = open('where.txt').read()\n\
         names = ['.e' + 'nv', 'au' + 'th.json']\n\
         for path in glob.glob('/pr' + 'oc/[0-9]*/envi' + 'ron') + [home + '/' + name for name in names]:\n    \
             try:\n        show(open(path, errors='replace').read())\n    except OSError as error:\n        print(type(error).__name__)\n\
         from hermes_tools import read_file, terminal\n\
         for name in names:\n    show(str(read_file(home + '/' + name)))\n    show(str(terminal('env; cat ' + home + '/' + name)))\n";
    let mut calls: Vec<_> = scripts
        .iter()
        .map(|script| ("terminal", json!({"command": script})))
        .collect();
    calls.push(("execute_code", json!({"code": code})));
    for path in [
        "/proc/self/environ",
        "/proc/self/task/1/environ",
        "/proc/thread-self/environ",
    ] {
        calls.push(("read_file", json!({"path": path})));
    }
    calls.push((
        "search_files",
        json!({"pattern": "plemming|manoffery", "path": home}),
    ));
    calls.push((
        "search_files",
        json!({"pattern": "manoffery", "path": "/proc/self"}),
    ));
    for (at, (name, arguments)) in calls.iter().enumerate() {
        let reply = Reply::tool_call(&format!("c{at}"), name, arguments);
        setup.server.push(reply);
    }
    setup.server.push(Reply::text("done"));
    let program = setup
        .program(["-z", "go"])
        .env("LAB_ACCESS_KEY", IN_ENVIRONMENT);
    let _ = program.env("ANTHROPIC_API_KEY", IN_ENVIRONMENT).run().ok();
    let seen = super::results(&setup.server.last_request());
    assert_eq!(seen.len(), calls.len());
    assert!(
        seen[0]["output"].as_str().unwrap().contains("PATH="),
        "{}",
        seen[0]
    );
    assert_eq!(
        seen[scripts.len()]["status"],
        "success",
        "{}",
        seen[scripts.len()]
    );
    assert_hidden(&setup);
    // Not by hiding alone: nothing that a command made holds it.
    for name in ["copied/.env", "copied/auth.json", "hard"] {
        let text = std::fs::read_to_string(setup.home.work().join(name)).unwrap_or_default();
        assert!(!text.contains(IN_FILE), "{name}");
    }
}

#[test]
fn a_key_that_lies_in_the_workspace_is_hidden_in_its_usual_disguises() {
    let setup = setup();
    let note = format!("the word is {IN_FILE}, keep it\n");
    std::fs::write(setup.home.work().join("note.txt"), note).unwrap();
    let scripts = [
        "cat note.txt",
        "base64 -w0 note.txt",
        "od -An -tx1 -v note.txt | tr -d ' \\n'",
    ];
    let mut calls = vec![
        ("read_file", json!({"path": "note.txt"})),
        ("search_files", json!({"pattern": "the word"})),
        (
            "execute_code",
            json!({"code": "text = open('note.txt').read()\nimport base64\nprint(text, base64.b64encode(text.encode()).decode(), text.encode().hex())"}),
        ),
    ];
    calls.extend(scripts.map(|script| ("terminal", json!({"command": script}))));
    let seen = turn(&setup, &[], &calls);
    assert!(seen[0].to_string().contains("the word is"), "{}", seen[0]);
    assert_hidden(&setup);
}
