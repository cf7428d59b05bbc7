//! Export and import.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use hermes_core::ids::SessionId;
use hermes_core::redact;
use hermes_core::store::StoreError;
use hermes_store::{ImportReport, Store, session_markdown};
use serde_json::{Value, json};

use super::filter::FilterArgs;
use super::{reader, show};
use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// One JSON object per line; can be imported
    Jsonl,
    /// Markdown
    Md,
    /// One self-contained web page per session
    Html,
}

impl ExportFormat {
    /// The end of a file name where each session has its own file.
    fn extension(self) -> Option<&'static str> {
        match self {
            Self::Jsonl => None,
            Self::Md => Some("md"),
            Self::Html => Some("html"),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct SessionExportArgs {
    /// File to write, `-` for stdout, or a directory for several sessions in Markdown or HTML
    output: PathBuf,
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,
    /// Export only this session: id, id prefix, title or first words
    #[arg(long, value_name = "SESSION")]
    session_id: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Hide keys and tokens
    #[arg(long)]
    redact: bool,
    /// Show which sessions match, without writing anything
    #[arg(long)]
    dry_run: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct SessionImportArgs {
    /// JSONL or JSON export to read; `-` for stdin
    input: PathBuf,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn export(args: SessionExportArgs, cx: &Context) -> Outcome {
    let store = reader(cx)?;
    let ids = chosen(store.as_ref(), &args).await?;
    if args.dry_run {
        for id in &ids {
            cx.out.line(id.as_str())?;
        }
        return Ok(());
    }
    let to_stdout = args.output == Path::new("-");
    let own_files = args
        .format
        .extension()
        .filter(|_| !to_stdout && (ids.len() > 1 || args.output.is_dir()));
    let into_directory = own_files.is_some();
    if into_directory {
        std::fs::create_dir_all(&args.output).map_err(|error| unwritable(&args.output, &error))?;
    }
    let mut single = if to_stdout || into_directory {
        None
    } else {
        Some(ExportTarget::open(&args.output)?)
    };
    for id in &ids {
        let Some(store) = &store else { break };
        let session = store.export(id).await?;
        let text = match args.format {
            ExportFormat::Jsonl => session.to_string() + "\n",
            ExportFormat::Md => session_markdown(&session),
            ExportFormat::Html => hermes_app::session_html(&session),
        };
        let text = if args.redact {
            redact::secrets(&text).into_owned()
        } else {
            text
        };
        if to_stdout {
            cx.out.piece(&text)?;
        } else if let Some(file) = &mut single {
            file.write_all(text.as_bytes())
                .map_err(|error| unwritable(&args.output, &error))?;
        } else {
            let end = own_files.unwrap_or_default();
            let path = args.output.join(format!("{}.{end}", file_name(id)));
            let mut file = ExportTarget::open(&path)?;
            file.write_all(text.as_bytes())
                .map_err(|error| unwritable(&path, &error))?;
            file.keep(&path)?;
        }
    }
    if let Some(file) = single {
        file.keep(&args.output)?;
    }
    if args.json && !to_stdout {
        cx.out
            .json(&json!({ "output": args.output, "sessions": ids }))?;
    } else {
        cx.out
            .remark(format!("{} exported", counted(ids.len(), "session")));
    }
    Ok(())
}

async fn chosen(
    store: Option<&Store>,
    args: &SessionExportArgs,
) -> Result<Vec<SessionId>, Failure> {
    if let Some(session) = &args.session_id {
        if !args.filter.is_empty() {
            return Err(Failure::usage(
                "give either --session-id or filters, not both",
            ));
        }
        let Some(store) = store else {
            return Err(StoreError::NotFound(session.clone()).into());
        };
        return Ok(vec![store.resolve(session).await?]);
    }
    let mut filter = args.filter.clone().build(show::now())?;
    filter.include_open = true;
    let Some(store) = store else {
        return Ok(Vec::new());
    };
    let found = store.select(filter).await?;
    Ok(found.into_iter().map(|session| session.id.into()).collect())
}

/// Ids may hold anything; file names may not.
fn file_name(id: &SessionId) -> String {
    let clean: String = id
        .as_str()
        .chars()
        .map(|ch| {
            if ch.is_alphanumeric() || matches!(ch, '-' | '_' | '.') {
                ch
            } else {
                '_'
            }
        })
        .collect();
    clean.trim_start_matches('.').to_owned()
}

/// Where an export goes.
enum ExportTarget {
    /// Written beside the target and moved there at the end, so that a failure leaves no half file.
    File(tempfile::NamedTempFile),
    /// A pipe or device such as /dev/stdout, which must not be replaced by a file.
    Stream(std::fs::File),
}

impl ExportTarget {
    fn open(path: &Path) -> Result<Self, Failure> {
        let opened = if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
        {
            let stream = std::fs::OpenOptions::new().write(true).open(path);
            stream.map(Self::Stream)
        } else {
            let dir = match path.parent() {
                Some(dir) if !dir.as_os_str().is_empty() => dir,
                _ => Path::new("."),
            };
            tempfile::NamedTempFile::new_in(dir).map(Self::File)
        };
        opened.map_err(|error| unwritable(path, &error))
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.write_all(bytes),
            Self::Stream(stream) => stream.write_all(bytes),
        }
    }

    fn keep(self, path: &Path) -> Outcome {
        match self {
            Self::Stream(_) => Ok(()),
            Self::File(file) => file
                .persist(path)
                .map(|_| ())
                .map_err(|error| unwritable(path, &error.error)),
        }
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

pub(super) async fn import(args: &SessionImportArgs, cx: &Context) -> Outcome {
    let text = read(&args.input)?;
    let sessions = parse(&text, &args.input)?;
    let store = wiring::open_store(cx)?;
    let report = store.import(sessions).await?;
    store.close().await?;
    if args.json {
        cx.out.json(&report)?;
    }
    match report {
        ImportReport::Done(done) => {
            if !args.json {
                cx.out.line(format!(
                    "{} imported, {} existed already{}",
                    counted(done.imported_ids.len(), "session"),
                    done.skipped_ids.len(),
                    match done.detached {
                        0 => String::new(),
                        count => format!(", {count} without their parent"),
                    }
                ))?;
            }
            Ok(())
        }
        ImportReport::Refused { .. } if args.json => Err(Failure::silent(Exit::Failed)),
        ImportReport::Refused { errors } => {
            let mut message = "nothing was imported:".to_owned();
            for error in errors.iter().take(10) {
                let id = error.session_id.as_deref().unwrap_or("without id");
                let _ = write!(
                    message,
                    "\n  session {} ({id}): {}",
                    error.index + 1,
                    error.error
                );
            }
            Err(Failure::failed(message))
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let result = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    match result {
        Ok(_) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::not_found(format!("no file {}", path.display())))
        }
        Err(error) => Err(Failure::failed(format!(
            "cannot read {}: {error}",
            path.display()
        ))),
    }
}

/// A JSON list, one object, or one object per line.
fn parse(text: &str, path: &Path) -> Result<Vec<Value>, Failure> {
    let text = text.trim_start_matches('\u{feff}');
    match serde_json::from_str(text) {
        Ok(Value::Array(sessions)) => return Ok(sessions),
        Ok(session @ Value::Object(_)) => return Ok(vec![session]),
        _ => {}
    }
    let mut sessions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let session = serde_json::from_str(line).map_err(|error| {
            Failure::failed(format!("{} line {}: {error}", path.display(), index + 1))
        })?;
        sessions.push(session);
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_objects_and_lines_are_read() {
        let path = Path::new("x.jsonl");
        for (text, count) in [("[{}, {}]", 2), ("{\n}", 1), ("{}\n\n{}\n", 2), ("", 0)] {
            assert_eq!(parse(text, path).unwrap().len(), count, "{text}");
        }
        let error = parse("{}\n{", path).unwrap_err();
        assert!(
            error.message.contains("x.jsonl line 2"),
            "{}",
            error.message
        );
    }

    #[test]
    fn ids_make_harmless_file_names() {
        assert_eq!(file_name(&"../a:b".into()), "_a_b");
    }
}
