//! The `WWW-Authenticate` header (RFC 9110 §11.6.1, RFC 6750 §3, RFC 9728 §5.1).

/// A server's requirements for a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    pub error: Option<String>,
    pub error_description: Option<String>,
    pub scope: Option<String>,
    pub resource_metadata: Option<String>,
}

impl Challenge {
    /// The first Bearer challenge of a header value, which may contain several challenges.
    pub fn parse(header: &str) -> Option<Self> {
        let mut found: Option<Self> = None;
        for item in items(header) {
            match item {
                Item::Scheme(scheme) => {
                    if found.is_some() {
                        break;
                    }
                    if scheme.eq_ignore_ascii_case("bearer") {
                        found = Some(Self::default());
                    }
                }
                Item::Parameter(name, value) => {
                    if let Some(challenge) = &mut found {
                        challenge.set(&name, value);
                    }
                }
            }
        }
        found
    }

    /// The first Bearer challenge of several headers.
    pub fn of<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        headers.into_iter().find_map(Self::parse)
    }

    pub fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn set(&mut self, name: &str, value: String) {
        let slot = match name.to_ascii_lowercase().as_str() {
            "error" => &mut self.error,
            "error_description" => &mut self.error_description,
            "scope" => &mut self.scope,
            "resource_metadata" => &mut self.resource_metadata,
            _ => return,
        };
        // Repeating a parameter is invalid; the first one is used.
        if slot.is_none() && !value.trim().is_empty() {
            *slot = Some(value);
        }
    }
}

enum Item {
    Scheme(String),
    Parameter(String, String),
}

/// Splits a header into schemes and parameters. Invalid parts are skipped, because a challenge is
/// only advice.
fn items(header: &str) -> Vec<Item> {
    let mut found = Vec::new();
    let mut rest = header;
    while let Some(start) = rest.find(is_token_char) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_token_char(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let trimmed = after.trim_start();
        if let Some(value) = trimmed
            .strip_prefix('=')
            .filter(|value| !value.starts_with('='))
        {
            let (value, after) = parameter_value(value.trim_start());
            found.push(Item::Parameter(word.to_owned(), value));
            rest = after;
        } else {
            found.push(Item::Scheme(word.to_owned()));
            // A token68 credential ends in "=", which does not start a value.
            rest = trimmed.trim_start_matches('=');
        }
    }
    found
}

fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text
            .find(|c: char| c == ',' || c.is_whitespace())
            .unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bearer_challenge_is_read_whole() {
        let challenge = Challenge::parse(
            r#"Bearer error="insufficient_scope", scope="files:read files:write", resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource", error_description="say \"please\"""#,
        )
        .unwrap();
        assert!(challenge.is_insufficient_scope());
        assert_eq!(challenge.scope.as_deref(), Some("files:read files:write"));
        assert_eq!(
            challenge.resource_metadata.as_deref(),
            Some("https://mcp.example.com/.well-known/oauth-protected-resource")
        );
        assert_eq!(
            challenge.error_description.as_deref(),
            Some("say \"please\"")
        );
    }

    #[test]
    fn other_schemes_do_not_mix_in() {
        let challenge =
            Challenge::parse(r#"Basic realm="scope=evil", bearer scope=a, DPoP scope="b""#)
                .unwrap();
        assert_eq!(challenge.scope.as_deref(), Some("a"));
        assert_eq!(Challenge::parse(r#"Basic realm="x""#), None);
        assert_eq!(Challenge::parse("Negotiate YWJj=="), None);
        assert_eq!(
            Challenge::of(["Negotiate YWJj==", r#"Bearer scope = "z""#])
                .unwrap()
                .scope
                .as_deref(),
            Some("z")
        );
    }

    #[test]
    fn a_bare_scheme_is_a_challenge_and_empty_values_are_none() {
        assert_eq!(Challenge::parse("Bearer"), Some(Challenge::default()));
        assert_eq!(
            Challenge::parse(r#"Bearer scope="" "#),
            Some(Challenge::default())
        );
        assert_eq!(Challenge::parse(""), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_header_is_survived(header in "\\PC{0,80}") {
            let _ = Challenge::parse(&header);
        }

        #[test]
        fn quoting_is_undone(value in "[ -~]{1,40}") {
            prop_assume!(!value.trim().is_empty());
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("Digest a=\"b\", Bearer x=1, scope=\"{quoted}\", error=e");
            let challenge = Challenge::parse(&header).unwrap();
            prop_assert_eq!(challenge.scope, Some(value));
            prop_assert_eq!(challenge.error.as_deref(), Some("e"));
        }
    }
}
