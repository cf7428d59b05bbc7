//! Texts with markup, read as strictly as Telegram reads them: what is broken is refused.

use serde_json::{Value, json};

use super::answer::{BotError, bad};

/// A text and its entities (offsets and lengths in UTF-16).
pub(super) type ParsedMarkup = (String, Vec<Value>);

pub(super) fn parse(mode: Option<&str>, text: &str) -> Result<ParsedMarkup, BotError> {
    match mode.map(str::to_ascii_lowercase).as_deref() {
        None | Some("") => Ok((text.to_owned(), Vec::new())),
        Some("markdownv2") => MarkdownV2::new(text).parse(),
        Some("html") => Html::new(text).parse(),
        // The old Markdown is for bots of 2017.
        Some(_) => Err(bad("unsupported parse_mode")),
    }
}

pub(super) fn utf16(text: &str) -> usize {
    text.encode_utf16().count()
}

fn unreadable(what: &str) -> BotError {
    bad(&format!("can't parse entities: {what}"))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bold,
    Italic,
    Underline,
    Strike,
    Spoiler,
    Code,
    Pre,
    Link,
    Quote,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Bold => "Bold",
            Self::Italic => "Italic",
            Self::Underline => "Underline",
            Self::Strike => "Strikethrough",
            Self::Spoiler => "Spoiler",
            Self::Code => "Code",
            Self::Pre => "Pre",
            Self::Link => "TextUrl",
            Self::Quote => "BlockQuote",
        }
    }

    fn wire(self) -> &'static str {
        match self {
            Self::Bold => "bold",
            Self::Italic => "italic",
            Self::Underline => "underline",
            Self::Strike => "strikethrough",
            Self::Spoiler => "spoiler",
            Self::Code => "code",
            Self::Pre => "pre",
            Self::Link => "text_link",
            Self::Quote => "blockquote",
        }
    }
}

struct Open {
    kind: Kind,
    /// In the text that came.
    byte: usize,
    /// In the text that is shown.
    from: usize,
    argument: String,
}

struct MarkdownV2<'a> {
    text: &'a str,
    at: usize,
    out: String,
    open: Vec<Open>,
    entities: Vec<Value>,
}

impl<'a> MarkdownV2<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            out: String::new(),
            open: Vec::new(),
            entities: Vec::new(),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn parse(mut self) -> Result<ParsedMarkup, BotError> {
        let mut line_start = true;
        while let Some(ch) = self.rest().chars().next() {
            let was_start = std::mem::replace(&mut line_start, ch == '\n');
            if let Some(escaped) = self.escaped() {
                self.out.push(escaped);
                self.at += 2;
                continue;
            }
            let inside = self.open.last().map(|open| open.kind);
            let reserved = match inside {
                Some(Kind::Code | Kind::Pre) => "`",
                _ => "_*[]()~`>#+-=|{}.!\n",
            };
            if !reserved.contains(ch) {
                self.out.push(ch);
                self.at += ch.len_utf8();
            } else if self.closes(inside) {
                self.close()?;
            } else if ch == '\n' {
                self.new_line()?;
            } else {
                self.begin(ch, was_start)?;
            }
        }
        if self
            .open
            .last()
            .is_some_and(|open| open.kind == Kind::Quote)
        {
            self.end_quote();
        }
        match self.open.last() {
            Some(open) => Err(unreadable(&format!(
                "Can't find end of {} entity at byte offset {}",
                open.kind.name(),
                open.byte
            ))),
            None => Ok((self.out, self.entities)),
        }
    }

    fn escaped(&self) -> Option<char> {
        let next = self.rest().strip_prefix('\\')?.chars().next()?;
        (next as u32 > 0 && next as u32 <= 126).then_some(next)
    }

    fn closes(&self, inside: Option<Kind>) -> bool {
        let rest = self.rest();
        match inside {
            None | Some(Kind::Quote) => false,
            Some(Kind::Bold) => rest.starts_with('*'),
            Some(Kind::Italic) => rest.starts_with('_') && !rest.starts_with("__"),
            Some(Kind::Underline) => rest.starts_with("__"),
            Some(Kind::Strike) => rest.starts_with('~'),
            Some(Kind::Spoiler) => rest.starts_with("||"),
            Some(Kind::Code) => rest.starts_with('`'),
            Some(Kind::Pre) => rest.starts_with("```"),
            Some(Kind::Link) => rest.starts_with(']'),
        }
    }

    /// A line break: it ends a quotation unless the next line continues it.
    fn new_line(&mut self) -> Result<(), BotError> {
        let goes_on = self.rest().starts_with("\n>");
        if let Some(quote) = self.open.iter().position(|open| open.kind == Kind::Quote) {
            if let Some(inner) = self.open.get(quote + 1).filter(|_| !goes_on) {
                return Err(unreadable(&format!(
                    "Can't find end of {} entity at byte offset {}",
                    inner.kind.name(),
                    inner.byte
                )));
            }
            if goes_on {
                self.at += 1;
            } else {
                self.end_quote();
            }
        }
        self.out.push('\n');
        self.at += 1;
        Ok(())
    }

    fn end_quote(&mut self) {
        if let Some(open) = self.open.pop() {
            self.entity(&open, None);
        }
    }

    fn begin(&mut self, ch: char, line_start: bool) -> Result<(), BotError> {
        let rest = self.rest();
        let byte = self.at;
        let mut argument = String::new();
        let (kind, length) = match ch {
            '_' if rest.starts_with("__") => (Kind::Underline, 2),
            '_' => (Kind::Italic, 1),
            '*' => (Kind::Bold, 1),
            '~' => (Kind::Strike, 1),
            '|' if rest.starts_with("||") => (Kind::Spoiler, 2),
            '[' => (Kind::Link, 1),
            '`' if rest.starts_with("```") => {
                let (language, length) = code_head(rest);
                argument = language;
                (Kind::Pre, length)
            }
            '`' => (Kind::Code, 1),
            '>' if line_start && self.open.is_empty() => (Kind::Quote, 1),
            other => {
                return Err(unreadable(&format!(
                    "Character '{other}' is reserved and must be escaped with the preceding '\\'"
                )));
            }
        };
        self.at += length;
        self.open.push(Open {
            kind,
            byte,
            from: self.out.len(),
            argument,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), BotError> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        self.at += match open.kind {
            Kind::Underline | Kind::Spoiler => 2,
            Kind::Pre => 3,
            _ => 1,
        };
        let url = match open.kind {
            Kind::Link => Some(self.url(&open)?),
            _ => None,
        };
        self.entity(&open, url.as_deref());
        Ok(())
    }

    fn url(&mut self, open: &Open) -> Result<String, BotError> {
        if !self.rest().starts_with('(') {
            return Ok(self.out[open.from..].to_owned());
        }
        self.at += 1;
        let begin = self.at;
        let mut url = String::new();
        loop {
            if let Some(escaped) = self.escaped() {
                url.push(escaped);
                self.at += 2;
                continue;
            }
            let Some(ch) = self.rest().chars().next() else {
                return Err(unreadable(&format!(
                    "Can't find end of a URL at byte offset {begin}"
                )));
            };
            self.at += ch.len_utf8();
            if ch == ')' {
                return Ok(url);
            }
            url.push(ch);
        }
    }

    fn entity(&mut self, open: &Open, url: Option<&str>) {
        push_entity(&mut self.entities, &self.out, open, url);
    }
}

/// Language and length of the head of a code block, its line break included.
fn code_head(rest: &str) -> (String, usize) {
    let body = &rest[3..];
    let end = body
        .find(|ch: char| ch.is_whitespace() || ch == '`')
        .unwrap_or(body.len());
    let named = end > 0 && body[end..].starts_with(char::is_whitespace);
    let (language, mut length) = if named {
        (body[..end].to_owned(), 3 + end)
    } else {
        (String::new(), 3)
    };
    if rest[length..].starts_with("\r\n") {
        length += 2;
    } else if rest[length..].starts_with('\n') {
        length += 1;
    }
    (language, length)
}

fn push_entity(entities: &mut Vec<Value>, out: &str, open: &Open, url: Option<&str>) {
    let length = utf16(&out[open.from..]);
    // Telegram drops links that are none.
    let no_link = url.is_some_and(|url| !url.contains('.') && !url.contains("://"));
    if length == 0 || no_link {
        return;
    }
    let mut entity = json!({
        "type": open.kind.wire(),
        "offset": utf16(&out[..open.from]),
        "length": length,
    });
    if let Some(url) = url {
        entity["url"] = json!(url);
    }
    if !open.argument.is_empty() {
        entity["language"] = json!(open.argument);
    }
    entities.push(entity);
}

struct Html<'a> {
    text: &'a str,
    at: usize,
    out: String,
    open: Vec<(String, Open)>,
    entities: Vec<Value>,
}

impl<'a> Html<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            out: String::new(),
            open: Vec::new(),
            entities: Vec::new(),
        }
    }

    fn parse(mut self) -> Result<ParsedMarkup, BotError> {
        while let Some(ch) = self.text[self.at..].chars().next() {
            match ch {
                '<' => self.tag()?,
                '&' => self.reference(),
                _ => {
                    self.out.push(ch);
                    self.at += ch.len_utf8();
                }
            }
        }
        match self.open.last() {
            Some((name, _)) => Err(unreadable(&format!(
                "Can't find end tag corresponding to start tag \"{name}\""
            ))),
            None => Ok((self.out, self.entities)),
        }
    }

    fn reference(&mut self) {
        let named = [
            ("&lt;", '<'),
            ("&gt;", '>'),
            ("&amp;", '&'),
            ("&quot;", '"'),
        ];
        let rest = &self.text[self.at..];
        let (length, ch) = named
            .iter()
            .find(|(name, _)| rest.starts_with(name))
            .map_or((1, '&'), |(name, ch)| (name.len(), *ch));
        self.out.push(ch);
        self.at += length;
    }

    fn tag(&mut self) -> Result<(), BotError> {
        let begin = self.at;
        let rest = &self.text[self.at..];
        let end = rest
            .find('>')
            .ok_or_else(|| unreadable(&format!("Unclosed start tag at byte offset {begin}")))?;
        let inner = &rest[1..end];
        self.at += end + 1;
        if let Some(name) = inner.strip_prefix('/') {
            return self.end_tag(name.trim(), begin);
        }
        let (name, attributes) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
        let name = name.to_ascii_lowercase();
        let kind = match name.as_str() {
            "b" | "strong" => Kind::Bold,
            "i" | "em" => Kind::Italic,
            "u" | "ins" => Kind::Underline,
            "s" | "strike" | "del" => Kind::Strike,
            "tg-spoiler" => Kind::Spoiler,
            "span" if attributes.contains("tg-spoiler") => Kind::Spoiler,
            "code" => Kind::Code,
            "pre" => Kind::Pre,
            "a" => Kind::Link,
            "blockquote" => Kind::Quote,
            _ => {
                return Err(unreadable(&format!(
                    "Unsupported start tag \"{name}\" at byte offset {begin}"
                )));
            }
        };
        let argument = attributes.split('"').nth(1).unwrap_or("").to_owned();
        let open = Open {
            kind,
            byte: begin,
            from: self.out.len(),
            argument,
        };
        self.open.push((name, open));
        Ok(())
    }

    fn end_tag(&mut self, name: &str, begin: usize) -> Result<(), BotError> {
        let Some((opened, mut open)) = self.open.pop() else {
            return Err(unreadable(&format!(
                "Unexpected end tag at byte offset {begin}"
            )));
        };
        if !name.is_empty() && !name.eq_ignore_ascii_case(&opened) {
            return Err(unreadable(&format!(
                "Unmatched end tag at byte offset {begin}, expected \"</{opened}>\", found \"</{name}>\""
            )));
        }
        let argument = std::mem::take(&mut open.argument);
        let url = (open.kind == Kind::Link).then_some(argument);
        push_entity(&mut self.entities, &self.out, &open, url.as_deref());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(text: &str) -> Result<ParsedMarkup, String> {
        parse(Some("MarkdownV2"), text).map_err(|error| error.description)
    }

    #[test]
    fn good_markdown_has_entities_in_utf16() {
        let (text, entities) =
            v2("😀 *bold _both_* `a\\`b` [t\\.](https://x.test/\\)) \\.").unwrap();
        assert_eq!(text, "😀 bold both a`b t. .");
        assert_eq!(
            entities,
            [
                json!({"type": "italic", "offset": 8, "length": 4}),
                json!({"type": "bold", "offset": 3, "length": 9}),
                json!({"type": "code", "offset": 13, "length": 3}),
                json!({"type": "text_link", "offset": 17, "length": 2, "url": "https://x.test/)"}),
            ]
        );
        let (text, entities) = v2("```rust\nlet x = 1.0;\n```\n>said\n>more\nafter").unwrap();
        assert_eq!(text, "let x = 1.0;\n\nsaid\nmore\nafter");
        assert_eq!(entities[0]["language"], "rust");
        assert_eq!(entities[1]["type"], "blockquote");
        assert_eq!(entities[1]["length"], 9);
    }

    #[test]
    fn broken_markdown_is_refused() {
        for (text, why) in [
            ("1. one", "Character '.' is reserved"),
            ("a - b", "Character '-' is reserved"),
            ("x > y", "Character '>' is reserved"),
            ("*bold", "Can't find end of Bold entity at byte offset 0"),
            ("ab `code", "Can't find end of Code entity at byte offset 3"),
            ("```\ncode", "Can't find end of Pre entity"),
            ("[t](https://x", "Can't find end of a URL at byte offset 4"),
            (
                "snake_case",
                "Can't find end of Italic entity at byte offset 5",
            ),
            (">*quote\nafter*", "Can't find end of Bold entity"),
        ] {
            let error = v2(text).unwrap_err();
            assert!(
                error.starts_with("Bad Request: can't parse entities: "),
                "{error}"
            );
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn html_is_read_as_strictly() {
        let html = |text: &str| parse(Some("HTML"), text).map_err(|error| error.description);
        let (text, entities) = html("<b>a &lt; b</b> <a href=\"https://x.test\">x</a>").unwrap();
        assert_eq!(text, "a < b x");
        assert_eq!(entities[1]["url"], "https://x.test");
        for (text, why) in [
            ("<b>a", "Can't find end tag"),
            ("<x>a</x>", "Unsupported start tag"),
            ("a</b>", "Unexpected end tag"),
            ("<b><i>a</b></i>", "Unmatched end tag"),
            ("a < b", "Unclosed start tag"),
        ] {
            assert!(html(text).unwrap_err().contains(why), "{text}");
        }
    }
}
