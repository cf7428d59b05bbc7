//! The `read_file` tool: pages of text files, documents and images, including results that were spilled to a
//! file.

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
use hermes_core::paths::lexically_normal;
use hermes_core::redact;
use hermes_core::schema;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_exec::{Environment, FileKind};
use serde_json::{Value, json};

use super::guard::FileGuard;
use super::ledger::FileVersion;
use super::location::{self, FileError, PathProbe, SessionFiles};
use super::open;
use super::{FileToolsShared, failed, failed_with};
use image::Image;
use memory::PageStatus;
pub use memory::ReadMemory;
use page::{LineRange, TextPage, TextPageError};

const NAME: &str = "read_file";
const DEFAULT_LINES: i64 = 500;
/// Maximum size of documents and images, which are held in memory.
const MAX_DOCUMENT: usize = 32 * 1024 * 1024;
/// Maximum size of a file that is read when it is opened.
const MAX_PRELOADED_BYTES: usize = 64 * 1024;
/// Maximum size of a remote file that can be paged.
const MAX_REMOTE: usize = 64 * 1024 * 1024;
/// Maximum number of listed directory entries.
const MAX_NAMES: usize = 50;

pub(super) struct ReadFile {
    spec: ToolSpec,
    shared: Arc<FileToolsShared>,
}

impl ReadFile {
    pub(super) fn new(shared: Arc<FileToolsShared>) -> Self {
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
        let spec = ToolSpec::new(
            NAME,
            "file",
            Effects::ReadsPaths(&["path"]),
            description,
            parameters,
        );
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
        let wanted = LineRange {
            offset,
            count: (count.max(1) as usize).min(limits.lines),
            limits,
        };
        let source = self.open(&given, cx).await?;
        let key = memory::PageKey {
            path: source.path.clone(),
            offset,
            count: wanted.count,
        };
        let memory = &self.shared.deps.memory;
        let unsaved = source.unsaved;
        match memory.ask(&cx.session, &key, source.stamp) {
            _ if unsaved => {}
            PageStatus::No => {}
            PageStatus::Unchanged => return Ok(ToolOutcome::json(&unchanged(&given))),
            PageStatus::Again => return Err(blocked(&given)),
        }
        let (path, stamp) = (source.path.clone(), source.stamp);
        let cancel = cx.cancel.clone();
        let images = self.shared.deps.images;
        let show = move |source: FileSource| source.show(wanted, images, &|| cancel.is_cancelled());
        let shown = if source.is_at_hand() {
            show(source)
        } else {
            location::blocking(move || Ok(show(source)))
                .await
                .map_err(|error| fail(&given, &error))?
        };
        let shown = shown.map_err(|error| explain(&error, &given))?;
        let outcome = match shown {
            ShownContent::Image(image) => return Ok(image.outcome(&path)),
            ShownContent::Page(page) => {
                let partial = offset > 1 || page.shown < page.total_lines || page.cut_lines > 0;
                let ledger = &self.shared.deps.ledger;
                ledger.note_read(&cx.session, &path, stamp, partial);
                value(&page, offset, stamp.size, false, &self.hidden(&path, &page))
            }
            ShownContent::Document(page) => {
                value(&page, offset, stamp.size, true, &self.hidden(&path, &page))
            }
        };
        if unsaved {
            memory.forget(&cx.session, &path);
        } else {
            memory.note(&cx.session, key, stamp);
        }
        Ok(ToolOutcome::json(&outcome))
    }

    /// The text of the page, with keys hidden if required.
    fn hidden(&self, path: &Path, page: &TextPage) -> String {
        if self.shared.is_local() && self.shared.guard.hides_keys(path) {
            redact::secrets(&page.content).into_owned()
        } else {
            page.content.clone()
        }
    }

    /// Finds and opens the file. What is checked is what is opened.
    async fn open(&self, given: &str, cx: &ToolContext) -> Result<FileSource, ToolOutcome> {
        let refused = |why: &str| {
            let text = format!("{NAME}: {given} is not read: {why}");
            failed(ToolErrorKind::Denied, text)
        };
        let located = self.shared.located(given, cx).await;
        let path = located.map_err(|error| fail(given, &error.into()))?;
        let guard = self.shared.guard_in(cx);
        if let Some(why) = guard.unreadable_as_named(&path) {
            return Err(refused(why));
        }
        let spilled = is_spilled(&self.shared, &path);
        let environment = match &self.shared.disk {
            SessionFiles::Remote(environment) if !spilled => Arc::clone(environment),
            _ => {
                let shared = Arc::clone(&self.shared);
                let looked_at = path.clone();
                // In one step: switching threads takes longer than reading most files.
                let found = location::blocking(move || Ok(look(&shared, &guard, &looked_at))).await;
                return match found.map_err(|error| fail(given, &error))? {
                    FoundFile::File(source) => {
                        self.as_open(source).await.map_err(|e| fail(given, &e))
                    }
                    FoundFile::Directory(names) => Err(directory(given, &names)),
                    FoundFile::Refused(why) => Err(refused(why)),
                    FoundFile::Failed(error) => Err(fail(given, &error)),
                    FoundFile::Missing(error) => Err(self.missing(given, path, error).await),
                };
            }
        };
        self.open_remote(given, &path, &environment).await
    }

    /// The file as an editor has it, if that differs from the disk.
    async fn as_open(&self, mut source: FileSource) -> Result<FileSource, FileError> {
        let small = source.stamp.size <= location::MAX_EDIT as u64 && !source.needs_decoding();
        let open = self.shared.deps.open_texts.as_ref();
        let Some(open) = open.filter(|_| small && self.shared.is_local()) else {
            return Ok(source);
        };
        let Some(text) = open.text(&source.path).await else {
            return Ok(source);
        };
        if let FileBody::File(file) = source.body {
            let read = move || -> Result<Vec<u8>, FileError> {
                let mut bytes = Vec::new();
                file.take(location::MAX_EDIT as u64)
                    .read_to_end(&mut bytes)?;
                Ok(bytes)
            };
            source.body = FileBody::Bytes(location::blocking(read).await?);
        }
        if let FileBody::Bytes(disk) = &source.body
            && let Some(bytes) = open::unsaved(disk, &text)
        {
            source.body = FileBody::Bytes(bytes);
            source.unsaved = true;
        }
        Ok(source)
    }

    async fn open_remote(
        &self,
        given: &str,
        located: &Path,
        environment: &Arc<dyn Environment>,
    ) -> Result<FileSource, ToolOutcome> {
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
        let stamp = FileVersion {
            modified_ns: stat.modified_ns,
            size: stat.size,
            inode: 0,
        };
        Ok(FileSource {
            path,
            stamp,
            body: FileBody::Bytes(bytes.to_vec()),
            unsaved: false,
        })
    }

    async fn missing(&self, given: &str, path: PathBuf, error: std::io::Error) -> ToolOutcome {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        if !matches!(error.kind(), NotFound | NotADirectory) {
            return fail(given, &error.into());
        }
        let text = format!("{NAME}: there is no file {given} ({})", path.display());
        let found = location::blocking(move || Ok(similar::names(&path))).await;
        match found {
            Ok(similar::SimilarPaths::Names(names)) if names.is_empty() => {
                failed(ToolErrorKind::Failed, text)
            }
            Ok(similar::SimilarPaths::Names(names)) => {
                let details = json!({ "similar_files": names });
                failed_with(ToolErrorKind::Failed, text, details)
            }
            Ok(similar::SimilarPaths::NoDirectory(dir)) => failed(
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

/// The target of a local path.
enum FoundFile {
    File(FileSource),
    Directory(Vec<String>),
    Refused(&'static str),
    Failed(FileError),
    Missing(std::io::Error),
}

/// Checks and opens; a small file is read at once.
fn look(shared: &FileToolsShared, guard: &FileGuard, path: &Path) -> FoundFile {
    let found = match location::probe(path) {
        Ok(PathProbe::File(found)) => found,
        Ok(PathProbe::Directory(dir)) => return FoundFile::Directory(names_in(&dir)),
        // Opening a pipe would wait for a writer, reading a device might never end.
        Ok(PathProbe::Other) => return FoundFile::Refused("it is not a regular file"),
        Err(error) => return FoundFile::Missing(error),
    };
    if let Some(why) = guard.unreadable(&found.path) {
        return FoundFile::Refused(why);
    }
    if !shared.is_local() && !is_spilled(shared, &found.path) {
        return FoundFile::Refused("it leads out of the saved results");
    }
    if shared.guard.is_secret_inode(found.id) {
        return FoundFile::Refused("it holds credentials of Hermes");
    }
    let opened = match found.open() {
        Ok(opened) => opened,
        Err(error) => return FoundFile::Failed(error.into()),
    };
    let source = FileSource {
        path: opened.path,
        stamp: opened.stamp,
        body: FileBody::File(opened.file),
        unsaved: false,
    };
    match source.at_hand() {
        Ok(source) => FoundFile::File(source),
        Err(error) => FoundFile::Failed(error.into()),
    }
}

/// Results saved to a file are on this machine, wherever commands run.
fn is_spilled(shared: &FileToolsShared, path: &Path) -> bool {
    let cache = shared.deps.home.cache_dir();
    let path = lexically_normal(path);
    path.starts_with(&cache)
        || cache
            .canonicalize()
            .is_ok_and(|cache| path.starts_with(cache))
}

/// An opened file.
struct FileSource {
    path: PathBuf,
    stamp: FileVersion,
    body: FileBody,
    /// It differs from the disk, so its version does not apply.
    unsaved: bool,
}

enum FileBody {
    File(std::fs::File),
    Bytes(Vec<u8>),
}

enum ShownContent {
    Page(TextPage),
    Document(TextPage),
    Image(Image),
}

#[derive(Debug)]
enum ShowError {
    Page(TextPageError),
    Image(String),
}

impl FileSource {
    /// Keeps a small text in memory.
    fn at_hand(mut self) -> std::io::Result<Self> {
        if self.stamp.size <= MAX_PRELOADED_BYTES as u64
            && !self.needs_decoding()
            && let FileBody::File(file) = &self.body
        {
            let mut bytes = Vec::with_capacity(self.stamp.size as usize);
            // It may grow while it is read: then the rest is read from the file.
            file.take(MAX_PRELOADED_BYTES as u64 + 1)
                .read_to_end(&mut bytes)?;
            if bytes.len() <= MAX_PRELOADED_BYTES {
                self.body = FileBody::Bytes(bytes);
            } else {
                let mut file = file;
                file.rewind()?;
            }
        }
        Ok(self)
    }

    /// Whether showing it takes no time.
    fn is_at_hand(&self) -> bool {
        matches!(&self.body, FileBody::Bytes(bytes) if bytes.len() <= MAX_PRELOADED_BYTES)
            && !self.needs_decoding()
    }

    fn needs_decoding(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        document::is_one(&name) || image::is_one(&name)
    }

    fn show(
        self,
        wanted: LineRange,
        images: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<ShownContent, ShowError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        let small = self.stamp.size <= MAX_DOCUMENT as u64;
        if small && (document::is_one(&name) || image::is_one(&name)) {
            let bytes = self.body.bytes().map_err(|e| ShowError::Page(e.into()))?;
            if image::is_one(&name) {
                return Image::new(bytes, images)
                    .map(ShownContent::Image)
                    .map_err(ShowError::Image);
            }
            // A broken document is shown as raw bytes.
            return match document::text(&name, &bytes) {
                Some(text) => {
                    page::read(text.as_bytes(), wanted, cancelled).map(ShownContent::Document)
                }
                None => page::read(Cursor::new(bytes), wanted, cancelled).map(ShownContent::Page),
            }
            .map_err(ShowError::Page);
        }
        let page = match self.body {
            FileBody::File(file) => page::read(
                BufReader::with_capacity(page::SAMPLE_BYTES, file),
                wanted,
                cancelled,
            ),
            FileBody::Bytes(bytes) => page::read(Cursor::new(bytes), wanted, cancelled),
        };
        page.map(ShownContent::Page).map_err(ShowError::Page)
    }
}

impl FileBody {
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
        ShowError::Page(TextPageError::Cancelled) => failed(ToolErrorKind::Cancelled, "cancelled"),
        ShowError::Page(TextPageError::Binary) => failed(
            ToolErrorKind::Failed,
            format!("{NAME}: {given} is not text but binary data; use a tool made for its kind"),
        ),
        ShowError::Page(TextPageError::Io(error)) => {
            failed(ToolErrorKind::Failed, format!("{NAME}: {given}: {error}"))
        }
        ShowError::Image(why) => failed(
            ToolErrorKind::Failed,
            format!("{NAME}: {given} is an image: {why}"),
        ),
    }
}

/// Suggestions for a missing path.
pub(super) fn similar_names(path: &Path) -> Vec<String> {
    match similar::names(path) {
        similar::SimilarPaths::Names(names) => names,
        similar::SimilarPaths::NoDirectory(_) => Vec::new(),
    }
}

/// The reply to a repeated read.
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

fn value(page: &TextPage, offset: usize, bytes: u64, document: bool, content: &str) -> Value {
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
