use hermes_core::approval::Approver;
use hermes_core::ask::DeclineAll;
use hermes_core::clock::SystemClock;
use hermes_core::event::ProgressSink;
use hermes_core::ids::TurnId;
use hermes_core::message::Content;
use hermes_core::tool::{Effects, Taint};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;

fn args(value: &serde_json::Value) -> ToolArgs {
    value.as_object().cloned().unwrap()
}

#[test]
fn a_replacement_is_shown_in_its_file() {
    let cwd = Path::new("/w");
    let before = [(PathBuf::from("/w/a"), FileText::Is("one two two".into()))];
    let replace = |more: &serde_json::Value| {
        let mut args = args(&json!({"path": "a", "old_string": "two", "new_string": "2"}));
        args.extend(more.as_object().cloned().unwrap());
        proposed("patch", &args, cwd, &before)
    };
    assert_eq!(replace(&json!({}))[0].new, "one 2 two");
    assert_eq!(replace(&json!({"replace_all": true}))[0].new, "one 2 2");
    // Not word for word: the part alone.
    let part = &replace(&json!({"old_string": "TWO"}))[0];
    assert_eq!((part.old.as_deref(), part.new.as_str()), (Some("TWO"), "2"));
}

#[test]
fn a_patch_over_several_files_is_taken_apart() {
    let patch = "*** Begin Patch\n*** Update File: a.rs\n@@ fn a @@\n keep\n-old\n+new\n\
        *** Add File: sub/b.rs\n+whole\n*** Delete File: /x/c.rs\n\
        *** Move File: d.rs -> e.rs\n*** End Patch\n";
    let args = args(&json!({"mode": "patch", "patch": patch}));
    let cwd = Path::new("/w");
    let paths: Vec<String> = named("patch", &args, cwd)
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    assert_eq!(
        paths,
        ["/w/a.rs", "/w/sub/b.rs", "/x/c.rs", "/w/d.rs", "/w/e.rs"]
    );
    let before = [(PathBuf::from("/x/c.rs"), FileText::Is("gone\n".into()))];
    let changes = proposed("patch", &args, cwd, &before);
    assert_eq!(changes[0].old.as_deref(), Some("keep\nold\n"));
    assert_eq!(changes[0].new, "keep\nnew\n");
    assert_eq!(
        (changes[1].old.as_deref(), changes[1].new.as_str()),
        (None, "whole\n")
    );
    assert_eq!(
        (changes[2].old.as_deref(), changes[2].new.as_str()),
        (Some("gone\n"), "")
    );
}

/// Writes `content` to `path`.
struct WriteTool(ToolSpec);

impl Tool for WriteTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let path = cx.cwd.join(args["path"].as_str().unwrap());
            std::fs::write(path, args["content"].as_str().unwrap()).unwrap();
            ToolOutcome::Done(Content::Text("{}".into()))
        })
    }
}

fn writer() -> Arc<dyn Tool> {
    Arc::new(WriteTool(ToolSpec {
        name: "write_file".into(),
        description: String::new(),
        parameters: Arc::new(json!({})),
        toolset: "file",
        effects: Effects::Exclusive,
        untrusted: false,
    }))
}

/// Says always the same and counts.
struct CountingApprover(Verdict, Mutex<usize>);

impl Approver for CountingApprover {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'_, Verdict> {
        *self.1.lock().unwrap() += 1;
        Box::pin(std::future::ready(self.0.clone()))
    }
}

fn context(cwd: &Path, approver: Arc<CountingApprover>) -> ToolContext {
    ToolContext {
        session: "s".to_owned().into(),
        turn: TurnId(1),
        call_id: "c1".into(),
        cwd: cwd.to_owned(),
        cancel: CancellationToken::new(),
        clock: Arc::new(SystemClock),
        approver,
        asker: Arc::new(DeclineAll),
        progress: ProgressSink::none(),
        registry: Registry::default(),
        taint: Taint::default(),
    }
}

async fn write(edits: &Edits, verdict: Verdict, text: &str, dir: &Path) -> (ToolOutcome, usize) {
    let approver = Arc::new(CountingApprover(verdict, Mutex::new(0)));
    let cx = context(dir, Arc::clone(&approver));
    let tool = edits.guard(writer(), true);
    let outcome = tool
        .call(args(&json!({"path": "f", "content": text})), &cx)
        .await;
    let asked = *approver.1.lock().unwrap();
    (outcome, asked)
}

#[tokio::test]
async fn a_change_that_is_not_allowed_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "before").unwrap();
    let edits = Edits::default();
    let deny = Verdict::Deny { why: None };
    let (outcome, asked) = write(&edits, deny, "after", dir.path()).await;
    assert!(matches!(
        outcome,
        ToolOutcome::Error {
            kind: ToolErrorKind::Denied,
            ..
        }
    ));
    assert_eq!(asked, 1);
    assert_eq!(
        std::fs::read_to_string(dir.path().join("f")).unwrap(),
        "before"
    );
}

#[tokio::test]
async fn once_is_once_and_the_session_is_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let edits = Edits::default();
    assert_eq!(write(&edits, Verdict::Once, "1", dir.path()).await.1, 1);
    assert_eq!(edits.mode(), EditorMode::Default);
    assert_eq!(
        edits.take("c1"),
        [ProposedChange {
            path: dir.path().join("f"),
            old: None,
            new: "1".into()
        }]
    );
    assert_eq!(write(&edits, Verdict::Session, "2", dir.path()).await.1, 1);
    assert_eq!(edits.mode(), EditorMode::AcceptEdits);
    assert_eq!(write(&edits, Verdict::Once, "3", dir.path()).await.1, 0);
    let changes = edits.take("c1");
    assert_eq!(changes[0].old.as_deref(), Some("2"));
    assert!(edits.take("c1").is_empty());
}
