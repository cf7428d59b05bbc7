//! A gateway with many chats on Telegram and MCP servers, run for longer than a test that reads
//! what it prints could.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, RecordedRequest, Reply};
use hermes_testkit::telegram::{FakeTelegram, PersonMessage, TOKEN};
use serde_json::{Value, json};

/// What a round of messages may take, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

pub(super) struct GatewayHarness {
    pub(super) home: TempHome,
    pub(super) telegram: FakeTelegram,
    pub(super) model: ModelServer,
    chats: i64,
    program: PathBuf,
    gateway: Child,
}

impl GatewayHarness {
    /// Begins a gateway with these MCP servers.
    pub(super) fn new(program: &Path, chats: i64, servers: &Value) -> Self {
        let (telegram, model, home) =
            (FakeTelegram::start(), ModelServer::start(), TempHome::new());
        for chat in 1..=chats {
            telegram.person(chat, "Ada");
        }
        model.answer_with(answer);
        home.config_json(&json!({
            "model": {
                "default": "scripted", "provider": "custom",
                "base_url": model.base_url(), "api_key": "k", "context_length": 200_000
            },
            "auxiliary": {"title_generation": {"enabled": false}},
            "terminal": {"cwd": home.work()},
            "mcp_discovery_timeout": 60,
            "mcp_servers": servers,
            "telegram": {"extra": {"base_url": telegram.base_url()}}
        }));
        let people: Vec<String> = (1..=chats).map(|chat| chat.to_string()).collect();
        let people = people.join(",");
        home.env_file(&format!(
            "TELEGRAM_BOT_TOKEN={TOKEN}\nTELEGRAM_ALLOWED_USERS={people}\n"
        ));
        let log = File::create(home.work().join("gateway.out")).unwrap();
        let gateway = Command::new(program)
            .args(["gateway", "run"])
            .env_clear()
            .envs(home.vars())
            .env("HERMES_GATEWAY_LOCK_DIR", home.work().join("locks"))
            .current_dir(home.work())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            home,
            telegram,
            model,
            chats,
            program: program.to_owned(),
            gateway,
        }
    }

    /// A message to every chat; what it asks for is in its words.
    pub(super) fn say(&self, round: usize, verb: &str) {
        for chat in 1..=self.chats {
            let text = format!("{verb} {chat} {round}");
            self.telegram.say(PersonMessage::text(chat, &text));
        }
    }

    /// Waits until every chat sees the answer to this round.
    pub(super) fn hear(&mut self, round: usize) {
        let end = Instant::now() + PATIENCE;
        for chat in 1..=self.chats {
            let wanted = format!("answer {chat} {round}:");
            while !self
                .telegram
                .texts(chat)
                .iter()
                .any(|text| text.contains(&wanted))
            {
                let ended = self.gateway.try_wait().unwrap();
                assert!(
                    ended.is_none() && Instant::now() < end,
                    "never seen: {wanted} (ended: {ended:?})\n{:#?}\n{}",
                    self.telegram.texts(chat),
                    self.log()
                );
                // Another program's doings can only be polled.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.model.forget_requests();
    }

    pub(super) fn log(&self) -> String {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let log = read(self.home.join("logs/gateway.log"));
        let from = log.len().saturating_sub(6000);
        let log = log.get(from..).unwrap_or(&log);
        format!("{}\n{log}", read(self.home.work().join("gateway.out")))
    }

    /// What `hermes gateway status --json` says.
    pub(super) fn status(&self) -> Value {
        let status = hermes_testkit::process::Program::new(&self.program, &self.home);
        status.args(["gateway", "status", "--json"]).run().json()
    }

    pub(super) fn weight(&self) -> MemoryUse {
        MemoryUse::of(self.gateway.id())
    }

    /// The MCP servers that are its children.
    pub(super) fn servers(&self) -> Vec<u32> {
        let command =
            |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut servers = children(self.gateway.id());
        // Its watchman, who ends servers that it left, and those that are dead already are none.
        servers.retain(
            |pid| !matches!(command(*pid), line if line.is_empty() || line.contains("guard")),
        );
        servers
    }

    /// Ends it as its person does.
    pub(super) fn end(mut self) {
        let pid = rustix::process::Pid::from_raw(self.gateway.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let status = self.gateway.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
    }
}

impl Drop for GatewayHarness {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}

/// What a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryUse {
    pub(super) rss_kb: u64,
    /// Other than sockets and the database, which is opened a few times, as it is needed.
    pub(super) fds: usize,
    pub(super) sockets: usize,
    pub(super) threads: u64,
    pub(super) children: usize,
}

impl MemoryUse {
    fn of(pid: u32) -> Self {
        let proc = Path::new("/proc").join(pid.to_string());
        let status = std::fs::read_to_string(proc.join("status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
                .unwrap()
        };
        let fds = std::fs::read_dir(proc.join("fd")).unwrap().flatten();
        let fds = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let fds = fds.filter(|to| !to.to_string_lossy().contains("state.db"));
        let (sockets, fds): (Vec<_>, Vec<_>) =
            fds.partition(|to| to.to_string_lossy().starts_with("socket:"));
        Self {
            rss_kb: number("VmRSS:"),
            threads: number("Threads:"),
            fds: fds.len(),
            sockets: sockets.len(),
            children: children(pid).len(),
        }
    }

    /// The larger of everything.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            rss_kb: self.rss_kb.max(other.rss_kb),
            fds: self.fds.max(other.fds),
            sockets: self.sockets.max(other.sockets),
            threads: self.threads.max(other.threads),
            children: self.children.max(other.children),
        }
    }

    /// Apart from memory.
    pub(super) fn is_within(self, bound: Self) -> bool {
        self.fds <= bound.fds
            && self.sockets <= bound.sockets
            && self.threads <= bound.threads
            && self.children <= bound.children
    }
}

fn children(of: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name of the program, in brackets, may contain anything.
        let after = stat.rsplit_once(") ").map(|(_, after)| after);
        after.and_then(|after| after.split(' ').nth(1)?.parse().ok()) == Some(of)
    })
    .collect()
}

/// `VERB CHAT ROUND`: calls the tool that the verb names, then says what it gave.
fn answer(request: &RecordedRequest) -> Reply {
    let said = request.last_user_text();
    let line = said.lines().next_back().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let [verb, chat, round] = words[..] else {
        return Reply::text("nothing was asked");
    };
    let (Ok(chat), Ok(round)) = (chat.parse::<usize>(), round.parse::<usize>()) else {
        return Reply::text("nothing was asked");
    };
    let token = format!("t-{chat}-{round}");
    if request.ends_with_tool_result() {
        let results = request.tool_results();
        let result = results.last().map(|result| result.text.as_str());
        let result = result.unwrap_or_default();
        let got = match result {
            text if text.contains(&token) => "heard",
            text if text.contains("may or may not have taken effect") => "unknown",
            text => text,
        };
        return Reply::text(&format!("answer {chat} {round}: {got}"));
    }
    let tools = [
        ("mcp__everything__echo", json!({"message": token})),
        ("mcp__web__echo", json!({"message": token})),
        ("mcp__python__echo", json!({"text": token})),
    ];
    let id = format!("call_{chat}_{round}");
    if verb == "echo" {
        return match tools.get((chat + round) % 4) {
            Some((tool, arguments)) => Reply::tool_call(&id, tool, arguments),
            None => Reply::text(&format!("answer {chat} {round}: heard")),
        };
    }
    // A mark, by one of two servers.
    let server = ["python", "http"][chat % 2];
    let arguments = match verb {
        "slow" => json!({"token": token, "seconds": 2}),
        _ => json!({"token": token}),
    };
    Reply::tool_call(&id, &format!("mcp__{server}__{verb}"), &arguments)
}
