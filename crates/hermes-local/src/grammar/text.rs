//! Characters of JSON strings, and free text up to a marker.

/// The position in a character of a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StringState {
    /// Between two characters.
    Plain,
    /// After a backslash.
    Escape,
    /// Remaining hexadecimal digits. `low`: the next is at most 7, so that no lone surrogate is written.
    Hex { left: u8, low: bool },
    /// Remaining bytes of UTF-8, the next of them in `from..=to`.
    Utf8 { left: u8, from: u8, to: u8 },
}

impl StringState {
    /// The state after `byte`, and whether it began a character. The caller handles quotes.
    pub(super) fn step(self, byte: u8) -> Option<(bool, StringState)> {
        match self {
            StringState::Plain => match byte {
                b'\\' => Some((true, StringState::Escape)),
                b'"' => None,
                0x20..=0x7f => Some((true, StringState::Plain)),
                _ => lead(byte).map(|inner| (true, inner)),
            },
            StringState::Escape => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(StringState::Plain),
                b'u' => Some(StringState::Hex {
                    left: 4,
                    low: false,
                }),
                _ => None,
            }
            .map(|inner| (false, inner)),
            StringState::Hex { left, low } => {
                let digit = (byte as char).to_digit(16)?;
                if low && digit > 7 {
                    return None;
                }
                let inner = match left {
                    1 => StringState::Plain,
                    _ => StringState::Hex {
                        left: left - 1,
                        low: left == 4 && digit == 0xd,
                    },
                };
                Some((false, inner))
            }
            StringState::Utf8 { left, from, to } => {
                if !(from..=to).contains(&byte) {
                    return None;
                }
                let inner = match left {
                    1 => StringState::Plain,
                    _ => continuation(left - 1),
                };
                Some((false, inner))
            }
        }
    }

    /// Bytes to the end of the character.
    pub(super) fn left(self) -> u32 {
        match self {
            StringState::Plain => 0,
            StringState::Escape => 1,
            StringState::Hex { left, .. } | StringState::Utf8 { left, .. } => u32::from(left),
        }
    }
}

fn continuation(left: u8) -> StringState {
    StringState::Utf8 {
        left,
        from: 0x80,
        to: 0xbf,
    }
}

/// The first byte of a multi-byte character.
fn lead(byte: u8) -> Option<StringState> {
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
    Some(StringState::Utf8 { left, from, to })
}

/// How much of `marker` has been written after `byte`, if `matched` bytes of it had been before. The first byte
/// of a marker occurs nowhere else in it.
pub(super) fn follow(marker: &[u8], matched: u8, byte: u8) -> u8 {
    match marker.get(usize::from(matched)) {
        Some(next) if *next == byte => matched + 1,
        _ => u8::from(marker.first() == Some(&byte)),
    }
}
