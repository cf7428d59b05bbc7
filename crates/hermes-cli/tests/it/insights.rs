//! `hermes insights`.

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::Reply;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{CliHarness, hermes};

/// What the original adds up from the same database.
const ORIGINAL: &str = r#"
import json
from hermes_state import SessionDB
from agent.insights import InsightsEngine
r = InsightsEngine(SessionDB()).generate(days=int(__import__("sys").argv[1]))
o = r["overview"]
print(json.dumps({
    "sessions": o["total_sessions"], "messages": o["user_messages"] + o["assistant_messages"] + o["tool_messages"],
    "input": o["total_input_tokens"], "output": o["total_output_tokens"],
    "cache_read": o["total_cache_read_tokens"], "cache_write": o["total_cache_write_tokens"],
    "tools": {t["tool"]: t["count"] for t in r["tools"]},
    "models": {m["model"]: m["total_tokens"] for m in r["models"] if m["total_tokens"]},
    "skills": {s["skill"]: [s["view_count"], s["manage_count"]] for s in r["skills"]["top_skills"]},
    "sources": {p["platform"]: p["sessions"] for p in r["platforms"]},
    "hours": {h["hour"]: h["count"] for h in r["activity"]["by_hour"]},
}))
"#;

fn insights(home: &TempHome, args: &[&str]) -> Value {
    hermes(home)
        .args(["insights", "--json"])
        .args(args)
        .run()
        .ok()
        .json()
}

/// Ours in the shape of [`ORIGINAL`].
fn comparable(report: &Value) -> Value {
    let map = |list: &str, key: &str, value: &dyn Fn(&Value) -> Value| -> Value {
        let rows = report[list].as_array().unwrap().iter();
        rows.map(|row| (row[key].as_str().unwrap().to_owned(), value(row)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let tokens = &report["tokens"];
    let spoken = ["user", "assistant", "tool"]
        .iter()
        .map(|role| report["messages"][role].as_i64().unwrap())
        .sum::<i64>();
    json!({
        "sessions": report["sessions"], "messages": spoken,
        "input": tokens["input"], "output": tokens["output"],
        "cache_read": tokens["cache_read"], "cache_write": tokens["cache_write"],
        "tools": map("tools", "tool", &|row| row["calls"].clone()),
        "models": map("models", "model", &|row| row["tokens"]["total"].clone()),
        "skills": map("skills", "skill", &|row| json!([row["loads"], row["edits"]])),
        "sources": map("sources", "source", &|row| row["sessions"].clone()),
    })
}

#[test]
fn the_original_adds_up_to_the_same() {
    oracle::scenario("the_original_adds_up_to_the_same", |oracle| {
        let setup = CliHarness::new();
        let note = json!({"action": "add", "target": "memory", "content": "x"});
        setup.home.write(
            "skills/c/tea/SKILL.md",
            "---\nname: tea\ndescription: d\n---\nbody\n",
        );
        for _ in 0..2 {
            setup.server.push(Reply::tool_call("c1", "memory", &note));
            setup.server.push(Reply::tool_call(
                "c2",
                "skill_view",
                &json!({"name": "tea"}),
            ));
            setup.server.push(Reply::text("done"));
        }
        setup.server.push_default(Reply::text("fine"));
        drop(
            oracle
                .hermes(&setup.home, ["chat", "-Q", "-q", "remember"])
                .ok(),
        );
        drop(setup.run(["-z", "remember again"]).ok());
        drop(setup.run(["-z", "hello", "--source", "telegram"]).ok());
        let mut theirs = oracle.json(&setup.home, ORIGINAL, ["30"]);
        theirs.as_object_mut().unwrap().remove("hours");
        let report = insights(&setup.home, &[]);
        assert_eq!(comparable(&report), theirs);
        assert_eq!(report["sources"].as_array().unwrap().len(), 2);
        let one = insights(&setup.home, &["--source", "telegram"]);
        assert_eq!(
            (&one["sessions"], &one["messages"]["total"]),
            (&json!(1), &json!(2))
        );
    });
}

fn sessions() -> Vec<Value> {
    let now = chrono::Utc::now().timestamp() as f64;
    let base = |id: &str, days: f64, model: &str| {
        json!({
            "id": id, "source": "cli", "model": model, "started_at": now - days * 86_400.0,
            "input_tokens": 100, "output_tokens": 10, "cache_read_tokens": 1000,
            "cache_write_tokens": 50, "reasoning_tokens": 4, "api_call_count": 2,
            "messages": [{"role": "user", "content": "hi", "timestamp": now - days * 86_400.0}],
        })
    };
    let mut actual = base("a", 1.0, "vendor/paid");
    actual["actual_cost_usd"] = json!(1.5);
    actual["cost_status"] = json!("actual");
    let mut estimated = base("b", 2.0, "vendor/listed");
    estimated["estimated_cost_usd"] = json!(0.25);
    estimated["cost_status"] = json!("estimated");
    let mut included = base("c", 3.0, "vendor/plan");
    included["cost_status"] = json!("included");
    let mut unknown = base("d", 3.0, "local/model");
    unknown["cost_status"] = json!("unknown");
    let old = base("e", 40.0, "vendor/old");
    vec![actual, estimated, included, unknown, old]
}

fn home() -> TempHome {
    let home = TempHome::new();
    let lines: Vec<String> = sessions().iter().map(Value::to_string).collect();
    let file = home.write("in.jsonl", lines.join("\n"));
    drop(
        hermes(&home)
            .args(["sessions", "import", file.to_str().unwrap()])
            .run()
            .ok(),
    );
    home
}

#[test]
fn cost_tells_how_it_is_known() {
    let home = home();
    let report = insights(&home, &[]);
    assert_eq!(
        report["cost"],
        json!({"actual_usd": 1.5, "estimated_usd": 0.25, "known_usd": 1.75,
               "included_calls": 2, "unknown_calls": 2})
    );
    assert_eq!(
        report["tokens"],
        json!({"input": 400, "output": 40, "cache_read": 4000, "cache_write": 200,
               "reasoning": 16, "total": 4640})
    );
    assert_eq!(report["model_calls"], 8);
    assert_eq!(insights(&home, &["--days", "60"])["sessions"], 5);
    let text = hermes(&home).args(["insights"]).run().ok().stdout;
    for words in [
        "$1.50 reported by the provider",
        "$0.25 estimated from price lists",
        "2 calls, no charge (local or subscription)",
        "2 calls at an unknown price",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("$0.00"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let days: Vec<&Value> = report["per_day"].as_array().unwrap().iter().collect();
    assert_eq!(days.len(), 3);
    assert_eq!(days[0]["sessions"], 2);
}

#[test]
fn an_empty_home_costs_nothing_and_says_so() {
    let home = TempHome::new();
    let report = insights(&home, &[]);
    assert_eq!(
        (&report["sessions"], &report["cost"]["known_usd"]),
        (&json!(0), &Value::Null)
    );
    assert!(
        hermes(&home)
            .args(["insights"])
            .run()
            .ok()
            .stdout
            .contains("nothing was recorded")
    );
    assert!(!home.exists("state.db"));
    assert_eq!(
        hermes(&home).args(["insights", "--days", "0"]).run().code,
        Some(64)
    );
}
