//! Fetching weights from a hub on loopback that speaks the hub's routes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hermes_testkit::web_server::{Page, WebRequest, WebServer};
use pretty_assertions::assert_eq;
use sha2::{Digest as _, Sha256};

use super::{FILE, LocalHarness, weights};

/// A model of the table whose checksum is not pinned: its content is ours to choose.
const NAME: &str = "smollm2-360m";
const PLACE: &str =
    "/HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/resolve/main/smollm2-360m-instruct-q8_0.gguf";
const LOCAL: &str = "cache/local/smollm2-360m-instruct-q8_0.gguf";

fn sum(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
}

fn content() -> Vec<u8> {
    (0..300_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// What the hub says of a file, and where it is.
fn found(tag: &str, length: usize) -> Page {
    Page::redirect("/storage/file")
        .header("x-linked-etag", &format!("\"{tag}\""))
        .header("x-linked-size", &length.to_string())
}

/// The rest of `content` that was asked for.
fn rest(asked: &WebRequest, content: &[u8]) -> Page {
    let from = asked.header("range").and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<usize>()
            .ok()
    });
    match from {
        Some(from) => Page::new("application/octet-stream", &content[from..])
            .status(206)
            .header(
                "content-range",
                &format!("bytes {from}-{}/{}", content.len() - 1, content.len()),
            ),
        None => Page::new("application/octet-stream", content),
    }
}

/// A hub that hangs up `cuts` times in the middle of `content`.
fn hub(content: Vec<u8>, tag: String, cuts: usize) -> WebServer {
    let left = Arc::new(AtomicUsize::new(cuts));
    WebServer::start(move |asked| {
        if asked.path.starts_with("/storage/") {
            let cut = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
            let asked_for = asked.header("range").is_some();
            if cut.is_ok() && !asked_for {
                return Page::cut(
                    "application/octet-stream",
                    &content[..500_000],
                    content.len(),
                );
            }
            return rest(asked, &content);
        }
        if asked.path == PLACE || asked.path.ends_with(FILE) {
            return found(&tag, content.len());
        }
        Page::new("text/plain", "nothing here").status(404)
    })
}

fn pull(place: &LocalHarness, hub: &WebServer) -> hermes_testkit::process::FinishedProgram {
    place
        .program(["model", "local", "pull", NAME, "--force"])
        .env("HF_ENDPOINT", hub.url(""))
        .run()
}

#[test]
fn a_connection_that_breaks_is_gone_on_with() {
    let place = LocalHarness::empty();
    let content = content();
    let hub = hub(content.clone(), sum(&content), 1);
    let done = pull(&place, &hub).ok();
    assert!(done.stderr.contains("100 %"), "{done:?}");
    assert!(done.stdout.contains("is now at"), "{done:?}");
    assert_eq!(std::fs::read(place.home.join(LOCAL)).unwrap(), content);
    let ranges: Vec<Option<String>> = hub
        .asked()
        .iter()
        .filter(|asked| asked.path.starts_with("/storage/"))
        .map(|asked| asked.header("range").map(str::to_owned))
        .collect();
    assert_eq!(ranges, [None, Some("bytes=500000-".to_owned())]);
    // Nothing half is left, and a second pull asks nobody.
    let names = names(&place.home.join("cache/local"));
    assert!(
        !names
            .iter()
            .any(|name| name.strip_suffix(".part").is_some()),
        "{names:?}"
    );
    drop(hub);
    let again = place.program(["model", "local", "pull", NAME]).run().ok();
    assert!(again.stdout.contains("is downloaded"), "{again:?}");
}

#[test]
fn an_interrupted_fetch_goes_on_in_the_next_process() {
    let place = LocalHarness::empty();
    let content = content();
    let tag = sum(&content);
    // What a process that was killed leaves: a part, and the version it is of.
    let part = format!("{LOCAL}.part");
    place.home.write(&part, &content[..700_000]);
    place.home.write(format!("{part}.etag"), &tag);
    let hub = hub(content.clone(), tag, 0);
    let _ = pull(&place, &hub).ok();
    assert_eq!(std::fs::read(place.home.join(LOCAL)).unwrap(), content);
    let last = hub.asked().pop().unwrap();
    assert_eq!(last.header("range"), Some("bytes=700000-"));
}

#[test]
fn a_part_of_another_version_is_thrown_away() {
    let place = LocalHarness::empty();
    let content = content();
    let part = format!("{LOCAL}.part");
    place.home.write(&part, vec![7; 700_000]);
    place.home.write(format!("{part}.etag"), "an older version");
    let hub = hub(content.clone(), sum(&content), 0);
    let _ = pull(&place, &hub).ok();
    assert_eq!(std::fs::read(place.home.join(LOCAL)).unwrap(), content);
}

#[test]
fn a_file_with_the_wrong_checksum_is_not_kept() {
    let place = LocalHarness::empty();
    let hub = hub(content(), sum(b"something else"), 0);
    let done = pull(&place, &hub);
    assert_ne!(done.code, Some(0));
    assert!(
        done.stderr.contains("not the file that was meant"),
        "{done:?}"
    );
    assert!(!place.home.exists(LOCAL));
    assert!(!place.home.exists(format!("{LOCAL}.part")));
}

#[test]
fn what_a_mirror_without_checksums_sends_is_looked_at() {
    let place = LocalHarness::empty();
    let hub = hub(content(), "no checksum".to_owned(), 0);
    let done = pull(&place, &hub);
    assert_ne!(done.code, Some(0));
    assert!(done.stderr.contains("names no checksum"), "{done:?}");
    assert!(!place.home.exists(LOCAL));
    assert!(!place.home.exists(format!("{LOCAL}.part")));
}

#[test]
fn without_a_connection_it_is_said_what_to_do() {
    let place = LocalHarness::empty();
    // No Python either: its package index is the other source.
    let done = place
        .program(["--local", "-z", "hi"])
        .env("PATH", "/nonexistent")
        .run();
    if done.stderr.contains("hermes-local is missing") {
        return;
    }
    assert_ne!(done.code, Some(0));
    assert_eq!(done.stdout, "");
    for piece in ["could not be fetched", "127.0.0.1:9", "local.model", FILE] {
        assert!(done.stderr.contains(piece), "{piece} in {done:?}");
    }
}

#[test]
fn the_default_model_comes_from_the_hub_and_answers() {
    let Some(file) = weights("local::fetching::default_model") else {
        return;
    };
    let place = LocalHarness::empty();
    let hub = hub(std::fs::read(file).unwrap(), "of no use".to_owned(), 1);
    let done = place
        .program([
            "--local",
            "-z",
            "What is the capital of France? Answer with one word.",
        ])
        .env("HF_ENDPOINT", hub.url(""))
        .run()
        .ok();
    assert!(done.stdout.contains("Paris"), "{done:?}");
    assert_eq!(done.stdout.trim().lines().count(), 1, "{done:?}");
    assert!(done.stderr.contains("downloading smollm2-135m"), "{done:?}");
    let place_of_weights = place.home.join("cache/local").join(FILE);
    assert!(place_of_weights.is_file());

    let gone = place
        .program(["model", "local", "remove", "smollm2-135m"])
        .run()
        .ok();
    assert!(gone.stdout.contains("was deleted"), "{gone:?}");
    let left = names(&place.home.join("cache/local"));
    // The lock stays: somebody may wait for it.
    assert_eq!(left, [format!("{FILE}.lock")]);
    let again = place
        .program(["model", "local", "remove", "smollm2-135m"])
        .run();
    assert_ne!(again.code, Some(0));
}

#[test]
fn the_list_names_size_memory_and_licence() {
    let place = LocalHarness::empty();
    let rows = place
        .program(["model", "local", "list", "--json"])
        .run()
        .ok()
        .json();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 10);
    for row in rows {
        assert_eq!(row["present"], false);
        for field in ["size_bytes", "memory_bytes", "parameters", "context_length"] {
            assert!(row[field].as_u64().unwrap() > 0, "{field} of {row}");
        }
    }
    let shown = place.program(["model", "local", "list"]).run().ok().stdout;
    assert!(shown.contains("Llama 3.2 Community License"), "{shown}");
    let unknown = place.program(["model", "local", "pull", "gpt-5"]).run();
    assert_eq!(unknown.code, Some(64));
    assert!(
        unknown.stderr.contains("hermes model local list"),
        "{unknown:?}"
    );
}

fn names(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).into_iter().flatten();
    files
        .filter_map(Result::ok)
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect()
}
