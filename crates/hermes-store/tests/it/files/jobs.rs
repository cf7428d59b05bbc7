use chrono::{DateTime, Utc};
use hermes_store::jobs::{Job, JobTable, parse_schedule};
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const LIST: &str = "
import json
from cron.jobs import list_jobs
print(json.dumps([{k: v for k, v in j.items() if k != 'latest_execution'} for j in list_jobs(include_disabled=True)]))
";

const CREATE: &str = "
import json
from cron.jobs import create_job, pause_job
a = create_job('Sum up the news', 'every 2h', name='digest', skills=['notes'])
b = create_job('Grüße', '0 9 * * 1-5', deliver='telegram:1')
pause_job(b['id'], 'holiday')
create_job('', '2099-01-02T09:30:00+01:00', name='iso')
";

const PAUSE: &str = "
import sys
from cron.jobs import pause_job
pause_job(sys.argv[1], 'why not')
";

const PARSE: &str = "
import json, sys
from cron.jobs import parse_schedule
out = []
for text in json.loads(sys.argv[1]):
    try:
        out.append(parse_schedule(text))
    except Exception as e:
        out.append(None)
print(json.dumps(out))
";

fn ours(home: &TempHome) -> Value {
    let jobs = JobTable::new(home.join("cron")).list().unwrap();
    jobs.iter().map(Job::to_json).collect()
}

#[test]
fn we_read_and_change_jobs_of_the_original() {
    let Some(oracle) = oracle::require("files::jobs::we_read_and_change_jobs_of_the_original")
    else {
        return;
    };
    let home = TempHome::new();
    let _ = oracle.run(&home, CREATE, []).ok();
    assert_eq!(ours(&home), oracle.json(&home, LIST, []));
    let before = home.read("cron/jobs.json");
    let table = JobTable::new(home.join("cron"));
    table
        .update("digest", |job| {
            job.set("prompt", json!("Sum up the news"));
            Ok(())
        })
        .unwrap();
    let stamp = |text: &str| text.rfind("\"updated_at\"").map(|at| text[..at].to_owned());
    assert_eq!(
        stamp(&home.read("cron/jobs.json")),
        stamp(&before),
        "the same bytes"
    );
}

#[test]
fn the_original_reads_and_changes_ours() {
    let Some(oracle) = oracle::require("files::jobs::the_original_reads_and_changes_ours") else {
        return;
    };
    let home = TempHome::new();
    let table = JobTable::new(home.join("cron"));
    let schedule = parse_schedule("every 30m", &Utc::now()).unwrap();
    let mut job = Job::new("ours", "Grüße 🚀", &schedule, "2027-01-01T00:00:00+00:00");
    job.set("next_run_at", json!("2099-01-01T00:00:00+00:00"));
    job.set("from_the_future", json!({"x": [1, 2]}));
    let job = table.add(job).unwrap();
    assert_eq!(oracle.json(&home, LIST, []), ours(&home));
    let _ = oracle.run(&home, PAUSE, [job.id()]).ok();
    let paused = table.get("ours").unwrap();
    assert_eq!(
        (paused.state(), paused.enabled()),
        ("paused".to_owned(), false)
    );
    assert_eq!(paused.fields()["from_the_future"], json!({"x": [1, 2]}));
    assert_eq!(oracle.json(&home, LIST, []), ours(&home));
}

#[test]
fn schedules_mean_the_same() {
    let Some(oracle) = oracle::require("files::jobs::schedules_mean_the_same") else {
        return;
    };
    let home = TempHome::new();
    home.config("timezone: UTC\n");
    let texts = [
        "every 5m",
        "every 2 hours",
        "Every 1 day",
        "0 9 * * *",
        "*/15 8-18 * * 1-5",
        "0,30 * 1 */2 0",
        "0 9 * * * 30",
        "2099-02-03T14:00",
        "2099-02-03",
        "2099-02-03 14:00:05",
        "2099-02-03T14:00:00Z",
        "2099-02-03T14:00:00.25+05:30",
        "",
        "every",
        "every day",
        "soon",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "0 9 * * MON",
        "2099-13-01T00:00",
        "5-1 * * * *",
    ];
    let theirs = oracle.json(&home, PARSE, [json!(texts).to_string().as_str()]);
    let now: DateTime<Utc> = Utc::now();
    for (text, expected) in texts.iter().zip(theirs.as_array().unwrap()) {
        let got = parse_schedule(text, &now).map_or(Value::Null, |parsed| parsed.to_json());
        assert_eq!(got, *expected, "{text}");
    }
    let relative = oracle.json(&home, PARSE, [json!(["30m"]).to_string().as_str()]);
    let got = parse_schedule("30m", &Utc::now()).unwrap().to_json();
    assert_eq!(got["display"], relative[0]["display"]);
    assert_eq!(got["kind"], relative[0]["kind"]);
}
