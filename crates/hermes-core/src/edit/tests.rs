use super::*;

fn edit(content: &str, old: &str, new: &str) -> (String, &'static str) {
    match replace(content, old, new, false) {
        Ok(done) => (done.text, done.strategy.as_str()),
        Err(error) => panic!("{error}"),
    }
}

/// content, old, new, result, strategy
const CASES: &[(&str, &str, &str, &str, &str)] = &[
    ("a b c", "b", "x", "a x c", "exact"),
    (
        "fn a() {\n    one();  \n    two();\n}\n",
        "  one();\n  two();",
        "  one();\n  three();",
        "fn a() {\n    one();\n    three();\n}\n",
        "line_trimmed",
    ),
    (
        "let  x\t= 1;\n",
        "let x = 1;",
        "let x = 2;",
        "let x = 2;\n",
        "whitespace_normalized",
    ),
    (
        "x = foo(1,   2)  # note\n",
        "foo(1, 2)",
        "bar(1, 2)",
        "x = bar(1, 2)  # note\n",
        "whitespace_normalized",
    ),
    (
        "one\ntwo\nthree\n",
        "one\\ntwo",
        "one\\n2",
        "one\n2\nthree\n",
        "escape_normalized",
    ),
    (
        "say \u{201c}hi\u{201d} \u{2014} and go\n",
        "say \"hi\" -- and go",
        "say \"hi\" -- and stay",
        "say \u{201c}hi\u{201d} \u{2014} and stay\n",
        "unicode_normalized",
    ),
    (
        "def f():\n    total = 0\n    for i in xs:\n        total += i\n    return total\n",
        "def f():\n    total = 0\n    for item in xs:\n        total += item\n    return total",
        "def f():\n    return sum(xs)",
        "def f():\n    return sum(xs)\n",
        "block_anchor",
    ),
    (
        "alpha = compute_value(1)\nbeta = compute_value(2)\n",
        "alpha = compute_valu(1)",
        "alpha = 3",
        "alpha = 3\nbeta = compute_value(2)\n",
        "context_aware",
    ),
];

#[test]
fn the_strictest_way_that_fits_is_taken() {
    for (content, old, new, want, strategy) in CASES {
        assert_eq!(
            edit(content, old, new),
            ((*want).to_owned(), *strategy),
            "{old:?}"
        );
    }
}

#[test]
fn indentation_follows_the_file() {
    let content = "class A:\n\tdef f(self):\n\t\treturn 1\n";
    let (text, _) = edit(
        content,
        "def f(self):\n    return 1",
        "def f(self):\n    x = 1\n    return x",
    );
    assert_eq!(
        text,
        "class A:\n\tdef f(self):\n\t    x = 1\n\t    return x\n"
    );
}

#[test]
fn a_tab_written_out_is_a_tab_only_where_the_file_has_tabs() {
    let (text, _) = edit("\tfoo( 1)\n", "\\tfoo( 1)", "\\tbar(1)");
    assert_eq!(text, "\tbar(1)\n");
    let (text, _) = edit(
        "sep = '\\t'  \nx\n",
        "  sep = '\\t'\n  x",
        "  sep = '\\t'\n  y",
    );
    assert_eq!(text, "sep = '\\t'\ny\n");
}

#[test]
fn several_places_are_an_error_unless_all_are_meant() {
    let error = replace("a\nb\na\n", "a", "c", false).unwrap_err();
    assert_eq!(
        error,
        ReplaceError::Ambiguous {
            count: 2,
            lines: vec![1, 3]
        }
    );
    let done = replace("a\nb\na\n", "a", "c", true).unwrap();
    assert_eq!((done.text.as_str(), done.count), ("c\nb\nc\n", 2));
    assert_eq!(replace("aaaa", "aa", "b", true).unwrap().text, "bb");
    assert!(replace("aaa", "aa", "b", false).is_err());
}

#[test]
fn loose_places_never_overlap() {
    // Every window of two lines is alike; only every other one may be replaced.
    let content = "value = 10\nvalue = 11\nvalue = 12\nvalue = 13\n";
    let done = replace(content, "valve = 10\nvalve = 19", "x", true).unwrap();
    assert_eq!(done.text, "x\nx\n");
}

#[test]
fn each_place_keeps_its_own_typography() {
    let content = "a \u{2018}x\u{2019} 1\na \u{2018}x' 1\n";
    let done = replace(content, "a 'x' 1", "a 'x' 2", true).unwrap();
    assert_eq!(done.text, "a \u{2018}x\u{2019} 2\na \u{2018}x' 2\n");
}

#[test]
fn refusals() {
    assert_eq!(replace("a", "", "b", false), Err(ReplaceError::Empty));
    assert_eq!(replace("a", "a", "a", false), Err(ReplaceError::Identical));
    assert_eq!(replace("a", "zzz", "b", false), Err(ReplaceError::NotFound));
    // White space alone is taken literally or not at all.
    assert_eq!(
        replace("a\n\nb", "   ", "x", true),
        Err(ReplaceError::NotFound)
    );
    assert_eq!(
        replace("it's  here\n", "it\\'s here", "it\\'s there", false),
        Err(ReplaceError::StrayBackslash("\\'"))
    );
}

#[test]
fn likeness_is_counted_as_difflib_does() {
    // Figures of Python's SequenceMatcher(None, a, b).ratio().
    for (a, b, want) in [
        ("abcd", "bcde", 0.75),
        ("", "", 1.0),
        ("abc", "", 0.0),
        (
            "private Thread currentThread;",
            "private volatile Thread currentThread;",
            0.865_671_641_791_044_8,
        ),
    ] {
        assert!(
            (ratio(a, b) - want).abs() < 1e-12,
            "{a} {b} {}",
            ratio(a, b)
        );
    }
    let long = "x".repeat(300);
    assert!((ratio("xxxx", &long) - 0.026_315_789_473_684_21).abs() < 1e-12);
}

#[test]
fn near_places_are_shown_with_line_numbers() {
    let content = "use a;\nfn compute(x: u32) {\n    x\n}\n";
    let near = nearest(content, "fn computed(x: u32) {").unwrap();
    assert!(near.contains("   2| fn compute(x: u32) {"), "{near}");
    assert_eq!(nearest(content, "\n"), None);
}

/// The time of a search is counted in steps: they stay below their bound whatever the file is.
#[test]
fn a_search_for_something_alike_is_bounded() {
    let line = |n: usize| format!("    value_{n:06} = compute(alpha, beta, gamma, {n})");
    let wanted: Vec<String> = (0..256)
        .map(|n| line(n * 7).replace("compute", "kompute"))
        .collect();
    let wanted = wanted.join("\n").replace("value_", "valve-");
    let steps = |lines: usize| {
        let content: Vec<String> = (0..lines).map(line).collect();
        let mut work = WorkBudget::of(3_000_000);
        find_within(&content.join("\n"), &wanted, MatchScope::Text, &mut work);
        3_000_000 - work.left()
    };
    for lines in [300, 3_000, 20_000] {
        assert!(steps(lines) <= 3_000_000, "{lines} lines");
    }
    let content: Vec<String> = (0..20_000).map(line).collect();
    let mut work = WorkBudget::of(1_000_000);
    let found = find_within(&content.join("\n"), &wanted, MatchScope::Text, &mut work);
    assert!(found.is_none() && work.is_used_up());
    // What stands there is found at any size.
    let old = format!("{}\n{}", line(19_000), line(19_001));
    let replaced = replace(&content.join("\n"), &old, "x", false).unwrap();
    assert_eq!(replaced.strategy, Strategy::Exact);
}

/// A line as long as a file was counted again for each line of the file.
#[test]
fn a_long_line_is_work_as_often_as_it_is_read() {
    let long = "lorem ipsum ".repeat(20_000);
    let content = "a short line of the file\n".repeat(20_000);
    let mut work = WorkBudget::of(30_000_000);
    assert_eq!(
        find_within(&content, &long, MatchScope::Text, &mut work),
        None
    );
    // Its length alone says that it is not alike: a step for each line.
    assert!(30_000_000 - work.left() <= 20_001, "{work:?}");
    // For a hint it is taken apart, until the work is used up.
    let mut work = WorkBudget::of(1_000_000);
    for _ in 0..20_000 {
        similarity::ratio_within(&long, "a short line of the file", &mut work);
    }
    assert!(work.is_used_up());
    let begun = work.clone();
    assert!(similarity::ratio_within(&long, &long, &mut work) < f64::EPSILON && work == begun);
}

/// Characters of a long text are not compared each with every other one.
#[test]
fn typography_of_a_long_place_is_kept_with_bounded_work() {
    let words = |mark: &str| -> String {
        let numbers = (0..40_000).map(|n| (n * 7919) % 40_000);
        let words: Vec<String> = numbers.map(|n| format!("{n}{mark}s ")).collect();
        words.concat()
    };
    let (place, old) = (words("\u{2019}"), words("'"));
    let new = old.replace("11's", "eleven's");
    let replaced = replace(&place, &old, &new, false).unwrap();
    assert_eq!(replaced.strategy, Strategy::UnicodeNormalized);
    // Where it is not known what stays, plain characters are written; no other one changes.
    assert_eq!(replaced.text.replace('\u{2019}', "'"), new);
}

#[test]
fn places_in_a_changed_copy_lead_back() {
    let content = "a\t\tb  c d\n\u{201c}x\u{201d} \u{2026} y\n";
    let replaced = replace(content, "a b c d", "Z", false).unwrap();
    assert_eq!(replaced.text, "Z\n\u{201c}x\u{201d} \u{2026} y\n");
    let replaced = replace(content, "\"x\" ... y", "Z", false).unwrap();
    assert_eq!(replaced.text, "a\t\tb  c d\nZ\n");
}
