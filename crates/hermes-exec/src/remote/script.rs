//! Bash texts for the far side. They need bash, a `/tmp`, and the tools that every system has; where
//! `setsid` is missing the processes of a command are still one group.

use std::path::Path;
use std::time::Duration;

use super::call::{last_word, trailer};
use crate::shell::{MARK, quote, quote_path};

/// Clears away what was left by processes that ended a day ago, or by ourselves when we were killed.
const SWEEP: &str = "for d in /tmp/hermes-bg-*/ /tmp/hermes-????????????????/; do\n\
    [ -O \"$d\" ] && [ ! -L \"${d%/}\" ] || continue\n\
    case $d in */hermes-bg-*) [ -e \"$d/exit\" ] || continue;; esac\n\
    [ -n \"$(find \"$d\" -maxdepth 0 -mmin +1440 2>/dev/null)\" ] && rm -rf -- \"$d\"\n\
    done";

/// Makes our directory and prints what the login shell sets; ends with 10 when there are functions or
/// aliases.
pub(super) fn greeting(dir: &Path, prelude: &Path) -> String {
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

/// What one command keeps: its program, its group, a request to end, what it reports, its input.
const FILES: [&str; 5] = ["sh", "pid", "stop", "state", "in"];

/// Seconds that the far side waits beyond the limit of a command for us to end it.
const BEYOND: u64 = 30;

/// Between TERM and KILL for a command whose caller is gone.
const DESERTED: Duration = Duration::from_secs(1);

/// Where one command keeps what belongs to it: `<dir>/<mark>.<one of FILES>`.
pub(super) struct Run<'a> {
    pub(super) dir: &'a Path,
    pub(super) mark: &'a str,
}

impl Run<'_> {
    pub(super) fn file(&self, what: &str) -> std::path::PathBuf {
        self.dir.join(format!("{}.{what}", self.mark))
    }

    fn quoted(&self, what: &str) -> String {
        quote_path(&self.file(what))
    }

    /// Keeps the program in a file that only we can read.
    pub(super) fn keep(&self, program: &str) -> String {
        format!(
            // The directory is gone when a container was made anew.
            "umask 077; mkdir -p -- {}; printf %s {} >|{} || exit 125",
            quote_path(self.dir),
            quote(program),
            self.quoted("sh")
        )
    }

    /// Starts the kept program with nothing inherited but `PATH`.
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

    /// Bash text that waits on standard input until the caller is gone or `limit` is long over, and then
    /// ends everything of the command.
    fn when_deserted(&self, limit: Duration) -> String {
        format!(
            "read -r -n 1 -t {limit}\np=$(cat {pid} 2>/dev/null)\n{kill}\nrm -f -- {files}",
            limit = limit.as_secs() + BEYOND,
            pid = self.quoted("pid"),
            kill = kill_group(self.mark, DESERTED),
            files = self.files(),
        )
    }

    /// Runs the kept program in a session of its own, until its end, `limit` or the end of our standard
    /// input, of which the first `input` bytes are the program's; then whatever it left is ended, and the
    /// state it reports follows the trailer. The watchdog is disowned: bash would tell of its end in the
    /// middle of the report.
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
             {last_word}\n\
             rm -f -- {files}",
            start = format_args!("$s {}", self.start()),
            errors = if split { "" } else { " 2>&1" },
            pid = self.quoted("pid"),
            stop = self.quoted("stop"),
            watchdog = quote(&self.when_deserted(limit)),
            strays = kill_strays(self.mark),
            trailer = trailer(self.mark, "$r"),
            last_word = last_word(self.mark),
            state = self.quoted("state"),
            files = self.files(),
        )
    }

    /// For a call beside one with a terminal: ends the command when our standard input ends first.
    pub(super) fn watch(&self, limit: Duration) -> String {
        format!("{}\n{}", self.when_deserted(limit), last_word(self.mark))
    }

    /// The same for a call with a terminal, whose session exists already.
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

    /// Ends a call with a terminal: leftovers are killed, the state printed.
    pub(super) fn finish(&self) -> String {
        format!(
            "p=$(cat {pid} 2>/dev/null) && kill -KILL -- \"-$p\" 2>/dev/null\n\
             {strays}\n\
             cat {state} 2>/dev/null\n\
             rm -f -- {files}",
            pid = self.quoted("pid"),
            strays = kill_strays(self.mark),
            state = self.quoted("state"),
            files = self.files(),
        )
    }

    /// Ends the command wherever it is: also one that is about to start.
    pub(super) fn kill(&self, grace: Duration) -> String {
        format!(
            "umask 077; : >|{stop}; p=$(cat {pid} 2>/dev/null)\n{}",
            kill_group(self.mark, grace),
            stop = self.quoted("stop"),
            pid = self.quoted("pid"),
        )
    }
}

/// TERM, a grace, KILL to the group `$p`, then to everything that carries the mark.
pub(super) fn kill_group(mark: &str, grace: Duration) -> String {
    let looks = (grace.as_millis() / 50).min(1200);
    format!(
        "if [ -n \"$p\" ]; then\n\
         kill -TERM -- \"-$p\" 2>/dev/null\n\
         n=0; while [ $n -lt {looks} ] && kill -0 -- \"-$p\" 2>/dev/null; do sleep 0.05; n=$((n+1)); done\n\
         kill -KILL -- \"-$p\" 2>/dev/null\n\
         fi\n\
         {strays}",
        strays = kill_strays(mark),
    )
}

/// Ends what carries the mark in a session of its own.
fn kill_strays(mark: &str) -> String {
    format!(
        "for f in $(grep -ls '{MARK}={mark}' /proc/[0-9]*/environ 2>/dev/null); do\n\
         q=${{f#/proc/}}; kill -KILL \"${{q%/environ}}\" 2>/dev/null\n\
         done; true"
    )
}
