//! PDFs as text. A PDF places glyphs; lines and words are reconstructed from their positions. Tables and
//! columns appear in file order.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lopdf::content::Content;
use lopdf::{Dictionary, Document, Encoding, LoadOptions, Object, ObjectId};

use super::{PageKind, WebPage, WebPageError};

/// Maximum unpacked size of a single stream.
const MAX_STREAM: usize = 8 << 20;
/// Maximum unpacked size of the content of one page, and of all of them: each operation is kept as an object of
/// some tens of bytes while the page is read.
const MAX_DRAWING: usize = 2 << 20;
const MAX_DRAWINGS: usize = 64 << 20;
const MAX_PAGES: usize = 1_000;
/// Text beyond this is not read.
const MAX_TEXT: usize = 4 << 20;

pub(super) fn read(bytes: &[u8]) -> Result<WebPage, WebPageError> {
    let options = LoadOptions {
        max_decompressed_size: Some(MAX_STREAM),
        ..LoadOptions::default()
    };
    let document = Document::load_mem_with_options(bytes, options)
        .map_err(|error| WebPageError::Pdf(error.to_string()))?;
    if document.is_encrypted() && document.encryption_state.is_none() {
        return Err(WebPageError::Pdf("it is locked with a password".to_owned()));
    }
    let pages = document.get_pages();
    let count = pages.len();
    let mut text = String::new();
    let mut failed = 0;
    let mut drawn = 0;
    for (number, id) in pages.into_iter().take(MAX_PAGES) {
        if text.len() > MAX_TEXT {
            let _ = write!(
                text,
                "\n\n[the text of pages {number} to {count} is left out]"
            );
            break;
        }
        if drawn > MAX_DRAWINGS {
            let _ = write!(
                text,
                "\n\n[pages {number} to {count} are left out: the file is too large when unpacked]"
            );
            break;
        }
        match page_text(&document, id, &mut drawn) {
            Ok(page) if !page.trim().is_empty() => {
                if !text.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(page.trim());
            }
            Ok(_) => {}
            Err(error) => {
                failed += 1;
                tracing::debug!(number, %error, "a page of a PDF cannot be read");
            }
        }
    }
    if text.trim().is_empty() {
        return Err(WebPageError::Pdf(format!(
            "none of its {count} pages has text ({failed} are damaged); \
             it may be scanned: look at a picture of it with vision_analyze"
        )));
    }
    if failed > 0 {
        let _ = write!(
            text,
            "\n\n[{failed} of {count} pages are damaged and missing]"
        );
    }
    Ok(WebPage {
        title: title(&document).unwrap_or_default(),
        text,
        kind: PageKind::Pdf,
    })
}

fn title(document: &Document) -> Option<String> {
    let info = document.trailer.get(b"Info").ok()?;
    let (_, info) = document.dereference(info).ok()?;
    let title = info.as_dict().ok()?.get(b"Title").ok()?;
    let (_, title) = document.dereference(title).ok()?;
    let title = lopdf::decode_text_string(title).ok()?;
    Some(title.trim().chars().take(500).collect())
}

/// The parts of a font that text needs.
struct Font<'a> {
    encoding: Option<Encoding<'a>>,
    /// Widths of single-byte codes in thousandths of the size.
    widths: BTreeMap<u8, f32>,
}

fn page_text(document: &Document, page: ObjectId, drawn: &mut usize) -> lopdf::Result<String> {
    let fonts: BTreeMap<Vec<u8>, Font<'_>> = document
        .get_page_fonts(page)?
        .into_iter()
        .map(|(name, font)| (name, read_font(document, font)))
        .collect();
    // Counted even if it fails: a bomb costs its limit.
    *drawn += MAX_DRAWING / 64;
    let content = document
        .get_page_content_with_limit(page, MAX_DRAWING)
        .inspect_err(|_| *drawn += MAX_DRAWING)?;
    *drawn += content.len();
    let content = Content::decode(&content)?;
    let mut pen = PdfTextWriter::default();
    for operation in &content.operations {
        let number = |at: usize| {
            operation
                .operands
                .get(at)
                .and_then(as_number)
                .unwrap_or(0.0)
        };
        match operation.operator.as_str() {
            "BT" => pen.begin(),
            "Tf" => {
                let name = operation
                    .operands
                    .first()
                    .and_then(|name| name.as_name().ok());
                pen.font = name.and_then(|name| fonts.get(name));
                pen.size = number(1);
            }
            "TL" => pen.leading = number(0),
            "Td" => pen.shift(number(0), number(1)),
            "TD" => {
                pen.leading = -number(1);
                pen.shift(number(0), number(1));
            }
            "Tm" => pen.place(number(0), number(3), number(4), number(5)),
            "T*" => pen.next_line(),
            "Tj" | "TJ" => pen.show(&operation.operands),
            "'" | "\"" => {
                pen.next_line();
                pen.show(&operation.operands);
            }
            _ => {}
        }
        if pen.out.len() > MAX_TEXT {
            break;
        }
    }
    Ok(pen.out)
}

fn read_font<'a>(document: &'a Document, font: &'a Dictionary) -> Font<'a> {
    let encoding = font.get_font_encoding_with_limit(document, MAX_STREAM).ok();
    let mut widths = BTreeMap::new();
    let list = font
        .get(b"Widths")
        .ok()
        .and_then(|list| document.dereference(list).ok())
        .and_then(|(_, list)| list.as_array().ok());
    let first = font.get(b"FirstChar").ok().and_then(as_number);
    if let (Some(list), Some(first)) = (list, first) {
        for (at, width) in list.iter().take(256).enumerate() {
            let code = u8::try_from(first as usize + at);
            let width = document
                .dereference(width)
                .ok()
                .and_then(|(_, w)| as_number(w));
            if let (Ok(code), Some(width)) = (code, width) {
                widths.insert(code, width);
            }
        }
    }
    Font { encoding, widths }
}

fn as_number(object: &Object) -> Option<f32> {
    match object {
        Object::Integer(number) => Some(*number as f32),
        Object::Real(number) => Some(*number),
        _ => None,
    }
}

/// The position of the next glyph, and the text so far.
#[derive(Default)]
struct PdfTextWriter<'a> {
    out: String,
    font: Option<&'a Font<'a>>,
    size: f32,
    leading: f32,
    scale: (f32, f32),
    /// Start of the current line.
    line: (f32, f32),
    /// After the last glyph.
    x: f32,
    /// Height of the last glyph.
    last_y: Option<f32>,
}

impl PdfTextWriter<'_> {
    fn begin(&mut self) {
        self.scale = (1.0, 1.0);
        self.place(1.0, 1.0, 0.0, 0.0);
    }

    fn place(&mut self, across: f32, up: f32, x: f32, y: f32) {
        let or_one = |scale: f32| if scale.abs() < 1e-6 { 1.0 } else { scale.abs() };
        self.scale = (or_one(across), or_one(up));
        self.move_to(x, y);
    }

    fn shift(&mut self, x: f32, y: f32) {
        let (x, y) = (x * self.scale.0, y * self.scale.1);
        self.move_to(self.line.0 + x, self.line.1 + y);
    }

    fn next_line(&mut self) {
        self.shift(0.0, -self.leading);
    }

    fn em(&self) -> f32 {
        (self.size * self.scale.1).abs().max(1.0)
    }

    fn move_to(&mut self, x: f32, y: f32) {
        self.line = (x, y);
        if let Some(last) = self.last_y {
            let (fall, em) = ((last - y).abs(), self.em());
            if fall > em * 1.9 {
                self.break_line("\n\n");
            } else if fall > em * 0.4 {
                self.break_line("\n");
            } else if x - self.x > em * 0.2 || self.x - x > em * 2.0 {
                self.space();
            }
        }
        self.x = x;
    }

    fn break_line(&mut self, with: &str) {
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        let have = self.out.len() - self.out.trim_end_matches('\n').len();
        self.out.extend(with.chars().skip(have));
    }

    fn space(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
    }

    fn show(&mut self, operands: &[Object]) {
        for operand in operands {
            match operand {
                Object::String(bytes, _) => self.glyphs(bytes),
                Object::Array(pieces) => {
                    for piece in pieces {
                        match piece {
                            Object::String(bytes, _) => self.glyphs(bytes),
                            other => self.kern(as_number(other).unwrap_or(0.0)),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// A number between two pieces moves them apart; from a fifth of the size on it is a space.
    fn kern(&mut self, thousandths: f32) {
        self.x -= thousandths / 1000.0 * self.size * self.scale.0;
        if thousandths < -180.0 {
            self.space();
        }
    }

    fn glyphs(&mut self, bytes: &[u8]) {
        let Some(font) = self.font else { return };
        let Some(encoding) = &font.encoding else {
            return;
        };
        let Ok(text) = encoding.bytes_to_string(bytes) else {
            return;
        };
        let width: f32 = if font.widths.is_empty() {
            text.chars().count() as f32 * 500.0
        } else {
            bytes
                .iter()
                .map(|code| font.widths.get(code).copied().unwrap_or(500.0))
                .sum()
        };
        self.x += width / 1000.0 * self.size * self.scale.0;
        self.last_y = Some(self.line.1);
        for c in text.chars() {
            match ligature(c) {
                Some(letters) => self.out.push_str(letters),
                None => self.out.push(c),
            }
        }
    }
}

/// Ligatures are several letters to a reader.
fn ligature(c: char) -> Option<&'static str> {
    Some(match c {
        'ﬀ' => "ff",
        'ﬁ' => "fi",
        'ﬂ' => "fl",
        'ﬃ' => "ffi",
        'ﬄ' => "ffl",
        '\u{ad}' => "-",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
