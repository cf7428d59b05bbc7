use std::io::Write as _;

use super::*;

/// A zip of these entries, packed.
fn zip(entries: &[(&str, &str)]) -> Vec<u8> {
    let (mut bytes, mut central) = (Vec::new(), Vec::new());
    for (name, text) in entries {
        let mut packer =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(text.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        let at = bytes.len() as u32;
        let sizes: Vec<u8> = [0, packed.len() as u32, text.len() as u32]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        let name_len = (name.len() as u16).to_le_bytes();
        bytes.extend(b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0");
        bytes.extend(&sizes);
        bytes.extend(name_len);
        bytes.extend([0, 0]);
        bytes.extend(name.as_bytes());
        bytes.extend(&packed);
        central.extend(b"PK\x01\x02\x14\0\x14\0\0\0\x08\0\0\0\0\0");
        central.extend(&sizes);
        central.extend(name_len);
        central.extend([0; 12]);
        central.extend(at.to_le_bytes());
        central.extend(name.as_bytes());
    }
    let (at, size) = (bytes.len() as u32, central.len() as u32);
    bytes.extend(&central);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend((entries.len() as u16).to_le_bytes());
    bytes.extend((entries.len() as u16).to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(at.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn a_notebook_shows_its_cells() {
    let book = br##"{"cells":[{"cell_type":"markdown","source":["# Title\n","text"]},
        {"cell_type":"code","source":"print(1)\n","outputs":[{"text":"1"}]}]}"##;
    assert_eq!(
        text("a.ipynb", book).unwrap(),
        "# ── Markdown cell 1 ──\n# Title\ntext\n\n# ── Code cell 1 ──\nprint(1)\n"
    );
    assert_eq!(text("a.ipynb", b"{}"), None);
}

#[test]
fn a_document_shows_its_paragraphs() {
    let xml = "<?xml version=\"1.0\"?><w:document><w:body><w:p><w:r><w:t>Hello &amp; </w:t></w:r>\
        <w:r><w:tab/><w:t xml:space=\"preserve\">you</w:t></w:r></w:p><w:p/><w:p><w:r><w:t>End</w:t></w:r></w:p>\
        </w:body></w:document>";
    let bytes = zip(&[("[Content_Types].xml", "<x/>"), ("word/document.xml", xml)]);
    assert_eq!(text("a.docx", &bytes).unwrap(), "Hello & \tyou\n\nEnd\n");
}

#[test]
fn a_spreadsheet_shows_its_visible_cells() {
    let bytes = zip(&[
        (
            "xl/workbook.xml",
            "<workbook><sheets><sheet name=\"One\" r:id=\"rId1\"/><sheet name=\"Two\" state=\"hidden\" r:id=\"rId2\"/></sheets></workbook>",
        ),
        (
            "xl/_rels/workbook.xml.rels",
            "<Relationships><Relationship Id=\"rId1\" Target=\"worksheets/sheet1.xml\"/><Relationship Id=\"rId2\" Target=\"/xl/worksheets/sheet2.xml\"/></Relationships>",
        ),
        (
            "xl/sharedStrings.xml",
            "<sst><si><t>name</t></si><si><r><t>a</t></r><r><t>b</t></r></si></sst>",
        ),
        (
            "xl/worksheets/sheet1.xml",
            "<worksheet><sheetData><row><c r=\"A1\" t=\"s\"><v>0</v></c><c r=\"C1\" t=\"b\"><v>1</v></c></row>\
             <row><c r=\"A2\" t=\"s\"><v>1</v></c><c r=\"B2\"><v>2.5</v></c><c r=\"C2\" t=\"inlineStr\"><is><t>x</t></is></c></row><row/></sheetData></worksheet>",
        ),
        ("xl/worksheets/sheet2.xml", "<worksheet/>"),
    ]);
    assert_eq!(
        text("a.xlsx", &bytes).unwrap(),
        "# ── Sheet: One ──\nname\t\tTRUE\nab\t2.5\tx\n"
    );
}

#[test]
fn what_is_broken_is_no_document() {
    for bytes in [&b""[..], b"PK", b"PK\x05\x06", &[0; 64]] {
        assert_eq!(text("a.docx", bytes), None);
        assert_eq!(text("a.xlsx", bytes), None);
    }
    let mut cut = zip(&[("word/document.xml", "<w:p><w:t>x</w:t></w:p>")]);
    cut.truncate(cut.len() - 30);
    assert_eq!(text("a.docx", &cut), None);
}
