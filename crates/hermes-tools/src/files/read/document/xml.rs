//! The subset of XML that office documents use: tags with attributes, text, entities.

/// A piece of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum XmlPiece<'a> {
    /// Without its namespace prefix. `empty`: it is self-closing.
    Open {
        name: &'a str,
        attributes: &'a str,
        empty: bool,
    },
    Close {
        name: &'a str,
    },
    Text(&'a str),
}

/// The pieces in order. Invalid XML ends them.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = XmlPiece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let Some(tag) = rest.strip_prefix('<') else {
                let end = rest.find('<').unwrap_or(rest.len());
                let (text, after) = rest.split_at(end);
                rest = after;
                return Some(XmlPiece::Text(text));
            };
            if let Some(after) = tag.strip_prefix("!--") {
                rest = after.split_once("-->")?.1;
                continue;
            }
            if tag.starts_with(['?', '!']) {
                rest = tag.split_once('>')?.1;
                continue;
            }
            let (inside, after) = split_tag(tag)?;
            rest = after;
            if let Some(name) = inside.strip_prefix('/') {
                return Some(XmlPiece::Close {
                    name: local(name.trim()),
                });
            }
            let (inside, empty) = match inside.strip_suffix('/') {
                Some(inside) => (inside, true),
                None => (inside, false),
            };
            let (name, attributes) = inside
                .split_once(|c: char| c.is_ascii_whitespace())
                .unwrap_or((inside, ""));
            return Some(XmlPiece::Open {
                name: local(name),
                attributes,
                empty,
            });
        }
    })
}

/// Up to the `>` that is not inside quotes.
fn split_tag(tag: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, c) in tag.char_indices() {
        match (quote, c) {
            (None, '>') => return Some((&tag[..at], &tag[at + 1..])),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

/// The value of an attribute, by its name without a prefix.
pub(super) fn attribute(attributes: &str, wanted: &str) -> Option<String> {
    let mut rest = attributes;
    loop {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, after) = after[1..].split_once(quote)?;
        if local(name.trim()) == wanted {
            return Some(unescaped(value));
        }
        rest = after;
    }
}

pub(super) fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let found = after.split_once(';').and_then(|(name, after)| {
            let c = match name {
                "lt" => '<',
                "gt" => '>',
                "amp" => '&',
                "quot" => '"',
                "apos" => '\'',
                _ => {
                    let number = name.strip_prefix('#')?;
                    let code = match number.strip_prefix(['x', 'X']) {
                        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                        None => number.parse().ok()?,
                    };
                    char::from_u32(code)?
                }
            };
            Some((c, after))
        });
        if let Some((c, after)) = found {
            out.push(c);
            rest = after;
        } else {
            out.push('&');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}
