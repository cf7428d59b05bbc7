use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

#[test]
fn each_platform_gets_its_markup() {
    use Markup::{Plain, SlackMrkdwn as Slack, TelegramHtml as Html, TelegramV2 as V2};
    let cases = [
        ("a **b** *c* ~~d~~ `e`", V2, "a *b* _c_ ~d~ `e`"),
        (
            "a **b** *c* ~~d~~ `e`",
            Html,
            "a <b>b</b> <i>c</i> <s>d</s> <code>e</code>",
        ),
        ("a **b** *c* ~~d~~ `e`", Slack, "a *b* _c_ ~d~ `e`"),
        ("a **b** *c* ~~d~~ `e`", Plain, "a b c d e"),
        ("# Top **x**\n\ntext", V2, "*Top x*\n\ntext"),
        ("1 < 2 & 3.", V2, "1 < 2 & 3\\."),
        ("1 < 2 & 3.", Html, "1 &lt; 2 &amp; 3."),
        ("1 < 2 & 3.", Slack, "1 &lt; 2 &amp; 3."),
        ("say \"it\"", Slack, "say \"it\""),
        ("say \"it\"", Html, "say &quot;it&quot;"),
        ("[p](http://x/(y))", V2, "[p](http://x/(y\\))"),
        ("[p](http://x)", Html, "<a href=\"http://x\">p</a>"),
        ("[p](http://x)", Slack, "<http://x|p>"),
        ("[p](http://x)", Plain, "p (http://x)"),
        ("<http://x>", Plain, "http://x"),
        ("- a\n- b\n  - c\n\n3. d", Plain, "• a\n• b\n  • c\n\n3. d"),
        ("1. a", V2, "1\\. a"),
        ("- [x] done\n- [ ] open", Plain, "• ☑ done\n• ☐ open"),
        ("> a\n> b", V2, ">a\n>b"),
        ("> a\n> b\n\nc", Slack, "> a\n> b\n\nc"),
        ("> a", Html, "<blockquote>a</blockquote>"),
        ("- > a\n- b", V2, "• \n>a\n• b"),
        ("- > a", Html, "• \n<blockquote>a</blockquote>"),
        ("1. x\n   > a\n   > b", V2, "1\\. x\n>a\n>b"),
        ("> a\n> > b", V2, ">a\n>\n>› b"),
        ("> a\n> > b", Html, "<blockquote>a\n\n› b</blockquote>"),
        (
            "> a\n> ```\n> x > y\n> ```\n> b",
            V2,
            ">a\n>\n```\nx > y\n```\n>\n>b",
        ),
        ("```rs\na`\\b<\n```\nx", V2, "```rs\na\\`\\\\b<\n```\n\nx"),
        (
            "```rs\na<\n```",
            Html,
            "<pre><code class=\"language-rs\">a&lt;</code></pre>",
        ),
        ("```rs\na<\n```", Slack, "```\na&lt;\n```"),
        ("```rs\na<\n```", Plain, "a<"),
        (
            "|h|k|\n|-|-|\n|1|2|\n|3|4|",
            Plain,
            "h: 1\nk: 2\n\nh: 3\nk: 4",
        ),
        ("a\nb\n\n\nc", Plain, "a\nb\n\nc"),
        ("*a**b*", Plain, "a**b"),
        ("***a***", V2, "_*a*_"),
        ("x\n\n---\n\ny", Plain, "x\n\n———\n\ny"),
    ];
    for (markdown, markup, text) in cases {
        assert_eq!(render(markup, markdown), text, "{markup:?} {markdown}");
    }
    assert_eq!(render(Markup::Discord, "**a** | b"), "**a** | b");
}

/// Reads MarkdownV2 as Telegram does. `Err`: it would refuse the message.
fn read_v2(text: &str) -> Result<(), String> {
    let mut chars = text.char_indices().peekable();
    let mut open: Vec<char> = Vec::new();
    while let Some((at, ch)) = chars.next() {
        match ch {
            '\\' => {
                chars.next().ok_or("ends in a backslash")?;
            }
            '`' => {
                let block = text[at..].starts_with("```");
                if block {
                    chars.next();
                    chars.next();
                }
                let end = if block { "```" } else { "`" };
                loop {
                    let (at, ch) = chars.next().ok_or("code without end")?;
                    if ch == '\\' {
                        chars.next();
                    } else if text[at..].starts_with(end) {
                        if block {
                            chars.next();
                            chars.next();
                        }
                        break;
                    }
                }
            }
            '*' | '_' | '~' => {
                if ch == '_' && chars.peek().is_some_and(|(_, next)| *next == '_') {
                    return Err("underline".to_owned());
                }
                if open.last() == Some(&ch) {
                    open.pop();
                } else if open.contains(&ch) {
                    return Err(format!("{ch} crosses"));
                } else {
                    open.push(ch);
                }
            }
            '[' => open.push(ch),
            ']' => {
                if open.pop() != Some('[') || chars.next().map(|(_, ch)| ch) != Some('(') {
                    return Err("]".to_owned());
                }
                loop {
                    match chars.next().ok_or("link without end")?.1 {
                        '\\' => {
                            chars.next();
                        }
                        ')' => break,
                        _ => {}
                    }
                }
            }
            '>' if at == 0 || text[..at].ends_with(['\n', '>']) => {}
            '(' | ')' | '>' | '#' | '+' | '-' | '=' | '|' | '{' | '}' | '.' | '!' => {
                return Err(format!("bare {ch} at {at}"));
            }
            _ => {}
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("{open:?} stays open"))
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn telegram_can_read_whatever_comes(text in "([a-z .!()\\[\\]_*~`>#+=|{}\\\\<&\n-]|\\*\\*|```|\\]\\(|😀){0,60}") {
        let rendered = render(Markup::TelegramV2, &text);
        prop_assert!(read_v2(&rendered).is_ok(), "{:?}: {}", read_v2(&rendered), rendered);
    }

    #[test]
    fn plain_words_stay(text in "[a-zé😀]{1,8}( [a-zé😀]{1,8}){0,6}") {
        for markup in [Markup::Plain, Markup::SlackMrkdwn, Markup::TelegramHtml, Markup::TelegramV2] {
            prop_assert_eq!(render(markup, &text), text.clone());
        }
    }
}
