//! The vendors' own SDKs against our fakes: what they send is answered, what they get is understood.
//! So the fakes are what the services are, as far as the vendors' programs can tell.
//!
//! Needs a Python with `tavily-python`, `exa-py`, `firecrawl-py` and `parallel-web`, installed by
//! `cargo xtask setup` or named by `HERMES_SEARCH_SDKS`.

use std::path::PathBuf;

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_testkit::process::Program;
use hermes_testkit::web_server::WebServer;
use serde_json::{Value, json};

use crate::vendors::{self, KEY};

fn python(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("HERMES_SEARCH_SDKS").map(PathBuf::from);
    let usual = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/search-sdks/bin/python"
    ));
    let found = named.unwrap_or(usual);
    if found.exists() {
        return Some(found);
    }
    oracle::skip("search SDKs", test);
    None
}

fn run(python: PathBuf, program: &str, server: &WebServer) -> Value {
    let home = TempHome::new();
    Program::new(python, &home)
        .args(["-c", program, KEY, &server.url("")])
        .run()
        .ok()
        .json()
}

#[test]
fn tavily() {
    let Some(python) = python("tavily") else {
        return;
    };
    let program = "
import json, sys
from tavily import TavilyClient
client = TavilyClient(api_key=sys.argv[1], api_base_url=sys.argv[2])
found = client.search('tides', max_results=2)
read = client.extract(['https://a.test/1', 'https://a.test/missing'])
print(json.dumps([[r['url'] for r in found['results']], [r['url'] for r in read['results']], [r['url'] for r in read['failed_results']]]))
";
    assert_eq!(
        run(python, program, &vendors::tavily()),
        json!([
            ["https://example.org/1", "https://example.org/2"],
            ["https://a.test/1"],
            ["https://a.test/missing"]
        ])
    );
}

#[test]
fn exa() {
    let Some(python) = python("exa") else { return };
    let program = "
import json, sys
from exa_py import Exa
client = Exa(api_key=sys.argv[1], base_url=sys.argv[2])
found = client.search('tides', num_results=2, contents={'highlights': True})
read = client.get_contents(['https://a.test/1', 'https://a.test/missing'], text=True)
print(json.dumps([[[r.title, r.highlights] for r in found.results], [r.text for r in read.results], [s.status for s in read.statuses]]))
";
    assert_eq!(
        run(python, program, &vendors::exa()),
        json!([
            [
                ["Result 1", ["first piece", "second piece"]],
                ["Result 2", ["first piece", "second piece"]]
            ],
            ["Text of https://a.test/1"],
            ["success", "error"],
        ])
    );
}

#[test]
fn firecrawl() {
    let Some(python) = python("firecrawl") else {
        return;
    };
    let program = "
import json, sys
from firecrawl import Firecrawl
client = Firecrawl(api_key=sys.argv[1], api_url=sys.argv[2])
found = client.search('tides', limit=2)
read = client.scrape('https://a.test/1', formats=['markdown'])
print(json.dumps([[r.url for r in found.web], read.markdown, read.metadata.title]))
";
    assert_eq!(
        run(python, program, &vendors::firecrawl()),
        json!([
            ["https://example.org/1", "https://example.org/2"],
            "# Text of https://a.test/1",
            "A page"
        ])
    );
}

#[test]
fn parallel() {
    let Some(python) = python("parallel") else {
        return;
    };
    let program = "
import json, sys
from parallel import Parallel
client = Parallel(api_key=sys.argv[1], base_url=sys.argv[2])
found = client.search(objective='tides', search_queries=['tides'], mode='basic', advanced_settings={'max_results': 2})
read = client.extract(urls=['https://a.test/1', 'https://a.test/missing'], advanced_settings={'full_content': True})
print(json.dumps([[r.excerpts for r in found.results], [r.full_content for r in read.results], [e.error_type for e in read.errors]]))
";
    assert_eq!(
        run(python, program, &vendors::parallel()),
        json!([
            [
                ["first piece", "second piece"],
                ["first piece", "second piece"]
            ],
            ["Text of https://a.test/1"],
            ["fetch_error"],
        ])
    );
}
