//! Command templates with placeholders: `piper -f {output_path} < {input_path}`.

/// Inserts the values, quoted for their context; `{{` and `}}` are braces, other braces stay as
/// they are.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut quote = None;
    let mut rest = template;
    while let Some(ch) = rest.chars().next() {
        if let Some((name, value)) = values.iter().find(|(name, _)| names(rest, name)) {
            filled.push_str(&quoted(value, quote));
            rest = &rest[name.len() + 2..];
            continue;
        }
        let pair = ["{{", "}}"].into_iter().find(|pair| rest.starts_with(pair));
        if let Some(pair) = pair {
            filled.push_str(&pair[..1]);
            rest = &rest[2..];
            continue;
        }
        let step = escape_length(rest, quote).unwrap_or(ch.len_utf8());
        if step == ch.len_utf8() {
            quote = after(quote, ch);
        }
        filled.push_str(&rest[..step]);
        rest = &rest[step..];
    }
    filled
}

fn names(rest: &str, name: &str) -> bool {
    rest.strip_prefix('{')
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with('}'))
}

/// A backslash escapes the next character, except between single quotes.
fn escape_length(rest: &str, quote: Option<char>) -> Option<usize> {
    if quote == Some('\'') {
        return None;
    }
    let after = rest.strip_prefix('\\')?;
    Some(1 + after.chars().next()?.len_utf8())
}

fn after(quote: Option<char>, ch: char) -> Option<char> {
    match (quote, ch) {
        (None, '\'' | '"') => Some(ch),
        (Some(open), ch) if open == ch => None,
        (quote, _) => quote,
    }
}

fn quoted(value: &str, quote: Option<char>) -> String {
    match quote {
        None => format!("'{}'", value.replace('\'', r"'\''")),
        Some('"') => {
            let mut text = String::with_capacity(value.len());
            for ch in value.chars() {
                if matches!(ch, '"' | '\\' | '$' | '`') {
                    text.push('\\');
                }
                text.push(ch);
            }
            text
        }
        Some(_) => value.replace('\'', r"'\''"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_stand_where_they_are_named() {
        let filled = fill(
            r#"x -f {out} "a {out}" '{out}' {other} {{}} \"{out}"#,
            &[("out", "/a b")],
        );
        assert_eq!(filled, r#"x -f '/a b' "a /a b" '/a b' {other} {} \"'/a b'"#);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// A shell sees any value as one word, in every kind of quote.
        #[test]
        fn a_shell_reads_the_value_back(value in "[ -~äß]{0,24}") {
            let command = fill("printf '%s|%s|%s' {v} \"{v}\" '{v}'", &[("v", &value)]);
            let out = std::process::Command::new("bash").arg("-c").arg(&command).output().unwrap();
            let read = String::from_utf8(out.stdout).unwrap();
            prop_assert_eq!(read, format!("{value}|{value}|{value}"));
        }
    }
}
