//! The YAML front matter of a `SKILL.md`.

use serde_json::{Map, Value};

/// The parsed front matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Frontmatter {
    pub fields: Map<String, Value>,
}

/// A document split at its `---` lines.
pub(super) struct SplitDocument<'a> {
    pub(super) yaml: &'a str,
    pub(super) body: &'a str,
}

/// Splits `---`, YAML, `---`, body. `None` without an opening or a closing line.
pub(super) fn split(text: &str) -> Option<SplitDocument<'_>> {
    let text = strip_bom(text);
    let rest = text.strip_prefix("---")?;
    let mut from = 0;
    while let Some(at) = rest[from..].find("\n---") {
        let after = &rest[from + at + 4..];
        // The delimiter line contains nothing else; blank lines may follow it.
        let blank = after.len() - after.trim_start().len();
        if let Some(newline) = after[..blank].rfind('\n') {
            return Some(SplitDocument {
                yaml: &rest[..from + at],
                body: &after[newline + 1..],
            });
        }
        from += at + 4;
    }
    None
}

pub(super) fn strip_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Parses the front matter as strict YAML.
pub(super) fn parse_strict(yaml: &str) -> Result<Value, String> {
    hermes_config::yaml::parse(yaml)
        .map(|(value, _)| value)
        .map_err(|error| error.to_string())
}

impl Frontmatter {
    /// Parses the front matter. Invalid YAML is read line by line as `key: value`; missing front
    /// matter is empty.
    pub(super) fn read(text: &str) -> (Self, &str) {
        let Some(SplitDocument { yaml, body }) = split(text) else {
            return (Self::default(), strip_bom(text));
        };
        let fields = match parse_strict(yaml) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => Map::new(),
            Err(_) => parse_lines(yaml),
        };
        (Self { fields }, body)
    }

    pub(super) fn name(&self) -> Option<String> {
        self.text("name")
    }

    pub(super) fn description(&self) -> Option<String> {
        self.text("description")
    }

    /// A scalar as text; `None` if absent, null or empty.
    pub(super) fn text(&self, field: &str) -> Option<String> {
        scalar(self.fields.get(field)?).filter(|text| !text.is_empty())
    }

    /// `metadata.hermes.<field>`, for Hermes-specific data.
    pub(super) fn hermes(&self, field: &str) -> Option<&Value> {
        self.fields.get("metadata")?.get("hermes")?.get(field)
    }

    /// A list of words at `metadata.hermes.<field>`.
    pub(super) fn hermes_words(&self, field: &str) -> Vec<String> {
        self.hermes(field).map(words).unwrap_or_default()
    }

    /// Tags and similar lists: under `metadata.hermes`, or at the top level in older skills. Lists,
    /// `[a, b]` and `a, b` are accepted.
    pub(super) fn tags(&self, field: &str) -> Vec<String> {
        let found = self
            .hermes(field)
            .filter(|value| !words(value).is_empty())
            .or_else(|| self.fields.get(field));
        match found {
            Some(Value::String(text)) => {
                let text = text.trim();
                let inner = text
                    .strip_prefix('[')
                    .and_then(|text| text.strip_suffix(']'));
                inner
                    .unwrap_or(text)
                    .split(',')
                    .map(|tag| tag.trim().trim_matches(['"', '\'']).to_owned())
                    .filter(|tag| !tag.is_empty())
                    .collect()
            }
            Some(value) => words(value),
            None => Vec::new(),
        }
    }

    /// Words of a top-level field.
    pub(super) fn top_words(&self, field: &str) -> Vec<String> {
        self.fields.get(field).map(words).unwrap_or_default()
    }
}

/// Whether a skill for these `platforms` runs on this system.
pub(super) fn fits_platform(platforms: &[String]) -> bool {
    let current_platform = match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    platforms.is_empty()
        || platforms.iter().any(|platform| {
            let platform = platform.to_lowercase();
            let wanted = match platform.as_str() {
                "macos" => "darwin",
                "windows" => "win32",
                other => other,
            };
            current_platform.starts_with(wanted)
        })
}

/// Whether a skill for these `environments` is offered here. Unknown values never hide one.
pub(super) fn fits_environment(wanted: &[String], active: &[String]) -> bool {
    wanted.is_empty()
        || wanted.iter().any(|environment| {
            let environment = environment.to_lowercase();
            !matches!(environment.as_str(), "kanban" | "docker" | "s6")
                || active.contains(&environment)
        })
}

/// One word or a list of words.
pub(super) fn words(value: &Value) -> Vec<String> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    items
        .iter()
        .filter_map(scalar)
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn parse_lines(yaml: &str) -> Map<String, Value> {
    yaml.trim()
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| {
            let value = Value::String(value.trim().to_owned());
            (key.trim().to_owned(), value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_head_ends_at_a_line_of_three_dashes() {
        let (head, body) = Frontmatter::read("---\nname: a\nx: b\n---  \n\nBody\n---\nmore");
        assert_eq!(head.name().as_deref(), Some("a"));
        assert_eq!(body, "Body\n---\nmore");
        let (head, body) = Frontmatter::read("---\nname: a---b\n---- no\n---\nBody");
        assert_eq!(body, "Body");
        assert!(head.fields.contains_key("name"));
    }

    #[test]
    fn without_fences_everything_is_body() {
        for text in ["Just text", "---\nname: a\nnever closed", "\u{feff}Text"] {
            let (head, body) = Frontmatter::read(text);
            assert!(head.fields.is_empty());
            assert_eq!(body, text.trim_start_matches('\u{feff}'));
        }
    }

    #[test]
    fn a_byte_order_mark_hides_nothing() {
        let (head, _) = Frontmatter::read("\u{feff}---\nname: a\n---\nBody");
        assert_eq!(head.name().as_deref(), Some("a"));
    }

    #[test]
    fn broken_yaml_is_read_line_by_line() {
        let (head, body) = Frontmatter::read("---\nname: a\ndescription: b: [c\n---\nBody");
        assert_eq!(head.description().as_deref(), Some("b: [c"));
        assert_eq!(body, "Body");
    }

    #[test]
    fn tags_come_in_three_spellings() {
        for tags in ["[a, 'b']", "\"a, b\"", "[\"a\", b]"] {
            let text = format!("---\nname: x\ntags: {tags}\n---\nBody");
            assert_eq!(Frontmatter::read(&text).0.tags("tags"), ["a", "b"]);
        }
        let text = "---\ntags: [old]\nmetadata:\n  hermes:\n    tags: [new]\n---\nBody";
        assert_eq!(Frontmatter::read(text).0.tags("tags"), ["new"]);
    }

    #[test]
    fn platforms_and_environments_filter() {
        let read = |line: &str| Frontmatter::read(&format!("---\n{line}\n---\nBody")).0;
        let fits = |text: &str| fits_platform(&read(text).top_words("platforms"));
        assert!(fits("name: x"));
        assert!(fits("platforms: [macos, linux, windows]"));
        assert!(!fits("platforms: plan9"));
        let active = ["docker".to_owned()];
        let fits = |text: &str| fits_environment(&read(text).top_words("environments"), &active);
        assert!(fits("environments: [docker, s6]"));
        assert!(!fits("environments: kanban"));
        assert!(fits("environments: moonbase"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        #[test]
        fn any_text_is_read_and_the_body_is_its_end(text in "(---)?[-a-z: \\n\\r\u{feff}é\\[{]{0,60}") {
            let (_, body) = Frontmatter::read(&text);
            proptest::prop_assert!(text.ends_with(body));
        }
    }
}
