//! Images dropped on the terminal, which types their paths.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::image::{self, ImageError, MAX_BYTES};

use super::chip::Chip;
use super::complete::resolve;

/// A longer paste is not a list of paths.
const MAX_PASTE: usize = 16 << 10;
/// Maximum images per drop.
const MAX_FILES: usize = 20;

/// An image, or its path and why it cannot be sent.
pub(super) type DroppedImage = Result<Chip, (PathBuf, String)>;

/// Reads an image file of a size that can be sent.
pub(super) fn read(path: &Path) -> Result<Arc<[u8]>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err("not a file".to_owned());
    }
    let size = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    if size > MAX_BYTES {
        return Err(ImageError::TooLarge(size).to_string());
    }
    let mut bytes = Vec::with_capacity(size);
    // It may have grown meanwhile.
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes.into())
}

/// The chip of an image file.
pub(super) fn load(path: &Path) -> Result<Chip, String> {
    let bytes = read(path)?;
    Chip::image(bytes, Some(path.to_path_buf())).map_err(|error| error.to_string())
}

/// The images of a paste that consists only of image paths.
pub(super) fn dropped(text: &str, project: &Path) -> Option<Vec<DroppedImage>> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_PASTE {
        return None;
    }
    let paths = match path(text, project).filter(|path| is_image(path)) {
        Some(whole) => vec![whole],
        None => words(text)?
            .iter()
            .map(|word| path(word, project).filter(|path| is_image(path)))
            .collect::<Option<Vec<_>>>()?,
    };
    if paths.is_empty() || paths.len() > MAX_FILES {
        return None;
    }
    let load = |path: PathBuf| load(&path).map_err(|why| (path, why));
    Some(paths.into_iter().map(load).collect())
}

fn is_image(path: &Path) -> bool {
    // Checked before it is opened, because opening a pipe blocks.
    let regular = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let mut head = [0; 16];
    regular
        && File::open(path)
            .and_then(|mut file| file.read(&mut head))
            .is_ok_and(|count| image::sniff(&head[..count]).is_some())
}

/// A word as a path. Only absolute paths count: terminals drop no others, and a bare name in a text
/// is just a word.
fn path(word: &str, project: &Path) -> Option<PathBuf> {
    if let Some(rest) = word.strip_prefix("file://") {
        let rest = rest.strip_prefix("localhost").unwrap_or(rest);
        return rest.starts_with('/').then(|| PathBuf::from(decoded(rest)));
    }
    (word.starts_with('/') || word.starts_with("~/")).then(|| resolve(word, project))
}

/// `%20` as a blank.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = code {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Splits words like a shell: quotes, and backslashes before spaces. `None`: unclosed quote.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(chars.next()?),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}
