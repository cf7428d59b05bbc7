//! What the user's login shell sets up, read once: variables in memory, functions and aliases in a file that
//! commands source only if there are any.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hermes_core::programs::own_part_of;

use crate::confinement::{Confine, Confinement, Launch};
use crate::environment::Variables;
use crate::local::variables::VariablePolicy;
use crate::shell::{self, quote_path};

/// A login script that hangs must not block the first command forever.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Larger collections of functions are completion machinery, not what people call.
const MAX_PRELUDE: u64 = 512 * 1024;

/// The login scripts.
#[derive(Clone, Debug, Default)]
pub struct LoginScripts {
    /// Sourced in order where they exist.
    pub files: Vec<PathBuf>,
    /// Whether bash runs as a login shell at all.
    pub login: bool,
}

#[derive(Clone, Debug)]
pub(super) struct LoginSnapshot {
    pub(super) variables: Variables,
    pub(super) prelude: Option<PathBuf>,
}

/// Runs the login scripts. If they fail, commands get the plain variables.
pub(super) async fn take(
    bash: &Path,
    login: &LoginScripts,
    policy: &VariablePolicy,
    confine: &dyn Confine,
    dir: &Path,
) -> LoginSnapshot {
    let plain = LoginSnapshot {
        variables: policy.base().clone(),
        prelude: None,
    };
    if !login.login && login.files.is_empty() {
        return plain;
    }
    match run(bash, login, policy, confine, dir).await {
        Ok(snapshot) => snapshot,
        Err(why) => {
            tracing::warn!("the login shell could not be read, commands run without it: {why}");
            plain
        }
    }
}

async fn run(
    bash: &Path,
    login: &LoginScripts,
    policy: &VariablePolicy,
    confine: &dyn Confine,
    dir: &Path,
) -> Result<LoginSnapshot, String> {
    let report = dir.join("login");
    let prelude = dir.join("prelude");
    let mut args: Vec<OsString> = Vec::new();
    if login.login {
        args.push("-l".into());
    }
    args.extend(["-c".into(), script(login, &report, &prelude).into()]);
    let launch = Launch {
        program: bash.into(),
        args,
        env: own_variables(policy.base())
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        cwd: "/".into(),
        terminal: false,
    };
    let launch = confine
        .wrap(launch, &Confinement::Off)
        .map_err(|error| error.to_string())?;
    let mut command = super::command(&launch);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    match tokio::time::timeout(LOGIN_TIMEOUT, child.wait()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("it took longer than {} s", LOGIN_TIMEOUT.as_secs())),
    }
    let bytes = std::fs::read(&report).map_err(|error| error.to_string())?;
    let state = shell::parse_report(&bytes).ok_or("it ended early")?;
    let mut variables = state.exports;
    restore(&mut variables, policy.base());
    policy.scrub(&mut variables);
    let size = std::fs::metadata(&prelude).map_or(0, |meta| meta.len());
    Ok(LoginSnapshot {
        variables,
        prelude: (1..=MAX_PRELUDE).contains(&size).then_some(prelude),
    })
}

/// Variables that make programs load further code. Their files may be in a project.
const LOADING: &[&str] = &[
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LD_AUDIT",
    "DYLD_LIBRARY_PATH",
    "DYLD_INSERT_LIBRARIES",
    "BASH_ENV",
    "ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "NODE_PATH",
    "NODE_OPTIONS",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYLIB",
    "RUBYOPT",
    "LESSOPEN",
];

/// The variables with which the login scripts run. They are not confined, so they must not run what a confined
/// command could have put into a virtual environment or a directory of libraries.
fn own_variables(base: &Variables) -> Variables {
    let mut own = base.clone();
    own.retain(|name, _| !LOADING.contains(&name.as_str()));
    if let Some(path) = own.get_mut("PATH") {
        *path = own_part_of(OsStr::new(path.as_str()))
            .to_string_lossy()
            .into_owned();
    }
    own
}

/// Commands get what the login scripts were started without.
fn restore(variables: &mut Variables, base: &Variables) {
    for name in LOADING {
        if let Some(value) = base.get(*name) {
            variables
                .entry((*name).to_owned())
                .or_insert_with(|| value.clone());
        }
    }
    // Scripts that set a new search path are left alone; only ours is put back in full.
    if let (Some(path), Some(given)) = (variables.get_mut("PATH"), base.get("PATH")) {
        let own = own_part_of(OsStr::new(given.as_str()));
        if let Some(start) = path.find(own.to_string_lossy().as_ref()) {
            path.replace_range(start..start + own.len(), given);
        }
    }
}

fn script(login: &LoginScripts, report: &Path, prelude: &Path) -> String {
    let mut lines: Vec<String> = login
        .files
        .iter()
        .map(|file| {
            let file = quote_path(file);
            format!("[ -r {file} ] && . {file}")
        })
        .collect();
    lines.push(format!(
        "{{ for f in $(compgen -A function); do case $f in _*) ;; *) declare -f -- \"$f\";; esac; done; \
         alias -p; }} >|{} 2>/dev/null",
        quote_path(prelude)
    ));
    lines.push(format!(
        "{{ builtin printf '%s\\0' \"$PWD\"; builtin declare -px; }} >|{}",
        quote_path(report)
    ));
    lines.join("\n")
}
