//! Bodies in parts: a message with its files.

/// One part of a body.
#[derive(Clone, Debug)]
pub(super) struct MultipartPart {
    pub name: String,
    pub file: Option<String>,
    pub kind: Option<String>,
    pub bytes: Vec<u8>,
}

pub(super) fn parts(body: &[u8], boundary: &str) -> Vec<MultipartPart> {
    let line = format!("--{boundary}");
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(at) = find(rest, line.as_bytes()) {
        rest = &rest[at + line.len()..];
        if rest.starts_with(b"--") {
            break;
        }
        let Some(end) = find(rest, line.as_bytes()) else {
            break;
        };
        found.extend(part(&rest[..end]));
    }
    found
}

fn part(bytes: &[u8]) -> Option<MultipartPart> {
    let at = find(bytes, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..at]);
    let content = bytes[at + 4..].strip_suffix(b"\r\n")?.to_vec();
    let header = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
    };
    let disposition = header("content-disposition")?;
    let field = |name: &str| {
        let (_, rest) = disposition.split_once(&format!("; {name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    Some(MultipartPart {
        name: field("name")?,
        file: field("filename"),
        kind: header("content-type"),
        bytes: content,
    })
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
