//! Jobs whose results are for a chat: with a gateway, without one, and when it dies.

use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate};
use hermes_testkit::telegram::{FakeTelegram, PersonMessage, TOKEN, TelegramFault};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::GatewayChild;
use crate::hermes;

const ADA: i64 = 7;
const PATIENCE: Duration = Duration::from_secs(45);

struct JobsHarness {
    telegram: FakeTelegram,
    model: ModelServer,
    home: TempHome,
    runtime: Runtime,
}

impl JobsHarness {
    fn new() -> Self {
        let (telegram, model, home) =
            (FakeTelegram::start(), ModelServer::start(), TempHome::new());
        telegram.person(ADA, "Ada");
        let config = json!({
            "model": {"default": "scripted", "provider": "custom", "base_url": model.base_url(),
                      "api_key": "k", "context_length": 200_000},
            "auxiliary": {"title_generation": {"enabled": false}},
            "terminal": {"cwd": home.work()},
            "telegram": {"extra": {"base_url": telegram.base_url()}},
        });
        home.write("config.yaml", config.to_string());
        let env = format!(
            "TELEGRAM_BOT_TOKEN={TOKEN}\nTELEGRAM_ALLOWED_USERS={ADA}\nTELEGRAM_HOME_CHANNEL={ADA}\n"
        );
        home.write(".env", env);
        Self {
            telegram,
            model,
            home,
            runtime: Runtime::new().unwrap(),
        }
    }

    fn cron(&self, words: &[&str]) -> hermes_testkit::process::FinishedProgram {
        hermes(&self.home).args(["cron"]).args(words).run()
    }

    /// A job that is due at once.
    fn job(&self, name: &str) {
        self.job_with(name, &json!({}));
    }

    fn job_with(&self, name: &str, fields: &Value) {
        let words = [
            "create",
            "every 6h",
            "Sum up",
            "--name",
            name,
            "--deliver",
            "telegram",
        ];
        drop(self.cron(&words).ok());
        let mut file: Value = serde_json::from_str(&self.home.read("cron/jobs.json")).unwrap();
        for job in file["jobs"].as_array_mut().unwrap() {
            if job["name"] == name {
                job["next_run_at"] = json!("2026-01-01T00:00:00+00:00");
                for (field, value) in fields.as_object().unwrap() {
                    job[field] = value.clone();
                }
            }
        }
        self.home.write("cron/jobs.json", file.to_string());
    }

    fn see(&self, text: &str) {
        let seen =
            |telegram: &FakeTelegram| telegram.texts(ADA).iter().any(|one| one.contains(text));
        let ready = self.telegram.wait_for(seen);
        let waited = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, ready).await });
        assert!(
            waited.is_ok(),
            "never seen: {text}\n{:#?}\n{}",
            self.telegram.texts(ADA),
            std::fs::read_to_string(self.home.join("logs/gateway.log")).unwrap_or_default(),
        );
    }

    fn count(&self, text: &str) -> usize {
        let texts = self.telegram.texts(ADA);
        texts.iter().filter(|one| one.contains(text)).count()
    }
}

#[test]
fn without_a_gateway_a_result_is_sent_by_whoever_ran_the_job() {
    let town = JobsHarness::new();
    town.model.push_default(Reply::text("All is well."));
    town.job("digest");
    let ran = town.cron(&["tick", "--json"]).ok().json();
    assert_eq!(
        (ran[0]["delivery"].clone(), ran[0]["chats"].clone()),
        (json!("delivered"), json!(1))
    );
    assert_eq!(town.count("All is well."), 1);
    assert!(
        town.telegram.texts(ADA)[0].contains("digest"),
        "it says whose it is"
    );
    drop(town.cron(&["tick"]).ok());
    assert_eq!(town.count("All is well."), 1);
    // What cannot be sent now is kept, and sent by the gateway.
    town.telegram.refuse(true);
    drop(town.cron(&["run", "digest"]).ok());
    assert_eq!(town.count("All is well."), 1);
    town.telegram.refuse(false);
    let life = GatewayChild::begin(&town.home, &[]);
    town.runtime.block_on(async {
        let twice = town
            .telegram
            .wait_for(|telegram| telegram.texts(ADA).len() >= 2);
        tokio::time::timeout(PATIENCE, twice).await.unwrap();
    });
    assert_eq!(town.count("All is well."), 2);
    drop(life.stop());
}

#[test]
fn the_gateway_runs_what_is_due_and_takes_what_a_terminal_ran() {
    let town = JobsHarness::new();
    town.model.push(Reply::text("From the gateway."));
    town.model.push_default(Reply::text("From the terminal."));
    town.job("digest");
    let life = GatewayChild::begin(&town.home, &[]);
    town.see("From the gateway.");
    let status = town.cron(&["status", "--json"]).ok().json();
    assert_eq!(status["state"], "running");
    let ran = town.cron(&["run", "digest", "--json"]).ok().json();
    assert_eq!(ran["delivery"], "gateway");
    // Within seconds it sees that something was left for it.
    town.see("From the terminal.");
    drop(life.stop());
    assert_eq!(town.count("From the gateway."), 1);
}

#[test]
fn a_gateway_that_starts_while_a_command_delivers_waits_for_it() {
    let town = JobsHarness::new();
    town.model.push_default(Reply::text("All is well."));
    town.job("digest");
    // The command keeps delivery until it knows what became of its message.
    town.telegram.fault("sendMessage", TelegramFault::Hang, 1);
    let mut command = hermes(&town.home).args(["cron", "run", "digest"]).spawn();
    let sending = town.telegram.wait_for(|one| one.calls("sendMessage") > 0);
    town.runtime.block_on(async {
        tokio::time::timeout(PATIENCE, sending).await.unwrap();
    });
    let mut life = GatewayChild::unready(&town.home, |program| program);
    let log = town.home.join("logs/gateway.log");
    let began = std::time::Instant::now();
    while !std::fs::read_to_string(&log).is_ok_and(|log| log.contains("not ready yet")) {
        assert!(began.elapsed() < PATIENCE, "it does not wait");
        std::thread::sleep(Duration::from_millis(20));
    }
    command.kill().unwrap();
    command.wait().unwrap();
    assert!(life.says("READY=1"));
    town.see("All is well.");
    drop(life.stop());
    assert_eq!(town.count("All is well."), 1);
}

#[test]
fn a_gateway_that_dies_while_a_job_runs_tells_it_once() {
    let town = JobsHarness::new();
    let gate = ReplyGate::new();
    town.model.push(Reply::text("too late").hold(&gate));
    town.model.push_default(Reply::text("again"));
    town.job("digest");
    let life = GatewayChild::begin(&town.home, &[]);
    town.model.block_until(|progress| progress.requests >= 1);
    life.signal(rustix::process::Signal::KILL);
    drop(life.end());
    gate.release();
    for _ in 0..2 {
        let life = GatewayChild::begin(&town.home, &[]);
        town.see("the program ended while the job ran");
        drop(life.stop());
    }
    assert_eq!(town.count("the program ended while the job ran"), 1);
    assert_eq!(town.model.model_requests().len(), 1, "it did not run again");
    let history = town.cron(&["history", "--json"]).ok().json();
    assert_eq!(history[0]["status"], "unknown");
}

#[test]
fn a_result_becomes_part_of_the_conversation_it_was_asked_for_in() {
    let town = JobsHarness::new();
    town.model.push(Reply::text("Hello Ada."));
    town.model.push(Reply::text("The harvest is good."));
    town.model.push_default(Reply::text("As I said."));
    let life = GatewayChild::begin(&town.home, &[]);
    town.telegram.say(PersonMessage::text(ADA, "hi"));
    town.see("Hello Ada.");
    // The conversation is open and waits for its person.
    town.job_with(
        "digest",
        &json!({
            "deliver": "origin", "attach_to_session": true,
            "origin": {"platform": "telegram", "chat_id": ADA.to_string(), "thread_id": null},
        }),
    );
    town.see("The harvest is good.");
    town.telegram
        .say(PersonMessage::text(ADA, "what did you say?"));
    town.see("As I said.");
    let asked = town.model.last_request().body;
    let messages = asked["messages"].as_array().unwrap();
    let said: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    let place = |text: &str| said.iter().position(|one| one.contains(text));
    assert!(
        place("Hello Ada.") < place("The harvest is good."),
        "{said:#?}"
    );
    assert!(place("The harvest is good.").is_some(), "{said:#?}");
    assert!(
        said.last().unwrap().contains("what did you say?"),
        "{said:#?}"
    );
    drop(life.stop());
}

#[test]
fn a_job_that_is_made_in_a_chat_reports_there() {
    let town = JobsHarness::new();
    let job = json!({"action": "create", "schedule": "every 6h", "prompt": "look around", "name": "look"});
    town.model.push(Reply::tool_call("c1", "cronjob", &job));
    town.model.push_default(Reply::text("It is made."));
    let life = GatewayChild::begin(&town.home, &[]);
    town.telegram
        .say(PersonMessage::text(ADA, "look around every six hours"));
    town.see("It is made.");
    let made = town.cron(&["list", "--json"]).ok().json();
    assert_eq!(made[0]["deliver"], "origin");
    assert_eq!(made[0]["origin"]["platform"], "telegram");
    assert_eq!(made[0]["origin"]["chat_id"], ADA.to_string());
    drop(life.stop());
}
