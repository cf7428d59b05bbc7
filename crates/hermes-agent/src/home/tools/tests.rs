use std::sync::atomic::{AtomicUsize, Ordering};

use hermes_core::tool::{Effects, ToolArgs, ToolContext, ToolOutcome};
use pretty_assertions::assert_eq;

use super::*;

struct Fed(ToolSpec);

impl Tool for Fed {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _: ToolArgs, _: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(std::future::ready(ToolOutcome::json(
            &serde_json::json!({}),
        )))
    }
}

fn tool(name: &str, toolset: &'static str) -> Arc<dyn Tool> {
    Arc::new(Fed(ToolSpec {
        name: name.to_owned(),
        description: "d".to_owned(),
        parameters: Arc::new(serde_json::json!({"type": "object"})),
        toolset,
        effects: Effects::Exclusive,
        untrusted: true,
        result_limit: None,
    }))
}

struct Feed {
    tools: Mutex<Arc<[Arc<dyn Tool>]>>,
    prepared: AtomicUsize,
}

impl ToolFeed for Feed {
    fn toolsets(&self) -> Vec<FedToolset> {
        ["git", "web"]
            .map(|server| FedToolset {
                name: format!("mcp-{server}"),
                alias: server.to_owned(),
                prefix: format!("mcp__{server}__"),
            })
            .into()
    }

    fn tools(&self) -> Arc<[Arc<dyn Tool>]> {
        Arc::clone(&self.tools.lock().unwrap())
    }

    fn prepare(&self) -> BoxFuture<'_, Vec<String>> {
        self.prepared.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(vec!["web is late".to_owned()]))
    }
}

fn feed() -> Arc<Feed> {
    let tools: [Arc<dyn Tool>; 3] = [
        tool("mcp__git__log", "mcp-git"),
        tool("mcp__git__push", "mcp-git"),
        tool("mcp__web__get", "mcp-web"),
    ];
    Arc::new(Feed {
        tools: Mutex::new(Arc::from(tools)),
        prepared: AtomicUsize::new(0),
    })
}

/// A home without tools of its own.
fn home_tools(choice: &ToolChoice) -> HomeTools {
    HomeTools {
        all: Vec::new(),
        registry: Registry::default(),
        choice: choice.clone(),
        chosen: choice.only.clone().unwrap_or_default(),
        todos: TodoList::default(),
        feed: None,
        on_compacted: None,
        together: Mutex::new(None),
    }
}

fn offered(choice: &ToolChoice) -> Vec<String> {
    let tools = home_tools(choice).with_feed(feed());
    tools.registry().names().map(str::to_owned).collect()
}

fn named(names: &[&str]) -> ToolChoice {
    ToolChoice::named(
        &names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>(),
    )
}

fn configured(toolsets: &[&str], disabled: &[&str]) -> ToolChoice {
    let mut config = hermes_config::Config {
        toolsets: toolsets.iter().map(|&name| name.to_owned()).collect(),
        ..hermes_config::Config::default()
    };
    config.agent.disabled_toolsets = disabled.iter().map(|&name| name.to_owned()).collect();
    ToolChoice::from_config(&config, "cli")
}

const ALL: [&str; 3] = ["mcp__git__log", "mcp__git__push", "mcp__web__get"];
const GIT: [&str; 2] = ["mcp__git__log", "mcp__git__push"];

#[test]
fn servers_are_offered_unless_the_choice_says_otherwise() {
    assert_eq!(offered(&ToolChoice::default()), ALL);
    assert_eq!(offered(&configured(&["hermes-cli"], &[])), ALL);
    assert_eq!(offered(&configured(&["memory"], &[])), ALL);
    assert_eq!(offered(&configured(&["memory", "git"], &[])), GIT);
    assert_eq!(offered(&configured(&["hermes-cli"], &["web"])), GIT);
    assert_eq!(
        offered(&configured(&["hermes-cli"], &["mcp-web", "mcp__git__push"])),
        ["mcp__git__log"]
    );
    assert_eq!(
        offered(&configured(&["hermes-cli", "no_mcp"], &[])),
        [""; 0]
    );
}

#[test]
fn named_toolsets_are_exact() {
    assert_eq!(offered(&named(&["memory"])), [""; 0]);
    assert_eq!(offered(&named(&["none"])), [""; 0]);
    assert_eq!(offered(&named(&["git"])), GIT);
    assert_eq!(offered(&named(&["mcp-git"])), GIT);
    assert_eq!(offered(&named(&["mcp__git__log"])), ["mcp__git__log"]);
    assert_eq!(offered(&named(&["all"])), ALL);
    assert_eq!(offered(&named(&["all", "no_mcp"])), [""; 0]);
    assert_eq!(offered(&named(&["no_mcp"])), [""; 0]);
}

#[test]
fn names_of_servers_are_known() {
    let choice = named(&["git", "mcp-web", "mcp__git__log", "svn"]);
    let tools = home_tools(&choice).with_feed(feed());
    assert_eq!(choice.unknown(&tools), ["svn"]);
}

#[test]
fn the_tools_are_the_same_until_the_feed_changes() {
    let feed = feed();
    let tools =
        home_tools(&ToolChoice::default()).with_feed(Arc::clone(&feed) as Arc<dyn ToolFeed>);
    let (first, second) = (tools.registry(), tools.registry());
    assert!(
        first
            .iter()
            .zip(second.iter())
            .all(|(a, b)| Arc::ptr_eq(a, b))
    );
    *feed.tools.lock().unwrap() = Arc::from([tool("mcp__git__log", "mcp-git")]);
    assert_eq!(
        tools.registry().names().collect::<Vec<_>>(),
        ["mcp__git__log"]
    );
    assert_eq!(first.names().count(), 3, "a turn keeps what it took");
}

#[tokio::test]
async fn preparing_reaches_the_feed() {
    let feed = feed();
    let tools =
        home_tools(&ToolChoice::default()).with_feed(Arc::clone(&feed) as Arc<dyn ToolFeed>);
    assert_eq!(tools.prepare().await, ["web is late"]);
    assert_eq!(feed.prepared.load(Ordering::SeqCst), 1);
}
