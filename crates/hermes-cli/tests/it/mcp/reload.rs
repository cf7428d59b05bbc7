//! config.yaml changes while a line chat runs: only what changed is touched.

use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::CliHarness;
use crate::line_chat::Terminal;

/// Notes each of its starts, with its process id.
const SERVER: &str = r#"
echo $$ >> "$1"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"where","inputSchema":{"type":"object"}},{"name":"other","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) answer "{\"content\":[{\"type\":\"text\",\"text\":\"here: $WHERE\"}]}" ;;
    *'"ping"'*) answer '{}' ;;
  esac
done
"#;

struct ReloadHarness {
    setup: CliHarness,
    terminal: Terminal,
    turns: usize,
    base: String,
}

impl ReloadHarness {
    fn open(test: &str) -> Option<Self> {
        let setup = CliHarness::with_config("mcp_discovery_timeout: 30\n");
        std::fs::write(setup.home.join("server.sh"), SERVER).unwrap();
        setup
            .server
            .answer_with(|request| match request.last_user_text() {
                text if request.ends_with_tool_result() => Reply::text(&format!("done {text}")),
                text if text.starts_with("call") => {
                    Reply::tool_call("c", "mcp__a__where", &json!({}))
                }
                text => Reply::text(&format!("done {text}")),
            });
        let base = setup.home.read("config.yaml");
        let both = format!(
            "mcp_servers:\n{}{}",
            entry(&setup, "a", ""),
            entry(&setup, "b", "")
        );
        setup.home.config(&format!("{base}{both}"));
        let terminal = Terminal::open(&setup.home, test)?;
        Some(Self {
            setup,
            terminal,
            turns: 0,
            base,
        })
    }

    fn config(&self, servers: &str) {
        let before = self.setup.home.read("config.yaml");
        // Files are told apart by their size as well, for clocks that tick slowly.
        let mut text = format!("{}mcp_servers:\n{servers}", self.base);
        if text.len() == before.len() {
            text.push_str("# changed\n");
        }
        self.setup.home.config(&text);
    }

    fn turn(&mut self, text: &str) {
        self.turns += 1;
        let text = format!("{text}-{}.", self.turns);
        self.terminal.type_line(&text);
        self.terminal.wait_for(&format!("done {text}"), 1);
    }

    /// What servers gave to the last turn.
    fn tools(&self) -> Vec<String> {
        let request = self.setup.server.last_request();
        let names = request.tool_names();
        let own = names.iter().filter(|name| name.starts_with("mcp__"));
        own.map(|name| (*name).to_owned()).collect()
    }

    /// Turns until the tools are those: servers come in the background.
    #[track_caller]
    fn until_tools(&mut self, wanted: &[&str]) {
        for _ in 0..100 {
            self.turn("look");
            if self.tools() == wanted {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(self.tools(), wanted);
    }

    fn starts(&self, name: &str) -> Vec<String> {
        starts(&self.setup, name)
    }
}

fn entry(setup: &CliHarness, name: &str, more: &str) -> String {
    let script = setup.home.join("server.sh");
    let starts = setup.home.join(format!("{name}.starts"));
    format!(
        "  {name}:\n    command: /bin/sh\n    args: {}\n{more}",
        json!([script, starts])
    )
}

fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

const A: [&str; 2] = ["mcp__a__other", "mcp__a__where"];
const B: [&str; 2] = ["mcp__b__other", "mcp__b__where"];

#[test]
fn servers_are_removed_disabled_enabled_and_changed_one_by_one() {
    let Some(mut world) = ReloadHarness::open("mcp::reload::servers_are_removed") else {
        return;
    };
    let both = [A, B].concat();
    world.until_tools(&both);
    let entry = |world: &ReloadHarness, name: &str, more: &str| entry(&world.setup, name, more);

    // Removed: its tools and its process go, the other one stays as it is.
    world.config(&entry(&world, "a", ""));
    world.until_tools(&A);
    let gone = world.starts("b")[0].clone();
    assert!((0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        !alive(&gone)
    }));
    assert_eq!(world.starts("a").len(), 1);

    // Added again: it is in the turn that notices it.
    let whole = entry(&world, "a", "") + &entry(&world, "b", "");
    world.config(&whole);
    world.turn("look");
    assert_eq!(world.tools(), both);
    assert_eq!(world.starts("b").len(), 2);

    // Only its filter: no new process.
    let filtered = entry(&world, "a", "    tools:\n      exclude: [other]\n");
    world.config(&(filtered + &entry(&world, "b", "")));
    world.until_tools(&[&["mcp__a__where"][..], &B].concat());
    assert_eq!(world.starts("a").len(), 1);

    // Off and on.
    let off = entry(&world, "a", "    enabled: false\n");
    world.config(&(off + &entry(&world, "b", "")));
    world.until_tools(&B);
    world.config(&whole);
    world.turn("look");
    assert_eq!(world.tools(), both);
    assert_eq!(world.starts("a").len(), 2);

    // Another environment: a new process, and calls reach it.
    let moved = entry(&world, "a", "    env:\n      WHERE: elsewhere\n");
    world.config(&(moved + &entry(&world, "b", "")));
    let reached = (0..100).any(|_| {
        world.turn("call");
        let results = world.setup.server.last_request().tool_results();
        results.last().unwrap().text.contains("here: elsewhere")
    });
    assert!(reached);
    assert_eq!(world.starts("a").len(), 3);
    assert_eq!(world.starts("b").len(), 2, "never touched by all that");

    // A file in the middle of an edit changes nothing.
    let good = world.setup.home.read("config.yaml");
    world.setup.home.config("mcp_servers: [");
    world.turn("broken");
    world.terminal.wait_for("MCP servers stay as they are", 1);
    world.setup.home.config(&good);
    world.until_tools(&both);
    assert_eq!(world.starts("a").len(), 3);
    world.terminal.type_line("/quit");
    let (code, screen) = world.terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    for name in ["a", "b"] {
        let starts = starts(&world.setup, name);
        assert!(!starts.iter().any(|pid| alive(pid)), "{name}");
    }
}

/// Process ids of all starts.
fn starts(setup: &CliHarness, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(setup.home.join(format!("{name}.starts")));
    text.unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn status_elsewhere_tells_what_a_running_chat_lives_through() {
    let Some(mut world) = ReloadHarness::open("mcp::reload::status_elsewhere") else {
        return;
    };
    world.until_tools(&[A, B].concat());
    world.turn("call");
    let pid = world.starts("a")[0].clone();
    let status = |world: &ReloadHarness, name: &str| {
        let done = world.setup.run(["mcp", "status", name, "--json"]).ok();
        done.json()["processes"][0]["servers"][0]["report"]["link"].clone()
    };
    let told = (0..100)
        .map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            status(&world, "a")
        })
        .find(|link| link["counters"]["calls"]["call_tool/ok"] == 1)
        .expect("the call is told");
    assert_eq!(told["child_pid"].to_string(), pid);
    let text = world.setup.run(["mcp", "status", "a"]).ok().stdout;
    assert!(text.contains("In the chat with process id"), "{text}");
    assert!(text.contains(&format!("pid {pid}")), "{text}");
    world.terminal.type_line("/quit");
    world.terminal.leave();
    let after = world
        .setup
        .run(["mcp", "status", "a", "--json"])
        .ok()
        .json();
    assert_eq!(after["processes"], json!([]));
}
