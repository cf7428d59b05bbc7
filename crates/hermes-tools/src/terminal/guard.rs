//! Refuses foreground commands that never end (servers, watchers), and invalid directories.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// Why `command` should run in the background, if it should.
pub(super) fn belongs_in_background(command: &str) -> Option<&'static str> {
    let lower = format!(" {} ", command.to_lowercase());
    let asks_only = [" --help ", " --version "]
        .iter()
        .any(|flag| lower.contains(flag))
        || lower.ends_with(" -h ")
        || lower.ends_with(" -v ");
    if asks_only {
        return None;
    }
    let bare = without_quotes(&without_documents(command));
    if DETACHERS.is_match(&bare) {
        return Some(
            "nohup, disown and setsid detach a process from everything that could look after it. \
             Use terminal(background=true) without them, then check on it with the process tool.",
        );
    }
    if has_background_operator(&bare) {
        return Some(
            "A command in the foreground cannot leave something behind with '&'. Start it with \
             terminal(background=true), then run what comes next as a command of its own.",
        );
    }
    SERVERS.is_match(&bare).then_some(
        "This starts a server or watcher, which would run until the timeout. Start it with \
         terminal(background=true), wait until it is ready, then go on in another command.",
    )
}

/// Why `workdir` is invalid, if it is.
pub(super) fn bad_workdir(workdir: &str, local: bool) -> Option<String> {
    let odd = |c: char| !(c.is_alphanumeric() || "/\\:_-.~ +@=,()[]".contains(c));
    if let Some(found) = workdir.chars().find(|c| odd(*c)) {
        return Some(format!(
            "workdir holds {found:?}, which no working directory needs; pass a plain absolute path"
        ));
    }
    (local && !Path::new(workdir).is_absolute() && !workdir.starts_with('~')).then(|| {
        format!("workdir must be an absolute path, not {workdir:?}; or use cd in the command")
    })
}

/// Shell words that detach, in command position.
static DETACHERS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?mi)(?:^|[;&|({]|\$\()\s*(?:\w+=\S*\s+)*(?:nohup|disown|setsid)\b")
});

static SERVERS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?mi)(?:^|[;&|(])\s*(?:\w+=\S*\s+|npx\s+|uv\s+run\s+|poetry\s+run\s+|sudo\s+)*(?:(?:npm|pnpm|yarn|bun)\s+(?:run\s+)?(?:dev|start|serve|watch)\b|docker(?:-|\s+)compose\s+up\b(?:[^;&|]*)|next\s+dev\b|vite(?:\s*$|\s*[;&|]|\s+(?:dev|serve|preview|--))|nodemon\b|uvicorn\b|gunicorn\b|python[0-9.]*\s+-m\s+http\.server\b)",
    )
});

fn pattern(text: &str) -> Regex {
    #[expect(clippy::unwrap_used, reason = "a constant, tested below")]
    Regex::new(text).unwrap()
}

/// A `&` that is neither `&&` nor part of a redirection.
fn has_background_operator(bare: &str) -> bool {
    let bytes = bare.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(at + 1).copied();
        *byte == b'&'
            && !matches!(before, Some(b'&' | b'>' | b'<' | b'|' | b'\\'))
            && !matches!(after, Some(b'&' | b'>'))
            && (before.is_none_or(|b| b.is_ascii_whitespace())
                || after.is_none_or(|a| a.is_ascii_whitespace() || a == b')'))
    })
}

/// The text without quoted parts and comments.
fn without_quotes(command: &str) -> String {
    let mut bare = String::with_capacity(command.len());
    let mut chars = command.chars().peekable();
    let mut word_begins = true;
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
                bare.push('x');
            }
            '\'' => {
                chars.by_ref().find(|&c| c == '\'');
                bare.push_str("''");
            }
            '"' | '`' => {
                while let Some(inner) = chars.next() {
                    if inner == '\\' {
                        chars.next();
                    } else if inner == c {
                        break;
                    }
                }
                bare.push_str("\"\"");
            }
            '#' if word_begins => while chars.next_if(|&c| c != '\n').is_some() {},
            _ => bare.push(c),
        }
        word_begins = c.is_whitespace() || c == ';';
    }
    bare
}

/// Here-documents are data.
fn without_documents(text: &str) -> String {
    let mut out = Vec::new();
    let mut until: Option<String> = None;
    for line in text.lines() {
        if let Some(end) = &until {
            if line.trim() == end {
                until = None;
            }
            continue;
        }
        out.push(line);
        until = DOCUMENT.captures(line).and_then(|found| {
            let word = found.get(1)?.as_str();
            (!word.is_empty()).then(|| word.to_owned())
        });
    }
    out.join("\n")
}

static DOCUMENT: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(?:^|[^<])<<-?\s*['"\\]?(\w+)"#));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_end_is_sent_to_the_background() {
        for command in [
            "python3 -m http.server 8000",
            "npm run dev",
            "cd app && yarn start",
            "PORT=1 npx vite",
            "vite --port 3",
            "uvicorn app:app",
            "docker compose up",
            "sleep 100 &",
            "server & sleep 1; curl localhost",
            "(server &)",
            "nohup ./run.sh > log 2>&1",
            "a; setsid b",
            "FOO=1 nohup x",
            "x=$(disown)",
        ] {
            assert!(belongs_in_background(command).is_some(), "{command}");
        }
    }

    #[test]
    fn what_ends_stays_in_the_foreground() {
        for command in [
            "echo a && echo b",
            "make 2>&1 | tail",
            "cmd &> log",
            "cmd >& log",
            "echo 'a & b'",
            "git commit -m \"use nohup & setsid\"",
            "curl 'http://x/?a=1&b=2'",
            "echo a\\&b",
            "npm run dev --help",
            "vite build",
            "npm install vite",
            "pip install uvicorn gunicorn",
            "grep -r nohup .",
            "cat <<EOF\nserver &\nEOF",
            "cat <<'EOF'\nsleep 1 &\nEOF\necho done",
            "true # then & there",
            "uvicorn --version",
        ] {
            assert_eq!(belongs_in_background(command), None, "{command}");
        }
    }

    #[test]
    fn directories_are_plain() {
        assert_eq!(bad_workdir("/home/me/my project (1)", true), None);
        assert_eq!(bad_workdir("/home/ж/日本", true), None);
        for bad in ["/tmp; rm -rf /", "$(x)", "/a`b`", "/tmp\nx", "relative/dir"] {
            assert!(bad_workdir(bad, true).is_some(), "{bad}");
        }
        assert_eq!(bad_workdir("relative", false), None);
    }
}
