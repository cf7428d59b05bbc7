//! Bash scripts for the remote side. They need bash, a `/tmp` and standard tools; without `setsid` the
//! processes of a command still form one group.

use std::path::Path;
use std::time::Duration;

use super::call::{end_marker, trailer};
use crate::shell::{MARK, quote, quote_path};

/// Removes files of processes that ended a day ago, and our own after we were killed.
const SWEEP: &str = "for d in /tmp/hermes-bg-*/ /tmp/hermes-????????????????/; do\n\
    [ -O \"$d\" ] && [ ! -L \"${d%/}\" ] || continue\n\
    case $d in */hermes-bg-*) [ -e \"$d/exit\" ] || continue;; esac\n\
    [ -n \"$(find \"$d\" -maxdepth 0 -mmin +1440 2>/dev/null)\" ] && rm -rf -- \"$d\"\n\
    done";

/// Creates our directory and prints the environment of the login shell; exits with 10 if there are functions or
/// aliases.
pub(super) fn setup_script(dir: &Path, prelude: &Path) -> String {
    let login = format!(
        "{{ for f in $(compgen -A function); do case $f in _*) ;; *) declare -f -- \"$f\";; esac; done; \
         alias -p; }} >|{prelude} 2>/dev/null; {{ printf '%s\\0' \"$PWD\"; declare -px; }} >|{report}",
        prelude = quote_path(prelude),
        report = quote_path(&dir.join("login")),
    );
    format!(
        "umask 077; mkdir -p -- {dir} && cd || exit 1\n{SWEEP}\n\
         bash -lc {login} </dev/null >/dev/null 2>&1\n\
         cat {dir}/login && [ -s {prelude} ] && exit 10",
        dir = quote_path(dir),
        login = quote(&login),
        prelude = quote_path(prelude),
    )
}

/// The files of one command: program, group, kill request, report, input.
const FILES: [&str; 5] = ["sh", "pid", "stop", "state", "in"];

/// Seconds beyond a command's limit that the remote side waits for us to kill it.
const BEYOND: u64 = 30;

/// Between TERM and KILL for a command whose caller is gone.
const DESERTED: Duration = Duration::from_secs(1);

/// The files of one command: `<dir>/<mark>.<one of FILES>`.
pub(super) struct CommandScript<'a> {
    pub(super) dir: &'a Path,
    pub(super) mark: &'a str,
}

impl CommandScript<'_> {
    pub(super) fn file(&self, what: &str) -> std::path::PathBuf {
        self.dir.join(format!("{}.{what}", self.mark))
    }

    fn quoted(&self, what: &str) -> String {
        quote_path(&self.file(what))
    }

    /// Stores the program in a private file.
    pub(super) fn keep(&self, program: &str) -> String {
        format!(
            // The directory is gone if a container was created again.
            "umask 077; mkdir -p -- {}; printf %s {} >|{} || exit 125",
            quote_path(self.dir),
            quote(program),
            self.quoted("sh")
        )
    }

    /// Starts the stored program with nothing inherited but `PATH`.
    fn start(&self) -> String {
        let fresh = format!("env -i \"PATH=$PATH\" {MARK}={}", self.mark);
        format!(
            "{fresh} bash --noprofile --norc -c '. \"$0\"' {}",
            self.quoted("sh")
        )
    }

    fn files(&self) -> String {
        FILES.map(|what| self.quoted(what)).join(" ")
    }

    /// Bash text that waits on standard input until the caller is gone or `limit` has long passed, and then
    /// kills everything of the command.
    fn when_deserted(&self, limit: Duration) -> String {
        format!(
            "read -r -n 1 -t {limit}\np=$(cat {pid} 2>/dev/null)\n{kill}\nrm -f -- {files}",
            limit = limit.as_secs() + BEYOND,
            pid = self.quoted("pid"),
            kill = kill_group(self.mark, DESERTED),
            files = self.files(),
        )
    }

    /// Runs the stored program in its own session until its end, `limit` or the end of our standard input, of
    /// which the first `input` bytes belong to the program; then kills leftovers and prints the state after the
    /// trailer. The watchdog is disowned: bash would report its end in the middle of the report.
    pub(super) fn foreground(&self, split: bool, input: usize, limit: Duration) -> String {
        let stdin = if input == 0 {
            "exec 3<&0 </dev/null".to_owned()
        } else {
            format!(
                "exec 3<&0; umask 077; head -c {input} <&3 >|{file}\n\
                 [ \"$(wc -c <{file} | tr -d ' ')\" = {input} ] || exit 125\n\
                 exec <{file}",
                file = self.quoted("in")
            )
        };
        format!(
            "set +m; s=$(command -v setsid)\n{stdin}\n\
             {start} 3<&-{errors} <&0 &\n\
             p=$!; g=$p; [ -n \"$s\" ] || g=$$\n\
             echo \"$g\" >|{pid}\n\
             [ -e {stop} ] && kill -KILL -- \"-$g\" \"$p\" 2>/dev/null\n\
             $s bash -c {watchdog} <&3 3<&- >/dev/null 2>&1 & w=$!\n\
             disown \"$w\"\n\
             exec </dev/null 3<&-\n\
             wait \"$p\"; r=$?\n\
             kill -KILL -- \"-$w\" \"$w\" 2>/dev/null\n\
             [ -n \"$s\" ] && kill -KILL -- \"-$g\" 2>/dev/null\n\
             {strays}\n\
             {trailer}\n\
             cat {state} >&2 2>/dev/null\n\
             {end_marker}\n\
             rm -f -- {files}",
            start = format_args!("$s {}", self.start()),
            errors = if split { "" } else { " 2>&1" },
            pid = self.quoted("pid"),
            stop = self.quoted("stop"),
            watchdog = quote(&self.when_deserted(limit)),
            strays = kill_marked(self.mark),
            trailer = trailer(self.mark, "$r"),
            end_marker = end_marker(self.mark),
            state = self.quoted("state"),
            files = self.files(),
        )
    }

    /// For a call beside one with a terminal: kills the command if our standard input ends first.
    pub(super) fn watch(&self, limit: Duration) -> String {
        format!("{}\n{}", self.when_deserted(limit), end_marker(self.mark))
    }

    /// The same for a call with a terminal, which has a session already.
    pub(super) fn terminal(&self) -> String {
        format!(
            "bash -c {}",
            quote(&format!(
                "echo $$ >|{pid}; [ -e {stop} ] && exit 130; exec {start}",
                pid = self.quoted("pid"),
                stop = self.quoted("stop"),
                start = self.start(),
            ))
        )
    }

    /// Ends a call with a terminal: kills leftovers and prints the state.
    pub(super) fn finish(&self) -> String {
        format!(
            "p=$(cat {pid} 2>/dev/null) && kill -KILL -- \"-$p\" 2>/dev/null\n\
             {strays}\n\
             cat {state} 2>/dev/null\n\
             rm -f -- {files}",
            pid = self.quoted("pid"),
            strays = kill_marked(self.mark),
            state = self.quoted("state"),
            files = self.files(),
        )
    }

    /// Kills the command wherever it is, even if it is about to start.
    pub(super) fn kill(&self, grace: Duration) -> String {
        format!(
            "umask 077; : >|{stop}; p=$(cat {pid} 2>/dev/null)\n{}",
            kill_group(self.mark, grace),
            stop = self.quoted("stop"),
            pid = self.quoted("pid"),
        )
    }
}

/// TERM, a grace period, KILL to the group `$p`, then to everything that carries the mark.
pub(super) fn kill_group(mark: &str, grace: Duration) -> String {
    let looks = (grace.as_millis() / 50).min(1200);
    format!(
        "if [ -n \"$p\" ]; then\n\
         kill -TERM -- \"-$p\" 2>/dev/null\n\
         n=0; while [ $n -lt {looks} ] && kill -0 -- \"-$p\" 2>/dev/null; do sleep 0.05; n=$((n+1)); done\n\
         kill -KILL -- \"-$p\" 2>/dev/null\n\
         fi\n\
         {strays}",
        strays = kill_marked(mark),
    )
}

/// Kills marked processes in other sessions.
fn kill_marked(mark: &str) -> String {
    format!(
        "for f in $(grep -ls '{MARK}={mark}' /proc/[0-9]*/environ 2>/dev/null); do\n\
         q=${{f#/proc/}}; kill -KILL \"${{q%/environ}}\" 2>/dev/null\n\
         done; true"
    )
}
