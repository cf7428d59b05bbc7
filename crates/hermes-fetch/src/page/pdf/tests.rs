use lopdf::content::Operation;
use lopdf::{Stream, dictionary};
use proptest::prelude::*;

use super::*;

/// A PDF whose pages show these operations, with the standard font as F1.
fn document(pages: &[Vec<Operation>]) -> Vec<u8> {
    let mut document = Document::with_version("1.5");
    let tree = document.new_object_id();
    let font = document.add_object(dictionary! {
        "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Helvetica",
        "Encoding" => "WinAnsiEncoding",
    });
    let resources = document.add_object(dictionary! {
        "Font" => dictionary! { "F1" => font },
    });
    let mut kids = Vec::new();
    for operations in pages {
        let content = Content {
            operations: operations.clone(),
        };
        let mut stream = Stream::new(Dictionary::new(), content.encode().unwrap());
        stream.compress().unwrap();
        let content = document.add_object(stream);
        let page = document.add_object(dictionary! {
            "Type" => "Page", "Parent" => tree, "Contents" => content, "Resources" => resources,
            "MediaBox" => vec![0.into(), 0.into(), 595.into(), 842.into()],
        });
        kids.push(page.into());
    }
    let count = i64::try_from(kids.len()).unwrap();
    document.objects.insert(
        tree,
        dictionary! { "Type" => "Pages", "Kids" => kids, "Count" => count }.into(),
    );
    let catalog = document.add_object(dictionary! { "Type" => "Catalog", "Pages" => tree });
    let info = document.add_object(dictionary! {
        "Title" => Object::string_literal("A paper"),
    });
    document.trailer.set("Root", catalog);
    document.trailer.set("Info", info);
    let mut bytes = Vec::new();
    document.save_to(&mut bytes).unwrap();
    bytes
}

fn op(operator: &str, operands: Vec<Object>) -> Operation {
    Operation::new(operator, operands)
}

fn show(text: &str) -> Operation {
    op("Tj", vec![Object::string_literal(text)])
}

fn start(x: i64, y: i64) -> Vec<Operation> {
    vec![
        op("BT", vec![]),
        op("Tf", vec!["F1".into(), 12.into()]),
        op("Td", vec![x.into(), y.into()]),
    ]
}

#[test]
fn lines_words_and_pages_come_out_as_they_are_read() {
    let mut first = start(72, 700);
    first.extend([
        show("Hello"),
        op("Td", vec![60.into(), 0.into()]),
        show("world,"),
        op("Td", vec![Object::Integer(-60), Object::Integer(-14)]),
        op(
            "TJ",
            vec![Object::Array(vec![
                Object::string_literal("kern"),
                Object::Integer(20),
                Object::string_literal("ed"),
                Object::Integer(-300),
                Object::string_literal("text"),
            ])],
        ),
        op("Td", vec![0.into(), Object::Integer(-40)]),
        show("A new paragraph."),
        op("ET", vec![]),
    ]);
    let mut second = start(72, 700);
    second.push(show("Page two (caf\u{e9})."));
    let page = read(&document(&[first, second])).unwrap();
    assert_eq!(page.title, "A paper");
    assert!(
        page.text
            .starts_with("Hello world,\nkerned text\n\nA new paragraph.\n\nPage two"),
        "{:?}",
        page.text
    );
}

#[test]
fn a_pdf_without_text_says_so() {
    let error = read(&document(&[vec![op("BT", vec![]), op("ET", vec![])]])).unwrap_err();
    assert!(error.to_string().contains("vision_analyze"), "{error}");
}

#[test]
fn broken_files_are_errors() {
    let whole = document(&[start(1, 1)]);
    for bytes in [&b"%PDF-1.4 nothing more"[..], &whole[..whole.len() / 3]] {
        assert!(matches!(read(bytes), Err(WebPageError::Pdf(_))));
    }
    let deep = format!(
        "%PDF-1.4\n1 0 obj\n{}\nendobj\ntrailer<</Root 1 0 R>>",
        "[".repeat(200_000)
    );
    assert!(read(deep.as_bytes()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_anywhere_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in 1_usize..4_000) {
        let mut page = start(72, 700);
        page.push(show("some words that are read"));
        let mut bytes = document(&[page.clone(), page]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(bytes.len().max(cut) - cut % 200);
        let _ = read(&bytes);
    }
}
