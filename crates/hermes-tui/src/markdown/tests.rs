use proptest::prelude::*;

use super::{MarkdownStream, render, render_bulleted};
use crate::cells::CellContext;
use crate::cells::snap::{fits, gallery, text};
use crate::theme::Theme;

const PROSE: &str = "\
# The plan

Some *emphasis*, **strong words**, ~~struck ones~~ and `inline code` in a sentence that is long \
enough to be broken at eighty columns.
A line of its own.

## Lists

- first, with more words than fit on one line of a narrow terminal, so that it hangs
  - nested **bold**
    - deeper
- second

  another paragraph of it
- [ ] to do
- [x] done

1. one
1. two
1. three with code:
   ```sh
   cargo test --workspace
   ```
7. explicit

> A quote that goes on and on, longer than forty columns in any case.
>
> - with a list

> [!WARNING]
> Mind the gap.

---

See [the book](https://doc.rust-lang.org/book/), <https://example.org> and ![a cat](cat.png).
Costs $5, and $E = mc^2$ is math.<br>Next line, <b>html</b>[^1].

[^1]: The footnote, with `code` and words that go on beyond the edge of a narrow screen.
[book]: https://doc.rust-lang.org/
";

const CODE: &str = "\
Here:
```rust
fn main() {
\tprintln!(\"a line of code that is much longer than forty columns and stays one line\"); // end
}
```
```
no language
```

    indented code
";

const TABLES: &str = "\
| Name | Size | About |
|:-----|-----:|:-----:|
| alpha | 12 | short |
| 日本語 | 1,234 | a cell with **many** words that has to be broken somewhere |
| 👩‍👩‍👧‍👦 | 7 | [link](https://example.org/a) |

| This heading is long | And this one is long as well | Third | Fourth column here |
|---|---|---|---|
| aaaaaaaaaaaaaaaaaaaa | bbbbbbbbbbbbbbbbbbbbbbbbbbbbb | cccccccccccccccccc | dddddddddddddd |
| 1 | 2 | 3 | |
";

const WIDE: &str = "\
# 見出し

- 日本語の文章はどこでも折り返せますが、句読点は行頭に置きません。
- 한국어 문장도 있습니다. 👩‍👩‍👧‍👦 가족과 🇯🇵 깃발.
";

#[test]
fn prose() {
    insta::assert_snapshot!(gallery(|width, cx| render_bulleted(PROSE, width, cx)));
}

#[test]
fn code() {
    insta::assert_snapshot!(gallery(|width, cx| render_bulleted(CODE, width, cx)));
}

#[test]
fn tables() {
    insta::assert_snapshot!(gallery(|width, cx| render(TABLES, width, cx)));
}

#[test]
fn wide_characters() {
    insta::assert_snapshot!(gallery(|width, cx| render_bulleted(WIDE, width, cx)));
}

fn links() -> CellContext<'static> {
    static THEME: std::sync::LazyLock<Theme> = std::sync::LazyLock::new(Theme::default);
    CellContext {
        hyperlinks: true,
        ..CellContext::new(&THEME)
    }
}

#[test]
fn links_of_the_terminal_hide_no_address_that_poses_as_another() {
    let source = "[the book](https://a.example/) [https://bank.example](https://evil.example/) \
                  [x](javascript:alert) <https://same.example/>";
    let shown = text(&render(source, 200, &links()));
    assert_eq!(
        shown,
        "|the book https://bank.example (https://evil.example/) x (javascript:alert) \
         https://same.example/  <https://a.example/>  <https://evil.example/>  \
         <https://same.example/>"
    );
}

#[test]
fn a_fence_is_given_out_line_by_line_and_a_table_at_once() {
    let theme = Theme::default();
    let cx = CellContext::new(&theme);
    let mut stream = MarkdownStream::bulleted();
    stream.push("```py\nprint(1)\npri");
    assert_eq!(text(&stream.take_finished(40, &cx)).lines().count(), 2);
    assert_eq!(stream.tail(40, 9, &cx).len(), 1);
    stream.push("nt(2)\n```\n| a | b |\n|---|---|\n| 1 | 2 |\n");
    assert_eq!(text(&stream.take_finished(40, &cx)).lines().count(), 2);
    assert_eq!(stream.tail(40, 9, &cx).len(), 4);
    stream.push("\n");
    assert_eq!(text(&stream.take_finished(40, &cx)).lines().count(), 4);
    assert!(stream.tail(40, 9, &cx).is_empty());
    assert!(stream.finish(40, &cx).is_empty());
}

#[test]
fn what_drives_a_terminal_comes_through_nowhere() {
    let source = "a\u{1b}[2Jb `c\u{1b}]0;t\u{7}`\n```\n\u{1b}[31m\r\u{8}\n```\n[l\u{202e}](https://x/\u{1b})\n\n| \u{1b} |\n|---|\n";
    fits(&render_bulleted(source, 40, &links()), 40);
}

/// A reply of 5 MB in small parts: each part is looked at a bounded number of times.
#[test]
fn a_long_reply_is_linear() {
    let theme = Theme::default();
    let cx = CellContext::new(&theme);
    let block =
        "Some words of a paragraph that goes on for a while.\n\n- item\n- item\n\n```\ncode\n```\n";
    let mut stream = MarkdownStream::bulleted();
    let mut rows = 0;
    let mut longest_tail = 0;
    for _ in 0..5_000 {
        stream.push(block);
        rows += stream.take_finished(80, &cx).len();
        longest_tail = longest_tail.max(stream.tail(80, 100, &cx).len());
    }
    rows += stream.finish(80, &cx).len();
    assert_eq!(rows, render_bulleted(stream.text(), 80, &cx).len());
    assert!(longest_tail <= 2, "{longest_tail}");
}

#[test]
fn the_tail_of_a_long_paragraph_is_its_end() {
    let theme = Theme::default();
    let cx = CellContext::new(&theme);
    let mut stream = MarkdownStream::bulleted();
    stream.push(&"日本語 words ".repeat(1_500));
    stream.push("the end");
    assert!(stream.take_finished(80, &cx).is_empty());
    let tail = stream.tail(80, 3, &cx);
    assert_eq!(tail.len(), 3);
    assert!(tail[2].to_string().ends_with("the end"));
    assert!(!stream.finish(80, &cx).is_empty());
}

fn markdown() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "[a-zäß日 ]{0,30}",
        "(- |\\* |  - |1\\. |12\\) |    |> |>> )[a-z*_`\\[\\]]{0,12}",
        "(#|##|####### ) ?[a-z]{0,8}",
        Just("```rust".to_owned()),
        Just("```".to_owned()),
        Just("   ```".to_owned()),
        Just("~~~~".to_owned()),
        Just("---".to_owned()),
        Just("===".to_owned()),
        Just("| a | b |".to_owned()),
        Just("|---|:-:|".to_owned()),
        Just("[x]: https://a.example".to_owned()),
        Just("[^1]: note".to_owned()),
        Just("<div>".to_owned()),
        Just("$$ x".to_owned()),
        Just(String::new()),
        Just(String::new()),
        "\\PC{0,20}",
    ];
    (proptest::collection::vec(line, 0..14), "(\n|\r\n)").prop_map(|(lines, end)| lines.join(&end))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_is_what_the_whole_is(
        source in markdown(),
        cuts in proptest::collection::vec(1..9usize, 1..12),
        width in 12..60u16,
        bulleted: bool,
    ) {
        let theme = Theme::named("dark").unwrap();
        let cx = CellContext::new(&theme);
        let mut stream = if bulleted { MarkdownStream::bulleted() } else { MarkdownStream::default() };
        let mut rows = Vec::new();
        let chars: Vec<char> = source.chars().collect();
        let mut at = 0;
        for size in cuts.iter().cycle() {
            if at >= chars.len() {
                break;
            }
            let part: String = chars[at..(at + size).min(chars.len())].iter().collect();
            at += size;
            stream.push(&part);
            rows.extend(stream.take_finished(width, &cx));
            prop_assert_eq!(&stream.given(width, &cx), &rows);
            stream.tail(width, 10, &cx);
        }
        rows.extend(stream.finish(width, &cx));
        let whole = if bulleted {
            render_bulleted(&source, width, &cx)
        } else {
            render(&source, width, &cx)
        };
        prop_assert_eq!(text(&rows), text(&whole));
        prop_assert_eq!(rows, whole);
    }

    #[test]
    fn rows_fit_and_hold_every_letter(source in markdown(), width in 12..60u16) {
        let theme = Theme::default();
        let rows = render_bulleted(&source, width, &CellContext::new(&theme));
        fits(&rows, width);
        let letters = |text: &str| text.chars().filter(|ch| matches!(ch, 'ä' | 'ß')).count();
        prop_assert_eq!(letters(&text(&rows)), letters(&source));
    }

    #[test]
    fn a_tail_fits(source in markdown(), width in 12..60u16, max in 0..6usize) {
        let theme = Theme::default();
        let cx = CellContext::new(&theme);
        let mut stream = MarkdownStream::bulleted();
        stream.push(&source);
        stream.take_finished(width, &cx);
        let tail = stream.tail(width, max, &cx);
        prop_assert!(tail.len() <= max);
        for line in tail {
            prop_assert!(crate::width::line_width(&line) <= usize::from(width));
        }
    }
}
