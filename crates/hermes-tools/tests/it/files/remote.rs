//! The same tools where the environment is not this machine.

use std::path::Path;
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_exec::{
    Background, BackgroundRecord, BackgroundStart, Environment, EnvironmentInfo, Exec, ExecError,
    ExecOutcome, Files, OutputSink,
};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{FilesHarness, error_of, local};

/// This machine, seen as another one.
struct Elsewhere(Arc<dyn Environment>);

impl Environment for Elsewhere {
    fn info(&self) -> EnvironmentInfo {
        EnvironmentInfo {
            kind: "ssh",
            ..self.0.info()
        }
    }

    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn OutputSink,
    ) -> BoxFuture<'a, Result<ExecOutcome, ExecError>> {
        self.0.exec(command, sink)
    }

    fn spawn(
        &self,
        command: BackgroundStart,
    ) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
        self.0.spawn(command)
    }

    fn adopt(
        &self,
        record: BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Background>>, ExecError>> {
        self.0.adopt(record)
    }

    fn files(&self) -> &dyn Files {
        self.0.files()
    }

    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.0.suspend()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.0.close()
    }
}

fn harness() -> FilesHarness {
    FilesHarness::with(|deps| {
        let elsewhere = Elsewhere(local(Path::new("/nonexistent")));
        deps.environment = Arc::new(elsewhere);
    })
}

#[tokio::test]
async fn files_are_read_written_and_patched() {
    let harness = harness();
    harness
        .ok(
            "write_file",
            json!({"path": "a/b.txt", "content": "one\ntwo\n"}),
        )
        .await;
    assert_eq!(harness.text("a/b.txt"), "one\ntwo\n");
    let page = harness.ok("read_file", json!({"path": "a/b.txt"})).await;
    assert_eq!(page["content"], "1|one\n2|two");
    let patch = "*** Update File: a/b.txt\n one\n-two\n+2\n*** Add File: c.txt\n+c\n";
    harness
        .ok("patch", json!({"mode": "patch", "patch": patch}))
        .await;
    assert_eq!(harness.text("a/b.txt"), "one\n2\n");
    assert_eq!(harness.text("c.txt"), "c\n");
    let patch = "*** Add File: c.txt\n+again\n";
    let (_, value) = harness
        .err("patch", json!({"mode": "patch", "patch": patch}))
        .await;
    assert!(error_of(&value).contains("exists already"), "{value}");
    let (_, value) = harness.err("read_file", json!({"path": "none"})).await;
    assert!(error_of(&value).contains("no file"), "{value}");
    // Results that were saved to a file are on this machine.
    let saved = harness.root().join("home/cache/tool-results/x.txt");
    harness.put("../home/cache/tool-results/x.txt", "saved\n");
    let page = harness.ok("read_file", json!({"path": saved})).await;
    assert_eq!(page["content"], "1|saved");
    harness.put(".env", "K=1");
    let (_, value) = harness.err("read_file", json!({"path": ".env"})).await;
    assert!(error_of(&value).contains("credentials"), "{value}");
}

#[tokio::test]
async fn searches_use_the_programs_there_and_patterns_stay_patterns() {
    let harness = harness();
    harness.put("a.txt", "1\nneedle 'quoted' $(touch ran)\n3\n");
    harness.put("src/b.rs", "needle\nneedle\n");
    harness.put("it's.txt", "--pre=x\n");
    let value = harness
        .ok("search_files", json!({"pattern": "needle"}))
        .await;
    assert_eq!(value["total_count"], 3, "{value}");
    let value = harness
        .ok(
            "search_files",
            json!({"pattern": "needle", "limit": 1, "offset": 1}),
        )
        .await;
    assert_eq!(
        (&value["total_count"], &value["truncated"]),
        (&json!(3), &json!(true))
    );
    let value = harness
        .ok("search_files", json!({"pattern": "--pre=x", "path": "."}))
        .await;
    assert_eq!(value["total_count"], 1, "{value}");
    let value = harness
        .ok(
            "search_files",
            json!({"pattern": "'; touch ran; '$(touch ran)"}),
        )
        .await;
    assert_eq!(value["total_count"], 0);
    assert!(!harness.path("ran").exists());
    let value = harness
        .ok(
            "search_files",
            json!({"pattern": "needle", "file_glob": "*.rs", "output_mode": "count"}),
        )
        .await;
    assert_eq!(value["total_count"], 2, "{value}");
    let value = harness
        .ok(
            "search_files",
            json!({"pattern": "*.rs", "target": "files"}),
        )
        .await;
    assert_eq!(value["total_count"], 1, "{value}");
    let args = json!({"pattern": "needle", "path": "a.txt", "context": 1});
    let value = harness.ok("search_files", args).await;
    assert_eq!(value["matches"].as_array().unwrap().len(), 3, "{value}");
    let (_, value) = harness
        .err("search_files", json!({"pattern": "x", "path": "none"}))
        .await;
    assert!(error_of(&value).contains("there is no none"), "{value}");
}
