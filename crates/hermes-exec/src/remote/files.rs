//! Remote files.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hermes_core::BoxFuture;
use hermes_core::paths::lexically_normal;

use super::RemoteEnvironment;
use super::call::CallReply;
use crate::environment::{ExecError, FileKind, FileStat, Files, WriteOptions};
use crate::shell::{quote, quote_path};

/// Exit codes of the scripts below.
const MISSING: i32 = 44;
const IS_DIR: i32 = 45;
const DENIED: i32 = 46;
const EXISTS: i32 = 47;
const SHORT: i32 = 48;

/// The command's own message, if it failed for a reason without a code.
fn failure(path: &Path, reply: &CallReply) -> ExecError {
    let said = reply.stderr_text();
    let error = match reply.code {
        MISSING => Error::from(ErrorKind::NotFound),
        IS_DIR => Error::from(ErrorKind::IsADirectory),
        DENIED => Error::from(ErrorKind::PermissionDenied),
        EXISTS => Error::from(ErrorKind::AlreadyExists),
        SHORT => Error::new(
            ErrorKind::UnexpectedEof,
            "not all of it arrived; nothing was changed",
        ),
        _ if said.contains("ermission denied") => Error::from(ErrorKind::PermissionDenied),
        _ if said.contains("No such file") => Error::from(ErrorKind::NotFound),
        _ if said.contains("No space left") => Error::from(ErrorKind::StorageFull),
        code => Error::other(format!("{said} (exit code {code})")),
    };
    ExecError::file(path, error)
}

/// Exits with a code that says why `p` cannot be read as a file.
const CHECK_READ: &str =
    "[ -e \"$p\" ] || exit 44; [ -d \"$p\" ] && exit 45; [ -r \"$p\" ] || exit 46";

impl RemoteEnvironment {
    async fn on(
        &self,
        path: &Path,
        text: &str,
        stdin: Bytes,
        limit: usize,
    ) -> Result<CallReply, ExecError> {
        let text = format!("p={}\n{text}", quote_path(path));
        let reply = self.ask(&text, stdin, limit).await?;
        if reply.code == 0 {
            Ok(reply)
        } else {
            Err(failure(path, &reply))
        }
    }

    async fn resolve_remote(&self, path: &Path, cwd: &Path) -> Result<PathBuf, ExecError> {
        let home = &self.far().await?.home;
        let path = match path.strip_prefix("~") {
            Ok(rest) => home.join(rest),
            // Also if the directory does not exist (any more): no other one is used instead.
            Err(_) => cwd.join(path),
        };
        let text = "rest=; while [ ! -e \"$p\" ] && [ ! -L \"$p\" ] && [ \"$p\" != / ]; do\n\
             rest=/${p##*/}$rest; p=${p%/*}; [ -n \"$p\" ] || p=/; done\n\
             r=$(readlink -f -- \"$p\" && echo .) || exit\n\
             r=${r%??}; [ \"$r\" = / ] && [ -n \"$rest\" ] && r=\n\
             printf '%s\\0' \"$r$rest\"";
        let reply = self.on(&path, text, Bytes::new(), 64 * 1024).await?;
        let bytes = reply.out.strip_suffix(b"\0").unwrap_or(&reply.out);
        let found = String::from_utf8(bytes.to_vec()).map_err(|_| {
            ExecError::file(
                &path,
                Error::new(ErrorKind::InvalidData, "its name is not text"),
            )
        })?;
        Ok(lexically_normal(Path::new(&found)))
    }

    async fn stat_remote(&self, path: &Path) -> Result<Option<FileStat>, ExecError> {
        let text = "[ -e \"$p\" ] || exit 44\nstat -Lc '%f %s %Y %y' -- \"$p\"";
        match self.on(path, text, Bytes::new(), 1024).await {
            Ok(reply) => {
                let line = String::from_utf8_lossy(&reply.out).into_owned();
                parse_stat(&line).map(Some).ok_or_else(|| {
                    ExecError::file(path, Error::other(format!("stat says {line:?}")))
                })
            }
            Err(ExecError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write_remote(
        &self,
        path: &Path,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<(), ExecError> {
        let parents = if options.create_parents {
            "mkdir -p -- \"${p%/*}/\" || exit"
        } else {
            ":"
        };
        let mode = match options.mode {
            Some(mode) => format!("chmod {mode:o} \"$t\" || exit"),
            None => {
                "if [ -e \"$p\" ]; then m=$(stat -c %a -- \"$p\") && chmod \"$m\" \"$t\" || exit\n\
                     else m=$(umask); chmod \"$(printf %o $((0666 & ~0$m)))\" \"$t\" || exit; fi"
                    .to_owned()
            }
        };
        let place = if options.create_new {
            "ln -- \"$t\" \"$p\" 2>/dev/null; r=$?; [ $r = 0 ] || { [ -e \"$p\" ] && r=47; }; exit $r"
        } else {
            "mv -f -- \"$t\" \"$p\" || exit; t=; exit 0"
        };
        let text = format!(
            "{parents}\n\
             [ -L \"$p\" ] && [ -e \"$p\" ] && p=$(readlink -f -- \"$p\")\n\
             [ -d \"$p\" ] && exit 45\n\
             [ -d \"${{p%/*}}/\" ] || exit 44\n\
             u=$(umask); t=${{p%/*}}/.hermes-$$-$RANDOM$RANDOM; trap '[ -z \"$t\" ] || rm -f -- \"$t\"' EXIT\n\
             umask 077; cat >\"$t\" || exit; umask \"$u\"\n\
             [ \"$(wc -c <\"$t\" | tr -d ' ')\" = {length} ] || exit 48\n\
             {mode}\n{place}",
            length = content.len(),
        );
        self.on(path, &text, content, 1024).await.map(drop)
    }

    async fn list_remote(&self, path: &Path) -> Result<Vec<(String, FileKind)>, ExecError> {
        let text = "[ -d \"$p\" ] || exit 44; [ -r \"$p\" ] || exit 46; cd -- \"$p\" || exit 46\n\
             shopt -s nullglob dotglob; for f in *; do\n\
             if [ -L \"$f\" ]; then k=l; elif [ -d \"$f\" ]; then k=d; elif [ -f \"$f\" ]; then k=f; else k=o; fi\n\
             printf '%s%s\\0' $k \"$f\"; done";
        let reply = self.on(path, text, Bytes::new(), 8 << 20).await?;
        if reply.cut {
            return Err(ExecError::file(
                path,
                Error::other("too many names to list"),
            ));
        }
        let mut names: Vec<(String, FileKind)> = reply
            .out
            .split(|&byte| byte == 0)
            .filter_map(|entry| {
                let (kind, name) = entry.split_first()?;
                let kind = match kind {
                    b'l' => FileKind::Link,
                    b'd' => FileKind::Directory,
                    b'f' => FileKind::File,
                    _ => FileKind::Other,
                };
                Some((String::from_utf8_lossy(name).into_owned(), kind))
            })
            .collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }
}

impl Files for RemoteEnvironment {
    fn resolve<'a>(
        &'a self,
        path: &'a Path,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<PathBuf, ExecError>> {
        Box::pin(self.resolve_remote(path, cwd))
    }

    fn stat<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<FileStat>, ExecError>> {
        Box::pin(self.stat_remote(path))
    }

    fn read<'a>(
        &'a self,
        path: &'a Path,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'a, Result<Bytes, ExecError>> {
        Box::pin(async move {
            let text = format!(
                "{CHECK_READ}\ntail -c +{} -- \"$p\" | head -c {max}",
                offset.saturating_add(1)
            );
            let reply = self.on(path, &text, Bytes::new(), max).await?;
            Ok(reply.out.into())
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a Path,
        content: Bytes,
        options: WriteOptions,
    ) -> BoxFuture<'a, Result<(), ExecError>> {
        Box::pin(self.write_remote(path, content, options))
    }

    fn list<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<(String, FileKind)>, ExecError>> {
        Box::pin(self.list_remote(path))
    }

    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<(), ExecError>> {
        Box::pin(async move {
            let text = "[ -e \"$p\" ] || [ -L \"$p\" ] || exit 44\n\
                 if [ -d \"$p\" ] && [ ! -L \"$p\" ]; then rmdir -- \"$p\"; else rm -f -- \"$p\"; fi";
            self.on(path, text, Bytes::new(), 1024).await.map(drop)
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<(), ExecError>> {
        Box::pin(async move {
            let to = quote(&to.to_string_lossy());
            let text = format!(
                "[ -e \"$p\" ] || [ -L \"$p\" ] || exit 44\n[ -d {to} ] && exit 47\nmv -f -- \"$p\" {to}"
            );
            self.on(from, &text, Bytes::new(), 1024).await.map(drop)
        })
    }
}

/// `81a4 12 1700000000 2023-11-14 22:13:20.123456789 +0000`
fn parse_stat(line: &str) -> Option<FileStat> {
    let mut words = line.split_whitespace();
    let mode = u32::from_str_radix(words.next()?, 16).ok()?;
    let size = words.next()?.parse().ok()?;
    let seconds: i128 = words.next()?.parse().ok()?;
    let fraction = words
        .nth(1)
        .and_then(|time| time.split_once('.'))
        .map_or("0", |(_, fraction)| fraction);
    let nanos: i128 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let kind = match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Link,
        _ => FileKind::Other,
    };
    Some(FileStat {
        kind,
        size,
        mode: mode & 0o7777,
        modified_ns: seconds * 1_000_000_000 + nanos,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_stat_prints() {
        let stat = parse_stat("81a4 12 1700000000 2023-11-14 22:13:20.120000000 +0000\n").unwrap();
        assert_eq!(
            (stat.kind, stat.size, stat.mode),
            (FileKind::File, 12, 0o644)
        );
        assert_eq!(stat.modified_ns, 1_700_000_000_120_000_000);
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn plain_paths() {
        assert_eq!(
            lexically_normal(Path::new("/a/./b/../c")),
            Path::new("/a/c")
        );
    }
}
