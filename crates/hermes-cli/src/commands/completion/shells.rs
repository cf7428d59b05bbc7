//! The completion script for bash. Words with a colon (`qwen3:8b`) or `=` need care: bash cuts them
//! into pieces.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap_complete::env::EnvCompleter;

pub(super) struct Bash;

/// Puts the pieces of the line together again, asks with the words up to the cursor, and takes off
/// the replies what bash does not count as part of the word.
const SCRIPT: &str = r#"_hermes_complete() {
    local rest=${COMP_LINE:0:COMP_POINT} words=() piece i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if [[ $i -gt 0 && $rest != [[:space:]]* && -n $rest ]]; then
            ((i == COMP_CWORD)) && piece=$rest
            words[${#words[@]}-1]+=$piece
        else
            rest=${rest#"${rest%%[![:space:]]*}"}
            ((i == COMP_CWORD)) && piece=$rest
            words+=("$piece")
        fi
        rest=${rest#"$piece"}
    done
    local current=${words[${#words[@]}-1]} IFS=$'\n'
    COMPREPLY=($(VARIABLE=bash COMPLETER -- "${words[@]}" 2>/dev/null))
    local cut=${current%"${current##*[:=]}"}
    if [[ -n $cut ]]; then
        for i in "${!COMPREPLY[@]}"; do
            COMPREPLY[i]=${COMPREPLY[i]#"$cut"}
        done
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o nosort -F _hermes_complete BIN 2>/dev/null ||
    complete -o bashdefault -F _hermes_complete BIN
"#;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        var: &str,
        _: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        let script = SCRIPT
            .replace("VARIABLE", var)
            .replace("COMPLETER", completer)
            .replace("BIN", bin);
        buf.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        let index = args.len().saturating_sub(1);
        let found = clap_complete::engine::complete(command, args, index, current_dir)?;
        for candidate in found {
            writeln!(buf, "{}", candidate.get_value().to_string_lossy())?;
        }
        Ok(())
    }
}
