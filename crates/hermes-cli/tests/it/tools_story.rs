//! Real work from the built binary: what a person asks an agent to do, with a scripted model.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{RecordedRequest, Reply};
use serde_json::{Value, json};

use crate::CliHarness;

fn call(name: &str, arguments: &Value) -> Reply {
    Reply::tool_call(&format!("c_{name}"), name, arguments)
}

/// The result of the last call as JSON.
fn result(request: &RecordedRequest) -> Value {
    let results = request.tool_results();
    let last = results.last().unwrap();
    serde_json::from_str(&last.text).unwrap_or_else(|_| Value::String(last.text.clone()))
}

fn git(home: &TempHome, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(args)
        .current_dir(home.work())
        .env("HOME", home.user())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A repository with a program and a test that fails.
fn upstream(home: &TempHome) {
    git(home, &["init", "-q", "-b", "main", "upstream"]);
    let dir = home.work().join("upstream");
    std::fs::write(dir.join("sums.py"), "def add(a, b):\n    return a - b\n").unwrap();
    std::fs::write(
        dir.join("test_sums.py"),
        "import unittest\nfrom sums import add\n\nclass Sums(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n",
    )
    .unwrap();
    git(home, &["-C", "upstream", "add", "."]);
    git(home, &["-C", "upstream", "commit", "-q", "-m", "start"]);
}

#[test]
fn a_project_is_cloned_edited_and_tested() {
    let setup = CliHarness::new();
    upstream(&setup.home);
    let test = json!({"command": "cd copy && python3 -B -m unittest -q"});
    setup.server.push_all([
        call("terminal", &json!({"command": "git clone -q ./upstream copy"})),
        call("terminal", &test),
        call("search_files", &json!({"pattern": "return a - b", "path": "."})),
        call(
            "patch",
            &json!({"mode": "replace", "path": "sums.py", "old_string": "return a - b", "new_string": "return a + b"}),
        ),
        // The directory of the last command is where the next one starts.
        call("terminal", &json!({"command": "python3 -B -m unittest -q"})),
        Reply::text("The sum is right now."),
    ]);
    let done = setup
        .program(["-z", "mend it", "--json"])
        .cwd(setup.home.work())
        .run()
        .ok();
    assert_eq!(done.json()["text"], "The sum is right now.");
    let requests = setup.server.model_requests();
    assert_eq!(
        result(&requests[1])["exit_code"],
        0,
        "{}",
        result(&requests[1])
    );
    assert_eq!(
        result(&requests[2])["exit_code"],
        1,
        "{}",
        result(&requests[2])
    );
    assert_eq!(
        result(&requests[5])["exit_code"],
        0,
        "{}",
        result(&requests[5])
    );
    let text = std::fs::read_to_string(setup.home.work().join("copy/sums.py")).unwrap();
    assert_eq!(text, "def add(a, b):\n    return a + b\n");
    // The upstream was not touched, and the story can be read.
    let kept = std::fs::read_to_string(setup.home.work().join("upstream/sums.py")).unwrap();
    assert!(kept.contains("a - b"));
    let id = done.json()["session_id"].as_str().unwrap().to_owned();
    let story = setup.run(["sessions", "show", &id]).ok().stdout;
    for part in ["mend it", "git clone", "patch", "The sum is right now."] {
        assert!(story.contains(part), "{part} is missing in\n{story}");
    }
}

#[test]
fn a_server_in_the_background_is_watched_and_killed() {
    let setup = CliHarness::new();
    setup.server.push(call(
        "terminal",
        &json!({"command": "exec python3 -u -c \"import time\nprint('listening', flush=True)\ntime.sleep(600)\"", "background": true}),
    ));
    let seen = std::sync::Mutex::new(None::<String>);
    setup.server.answer_with(move |request| {
        let results = request.tool_results();
        let mut id = seen.lock().unwrap();
        if results.len() == 1 {
            let value = result(request);
            *id = value["session_id"].as_str().map(str::to_owned);
        }
        let id = id.clone().unwrap_or_default();
        let last = result(request).to_string();
        if last.contains("killed") || results.len() > 60 {
            return Reply::text("It is gone.");
        }
        if last.contains("listening") {
            return call("process", &json!({"action": "kill", "session_id": id}));
        }
        call("process", &json!({"action": "log", "session_id": id}))
    });
    let done = setup.run(["--yolo", "-z", "watch it"]).ok();
    assert_eq!(done.stdout, "It is gone.\n");
    let last = setup.server.last_request();
    let killed = result(&last);
    assert_eq!(killed["status"], "killed", "{killed}");
}

#[test]
fn a_page_is_read_from_a_local_server() {
    let setup = CliHarness::with_config("security:\n  allow_private_urls: true\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/tea.html", listener.local_addr().unwrap());
    let page = "<html><head><title>Tea</title></head><body><article><h1>Tea</h1><p>Green tea is steeped at eighty degrees for two minutes, and not longer, because it turns bitter.</p></article></body></html>";
    let serve = std::thread::spawn(move || {
        // The page, and whatever else is asked for (robots, icons), until the test is over.
        for stream in listener.incoming().take(4) {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            if buffer[..count].starts_with(b"QUIT") {
                return;
            }
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                page.len()
            );
        }
    });
    setup
        .server
        .push(call("web_extract", &json!({"urls": [url]})));
    setup.server.push(Reply::text("Two minutes."));
    let done = setup.run(["-z", "how long?"]).ok();
    assert_eq!(done.stdout, "Two minutes.\n");
    let results = setup.server.last_request().tool_results();
    assert!(
        results[0].text.contains("eighty degrees"),
        "{}",
        results[0].text
    );
    let address = url
        .trim_start_matches("http://")
        .trim_end_matches("/tea.html")
        .to_owned();
    let _ = std::net::TcpStream::connect(address).and_then(|mut quit| quit.write_all(b"QUIT"));
    serve.join().unwrap();
}

#[test]
fn three_subagents_work_side_by_side() {
    let setup = CliHarness::new();
    let tasks: Vec<Value> = ["alpha", "beta", "gamma"]
        .map(|name| json!({"goal": format!("count {name}")}))
        .into();
    setup.server.rule(|request| {
        let asked = request.last_user_text();
        let name = asked.strip_prefix("count ")?;
        Some(Reply::text(&format!("{name} has {} letters", name.len())))
    });
    setup
        .server
        .push(call("delegate_task", &json!({"tasks": tasks})));
    setup.server.push(Reply::text("All counted."));
    let done = setup.run(["-z", "letters, please", "--json"]).ok();
    let results = setup.server.last_request().tool_results();
    for words in [
        "alpha has 5 letters",
        "beta has 4 letters",
        "gamma has 5 letters",
    ] {
        assert!(results[0].text.contains(words), "{}", results[0].text);
    }
    let id = done.json()["session_id"].as_str().unwrap().to_owned();
    let story = setup.run(["sessions", "show", &id]).ok().stdout;
    assert!(story.contains("delegate_task"), "{story}");
}

#[test]
fn a_program_makes_thirty_tool_calls() {
    let setup = CliHarness::new();
    for number in 0..30 {
        std::fs::write(
            setup.home.work().join(format!("{number}.txt")),
            format!("{number}\n"),
        )
        .unwrap();
    }
    let code = "from hermes_tools import read_file\ntotal = 0\nfor i in range(30):\n    page = read_file(f'{i}.txt')\n    total += int(page['content'].split('|', 1)[1].strip())\nprint('total', total)\n";
    setup
        .server
        .push(call("execute_code", &json!({"code": code})));
    setup.server.push(Reply::text("435."));
    let done = setup
        .program(["--yolo", "-z", "add them up"])
        .cwd(setup.home.work())
        .run()
        .ok();
    assert_eq!(done.stdout, "435.\n");
    let value = result(&setup.server.last_request());
    assert!(
        value["output"]
            .as_str()
            .unwrap_or_default()
            .contains("total 435"),
        "{value}"
    );
    assert_eq!(value["tool_calls_made"], 30, "{value}");
}

#[test]
fn a_dangerous_command_is_refused_when_nobody_can_be_asked() {
    let setup = CliHarness::new();
    let precious = setup.home.user().join("precious");
    std::fs::create_dir_all(&precious).unwrap();
    std::fs::write(precious.join("letter.txt"), "dear").unwrap();
    let command = format!("rm -rf {}", precious.display());
    setup
        .server
        .push(call("terminal", &json!({"command": command})));
    setup.server.push(Reply::text("I was not allowed to."));
    let done = setup.run(["-z", "tidy up", "--json"]).ok();
    assert!(precious.join("letter.txt").exists());
    let id = done.json()["session_id"].as_str().unwrap().to_owned();
    let story = setup.run(["sessions", "show", &id]).ok().stdout;
    assert!(story.contains("rm -rf"), "{story}");
}
