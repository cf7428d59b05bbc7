//! Parses patches in the V4A format. Strict: anything ambiguous is an error with its line.

/// One file of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatchOperation {
    Update {
        path: String,
        move_to: Option<String>,
        hunks: Vec<PatchHunk>,
    },
    Add {
        path: String,
        content: String,
    },
    Delete {
        path: String,
    },
    Move {
        from: String,
        to: String,
    },
}

/// A position in a file and its change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PatchHunk {
    /// A line before the position.
    pub(super) hint: Option<String>,
    pub(super) lines: Vec<HunkLine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HunkLine {
    Context(String),
    /// A blank line without a marker: context, or only for readability.
    Blank,
    Remove(String),
    Add(String),
}

impl PatchHunk {
    pub(super) fn changes(&self) -> bool {
        let change = |line: &HunkLine| matches!(line, HunkLine::Remove(_) | HunkLine::Add(_));
        self.lines.iter().any(change)
    }
}

/// The error and its line in the patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the patch: {what}")]
pub(super) struct ParseError {
    line: usize,
    what: String,
}

enum PatchHeader {
    Begin,
    End,
    EndOfFile,
    Update(String),
    Add(String),
    Delete(String),
    Move(String, String),
    MoveTo(String),
}

struct V4aParser {
    operations: Vec<PatchOperation>,
    started: bool,
    ended: bool,
    /// The last added line of a new file has no line end.
    bare_end: bool,
}

pub(super) fn parse(patch: &str) -> Result<Vec<PatchOperation>, ParseError> {
    let mut parser = V4aParser {
        operations: Vec::new(),
        started: false,
        ended: false,
        bare_end: false,
    };
    let text = patch.replace("\r\n", "\n");
    let mut count = 0;
    for (at, line) in text.split('\n').enumerate() {
        count = at + 1;
        parser
            .line(line)
            .map_err(|what| ParseError { line: count, what })?;
    }
    parser
        .close()
        .map_err(|what| ParseError { line: count, what })?;
    if parser.operations.is_empty() {
        return Err(ParseError {
            line: count,
            what: "there is no file in it; begin with *** Update File: path".to_owned(),
        });
    }
    Ok(parser.operations)
}

impl V4aParser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if self.ended {
            return if line.trim().is_empty() || line.trim() == "```" {
                Ok(())
            } else {
                Err("there is something after *** End Patch".to_owned())
            };
        }
        if let Some(header) = header(line)? {
            return self.header(header);
        }
        match self.operations.last_mut() {
            None if line.trim().is_empty() || line.trim().starts_with("```") => Ok(()),
            None => Err(format!("{line:?} belongs to no file")),
            Some(PatchOperation::Update { hunks, .. }) => in_update(hunks, line),
            Some(PatchOperation::Add { content, .. }) => {
                if line.starts_with('\\') {
                    self.bare_end = true;
                    return Ok(());
                }
                match line.strip_prefix('+') {
                    Some(line) => {
                        content.push_str(line);
                        content.push('\n');
                        Ok(())
                    }
                    None if line.trim().is_empty() => Ok(()),
                    None => Err("each line of a new file begins with +".to_owned()),
                }
            }
            Some(PatchOperation::Delete { .. } | PatchOperation::Move { .. }) => {
                if line.trim().is_empty() {
                    Ok(())
                } else {
                    Err(format!("{line:?} belongs to no file"))
                }
            }
        }
    }

    fn header(&mut self, header: PatchHeader) -> Result<(), String> {
        match header {
            PatchHeader::Begin if self.started || !self.operations.is_empty() => {
                return Err("*** Begin Patch stands in the middle".to_owned());
            }
            PatchHeader::Begin => self.started = true,
            PatchHeader::End => {
                self.close()?;
                self.ended = true;
            }
            // Redundant: the end of a hunk is known without it.
            PatchHeader::EndOfFile => {}
            PatchHeader::MoveTo(to) => match self.operations.last_mut() {
                Some(PatchOperation::Update { move_to, hunks, .. })
                    if move_to.is_none() && hunks.is_empty() =>
                {
                    *move_to = Some(to);
                }
                _ => return Err("*** Move to: follows *** Update File: only".to_owned()),
            },
            PatchHeader::Update(path) => self.open(PatchOperation::Update {
                path,
                move_to: None,
                hunks: Vec::new(),
            })?,
            PatchHeader::Add(path) => self.open(PatchOperation::Add {
                path,
                content: String::new(),
            })?,
            PatchHeader::Delete(path) => self.open(PatchOperation::Delete { path })?,
            PatchHeader::Move(from, to) => self.open(PatchOperation::Move { from, to })?,
        }
        Ok(())
    }

    fn open(&mut self, operation: PatchOperation) -> Result<(), String> {
        self.close()?;
        self.operations.push(operation);
        Ok(())
    }

    /// Completes the current file.
    fn close(&mut self) -> Result<(), String> {
        match self.operations.last_mut() {
            Some(PatchOperation::Update {
                path,
                hunks,
                move_to,
            }) => {
                hunks.retain(|hunk| !hunk.lines.is_empty());
                if hunks.is_empty() && move_to.is_none() {
                    return Err(format!("nothing is changed in {path}"));
                }
            }
            Some(PatchOperation::Add { content, .. }) if self.bare_end => {
                content.pop();
            }
            _ => {}
        }
        self.bare_end = false;
        Ok(())
    }
}

fn in_update(hunks: &mut Vec<PatchHunk>, line: &str) -> Result<(), String> {
    if let Some(rest) = line.strip_prefix("@@") {
        hunks.push(PatchHunk {
            hint: hint(rest),
            lines: Vec::new(),
        });
        return Ok(());
    }
    if hunks.is_empty() {
        if line.trim().is_empty() {
            return Ok(());
        }
        hunks.push(PatchHunk::default());
    }
    let Some(hunk) = hunks.last_mut() else {
        return Ok(());
    };
    let mut chars = line.chars();
    let line = match chars.next() {
        None => HunkLine::Blank,
        Some('+') => HunkLine::Add(chars.as_str().to_owned()),
        Some('-') => HunkLine::Remove(chars.as_str().to_owned()),
        Some(' ') => HunkLine::Context(chars.as_str().to_owned()),
        // "\ No newline at end of file"
        Some('\\') => return Ok(()),
        Some('`') if line.starts_with("```") => {
            return Err("a code fence stands inside the patch; leave it out".to_owned());
        }
        // Models forget the blank before context.
        Some(_) => HunkLine::Context(line.to_owned()),
    };
    hunk.lines.push(line);
    Ok(())
}

/// The text of `@@ text @@`, `@@ text` or `@@ -1,2 +1,3 @@ text`.
fn hint(rest: &str) -> Option<String> {
    let rest = rest.trim();
    let text = if rest.starts_with('-') && rest.contains("@@") {
        rest.split_once("@@").map_or("", |(_, text)| text)
    } else {
        rest.strip_suffix("@@").unwrap_or(rest)
    };
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// `None`: the line is not a header.
fn header(line: &str) -> Result<Option<PatchHeader>, String> {
    let Some(rest) = line.strip_prefix("***") else {
        return Ok(None);
    };
    let rest = rest.trim();
    match rest {
        "Begin Patch" => return Ok(Some(PatchHeader::Begin)),
        "End Patch" => return Ok(Some(PatchHeader::End)),
        "End of File" => return Ok(Some(PatchHeader::EndOfFile)),
        _ => {}
    }
    let Some((word, value)) = rest.split_once(':') else {
        return Err(format!("{line:?} is not a patch header"));
    };
    let value = value.trim();
    let word = word.split_whitespace().collect::<Vec<_>>().join(" ");
    let header = match word.as_str() {
        "Update File" => PatchHeader::Update(path(value)?),
        "Add File" => PatchHeader::Add(path(value)?),
        "Delete File" => PatchHeader::Delete(path(value)?),
        "Move to" => PatchHeader::MoveTo(path(value)?),
        "Move File" => {
            let Some((from, to)) = value.split_once("->") else {
                return Err("write *** Move File: old -> new".to_owned());
            };
            PatchHeader::Move(path(from.trim())?, path(to.trim())?)
        }
        _ => return Err(format!("{line:?} is not a patch header")),
    };
    Ok(Some(header))
}

fn path(path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Err("the path is missing".to_owned());
    }
    let up = std::path::Path::new(path)
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    if up {
        return Err(format!(
            "{path} climbs with ..; name it from the working directory, or absolutely"
        ));
    }
    Ok(path.to_owned())
}
