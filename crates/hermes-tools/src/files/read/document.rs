//! Documents as text: notebooks, word processing, spreadsheets.

mod office;
mod xml;
mod zip;

use serde_json::Value;

pub(super) fn is_one(name: &str) -> bool {
    [".ipynb", ".docx", ".xlsx"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The text of the document; `None` if it is not what its name says or has no text.
pub(super) fn text(name: &str, bytes: &[u8]) -> Option<String> {
    let text = match name.rsplit('.').next() {
        Some("ipynb") => notebook(bytes)?,
        Some("docx") => office::docx(bytes)?,
        _ => office::xlsx(bytes)?,
    };
    let text = text.trim_end_matches('\n');
    (!text.trim().is_empty()).then(|| format!("{text}\n"))
}

/// The cells without their output.
fn notebook(bytes: &[u8]) -> Option<String> {
    let book: Value = serde_json::from_slice(bytes).ok()?;
    let cells = |value: &Value| value.get("cells").and_then(Value::as_array).cloned();
    let cells = if let Some(cells) = cells(&book) {
        cells
    } else {
        // Before version 4.
        let sheets = book.get("worksheets")?.as_array()?;
        sheets.iter().filter_map(cells).flatten().collect()
    };
    let mut out = Vec::new();
    let (mut code, mut markdown) = (0, 0);
    for cell in &cells {
        let title = match cell.get("cell_type").and_then(Value::as_str) {
            Some("code") => {
                code += 1;
                format!("Code cell {code}")
            }
            Some("markdown") => {
                markdown += 1;
                format!("Markdown cell {markdown}")
            }
            Some("raw") => "Raw cell".to_owned(),
            _ => continue,
        };
        let source = match cell.get("source").or_else(|| cell.get("input")) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
            _ => String::new(),
        };
        out.push(format!(
            "# ── {title} ──\n{}\n",
            source.trim_end_matches('\n')
        ));
    }
    Some(out.join("\n"))
}

#[cfg(test)]
mod tests;
