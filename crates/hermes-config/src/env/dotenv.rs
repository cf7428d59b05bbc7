//! Parses `.env` files like python-dotenv, which the original uses.

use std::collections::BTreeMap;
use std::ops::Range;

/// Decodes a `.env` file in any common encoding.
///
/// `None` for UTF-32, which no other program would read either.
pub(super) fn decode(bytes: &[u8]) -> Option<String> {
    if bytes.starts_with(&[0xFF, 0xFE, 0, 0]) || bytes.starts_with(&[0, 0, 0xFE, 0xFF]) {
        return None;
    }
    let utf16 = |unit: fn([u8; 2]) -> u16| {
        let units = bytes[2..].as_chunks::<2>().0.iter().map(|pair| unit(*pair));
        char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    };
    let text = if bytes.starts_with(&[0xFF, 0xFE]) {
        utf16(u16::from_le_bytes)
    } else if bytes.starts_with(&[0xFE, 0xFF]) {
        utf16(u16::from_be_bytes)
    } else {
        match std::str::from_utf8(bytes) {
            Ok(text) => text.trim_start_matches('\u{feff}').to_owned(),
            // Not UTF-8: the original falls back to Latin-1.
            Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
        }
    };
    // A NUL cannot be part of an environment variable.
    Some(text.replace('\0', ""))
}

/// The assignments of a `.env` text in order. `export NAME` without a value is left out.
///
/// `${NAME}` and `${NAME:-default}` are expanded with `outer` and the assignments above; `first`
/// decides which of the two takes precedence.
pub(super) fn parse(
    text: &str,
    outer: &dyn Fn(&str) -> Option<String>,
    first: Precedence,
) -> ParsedDotenv {
    let text = split_glued(text);
    let mut reader = DotenvReader {
        rest: &text,
        line: 1,
    };
    let mut parsed = ParsedDotenv::default();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    while !reader.rest.is_empty() {
        match reader.binding() {
            Binding::Blank | Binding::NoValue => {}
            Binding::Bad(line) => parsed.bad_lines.push(line),
            Binding::Assign(key, raw) => {
                let value = expand(&raw, &|name| match first {
                    Precedence::File => seen.get(name).cloned().or_else(|| outer(name)),
                    Precedence::Outer => outer(name).or_else(|| seen.get(name).cloned()),
                });
                seen.insert(key.clone(), value.clone());
                parsed.values.push((key, value));
            }
        }
    }
    parsed
}

/// An assignment and its position.
pub(super) struct Assignment {
    pub(super) name: String,
    /// Without quotes and escapes, references not expanded. `None`: it cannot be parsed, but the
    /// name is recognisable.
    pub(super) value: Option<String>,
    /// Whole lines, several for a multi-line quoted value. Without the last line break.
    pub(super) range: Range<usize>,
}

/// The assignments of a text after splitting glued lines.
pub(super) fn assignments(text: &str) -> Vec<Assignment> {
    let mut reader = DotenvReader {
        rest: text,
        line: 1,
    };
    let mut found = Vec::new();
    while !reader.rest.is_empty() {
        reader.take_while(char::is_whitespace);
        let start = text.len() - reader.rest.len();
        let (name, value) = match reader.binding() {
            Binding::Assign(name, value) => (name, Some(value)),
            Binding::Bad(_) => match intended_name(&text[start..]) {
                Some(name) => (name.to_owned(), None),
                None => continue,
            },
            Binding::Blank | Binding::NoValue => continue,
        };
        let start = text[..start].trim_end_matches([' ', '\t']).len();
        let end = text.len() - reader.rest.len();
        let end = start + text[start..end].trim_end_matches(['\r', '\n']).len();
        found.push(Assignment {
            name,
            value,
            range: start..end,
        });
    }
    found
}

fn intended_name(line: &str) -> Option<&str> {
    let blanks = [' ', '\t'];
    let line = line
        .strip_prefix("export")
        .filter(|rest| rest.starts_with(blanks))
        .map_or(line, |rest| rest.trim_start_matches(blanks));
    let name = line.split(['=', '\r', '\n']).next()?;
    line[name.len()..].starts_with('=').then(|| name.trim_end())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    File,
    Outer,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedDotenv {
    pub(super) values: Vec<(String, String)>,
    /// Lines (from 1) that are not assignments.
    pub(super) bad_lines: Vec<usize>,
}

enum Binding {
    Blank,
    NoValue,
    Bad(usize),
    Assign(String, String),
}

struct DotenvReader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> DotenvReader<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (consumed, rest) = self.rest.split_at(bytes);
        self.line += consumed.matches('\n').count();
        self.rest = rest;
        consumed
    }

    fn take_while(&mut self, want: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !want(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn blanks(&mut self) {
        self.take_while(|c| c.is_whitespace() && c != '\n' && c != '\r');
    }

    fn skip_line(&mut self) {
        self.take_while(|c| c != '\n' && c != '\r');
        self.newline();
    }

    fn newline(&mut self) -> bool {
        if self.rest.starts_with("\r\n") {
            self.take(2);
        } else if self.rest.starts_with(['\n', '\r']) {
            self.take(1);
        } else {
            return self.rest.is_empty();
        }
        true
    }

    fn binding(&mut self) -> Binding {
        self.take_while(char::is_whitespace);
        if self.rest.is_empty() {
            return Binding::Blank;
        }
        let line = self.line;
        self.assignment().unwrap_or_else(|| {
            self.skip_line();
            Binding::Bad(line)
        })
    }

    fn assignment(&mut self) -> Option<Binding> {
        if self.rest.starts_with('#') {
            self.skip_line();
            return Some(Binding::Blank);
        }
        if let Some(after) = self.rest.strip_prefix("export")
            && after.starts_with([' ', '\t'])
        {
            self.take("export".len());
            self.blanks();
        }
        let key = self.key()?;
        self.blanks();
        let value = if self.rest.starts_with('=') {
            self.take(1);
            self.blanks();
            Some(self.value()?)
        } else {
            None
        };
        self.blanks();
        if self.rest.starts_with('#') {
            self.take_while(|c| c != '\n' && c != '\r');
        }
        if !self.newline() {
            return None;
        }
        Some(match value {
            Some(value) => Binding::Assign(key, value),
            None => Binding::NoValue,
        })
    }

    fn key(&mut self) -> Option<String> {
        if self.rest.starts_with('\'') {
            return self.quoted('\'').filter(|key| !key.is_empty());
        }
        let key = self.take_while(|c| c != '=' && c != '#' && !c.is_whitespace());
        (!key.is_empty()).then(|| key.to_owned())
    }

    fn value(&mut self) -> Option<String> {
        match self.rest.chars().next() {
            None | Some('\n' | '\r') => Some(String::new()),
            Some('\'') => self.quoted('\'').map(|raw| unescape(&raw, "\\'")),
            Some('"') => self.quoted('"').map(|raw| unescape(&raw, "\\'\"abfnrtv")),
            Some(_) => {
                let raw = self.take_while(|c| c != '\n' && c != '\r');
                Some(without_comment(raw).trim_end().to_owned())
            }
        }
    }

    /// The text between quotes, escapes still in it. It may span lines.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut escaped = false;
        let body = &self.rest[1..];
        for (at, c) in body.char_indices() {
            if c == quote && !escaped {
                self.take(at + 2);
                return Some(body[..at].to_owned());
            }
            escaped = c == '\\' && !escaped;
        }
        None
    }
}

/// Cuts ` # …` off an unquoted value.
fn without_comment(raw: &str) -> &str {
    let mut before_blank = None;
    for (at, c) in raw.char_indices() {
        if c == '#'
            && let Some(start) = before_blank
        {
            return &raw[..start];
        }
        if !c.is_whitespace() {
            before_blank = None;
        } else if before_blank.is_none() {
            before_blank = Some(at);
        }
    }
    raw
}

fn unescape(raw: &str, known: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        let next = chars
            .clone()
            .next()
            .filter(|next| c == '\\' && known.contains(*next));
        let Some(next) = next else {
            out.push(c);
            continue;
        };
        chars.next();
        out.push(match next {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            other => other,
        });
    }
    out
}

/// Replaces `${NAME}` and `${NAME:-default}`; an unset name without default is empty.
fn expand(raw: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(start) = rest.find("${") {
        let after = &rest[start + 2..];
        let Some(end) = after.find('}') else { break };
        let inner = &after[..end];
        let (name, default) = match inner.split_once(':') {
            None => (inner, Some("")),
            Some((name, tail)) => (name, tail.strip_prefix('-')),
        };
        let Some(default) = default else {
            // `${A:b}` is not a reference.
            out.push_str(&rest[..start + 2]);
            rest = after;
            continue;
        };
        out.push_str(&rest[..start]);
        out.push_str(&lookup(name).unwrap_or_else(|| default.to_owned()));
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    out
}

/// Splits assignments that share a line.
///
/// A lost newline once produced `A_KEY=xB_KEY=y` in real files. Only known names are split off,
/// only if the line starts with one, and never inside a value that looks like a URL or prose.
pub(super) fn split_glued(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches(['\r', '\n']);
        match glued_parts(body.trim()) {
            Some(parts) => {
                for part in parts {
                    out.push_str(part.trim());
                    out.push('\n');
                }
            }
            None => out.push_str(line),
        }
    }
    out
}

fn glued_parts(line: &str) -> Option<Vec<&str>> {
    // Nearly every line: one `=` cannot be two assignments.
    if line.starts_with('#') || line.matches('=').count() < 2 {
        return None;
    }
    let mut starts = Vec::new();
    for (at, _) in line.match_indices('=') {
        let name = super::known::NAMES
            .iter()
            .filter(|name| line[..at].ends_with(**name))
            .max_by_key(|name| name.len());
        if let Some(name) = name {
            starts.push(at - name.len());
        }
    }
    if starts.len() < 2 || starts[0] != 0 {
        return None;
    }
    let ends = starts[1..].iter().copied().chain([line.len()]);
    let parts: Vec<&str> = starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(a, b)| &line[a..b])
        .collect();
    let plain = |part: &&str| {
        let value = part.split_once('=').map_or("", |(_, value)| value);
        !["://", "?", "&"].iter().any(|mark| value.contains(mark))
            && !value.contains(char::is_whitespace)
            && closes_its_quote(value)
    };
    parts[..parts.len() - 1].iter().all(plain).then_some(parts)
}

/// A value that ends inside its quotes is incomplete.
fn closes_its_quote(value: &str) -> bool {
    ['"', '\'']
        .iter()
        .all(|quote| match value.strip_prefix(*quote) {
            Some(inner) => inner.ends_with(*quote),
            None => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        let outer = |name: &str| (name == "OUT").then(|| "outer".to_owned());
        parse(text, &outer, Precedence::File).values
    }

    fn one(text: &str) -> String {
        values(text).pop().expect("an assignment").1
    }

    #[test]
    fn quotes_comments_and_escapes() {
        assert_eq!(one("A=111,222   # two users"), "111,222");
        assert_eq!(one("A=a#b"), "a#b");
        assert_eq!(one("A='single $NOT \\n \\' x'"), "single $NOT \\n ' x");
        assert_eq!(
            one(r#"A="a \"quoted\" value # no comment\n""#),
            "a \"quoted\" value # no comment\n"
        );
        assert_eq!(one("A=\"two\nlines\" # c"), "two\nlines");
        assert_eq!(one("export  A = x "), "x");
        assert_eq!(one("A="), "");
        assert_eq!(one("'A' = b"), "b");
        assert_eq!(one("A=b\r\n"), "b");
        assert_eq!(one("A=\"C:\\\\dir\\q\""), "C:\\dir\\q");
    }

    #[test]
    fn references_see_earlier_lines_then_the_outside() {
        assert_eq!(one("X=1\nA=${X}${OUT}${NONE}${NONE:-d}$X"), "1outerd$X");
        assert_eq!(one("A='${OUT}'"), "outer");
        assert_eq!(one("A=${A:b} ${"), "${A:b} ${");
        assert_eq!(one("OUT=file\nA=${OUT}"), "file");
        let outer = |name: &str| (name == "OUT").then(|| "outer".to_owned());
        let parsed = parse("OUT=file\nA=${OUT}", &outer, Precedence::Outer);
        assert_eq!(parsed.values[1].1, "outer");
    }

    #[test]
    fn lines_that_assign_nothing_are_skipped_and_reported() {
        let parsed = parse(
            "export A\n# c\n\nB=\"open\nC=1\n",
            &|_| None,
            Precedence::File,
        );
        assert_eq!(parsed.values, [("C".to_owned(), "1".to_owned())]);
        assert_eq!(parsed.bad_lines, [4]);
    }

    #[test]
    fn glued_assignments_come_apart() {
        let text = "OPENAI_API_KEY=sk-1OPENROUTER_API_KEY=sk-2\n";
        assert_eq!(
            split_glued(text),
            "OPENAI_API_KEY=sk-1\nOPENROUTER_API_KEY=sk-2\n"
        );
        for whole in [
            "OPENAI_BASE_URL=https://x/?OPENAI_API_KEY=1\n",
            "MY_OPENAI_API_KEY=1\n",
            "GLM_API_KEY=x\n",
            "X=OPENAI_API_KEY=1\n",
            "# OPENAI_API_KEY=1OPENROUTER_API_KEY=2\n",
            "OPENAI_API_KEY=a b OPENROUTER_API_KEY=2\n",
        ] {
            assert_eq!(split_glued(whole), whole);
        }
    }

    #[test]
    fn any_editors_encoding_is_read() {
        let utf16: Vec<u8> = [0xFF, 0xFE]
            .into_iter()
            .chain("A=1\n".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        assert_eq!(decode(&utf16).unwrap(), "A=1\n");
        assert_eq!(decode(b"\xEF\xBB\xBFA=1").unwrap(), "A=1");
        assert_eq!(decode(b"A=caf\xE9").unwrap(), "A=caf\u{e9}");
        assert_eq!(decode(b"A=\x001").unwrap(), "A=1");
        assert_eq!(decode(&[0xFF, 0xFE, 0, 0]), None);
    }
}
