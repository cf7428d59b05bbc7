//! Escapes, quoting, and the output of simple commands.

use base64::Engine as _;

use super::SimpleCommand;

/// Decodes `$'…'` and `printf` escapes.
pub(crate) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            push(&mut bytes, c);
            continue;
        }
        let Some(c) = chars.next() else {
            bytes.push(b'\\');
            break;
        };
        match c {
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            'r' => bytes.push(b'\r'),
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'f' => bytes.push(12),
            'v' => bytes.push(11),
            'e' | 'E' => bytes.push(27),
            'x' => bytes.push(digits(&mut chars, 16, 2, 0).unwrap_or(b'x'.into()) as u8),
            'u' => push_code(&mut bytes, digits(&mut chars, 16, 4, 0)),
            'U' => push_code(&mut bytes, digits(&mut chars, 16, 8, 0)),
            '0'..='7' => {
                let first = c.to_digit(8).unwrap_or(0);
                let limit = if first == 0 { 3 } else { 2 };
                bytes.push(digits(&mut chars, 8, limit, first).unwrap_or(first) as u8);
            }
            'c' => drop(chars.next()),
            '\\' | '\'' | '"' | '?' => push(&mut bytes, c),
            other => {
                bytes.push(b'\\');
                push(&mut bytes, other);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn push_code(bytes: &mut Vec<u8>, code: Option<u32>) {
    if let Some(c) = code.and_then(char::from_u32) {
        push(bytes, c);
    }
}

/// Up to `limit` digits; `None` where there is none.
fn digits(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    radix: u32,
    limit: usize,
    start: u32,
) -> Option<u32> {
    let mut value = start;
    let mut count = 0;
    while count < limit
        && let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix))
    {
        value = value.wrapping_mul(radix).wrapping_add(digit);
        chars.next();
        count += 1;
    }
    (count > 0).then_some(value)
}

/// The output of a substitution of these commands, if their text determines it.
pub(crate) fn output_of(commands: &[SimpleCommand]) -> Option<String> {
    let mut printed: Option<String> = None;
    for command in commands {
        if command.words.iter().any(|word| !word.known()) {
            return None;
        }
        let words: Vec<&str> = command
            .words
            .iter()
            .map(|word| word.text.as_str())
            .collect();
        let (name, args) = words.split_first()?;
        let input = match &command.input {
            Some(input) if input.known() => Some(input.text.clone()),
            Some(_) => return None,
            None => printed.take(),
        };
        printed = Some(match (basename(name), args) {
            ("echo", args) => echo(args),
            ("printf", args) => printf(args)?,
            ("cat", []) => input?,
            ("rev", []) => input?.lines().map(reversed).collect::<Vec<_>>().join("\n"),
            ("base64", [flag]) if matches!(*flag, "-d" | "-D" | "--decode" | "-di") => {
                decode(&input?)?
            }
            ("openssl", args) if args.contains(&"base64") && args.contains(&"-d") => {
                decode(&input?)?
            }
            ("xxd", ["-r", "-p"] | ["-p", "-r"]) => hex_value(&input?)?,
            _ => return None,
        });
    }
    printed
}

fn reversed(line: &str) -> String {
    line.chars().rev().collect()
}

fn echo(args: &[&str]) -> String {
    let flags = args
        .iter()
        .take_while(|arg| {
            arg.len() > 1 && arg.starts_with('-') && arg[1..].chars().all(|c| "neE".contains(c))
        })
        .count();
    let text = args[flags..].join(" ");
    if args[..flags].iter().any(|flag| flag.contains('e')) {
        unescape(&text)
    } else {
        text
    }
}

/// `%s`, `%b` and literal text; other formats are not evaluated.
fn printf(args: &[&str]) -> Option<String> {
    let (format, mut rest) = args.split_first()?;
    let mut out = String::new();
    loop {
        let before = rest.len();
        let mut chars = format.chars().peekable();
        let mut literal = String::new();
        while let Some(c) = chars.next() {
            if c != '%' {
                literal.push(c);
                continue;
            }
            out.push_str(&unescape(&std::mem::take(&mut literal)));
            match chars.next()? {
                '%' => out.push('%'),
                's' | 'b' => {
                    if let Some((first, others)) = rest.split_first() {
                        out.push_str(&unescape(first));
                        rest = others;
                    }
                }
                _ => return None,
            }
        }
        out.push_str(&unescape(&literal));
        if rest.is_empty() || rest.len() == before {
            return Some(out);
        }
    }
}

fn decode(text: &str) -> Option<String> {
    let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let engine = base64::engine::GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        base64::engine::GeneralPurposeConfig::new()
            .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
    );
    let bytes = engine.decode(packed).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex_value(text: &str) -> Option<String> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte * 16 + digit))
        .collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last component of a path.
pub(crate) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Quotes a word for a shell.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

pub(crate) fn quote_all(words: &[String]) -> String {
    words
        .iter()
        .map(|word| quote(word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The alternatives of `{a,b}`, at most `limit`. The caller provides the markers.
pub(crate) fn braces(
    text: &str,
    open: char,
    close: char,
    comma: char,
    limit: usize,
) -> Vec<String> {
    let Some((start, end, cuts)) = group(text, open, close, comma) else {
        return vec![text.to_owned()];
    };
    let (head, tail) = (&text[..start], &text[end + close.len_utf8()..]);
    let mut out = Vec::new();
    let mut from = start + open.len_utf8();
    for cut in cuts.into_iter().chain([end]) {
        let one = format!("{head}{}{tail}", &text[from..cut]);
        for expanded in braces(&one, open, close, comma, limit) {
            if out.len() >= limit {
                return out;
            }
            out.push(expanded);
        }
        from = cut + comma.len_utf8();
    }
    out
}

/// The first complete group with a comma at its own level.
fn group(text: &str, open: char, close: char, comma: char) -> Option<(usize, usize, Vec<usize>)> {
    let mut stack: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, c) in text.char_indices() {
        if c == open {
            stack.push((at, Vec::new()));
        } else if c == comma {
            if let Some((_, cuts)) = stack.last_mut() {
                cuts.push(at);
            }
        } else if c == close
            && let Some((start, cuts)) = stack.pop()
            && !cuts.is_empty()
        {
            return Some((start, at, cuts));
        }
    }
    None
}
