//! `hermes completion`: scripts for shells. They ask this program for the words, so sessions,
//! models, skills and profiles of the home in use are completed too.

mod shells;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap_complete::env::{CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};

use crate::exit::{Failure, Outcome};
use crate::output::Output;
use shells::Bash;

/// Set by the scripts, to the name of the shell: then words are completed and nothing else is done.
const VARIABLE: &str = "HERMES_COMPLETE";
const MARK: &str = "# installed by hermes completion\n";
const SHELLS: Shells<'static> = Shells(&[&Bash, &Zsh, &Fish, &Elvish, &Powershell]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    shell: Shell,
    /// Install the script where the shell looks for it (bash, zsh, fish)
    #[arg(long)]
    install: bool,
}

impl Shell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Zsh => &Zsh,
            Self::Fish => &Fish,
            Self::Elvish => &Elvish,
            Self::Powershell => &Powershell,
        }
    }

    /// Where the shell looks for scripts of a person.
    fn install_path(
        self,
        home: &std::path::Path,
        set: impl Fn(&str) -> Option<PathBuf>,
    ) -> Option<PathBuf> {
        let data = || set("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
        let config = || set("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        match self {
            Self::Bash => Some(data().join("bash-completion/completions/hermes")),
            Self::Zsh => Some(data().join("zsh/site-functions/_hermes")),
            Self::Fish => Some(config().join("fish/completions/hermes.fish")),
            Self::Elvish | Self::Powershell => None,
        }
    }
}

/// Completes words where a script asks for them. `false`: this is an ordinary call.
pub(crate) fn answer() -> Result<bool, Failure> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(false);
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let request = values::CompletionRequest::from_args(&words);
    CompleteEnv::with_factory(move || values::attach(crate::args::command(), &request))
        .var(VARIABLE)
        .shells(SHELLS)
        .try_complete(words, std::env::current_dir().ok().as_deref())
        .map_err(|error| Failure::failed(error.to_string()))
}

fn script(shell: Shell) -> Result<String, Failure> {
    let mut script = Vec::new();
    shell
        .completer()
        .write_registration(VARIABLE, "hermes", "hermes", "hermes", &mut script)?;
    Ok(String::from_utf8_lossy(&script).trim_start().to_owned())
}

pub(crate) fn run(args: &CompletionArgs, out: Output) -> Outcome {
    let script = script(args.shell)?;
    if !args.install {
        out.piece(&script)?;
        return Ok(());
    }
    let path = install_path(args.shell).ok_or_else(|| {
        Failure::usage("--install knows bash, zsh and fish; for other shells write the script to a file yourself")
    })?;
    // The first line of a zsh script must stay the first.
    let text = match script.strip_prefix("#compdef hermes\n") {
        Some(rest) => format!("#compdef hermes\n{MARK}{rest}"),
        None => format!("{MARK}{script}"),
    };
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| hermes_config::fs::write_atomic(&path, text.as_bytes(), 0o644));
    written
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    out.line(path.display().to_string())?;
    out.remark(match args.shell {
        Shell::Zsh => format!(
            "for zsh to find it, in ~/.zshrc before compinit: fpath=({} $fpath)",
            path.parent().unwrap_or(&path).display()
        ),
        _ => "it works in the next shell".to_owned(),
    });
    Ok(())
}

fn install_path(shell: Shell) -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    shell.install_path(&set("HOME")?, set)
}

/// Scripts that `--install` wrote and nobody replaced.
pub(crate) fn installed_scripts() -> Vec<PathBuf> {
    [Shell::Bash, Shell::Zsh, Shell::Fish]
        .into_iter()
        .filter_map(install_path)
        .filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(MARK)))
        .collect()
}
