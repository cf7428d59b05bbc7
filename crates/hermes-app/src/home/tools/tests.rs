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
fn home_tools(choice: &ToolsetChoice) -> HomeTools {
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

fn offered(choice: &ToolsetChoice) -> Vec<String> {
    let tools = home_tools(choice).with_feed(feed());
    tools.registry().names().map(str::to_owned).collect()
}

fn named(names: &[&str]) -> ToolsetChoice {
    ToolsetChoice::named(
        &names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>(),
    )
}

fn configured(toolsets: &[&str], disabled: &[&str]) -> ToolsetChoice {
    let mut config = hermes_config::Config {
        toolsets: toolsets.iter().map(|&name| name.to_owned()).collect(),
        ..hermes_config::Config::default()
    };
    config.agent.disabled_toolsets = disabled.iter().map(|&name| name.to_owned()).collect();
    ToolsetChoice::from_config(&config, "cli")
}

const ALL: [&str; 3] = ["mcp__git__log", "mcp__git__push", "mcp__web__get"];
const GIT: [&str; 2] = ["mcp__git__log", "mcp__git__push"];

#[test]
fn servers_are_offered_unless_the_choice_says_otherwise() {
    assert_eq!(offered(&ToolsetChoice::default()), ALL);
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
        home_tools(&ToolsetChoice::default()).with_feed(Arc::clone(&feed) as Arc<dyn ToolFeed>);
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
        home_tools(&ToolsetChoice::default()).with_feed(Arc::clone(&feed) as Arc<dyn ToolFeed>);
    assert_eq!(tools.prepare().await, ["web is late"]);
    assert_eq!(feed.prepared.load(Ordering::SeqCst), 1);
}

/// A server with more tools than fit beside every request.
fn crowd(count: usize) -> Arc<Feed> {
    let many = (0..count).map(|n| {
        let about = if n == 7 {
            "Rotates the zebra archive"
        } else {
            "Does something"
        };
        Arc::new(Fed(ToolSpec {
            name: format!("mcp__web__tool_{n:04}"),
            description: format!("{about}, number {n}. {}", "x".repeat(200)),
            parameters: Arc::new(
                serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
            ),
            toolset: "mcp-web",
            effects: Effects::Exclusive,
            untrusted: true,
        })) as Arc<dyn Tool>
    });
    let tools: Vec<Arc<dyn Tool>> = many.chain([tool("mcp__git__log", "mcp-git")]).collect();
    Arc::new(Feed {
        tools: Mutex::new(Arc::from(tools)),
        prepared: AtomicUsize::new(0),
    })
}

fn model() -> ModelInfo {
    ModelInfo {
        context_length: 200_000,
        context_source: "test",
        max_output: None,
        images: false,
        tools: true,
        prices: None,
        local: false,
        small: false,
    }
}

fn context(registry: &Registry) -> ToolContext {
    ToolContext {
        session: "s1".into(),
        turn: hermes_core::ids::TurnId(1),
        call_id: "c1".to_owned(),
        cwd: "/".into(),
        cancel: tokio_util::sync::CancellationToken::new(),
        clock: Arc::new(hermes_core::clock::SystemClock),
        approver: Arc::new(hermes_core::approval::DenyAll),
        asker: Arc::new(hermes_core::ask::DeclineAll),
        progress: hermes_core::event::ProgressSink::none(),
        registry: registry.clone(),
        taint: hermes_core::tool::Taint::default(),
    }
}

#[tokio::test]
async fn tools_that_are_too_many_are_searched_and_called_by_name() {
    let tools = home_tools(&ToolsetChoice::default()).with_feed(crowd(1200));
    let registry = tools.registry();
    let specs = tools.specs(&registry, &model());
    let bytes: usize = specs
        .iter()
        .map(|spec| spec.description.len() + spec.parameters.to_string().len())
        .sum();
    assert!(bytes < 120_000, "{bytes}");
    let sent: BTreeSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert!(sent.contains("mcp__git__log"), "small servers stay");
    assert!(sent.contains("mcp_search_tools") && sent.contains("mcp_call_tool"));
    assert!(!sent.iter().any(|name| name.starts_with("mcp__web__")));
    let search = specs
        .iter()
        .find(|spec| spec.name == "mcp_search_tools")
        .unwrap();
    assert!(
        search.description.contains("web (1200)"),
        "{}",
        search.description
    );

    let cx = context(&registry);
    let call = async |name: &str, args: serde_json::Value| {
        let tool = registry.get(name).unwrap();
        let serde_json::Value::Object(args) = args else {
            unreachable!()
        };
        tool.call(args, &cx).await
    };
    let found = call(
        "mcp_search_tools",
        serde_json::json!({"query": "zebra archive"}),
    )
    .await;
    let ToolOutcome::Done(content) = found else {
        panic!("{found:?}");
    };
    let text = content.text();
    assert!(
        text.contains("mcp__web__tool_0007") && text.contains("parameters"),
        "{text}"
    );
    let args = serde_json::json!({"name": "mcp__web__tool_0007", "arguments": {"n": 1}});
    assert!(!call("mcp_call_tool", args).await.is_error());
    // Nothing else is reached this way.
    for name in ["memory", "mcp__git__log", "mcp__web__none", ""] {
        let args = serde_json::json!({"name": name});
        assert!(call("mcp_call_tool", args).await.is_error(), "{name}");
    }
    let few = home_tools(&ToolsetChoice::default()).with_feed(crowd(20));
    assert!(few.registry().get("mcp_search_tools").is_none());
}
