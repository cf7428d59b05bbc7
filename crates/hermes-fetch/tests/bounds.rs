//! Hostile pages cost what docs/web.md says: memory is counted, not guessed.
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use hermes_fetch::page::read_bytes;
use url::Url;

/// What one page may need beside its own bytes, and what may be asked for over all of its reading.
const PEAK: usize = 160 << 20;
const TOTAL: usize = 4_000 << 20;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static ALL: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator that counts is an allocator")]
// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        ALL.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn fill(unit: &str, size: usize) -> String {
    unit.repeat(size / unit.len())
}

fn numbered(size: usize, unit: impl Fn(usize) -> String) -> String {
    let mut out = String::new();
    let mut number = 0;
    while out.len() < size {
        out.push_str(&unit(number));
        number += 1;
    }
    out
}

/// Pieces that are repeated to make a page.
#[rustfmt::skip]
const UNITS: &[&str] = &[
    "\0", "&", "&amp;", "&#0;", "&#x41;", "&bogus", "<", ">", "</", "<!", "<!-->", "<!--", "-->", "<b>", "</b>", "<a>",
    "<p>", "</p>", "<div>", "<div></x>", "<b><div></b>", "<i><p></i>", "<table>", "<td>", "<tr>x", "<table>x",
    "<table><tr><td>", "<li>", "<rt>", "<option>", "<select>", "<svg>", "<svg><path>", "<math><mi>", "<script>",
    "<svg><script>", "<style>", "<title>", "<TITLE>x</TITLE>", "<template>", "<form>", "<button><p>", "<body a>",
    "<html b>", "<h1>x</h1>", "<br>", "<img src=x>", "<meta name=a content=b>", "<noscript>", "<textarea>", "<plaintext>",
    "<frameset>", "x</x>", "a&b</i>", "<td>&", "\r", "\r\n", "\n", " ", "\t", "\u{202e}", "\u{fffd}", "日", "e\u{301}",
    "a ", "[", "](", "*", "_", "`", "\\", "#", "| ", "data:image/", "(data:image/a,b ", "![", "http://a ",
    "<a href=x>y</a>", "<pre>", "<code>x</code>", "<ul><li>x</ul>", "<![CDATA[", "<?x", "<dl><dd>", "<ruby><rt>",
    "<nobr>", "<font a=b>x",
];

fn hostile_pages() -> Vec<(String, Vec<u8>)> {
    let size = std::env::var("HERMES_PAGE_BYTES")
        .ok()
        .and_then(|size| size.parse().ok())
        .unwrap_or(300 << 10);
    let mut pages: Vec<(String, Vec<u8>)> = Vec::new();
    for unit in UNITS {
        let inside = format!("<html><body><p>some text</p>{}", fill(unit, size));
        pages.push((format!("inside {unit}"), inside.into_bytes()));
    }
    let attributes = numbered(size, |number| format!(" a{number}=x"));
    pages.push((
        "attributes".into(),
        format!("<p{attributes}>text").into_bytes(),
    ));
    pages.push((
        "one attribute".into(),
        format!("<p class=\"{}\">text", fill("x", size)).into_bytes(),
    ));
    pages.push((
        "classes".into(),
        format!("<p class=\"{}\">text", fill("x ", size)).into_bytes(),
    ));
    pages.push((
        "bodies".into(),
        numbered(size, |number| format!("<body a{number}>")).into_bytes(),
    ));
    pages.push((
        "tags".into(),
        numbered(size, |number| format!("<t{number}>")).into_bytes(),
    ));
    pages.push((
        "comment".into(),
        format!("<!-->{}", fill("<div>", size)).into_bytes(),
    ));
    pages.push((
        "comment 2".into(),
        format!("<!--a--!>{}", fill("<div>", size)).into_bytes(),
    ));
    // At full size, what was costly once: a mark per byte.
    for unit in ["\0", "&", "<!--", "<b>"] {
        pages.push((format!("full {unit}"), fill(unit, 4 << 20).into_bytes()));
    }
    let quotes = format!("<p {}>text", fill("\"", 4 << 20));
    pages.push(("quotes".into(), quotes.into_bytes()));
    pages.push(("high bytes".into(), vec![0xff; size]));
    pages.push((
        "wide".into(),
        [0xff, 0xfe]
            .into_iter()
            .chain(std::iter::repeat_n(0x26, size))
            .collect(),
    ));
    let json = [
        fill("[0,0,0,0,0,0],", size),
        format!("{}{}", fill("[", 120), fill("0,", size)),
        fill("\"a\":", size),
    ];
    for text in json {
        pages.push((format!("json {}", &text[..8]), text.into_bytes()));
    }
    pages
}

/// One test: the counters are of the whole process.
#[test]
fn no_page_costs_more_than_its_bounds() {
    let pages = hostile_pages();
    let kinds = ["text/html", "text/plain", "application/json"];
    let url = Url::parse("https://example.org/page").unwrap();
    let mut wrong = Vec::new();
    for (name, page) in &pages {
        let kinds = if name.starts_with("json") {
            &kinds[2..]
        } else if name.contains("data:") {
            &kinds[..2]
        } else {
            &kinds[..1]
        };
        for kind in kinds {
            let before = NOW.load(Ordering::Relaxed);
            MOST.store(before, Ordering::Relaxed);
            ALL.store(0, Ordering::Relaxed);
            let _ = read_bytes(page, Some(kind), &url, false);
            let peak = MOST.load(Ordering::Relaxed) - before;
            let all = ALL.load(Ordering::Relaxed);
            if peak > PEAK || all > TOTAL {
                wrong.push(format!(
                    "{name:?} as {kind}: {} MB at once, {} MB in all",
                    peak >> 20,
                    all >> 20
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} pages cost too much:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
