//! Objects that appear in a text as a single unit: a long paste, an image.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hermes_core::figures::size;
use hermes_core::image::{self, ImageError};
use hermes_core::message::Part;

/// Pastes up to this many characters …
pub(crate) const MAX_INLINE_CHARS: usize = 1_000;
/// … and lines are inserted as plain text.
pub(crate) const MAX_INLINE_LINES: usize = 5;

/// A unit that is moved and deleted as one and stands for more than it shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Chip {
    Paste(Paste),
    Image(Picture),
}

/// A paste too long to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Paste {
    /// `None`: an old history entry whose text was too long to store.
    pub body: Option<Arc<str>>,
    pub chars: usize,
    pub lines: usize,
}

/// An image.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub format: &'static str,
    pub width: u32,
    pub height: u32,
    pub bytes: usize,
    /// Its source file; none for an image from the clipboard.
    pub path: Option<PathBuf>,
    /// `None`: known only by its path; read when it is sent.
    pub data: Option<Arc<[u8]>>,
}

/// Why a chip cannot be sent.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ChipError {
    #[error("the pasted text of {0} was not kept: paste it again, or delete it")]
    Paste(String),
    #[error("the image of {label} is gone: {why}; add it again, or delete it")]
    Image { label: String, why: String },
}

impl Chip {
    pub fn paste(body: &str) -> Self {
        Self::Paste(Paste {
            chars: body.chars().count(),
            lines: lines(body),
            body: Some(body.into()),
        })
    }

    /// An image by its bytes.
    pub fn image(data: Arc<[u8]>, path: Option<PathBuf>) -> Result<Self, ImageError> {
        let header = image::inspect(&data)?;
        Ok(Self::Image(Picture {
            format: header.format,
            width: header.width,
            height: header.height,
            bytes: data.len(),
            path,
            data: Some(data),
        }))
    }

    /// The label shown in the text.
    pub fn label(&self) -> String {
        match self {
            Self::Paste(paste) if paste.lines > 1 => format!("[pasted {} lines]", paste.lines),
            Self::Paste(paste) => format!("[pasted {} characters]", paste.chars),
            Self::Image(picture) => format!("[image {picture}]"),
        }
    }

    /// The text it stands for; `None` for an image.
    pub(super) fn text(&self) -> Result<Option<&str>, ChipError> {
        match self {
            Self::Paste(Paste {
                body: Some(body), ..
            }) => Ok(Some(body)),
            Self::Paste(_) => Err(ChipError::Paste(self.label())),
            Self::Image(_) => Ok(None),
        }
    }

    /// The image it stands for.
    pub(super) fn part(&self) -> Result<Option<Part>, ChipError> {
        let Self::Image(picture) = self else {
            return Ok(None);
        };
        let missing = |why: String| ChipError::Image {
            label: self.label(),
            why,
        };
        if let Some(data) = &picture.data {
            return image::part(data)
                .map(Some)
                .map_err(|error| missing(error.to_string()));
        }
        let Some(path) = &picture.path else {
            return Err(missing("it came from the clipboard".to_owned()));
        };
        let data = super::images::read(path)
            .map_err(|why| missing(format!("{}: {why}", path.display())))?;
        image::part(&data)
            .map(Some)
            .map_err(|error| missing(format!("{}: {error}", path.display())))
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.width > 0 {
            write!(f, "{}×{} ", self.width, self.height)?;
        }
        write!(f, "{} {}", self.format, size(self.bytes as u64))
    }
}

/// Number of lines; a trailing line break does not begin a new one.
pub(super) fn lines(text: &str) -> usize {
    text.lines().count().max(1)
}
