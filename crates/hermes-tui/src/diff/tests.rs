use proptest::prelude::*;

use super::{DiffFileChange, FileDiff, LineChange, between, counts, rows, unified, v4a};
use crate::cells::CellContext;
use crate::cells::snap::{fits, gallery};
use crate::theme::Theme;

const UNIFIED: &str = "\
diff --git a/src/parser.rs b/src/parser.rs
index 1..2 100644
--- a/src/parser.rs
+++ b/src/parser.rs
@@ -86,5 +86,6 @@ fn list(&mut self)
     loop {
         let item = self.item()?;
-        if self.peek() == Tok::RBracket { break }
+        if self.accept(Tok::Comma) && self.peek() == Tok::RBracket { break }
+\tself.skip_a_rather_long_name_that_does_not_fit_on_one_line_of_a_narrow_terminal(日本語);
         items.push(item);
     }
@@ -120 +121 @@
-old
+entirely different text
\\ No newline at end of file
--- /dev/null
+++ b/docs/new.md
@@ -0,0 +1,2 @@
+# Title
+
--- a/old.txt	2026-01-01
+++ /dev/null
@@ -1 +0,0 @@
-gone
";

const PATCH: &str = "\
*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@ def f():
 keep
-return 1
+return 2
@@
-x
*** Add File: new.txt
+one
+two
*** Delete File: gone.txt
*** End Patch
";

type DiffSummary = (String, Option<String>, DiffFileChange, (usize, usize));

fn brief(files: &[FileDiff]) -> Vec<DiffSummary> {
    files
        .iter()
        .map(|file| {
            (
                file.path.clone(),
                file.moved.clone(),
                file.change,
                file.counts(),
            )
        })
        .collect()
}

#[test]
fn unified_diffs_are_read() {
    let files = unified(UNIFIED);
    assert_eq!(
        brief(&files),
        [
            (
                "src/parser.rs".to_owned(),
                None,
                DiffFileChange::Edited,
                (3, 2)
            ),
            (
                "docs/new.md".to_owned(),
                None,
                DiffFileChange::Created,
                (2, 0)
            ),
            ("old.txt".to_owned(), None, DiffFileChange::Deleted, (0, 1)),
        ]
    );
    assert_eq!(counts(&files), (5, 3));
    assert_eq!(files[0].hunks[0].numbers, Some((86, 86)));
    assert_eq!(files[0].hunks[1].lines.len(), 2);
    assert!(
        unified("no diff at all\n+++\n@@ nonsense\n")
            .iter()
            .all(|file| file.hunks.is_empty())
    );
}

#[test]
fn patches_of_models_are_read() {
    let files = v4a(PATCH);
    assert_eq!(
        brief(&files),
        [
            (
                "src/a.py".to_owned(),
                Some("src/b.py".to_owned()),
                DiffFileChange::Edited,
                (1, 2)
            ),
            ("new.txt".to_owned(), None, DiffFileChange::Created, (2, 0)),
            ("gone.txt".to_owned(), None, DiffFileChange::Deleted, (0, 0)),
        ]
    );
}

#[test]
fn two_texts_are_compared() {
    let file = between("a", "one\ntwo\nthree\n", "one\n2\nthree\n");
    let signs: Vec<LineChange> = file.hunks[0].lines.iter().map(|line| line.change).collect();
    assert_eq!(
        signs,
        [
            LineChange::Same,
            LineChange::Removed,
            LineChange::Added,
            LineChange::Same
        ]
    );
    assert!(between("a", "same", "same").hunks.is_empty());
    let long = "x\n".repeat(5_000);
    assert_eq!(between("a", &long, "y").counts(), (1, 5_000));
}

#[test]
fn diffs() {
    insta::assert_snapshot!(gallery(|width, cx| {
        let mut all = rows(&unified(UNIFIED), width, 4, cx);
        all.push(crate::row::StyledRow::default());
        all.extend(rows(
            &[between(
                "a",
                "let a = 1;\nlet b = 2;\n",
                "let a = 1;\nlet b = 20;\n",
            )],
            width,
            4,
            cx,
        ));
        all
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_is_read_and_fits(text in "((@@ -[0-9]{0,3},?[0-9]{0,2} \\+[0-9]{0,3},?[0-9]{0,2} @@|---|\\+\\+\\+|[-+ *\\\\]|\\*\\*\\* (Update|Add) File:)[ a-z日\t\u{1b}]{0,20}\n){0,20}", width in 12..60u16) {
        let theme = Theme::default();
        let cx = CellContext::new(&theme);
        for files in [unified(&text), v4a(&text), vec![between("p", &text, &text.to_uppercase())]] {
            fits(&rows(&files, width, 4, &cx), width);
        }
    }
}
