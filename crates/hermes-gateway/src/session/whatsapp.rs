//! A WhatsApp user has a phone number and a second id, and messages contain either. The bridge
//! records which belong together.

use std::collections::BTreeSet;
use std::path::Path;

/// The bare id: without `+`, device and server.
pub(crate) fn bare(id: &str) -> String {
    let id = id.trim().replacen('+', "", 1);
    let id = id.split(':').next().unwrap_or_default();
    id.split('@').next().unwrap_or_default().to_owned()
}

/// All ids of the person, from the bridge's `lid-mapping-*.json` files in `session_dir`.
pub(crate) fn aliases(session_dir: &Path, id: &str) -> BTreeSet<String> {
    let (mut known, mut queue) = (BTreeSet::new(), vec![bare(id)]);
    while let Some(id) = queue.pop() {
        // The id becomes part of a file name.
        let safe = |ch: char| ch.is_ascii_alphanumeric() || "@.+-".contains(ch);
        if id.is_empty() || !id.chars().all(safe) || !known.insert(id.clone()) {
            continue;
        }
        for suffix in ["", "_reverse"] {
            let path = session_dir.join(format!("lid-mapping-{id}{suffix}.json"));
            let mapped = std::fs::read_to_string(path)
                .ok()
                .and_then(|text| serde_json::from_str::<String>(&text).ok());
            queue.extend(mapped.map(|mapped| bare(&mapped)));
        }
    }
    known
}

/// The canonical id: the shortest, then the first.
pub(crate) fn canonical(session_dir: &Path, id: &str) -> String {
    aliases(session_dir, id)
        .into_iter()
        .min_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
        .unwrap_or_else(|| bare(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ids_of_a_person_are_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("lid-mapping-15551234567.json"),
            "\"999@lid\"",
        )
        .unwrap();
        std::fs::write(
            dir.path().join("lid-mapping-999_reverse.json"),
            "\"15551234567\"",
        )
        .unwrap();
        for id in ["+15551234567", "15551234567:3@s.whatsapp.net", "999@lid"] {
            assert_eq!(canonical(dir.path(), id), "999", "{id}");
        }
        assert_eq!(canonical(dir.path(), "44@s.whatsapp.net"), "44");
        assert_eq!(canonical(dir.path(), ""), "");
        assert_eq!(canonical(dir.path(), "../x"), "../x");
    }
}
