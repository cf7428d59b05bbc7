//! Any arguments: what is valid stays as it is, what is repaired stays repaired, and what is missing
//! is never made up.

use serde_json::Value;

use super::RepairedArguments;

/// Cuts are tried at every place up to here.
const CUTS: usize = 256;

pub fn arguments(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = RepairedArguments::read(&text);
    let strict = serde_json::from_str::<Value>(text.trim()).ok();
    match (&read, strict) {
        (_, Some(Value::Object(map))) => {
            assert_eq!(read, RepairedArguments::Exact(map));
            assert_prefixes_are_not_run(text.trim());
        }
        (RepairedArguments::Exact(map), strict) => {
            assert!(map.is_empty(), "{map:?}");
            assert!(matches!(strict, None | Some(Value::Null)));
        }
        (RepairedArguments::Repaired(map), _) => {
            let written = Value::Object(map.clone()).to_string();
            assert_eq!(
                RepairedArguments::read(&written),
                RepairedArguments::Exact(map.clone())
            );
            assert_nothing_is_made_up(&text, &written);
        }
        (RepairedArguments::Truncated | RepairedArguments::Unreadable(_), _) => {}
    }
}

/// No beginning of an object is taken for one.
fn assert_prefixes_are_not_run(whole: &str) {
    for (cut, _) in whole.char_indices().skip(1).take(CUTS) {
        let read = RepairedArguments::read(&whole[..cut]);
        assert!(
            matches!(
                read,
                RepairedArguments::Truncated | RepairedArguments::Unreadable(_)
            ),
            "{:?} is read as {read:?}",
            &whole[..cut]
        );
    }
}

/// Every letter of the result stands in the text. Only the words that other languages write differently do
/// not. Their order may differ: of equal keys the first place and the last value count.
fn assert_nothing_is_made_up(text: &str, written: &str) {
    // Escapes hide letters.
    if text.contains('\\') || written.contains('\\') {
        return;
    }
    let letters = |text: &str| -> Vec<char> {
        let lower = text.to_lowercase();
        let lower = lower.replace("undefined", "null").replace("none", "null");
        lower.chars().filter(|c| c.is_alphabetic()).collect()
    };
    let mut source = letters(text);
    for letter in letters(written) {
        let at = source.iter().position(|c| *c == letter);
        assert!(at.is_some(), "{text} became {written}");
        source.swap_remove(at.unwrap_or_default());
    }
}
