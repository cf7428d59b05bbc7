//! Characters: strings of JSON, and free text up to a marker.

/// Where in a character of a JSON string we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Inner {
    /// Between two characters.
    Plain,
    /// After a backslash.
    Escape,
    /// Hexadecimal digits to come. `low`: the next is at most 7, so that no half of a surrogate
    /// pair is written.
    Hex { left: u8, low: bool },
    /// Bytes of UTF-8 to come, the next of them in `from..=to`.
    Utf8 { left: u8, from: u8, to: u8 },
}

impl Inner {
    /// Where we are after `byte`, and whether it began a character. Quotes are for the caller.
    pub(super) fn step(self, byte: u8) -> Option<(bool, Inner)> {
        match self {
            Inner::Plain => match byte {
                b'\\' => Some((true, Inner::Escape)),
                b'"' => None,
                0x20..=0x7f => Some((true, Inner::Plain)),
                _ => lead(byte).map(|inner| (true, inner)),
            },
            Inner::Escape => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(Inner::Plain),
                b'u' => Some(Inner::Hex {
                    left: 4,
                    low: false,
                }),
                _ => None,
            }
            .map(|inner| (false, inner)),
            Inner::Hex { left, low } => {
                let digit = (byte as char).to_digit(16)?;
                if low && digit > 7 {
                    return None;
                }
                let inner = match left {
                    1 => Inner::Plain,
                    _ => Inner::Hex {
                        left: left - 1,
                        low: left == 4 && digit == 0xd,
                    },
                };
                Some((false, inner))
            }
            Inner::Utf8 { left, from, to } => {
                if !(from..=to).contains(&byte) {
                    return None;
                }
                let inner = match left {
                    1 => Inner::Plain,
                    _ => continuation(left - 1),
                };
                Some((false, inner))
            }
        }
    }

    /// Bytes to the end of the character.
    pub(super) fn left(self) -> u32 {
        match self {
            Inner::Plain => 0,
            Inner::Escape => 1,
            Inner::Hex { left, .. } | Inner::Utf8 { left, .. } => u32::from(left),
        }
    }
}

fn continuation(left: u8) -> Inner {
    Inner::Utf8 {
        left,
        from: 0x80,
        to: 0xbf,
    }
}

/// The first byte of a character of more than one byte.
fn lead(byte: u8) -> Option<Inner> {
    let (left, from, to) = match byte {
        0xc2..=0xdf => (1, 0x80, 0xbf),
        0xe0 => (2, 0xa0, 0xbf),
        0xed => (2, 0x80, 0x9f),
        0xe1..=0xef => (2, 0x80, 0xbf),
        0xf0 => (3, 0x90, 0xbf),
        0xf1..=0xf3 => (3, 0x80, 0xbf),
        0xf4 => (3, 0x80, 0x8f),
        _ => return None,
    };
    Some(Inner::Utf8 { left, from, to })
}

/// How much of `marker` has been written after `byte`, where `matched` of it had been before. The
/// first byte of a marker is nowhere else in it.
pub(super) fn follow(marker: &[u8], matched: u8, byte: u8) -> u8 {
    match marker.get(usize::from(matched)) {
        Some(next) if *next == byte => matched + 1,
        _ => u8::from(marker.first() == Some(&byte)),
    }
}
