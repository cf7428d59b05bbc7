//! The `read_file` tool: pages of text files, documents and images, also of results that were
//! spilled to a file.

mod document;
mod image;
mod memory;
mod page;
mod similar;

use std::io::{BufReader, Cursor, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::redact;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_exec::{Environment, FileKind};
use serde_json::{Value, json};

use super::guard::normal;
use super::ledger::Stamp;
use super::open;
use super::place::{self, Disk, FileError, Probe};
use super::{Shared, done, failed, failed_with};
use image::Image;
use memory::Known;
pub use memory::ReadMemory;
use page::{Page, PageError, Wanted};

const NAME: &str = "read_file";
const DEFAULT_LINES: i64 = 500;
/// Documents and images are held in memory.
const MAX_DOCUMENT: usize = 32 * 1024 * 1024;
/// A file that is read where it is found.
const SMALL: usize = 64 * 1024;
/// What a file from another environment may weigh to be paged.
const MAX_REMOTE: usize = 64 * 1024 * 1024;
/// Names shown of a directory.
const MAX_NAMES: usize = 50;

pub(super) struct ReadFile {
    spec: ToolSpec,
    shared: Arc<Shared>,
}

impl ReadFile {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file: absolute, from the working directory, or with ~.",
                },
                "offset": {
                    "type": "integer", "default": 1, "minimum": 1,
                    "description": "The first line to show, counted from 1.",
                },
                "limit": {
                    "type": "integer", "default": DEFAULT_LINES, "maximum": 2000,
                    "description": "How many lines to show.",
                },
            },
            "required": ["path"],
        }));
        let description = "Read a text file, page by page, with line numbers. \
            Each line is shown as number|text; the number and the bar are not part of the file. \
            When truncated is true, go on with offset=next_offset. Notebooks, .docx and .xlsx come \
            as text, images as images where the model sees. Also the way to read a tool result \
            that was saved to a file because of its length.";
        let mut spec = crate::spec(
            NAME,
            "file",
            Effects::ReadsPaths(&["path"]),
            description,
            parameters,
        );
        spec.result_limit = Some(shared.deps.limits.chars);
        Self { spec, shared }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<ToolOutcome, ToolOutcome> {
        let args = Args::new(NAME, args);
        let given = args
            .required("path", "the path of a file")?
            .trim()
            .to_owned();
        let limits = self.shared.deps.limits;
        let offset = args.integer("offset")?.unwrap_or(1).max(1) as usize;
        let count = args.integer("limit")?.unwrap_or(DEFAULT_LINES);
        let wanted = Wanted {
            offset,
            count: (count.max(1) as usize).min(limits.lines),
            limits,
        };
        let source = self.open(&given, cx).await?;
        let key = memory::Page {
            path: source.path.clone(),
            offset,
            count: wanted.count,
        };
        let memory = &self.shared.deps.memory;
        let unsaved = source.unsaved;
        match memory.ask(&cx.session, &key, source.stamp) {
            _ if unsaved => {}
            Known::No => {}
            Known::Unchanged => return Ok(done(&unchanged(&given))),
            Known::Again => return Err(blocked(&given)),
        }
        let (path, stamp) = (source.path.clone(), source.stamp);
        let cancel = cx.cancel.clone();
        let images = self.shared.deps.images;
        let show = move |source: Source| source.show(wanted, images, &|| cancel.is_cancelled());
        let shown = if source.is_at_hand() {
            show(source)
        } else {
            place::blocking(move || Ok(show(source)))
                .await
                .map_err(|error| fail(&given, &error))?
        };
        let shown = shown.map_err(|error| explain(&error, &given))?;
        let outcome = match shown {
            Shown::Image(image) => return Ok(image.outcome(&path)),
            Shown::Page(page) => {
                let partial = offset > 1 || page.shown < page.total_lines || page.cut_lines > 0;
                let ledger = &self.shared.deps.ledger;
                ledger.note_read(&cx.session, &path, stamp, partial);
                value(&page, offset, stamp.size, false, &self.hidden(&path, &page))
            }
            Shown::Document(page) => {
                value(&page, offset, stamp.size, true, &self.hidden(&path, &page))
            }
        };
        if unsaved {
            memory.forget(&cx.session, &path);
        } else {
            memory.note(&cx.session, key, stamp);
        }
        Ok(done(&outcome))
    }

    /// The text of the page, without keys where they are to be hidden.
    fn hidden(&self, path: &Path, page: &Page) -> String {
        if self.shared.is_local() && self.shared.guard.hides_keys(path) {
            redact::secrets(&page.content).into_owned()
        } else {
            page.content.clone()
        }
    }

    /// Finds and opens the file. What is checked is what is opened.
    async fn open(&self, given: &str, cx: &ToolContext) -> Result<Source, ToolOutcome> {
        let refused = |why: &str| {
            let text = format!("{NAME}: {given} is not read: {why}");
            failed(ToolErrorKind::Denied, text)
        };
        let located = self.shared.located(given, cx).await;
        let path = located.map_err(|error| fail(given, &error.into()))?;
        if let Some(why) = self.shared.guard.unreadable_as_named(&path) {
            return Err(refused(why));
        }
        let spilled = is_spilled(&self.shared, &path);
        let environment = match &self.shared.disk {
            Disk::Remote(environment) if !spilled => Arc::clone(environment),
            _ => {
                let shared = Arc::clone(&self.shared);
                let looked_at = path.clone();
                // In one step: going to another thread takes longer than most files.
                let found = place::blocking(move || Ok(look(&shared, &looked_at))).await;
                return match found.map_err(|error| fail(given, &error))? {
                    Found::File(source) => self.as_open(source).await.map_err(|e| fail(given, &e)),
                    Found::Directory(names) => Err(directory(given, &names)),
                    Found::Refused(why) => Err(refused(why)),
                    Found::Failed(error) => Err(fail(given, &error)),
                    Found::Missing(error) => Err(self.missing(given, path, error).await),
                };
            }
        };
        self.open_remote(given, &path, &environment).await
    }

    /// The file as an editor has it, where that differs from the disk.
    async fn as_open(&self, mut source: Source) -> Result<Source, FileError> {
        let small = source.stamp.size <= place::MAX_EDIT as u64 && !source.needs_decoding();
        let open = self.shared.deps.open_texts.as_ref();
        let Some(open) = open.filter(|_| small && self.shared.is_local()) else {
            return Ok(source);
        };
        let Some(text) = open.text(&source.path).await else {
            return Ok(source);
        };
        if let Body::File(file) = source.body {
            let read = move || -> Result<Vec<u8>, FileError> {
                let mut bytes = Vec::new();
                file.take(place::MAX_EDIT as u64).read_to_end(&mut bytes)?;
                Ok(bytes)
            };
            source.body = Body::Bytes(place::blocking(read).await?);
        }
        if let Body::Bytes(disk) = &source.body
            && let Some(bytes) = open::unsaved(disk, &text)
        {
            source.body = Body::Bytes(bytes);
            source.unsaved = true;
        }
        Ok(source)
    }

    async fn open_remote(
        &self,
        given: &str,
        located: &Path,
        environment: &Arc<dyn Environment>,
    ) -> Result<Source, ToolOutcome> {
        let fail = |error: FileError| fail(given, &error);
        let files = environment.files();
        let path = files
            .resolve(located, Path::new("/"))
            .await
            .map_err(|error| fail(error.into()))?;
        if let Some(why) = self.shared.guard.unreadable(&path) {
            let text = format!("{NAME}: {given} is not read: {why}");
            return Err(failed(ToolErrorKind::Denied, text));
        }
        let stat = files
            .stat(&path)
            .await
            .map_err(|error| fail(error.into()))?;
        let Some(stat) = stat else {
            let text = format!("{NAME}: there is no file {given}");
            return Err(failed(ToolErrorKind::Failed, text));
        };
        if stat.kind == FileKind::Directory {
            let names = files.list(&path).await.unwrap_or_default();
            let names = names.into_iter().map(|(name, kind)| match kind {
                FileKind::Directory => name + "/",
                _ => name,
            });
            let names: Vec<String> = names.take(MAX_NAMES).collect();
            return Err(directory(given, &names));
        }
        if stat.size > MAX_REMOTE as u64 {
            return Err(fail(FileError::TooLarge));
        }
        let bytes = files
            .read(&path, 0, MAX_REMOTE)
            .await
            .map_err(|error| fail(error.into()))?;
        let stamp = Stamp {
            modified_ns: stat.modified_ns,
            size: stat.size,
            inode: 0,
        };
        Ok(Source {
            path,
            stamp,
            body: Body::Bytes(bytes.to_vec()),
            unsaved: false,
        })
    }

    async fn missing(&self, given: &str, path: PathBuf, error: std::io::Error) -> ToolOutcome {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        if !matches!(error.kind(), NotFound | NotADirectory) {
            return fail(given, &error.into());
        }
        let text = format!("{NAME}: there is no file {given} ({})", path.display());
        let found = place::blocking(move || Ok(similar::names(&path))).await;
        match found {
            Ok(similar::Near::Names(names)) if names.is_empty() => {
                failed(ToolErrorKind::Failed, text)
            }
            Ok(similar::Near::Names(names)) => {
                let details = json!({ "similar_files": names });
                failed_with(ToolErrorKind::Failed, text, details)
            }
            Ok(similar::Near::NoDirectory(dir)) => failed(
                ToolErrorKind::Failed,
                format!("{text}; {} does not exist", dir.display()),
            ),
            Err(error) => fail(given, &error),
        }
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { self.run(&args, cx).await.unwrap_or_else(|outcome| outcome) })
    }
}

/// What lies at a path of this machine.
enum Found {
    File(Source),
    Directory(Vec<String>),
    Refused(&'static str),
    Failed(FileError),
    Missing(std::io::Error),
}

/// Looks, checks and opens; a small file is read at once.
fn look(shared: &Shared, path: &Path) -> Found {
    let found = match place::probe(path) {
        Ok(Probe::File(found)) => found,
        Ok(Probe::Directory(dir)) => return Found::Directory(names_in(&dir)),
        // Opening a pipe would wait for a writer, reading a device might never end.
        Ok(Probe::Other) => return Found::Refused("it is not a regular file"),
        Err(error) => return Found::Missing(error),
    };
    if let Some(why) = shared.guard.unreadable(&found.path) {
        return Found::Refused(why);
    }
    if !shared.is_local() && !is_spilled(shared, &found.path) {
        return Found::Refused("it leads out of the saved results");
    }
    if shared.guard.is_secret_inode(found.id) {
        return Found::Refused("it holds credentials of Hermes");
    }
    let opened = match found.open() {
        Ok(opened) => opened,
        Err(error) => return Found::Failed(error.into()),
    };
    let source = Source {
        path: opened.path,
        stamp: opened.stamp,
        body: Body::File(opened.file),
        unsaved: false,
    };
    match source.at_hand() {
        Ok(source) => Found::File(source),
        Err(error) => Found::Failed(error.into()),
    }
}

/// Results that were saved to a file are on this machine, wherever commands run.
fn is_spilled(shared: &Shared, path: &Path) -> bool {
    let cache = shared.deps.home.cache_dir();
    let path = normal(path);
    path.starts_with(&cache)
        || cache
            .canonicalize()
            .is_ok_and(|cache| path.starts_with(cache))
}

/// A file that was opened.
struct Source {
    path: PathBuf,
    stamp: Stamp,
    body: Body,
    /// It is not what the disk has, so that its stamp says nothing of it.
    unsaved: bool,
}

enum Body {
    File(std::fs::File),
    Bytes(Vec<u8>),
}

enum Shown {
    Page(Page),
    Document(Page),
    Image(Image),
}

#[derive(Debug)]
enum ShowError {
    Page(PageError),
    Image(String),
}

impl Source {
    /// A small text is held in memory from here on.
    fn at_hand(mut self) -> std::io::Result<Self> {
        if self.stamp.size <= SMALL as u64
            && !self.needs_decoding()
            && let Body::File(file) = &self.body
        {
            let mut bytes = Vec::with_capacity(self.stamp.size as usize);
            // It may grow while it is read: then the rest is left to the file.
            file.take(SMALL as u64 + 1).read_to_end(&mut bytes)?;
            if bytes.len() <= SMALL {
                self.body = Body::Bytes(bytes);
            } else {
                let mut file = file;
                file.rewind()?;
            }
        }
        Ok(self)
    }

    /// Whether showing it takes no time.
    fn is_at_hand(&self) -> bool {
        matches!(&self.body, Body::Bytes(bytes) if bytes.len() <= SMALL) && !self.needs_decoding()
    }

    fn needs_decoding(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        document::is_one(&name) || image::is_one(&name)
    }

    fn show(
        self,
        wanted: Wanted,
        images: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Shown, ShowError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        let small = self.stamp.size <= MAX_DOCUMENT as u64;
        if small && (document::is_one(&name) || image::is_one(&name)) {
            let bytes = self.body.bytes().map_err(|e| ShowError::Page(e.into()))?;
            if image::is_one(&name) {
                return Image::new(bytes, images)
                    .map(Shown::Image)
                    .map_err(ShowError::Image);
            }
            // What is broken is shown as the bytes it is.
            return match document::text(&name, &bytes) {
                Some(text) => page::read(text.as_bytes(), wanted, cancelled).map(Shown::Document),
                None => page::read(Cursor::new(bytes), wanted, cancelled).map(Shown::Page),
            }
            .map_err(ShowError::Page);
        }
        let page = match self.body {
            Body::File(file) => page::read(
                BufReader::with_capacity(page::SAMPLE, file),
                wanted,
                cancelled,
            ),
            Body::Bytes(bytes) => page::read(Cursor::new(bytes), wanted, cancelled),
        };
        page.map(Shown::Page).map_err(ShowError::Page)
    }
}

impl Body {
    fn bytes(self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::File(file) => {
                let mut bytes = Vec::new();
                file.take(MAX_DOCUMENT as u64).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir { name + "/" } else { name }
        })
        .collect();
    names.sort();
    names.truncate(MAX_NAMES);
    names
}

fn directory(given: &str, names: &[String]) -> ToolOutcome {
    failed_with(
        ToolErrorKind::BadArguments,
        format!("{NAME}: {given} is a directory; pass one of its files"),
        json!({ "entries": names }),
    )
}

fn fail(given: &str, error: &FileError) -> ToolOutcome {
    failed(ToolErrorKind::Failed, format!("{NAME}: {given}: {error}"))
}

fn explain(error: &ShowError, given: &str) -> ToolOutcome {
    match error {
        ShowError::Page(PageError::Cancelled) => failed(ToolErrorKind::Cancelled, "cancelled"),
        ShowError::Page(PageError::Binary) => failed(
            ToolErrorKind::Failed,
            format!("{NAME}: {given} is not text but binary data; use a tool made for its kind"),
        ),
        ShowError::Page(PageError::Io(error)) => {
            failed(ToolErrorKind::Failed, format!("{NAME}: {given}: {error}"))
        }
        ShowError::Image(why) => failed(
            ToolErrorKind::Failed,
            format!("{NAME}: {given} is an image: {why}"),
        ),
    }
}

/// What a path that is not there may have meant.
pub(super) fn similar_names(path: &Path) -> Vec<String> {
    match similar::names(path) {
        similar::Near::Names(names) => names,
        similar::Near::NoDirectory(_) => Vec::new(),
    }
}

/// What a repeated question is answered with.
fn unchanged(given: &str) -> Value {
    json!({
        "status": "unchanged",
        "message": UNCHANGED,
        "path": given,
        "dedup": true,
        "content_returned": false,
    })
}

/// Also what [`super::write`] refuses to write into a file.
pub(super) const UNCHANGED: &str = "This page was read before and the file has not changed since. \
    What the earlier read_file returned in this conversation still holds; use that.";

fn blocked(given: &str) -> ToolOutcome {
    failed_with(
        ToolErrorKind::Denied,
        format!(
            "{NAME}: this page of {given} was asked for three times and has not changed. It is \
             above in this conversation; go on with what you have"
        ),
        json!({ "path": given, "already_read": 3 }),
    )
}

fn value(page: &Page, offset: usize, bytes: u64, document: bool, content: &str) -> Value {
    let next = offset + page.shown;
    let more = next <= page.total_lines && page.shown > 0;
    let mut value = json!({
        "content": content,
        "total_lines": page.total_lines,
        "file_size": bytes,
        "truncated": more || page.cut_lines > 0,
    });
    if document {
        value["extracted_document"] = json!(true);
    }
    let mut hints = Vec::new();
    if more {
        value["next_offset"] = json!(next);
        let total = page.total_lines;
        hints.push(format!(
            "Lines {offset}–{} of {total}; go on with offset={next}.",
            next - 1
        ));
    }
    if page.out_of_room {
        value["truncated_by"] = json!("bytes");
    }
    if page.cut_lines > 0 {
        hints
            .push("Lines that end in … are cut; the rest of them cannot be shown here.".to_owned());
    }
    if page.lossy {
        hints.push(
            "The file is not clean UTF-8; unreadable bytes are shown as \u{fffd}.".to_owned(),
        );
    }
    if page.shown == 0 && page.total_lines > 0 {
        hints.push(format!("The file has only {} lines.", page.total_lines));
    }
    if page.total_lines == 0 {
        hints.push("The file is empty.".to_owned());
    }
    if !hints.is_empty() {
        value["hint"] = json!(hints.join(" "));
    }
    value
}
