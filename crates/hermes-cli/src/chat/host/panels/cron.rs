//! `/cron`: the jobs of this home.

use std::path::{Path, PathBuf};

use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::front_end::TextKind;
use hermes_store::jobs::Job;
use hermes_tui::port::{Panel, PanelGroup, PanelKey, PanelRequest, PanelRow, RowMark};

use super::{PanelKeyResult, key, page, row, short, unknown};
use crate::chat::host::ScreenConversation;
use crate::commands::counted;
use crate::exit::Failure;

pub(super) const ID: &str = "cron";

/// Longest part of an output that is read, in bytes.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;

pub(super) fn panel(conversation: &ScreenConversation) -> Result<Panel, Failure> {
    let jobs = conversation.schedule().jobs.list();
    let jobs = jobs.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(shown(&jobs))
}

fn shown(jobs: &[Job]) -> Panel {
    let rows = jobs.iter().map(job_row).collect();
    let paused = jobs.iter().filter(|job| !job.enabled()).count();
    Panel {
        id: ID.to_owned(),
        title: "Jobs".to_owned(),
        note: format!("{} · {paused} paused", counted(jobs.len(), "job")),
        columns: ["NAME", "SCHEDULE", "NEXT", "LAST"]
            .map(str::to_owned)
            .to_vec(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows,
        }],
        keys: vec![
            key("enter", "last output", "output"),
            key("p", "pause/resume", "toggle"),
            PanelKey {
                confirm: Some("Remove the job \"{}\"?".to_owned()),
                ..key("d", "remove", "remove")
            },
        ],
        footer: if jobs.is_empty() {
            vec!["no jobs; ask for one: \"every morning at 8, …\"".to_owned()]
        } else {
            Vec::new()
        },
        ..Panel::default()
    }
}

fn job_row(job: &Job) -> PanelRow {
    let state = job.state();
    let failed = matches!(job.text("last_status").as_str(), "error" | "failed");
    let mark = match state.as_str() {
        "paused" => RowMark::Off,
        "error" => RowMark::Bad,
        "running" => RowMark::Waiting,
        _ if !job.enabled() => RowMark::Off,
        _ if failed => RowMark::Bad,
        _ => RowMark::Good,
    };
    let next = if job.enabled() {
        moment(&job.text("next_run_at"))
    } else {
        state
    };
    let mut detail = vec![short(&job.prompt(), 300)];
    let mut facts = vec![format!("id {}", job.id()), format!("to {}", job.deliver())];
    let skills = job.skills();
    if !skills.is_empty() {
        facts.push(format!("skills {}", skills.join(", ")));
    }
    detail.push(facts.join(" · "));
    let error = job.text("last_error");
    if !error.is_empty() {
        detail.push(format!("last error: {}", short(&error, 200)));
    }
    PanelRow {
        id: job.id().to_owned(),
        mark,
        cells: vec![
            short(&job.name(), 40),
            job.schedule_display(),
            next,
            moment(&job.text("last_run_at")),
        ],
        detail: detail.join("\n"),
        also: job.id().to_owned(),
        ..PanelRow::default()
    }
}

/// `2026-11-16T08:00:00+01:00` as people read it.
fn moment(stamp: &str) -> String {
    if stamp.is_empty() {
        return "-".to_owned();
    }
    let text = stamp.replacen('T', " ", 1);
    text.get(..16).unwrap_or(&text).to_owned()
}

pub(super) fn act(
    conversation: &ScreenConversation,
    ask: &PanelRequest,
) -> Result<PanelKeyResult, Failure> {
    let id = row(ask)?;
    let schedule = conversation.schedule();
    let failed = |error: hermes_store::jobs::JobError| Failure::failed(error.to_string());
    match ask.action.as_str() {
        "toggle" => {
            let now = SystemClock.now();
            let job = schedule.jobs.get(id).map_err(failed)?;
            let (changed, word) = if job.enabled() {
                (schedule.pause(id, now), "paused")
            } else {
                (schedule.resume(id, now), "scheduled again")
            };
            let job = changed.map_err(Failure::failed)?;
            Ok(PanelKeyResult::Note(format!("{} is {word}", job.name())))
        }
        "remove" => {
            let job = schedule.remove(id);
            let job = job.map_err(|error| Failure::failed(error.to_string()))?;
            Ok(PanelKeyResult::Note(format!("{} is removed", job.name())))
        }
        "output" => {
            let job = schedule.jobs.get(id).map_err(failed)?;
            let dir = conversation.cx.home.cron_dir().join("output");
            let content = last_output(&dir, job.id())?;
            Ok(PanelKeyResult::Page(page(
                job.name(),
                TextKind::Markdown,
                content,
            )))
        }
        _ => Err(unknown(ask)),
    }
}

/// What the last run of a job wrote.
fn last_output(dir: &Path, id: &str) -> Result<String, Failure> {
    // Ids come from a file that others write: none may lead out of the directory.
    if id.is_empty() || id.starts_with('.') || id.contains(['/', '\\']) {
        return Err(Failure::failed(format!(
            "the id {id:?} cannot name a directory"
        )));
    }
    let none = || Failure::not_found("it has not run yet, or what it wrote is gone");
    let entries = std::fs::read_dir(dir.join(id)).map_err(|_| none())?;
    let files = entries.flatten().map(|entry| entry.path());
    // Names are times.
    let newest: Option<PathBuf> = files.filter(|path| path.is_file()).max();
    let path = newest.ok_or_else(none)?;
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).map_err(failed)?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_OUTPUT_BYTES), &mut bytes)
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(jobs: &serde_json::Value) -> (tempfile::TempDir, Vec<Job>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("jobs.json"),
            json!({"jobs": jobs}).to_string(),
        )
        .unwrap();
        let jobs = hermes_store::jobs::JobTable::new(dir.path())
            .list()
            .unwrap();
        (dir, jobs)
    }

    #[test]
    fn jobs_show_when_they_run_and_how_they_fared() {
        let (_dir, jobs) = table(&json!([
            {"id": "a1", "name": "digest", "prompt": "sum up the day", "enabled": true,
             "schedule": {"kind": "cron", "expr": "0 8 * * *", "display": "0 8 * * *"},
             "next_run_at": "2026-11-16T08:00:00+01:00", "last_status": "ok"},
            {"id": "b2", "name": "backup", "prompt": "copy", "enabled": true, "state": "scheduled",
             "schedule": {"kind": "interval", "minutes": 60, "display": "every 60m"},
             "last_status": "error", "last_error": "exit 1", "last_run_at": "2026-11-15T03:00:00+01:00"},
            {"id": "c3", "name": "old", "prompt": "x", "enabled": false, "state": "paused",
             "schedule": {"kind": "cron", "expr": "0 8 * * *", "display": "0 8 * * *"}},
        ]));
        let panel = shown(&jobs);
        let rows = &panel.groups[0].rows;
        assert_eq!(
            rows[0].cells,
            ["digest", "0 8 * * *", "2026-11-16 08:00", "-"]
        );
        assert_eq!(rows[0].mark, RowMark::Good);
        assert_eq!(rows[1].mark, RowMark::Bad);
        assert!(rows[1].detail.contains("last error: exit 1"));
        assert_eq!(
            (rows[2].mark, rows[2].cells[2].as_str()),
            (RowMark::Off, "paused")
        );
        assert_eq!(panel.note, "3 jobs · 1 paused");
    }

    #[test]
    fn the_newest_output_is_read_and_ids_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a1")).unwrap();
        for (name, content) in [("2026-11-14_08.md", "old"), ("2026-11-15_08.md", "new")] {
            std::fs::write(dir.path().join("a1").join(name), content).unwrap();
        }
        assert_eq!(last_output(dir.path(), "a1").unwrap(), "new");
        assert!(last_output(dir.path(), "zz").is_err());
        assert!(last_output(dir.path(), "../a1").is_err());
    }
}
