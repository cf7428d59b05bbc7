//! Reading patches in the V4A format. Strict: what cannot be one thing only is an error with its
//! line.

/// One file of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Update {
        path: String,
        move_to: Option<String>,
        hunks: Vec<Hunk>,
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

/// A place of a file and what becomes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// A line in front of the place.
    pub(super) hint: Option<String>,
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Context(String),
    /// A blank line without a mark: context, or only there to be read more easily.
    Blank,
    Remove(String),
    Add(String),
}

impl Hunk {
    pub(super) fn changes(&self) -> bool {
        let change = |line: &Line| matches!(line, Line::Remove(_) | Line::Add(_));
        self.lines.iter().any(change)
    }
}

/// What is wrong, and in which line of the patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the patch: {what}")]
pub(super) struct ParseError {
    line: usize,
    what: String,
}

enum Header {
    Begin,
    End,
    EndOfFile,
    Update(String),
    Add(String),
    Delete(String),
    Move(String, String),
    MoveTo(String),
}

struct Parser {
    operations: Vec<Operation>,
    begun: bool,
    ended: bool,
    /// The last added line of a new file has no line end.
    bare_end: bool,
}

pub(super) fn parse(patch: &str) -> Result<Vec<Operation>, ParseError> {
    let mut parser = Parser {
        operations: Vec::new(),
        begun: false,
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

impl Parser {
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
            Some(Operation::Update { hunks, .. }) => in_update(hunks, line),
            Some(Operation::Add { content, .. }) => {
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
            Some(Operation::Delete { .. } | Operation::Move { .. }) => {
                if line.trim().is_empty() {
                    Ok(())
                } else {
                    Err(format!("{line:?} belongs to no file"))
                }
            }
        }
    }

    fn header(&mut self, header: Header) -> Result<(), String> {
        match header {
            Header::Begin if self.begun || !self.operations.is_empty() => {
                return Err("*** Begin Patch stands in the middle".to_owned());
            }
            Header::Begin => self.begun = true,
            Header::End => {
                self.close()?;
                self.ended = true;
            }
            // Where a hunk ends is known without it.
            Header::EndOfFile => {}
            Header::MoveTo(to) => match self.operations.last_mut() {
                Some(Operation::Update { move_to, hunks, .. })
                    if move_to.is_none() && hunks.is_empty() =>
                {
                    *move_to = Some(to);
                }
                _ => return Err("*** Move to: follows *** Update File: only".to_owned()),
            },
            Header::Update(path) => self.open(Operation::Update {
                path,
                move_to: None,
                hunks: Vec::new(),
            })?,
            Header::Add(path) => self.open(Operation::Add {
                path,
                content: String::new(),
            })?,
            Header::Delete(path) => self.open(Operation::Delete { path })?,
            Header::Move(from, to) => self.open(Operation::Move { from, to })?,
        }
        Ok(())
    }

    fn open(&mut self, operation: Operation) -> Result<(), String> {
        self.close()?;
        self.operations.push(operation);
        Ok(())
    }

    /// Ends the file that was begun.
    fn close(&mut self) -> Result<(), String> {
        match self.operations.last_mut() {
            Some(Operation::Update {
                path,
                hunks,
                move_to,
            }) => {
                hunks.retain(|hunk| !hunk.lines.is_empty());
                if hunks.is_empty() && move_to.is_none() {
                    return Err(format!("nothing is changed in {path}"));
                }
            }
            Some(Operation::Add { content, .. }) if self.bare_end => {
                content.pop();
            }
            _ => {}
        }
        self.bare_end = false;
        Ok(())
    }
}

fn in_update(hunks: &mut Vec<Hunk>, line: &str) -> Result<(), String> {
    if let Some(rest) = line.strip_prefix("@@") {
        hunks.push(Hunk {
            hint: hint(rest),
            lines: Vec::new(),
        });
        return Ok(());
    }
    if hunks.is_empty() {
        if line.trim().is_empty() {
            return Ok(());
        }
        hunks.push(Hunk::default());
    }
    let Some(hunk) = hunks.last_mut() else {
        return Ok(());
    };
    let mut chars = line.chars();
    let line = match chars.next() {
        None => Line::Blank,
        Some('+') => Line::Add(chars.as_str().to_owned()),
        Some('-') => Line::Remove(chars.as_str().to_owned()),
        Some(' ') => Line::Context(chars.as_str().to_owned()),
        // "\ No newline at end of file"
        Some('\\') => return Ok(()),
        Some('`') if line.starts_with("```") => {
            return Err("a code fence stands inside the patch; leave it out".to_owned());
        }
        // Models forget the blank in front of context.
        Some(_) => Line::Context(line.to_owned()),
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

/// `None`: the line is no header.
fn header(line: &str) -> Result<Option<Header>, String> {
    let Some(rest) = line.strip_prefix("***") else {
        return Ok(None);
    };
    let rest = rest.trim();
    match rest {
        "Begin Patch" => return Ok(Some(Header::Begin)),
        "End Patch" => return Ok(Some(Header::End)),
        "End of File" => return Ok(Some(Header::EndOfFile)),
        _ => {}
    }
    let Some((word, value)) = rest.split_once(':') else {
        return Err(format!("{line:?} is not a patch header"));
    };
    let value = value.trim();
    let word = word.split_whitespace().collect::<Vec<_>>().join(" ");
    let header = match word.as_str() {
        "Update File" => Header::Update(path(value)?),
        "Add File" => Header::Add(path(value)?),
        "Delete File" => Header::Delete(path(value)?),
        "Move to" => Header::MoveTo(path(value)?),
        "Move File" => {
            let Some((from, to)) = value.split_once("->") else {
                return Err("write *** Move File: old -> new".to_owned());
            };
            Header::Move(path(from.trim())?, path(to.trim())?)
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
