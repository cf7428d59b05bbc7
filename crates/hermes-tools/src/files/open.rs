//! Files that are open in an editor: the editor's version is read and changed.

/// A byte order mark.
const MARK: &str = "\u{feff}";

/// The bytes of the file as its editor has them, in the style of those on disk; `None` if the text on disk is
/// the same. Editors strip line ends and byte order marks.
pub(super) fn unsaved(disk: &[u8], open: &str) -> Option<Vec<u8>> {
    // Another encoding is the editor's business: what it would save is unknown here.
    let disk = std::str::from_utf8(disk).ok()?;
    let plain = |text: &str| text.trim_start_matches(MARK).replace("\r\n", "\n");
    let text = plain(open);
    if text == plain(disk) {
        return None;
    }
    let marked = if disk.starts_with(MARK) { MARK } else { "" };
    let text = if disk.contains("\r\n") {
        text.replace('\n', "\r\n")
    } else {
        text
    };
    Some(format!("{marked}{text}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_text_counts_and_keeps_the_style_of_the_file() {
        assert_eq!(unsaved(b"a\nb\n", "a\nb\n"), None);
        assert_eq!(unsaved(b"a\r\nb\r\n", "a\nb\n"), None);
        assert_eq!(unsaved("\u{feff}a".as_bytes(), "a"), None);
        assert_eq!(unsaved(b"\xff\xfe", "a"), None);
        assert_eq!(unsaved(b"a\n", "b\n").unwrap(), b"b\n");
        assert_eq!(unsaved(b"a\r\n", "b\nc\n").unwrap(), b"b\r\nc\r\n");
        let marked = unsaved("\u{feff}a".as_bytes(), "b").unwrap();
        assert_eq!(marked, "\u{feff}b".as_bytes());
    }
}
