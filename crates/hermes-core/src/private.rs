//! Private files of the user, and auto-run files (files that are later run outside the sandbox).
//! One definition for the sandbox, the policy, the file tools and exports.
//!
//! A list of what is secret is never complete; it is where a new store of keys is added.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

mod names;
mod stores;

pub use names::{is_private_to_project, is_read_by_all, is_secret_name, looks_secret};
pub use stores::{PERSONAL, SYSTEM};

/// Variables of this program that name a file or directory with secrets in it, wherever it lies.
pub const NAMED_BY_VARIABLES: &[&str] = &[
    "KUBECONFIG",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
    "AZURE_CONFIG_DIR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "DOCKER_CONFIG",
    "REGISTRY_AUTH_FILE",
    "GNUPGHOME",
    "PASSWORD_STORE_DIR",
    "NETRC",
    "CURL_HOME",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_userconfig",
    "PIP_CONFIG_FILE",
    "TWINE_CONFIG_FILE",
    "PGPASSFILE",
    "PGSSLKEY",
    "MYSQL_TEST_LOGIN_FILE",
    "SOPS_AGE_KEY_FILE",
    "ANSIBLE_VAULT_PASSWORD_FILE",
    "ANSIBLE_PRIVATE_KEY_FILE",
    "RESTIC_PASSWORD_FILE",
    "BORG_KEY_FILE",
    "BORG_KEYS_DIR",
    "RCLONE_CONFIG",
    "TF_CLI_CONFIG_FILE",
    "VAULT_TOKEN_FILE",
    "GH_CONFIG_DIR",
    "GLAB_CONFIG_DIR",
    "HF_TOKEN_PATH",
    "KRB5CCNAME",
    "XAUTHORITY",
    "OP_CONFIG_DIR",
    "CODEX_HOME",
    "CLAUDE_CONFIG_DIR",
    "HISTFILE",
];

/// Variables of a project with values in them; examples of such files are for everybody.
pub fn is_env_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let examples = [
        "example", "sample", "template", "dist", "defaults", "schema",
    ];
    match name.strip_prefix(".env") {
        Some("" | "rc") => true,
        Some(rest) => rest.strip_prefix(['.', '-', '_']).is_some_and(|rest| {
            !rest.is_empty() && !examples.iter().any(|end| rest.ends_with(end))
        }),
        None => false,
    }
}

/// Below a project: what a person's editor, shell or git runs without being asked to run the project.
pub const RUN_LATER_IN_PROJECT: &[&str] = &[
    ".envrc",
    ".vscode/tasks.json",
    ".vscode/settings.json",
    ".vscode/launch.json",
    ".devcontainer",
    ".devcontainer.json",
    ".idea/workspace.xml",
    ".husky",
    ".githooks",
    ".lefthook",
    ".hg/hgrc",
    ".jj/repo/config.toml",
    ".sl/config",
    // Editors that run what a directory says when it is opened.
    ".vscode/mcp.json",
    ".zed",
    ".fleet",
    ".helix",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vimrc",
    ".lvimrc",
    ".gvimrc",
    ".dir-locals.el",
    ".theia",
    ".nova",
    ".lapce",
    ".idea/runConfigurations",
    ".idea/externalDependencies.xml",
    ".idea/startup.xml",
    ".idea/watcherTasks.xml",
    ".idea/terminal.xml",
    ".vscode/c_cpp_properties.json",
    ".vscode/cmake-kits.json",
    ".dir-locals-2.el",
    ".nvim",
    ".externalToolBuilders",
    ".local.vimrc",
    // Agents that start servers and hooks named by a project.
    ".mcp.json",
    ".claude",
    ".cursor",
    ".gemini",
    ".codex",
    ".kiro",
    ".roo",
    ".windsurf",
    ".opencode",
    "opencode.json",
    "opencode.jsonc",
    ".continue",
    ".amazonq",
    ".aider.conf.yml",
    ".qwen",
    ".factory",
    ".trae",
    ".junie",
    ".augment",
    ".crush.json",
    "crush.json",
    ".kilocode",
    ".openhands",
    ".copilot",
    ".iflow",
    ".codebuddy",
    ".rovodev",
    ".github/hooks",
    // Shells that enter a directory.
    ".autoenv",
    ".autoenv.zsh",
    ".rvmrc",
    ".shadowenv.d",
    ".mise",
    ".mise.toml",
    ".mise.local.toml",
    ".rtx.toml",
    "mise.toml",
    "mise.local.toml",
    "mise/config.toml",
    ".config/mise",
    // Interpreters and debuggers that are started in a directory.
    ".Rprofile",
    ".irbrc",
    ".pryrc",
    ".octaverc",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".perldb",
    ".Renviron",
    ".RData",
    ".ghci",
    ".ocamlinit",
    ".erlang",
    ".iex.exs",
    ".gnuplot",
    ".radare2rc",
    // Other version control systems.
    ".pijul/config",
    "_darcs/prefs/defaults",
];

/// Below a directory that git keeps its data in: settings and programs that every later git obeys.
pub const RUN_LATER_IN_GIT: &[&str] = &[
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "info/attributes",
    // Older forms of remotes: a push runs the hooks of a repository that they name.
    "remotes",
    "branches",
];

/// Below the person's cache directory: what shells, editors and git run from there. The rest of it is read by
/// the tools that wrote it.
pub const RUN_LATER_IN_CACHE: &[&str] = &[
    "gitstatus",
    "zsh",
    "oh-my-zsh",
    "antibody",
    "antidote",
    "zinit",
    "sheldon",
    "prezto",
    "starship",
    "wal",
    "fish",
    "bash",
    "nvim",
    "vim",
    "emacs",
    "helix",
    "direnv",
];

/// Whether a file at the top of the person's cache directory is one that a shell reads.
pub fn runs_later_in_cache(name: &str) -> bool {
    let ends = [".zsh", ".bash", ".sh", ".fish", ".zwc", ".lua", ".vim"];
    RUN_LATER_IN_CACHE.contains(&name) || ends.iter().any(|end| name.ends_with(end))
}

/// Names without a dot at the top of a person's directory from which programs are run or started.
pub const RUN_LATER_IN_HOME: &[&str] = &["bin", "sbin", "Library", "_netrc", "_vimrc", "snap"];

/// Hidden names at the top of a person's directory that nothing runs from: caches and notes of tools.
pub const HARMLESS_IN_HOME: &[&str] = &[
    ".cache",
    ".npm",
    ".pnpm-store",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".wget-hsts",
    ".lesshst",
    ".bash_history",
    ".python_history",
    ".node_repl_history",
    ".sqlite_history",
    ".coverage",
    ".DS_Store",
];

/// Whether a name at the top of a person's directory may decide what runs later. Every hidden one that is
/// not known to be harmless: which of them some program obeys cannot be listed.
pub fn runs_later_in_home(name: &str) -> bool {
    RUN_LATER_IN_HOME.contains(&name)
        || (name.starts_with('.')
            && !HARMLESS_IN_HOME.contains(&name)
            && !name.ends_with(PUT_ASIDE))
}

/// What is added to the name of a file that would have run later and was made by a confined command.
pub const PUT_ASIDE: &str = ".put-aside";

/// Whether a path (with `/` between its parts) below a project or a person's directory is run later. Some file
/// systems take capital letters for small ones.
pub fn runs_later(below: &str) -> bool {
    let parts: Vec<&str> = below.split('/').collect();
    let begins = |name: &&str| {
        let name: Vec<&str> = name.split('/').collect();
        parts.windows(name.len()).any(|window| {
            let mut both = window.iter().zip(&name);
            both.all(|(part, name)| part.eq_ignore_ascii_case(name))
        })
    };
    let is_git = |part: &&str| part.eq_ignore_ascii_case(".git");
    parts.iter().any(is_git) || RUN_LATER_IN_PROJECT.iter().any(begins)
}

/// The first parts of a path in [`RUN_LATER_IN_PROJECT`]: a directory, or a link to one, that is put there may
/// bring something that is run later.
fn beginnings(name: &'static str) -> impl Iterator<Item = &'static str> {
    name.match_indices('/').map(|(at, _)| &name[..at])
}

/// Whether something that is run later may lie in a directory at this path.
pub fn holds_run_later(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut all = RUN_LATER_IN_PROJECT.iter().copied().flat_map(beginnings);
    all.any(|beginning| {
        let mut names = beginning.split('/').rev();
        let mut ends = parts.iter().rev();
        names.all(|name| {
            ends.next()
                .is_some_and(|part| part.eq_ignore_ascii_case(name))
        })
    })
}

/// All parts of [`RUN_LATER_IN_PROJECT`].
static PARTS: LazyLock<HashSet<&'static [u8]>> = LazyLock::new(|| {
    let names = RUN_LATER_IN_PROJECT.iter();
    names
        .flat_map(|name| name.split('/').map(str::as_bytes))
        .collect()
});

/// Whether a name is a part of one of [`RUN_LATER_IN_PROJECT`]: one look for directories with many entries.
pub fn is_part_of_run_later(name: &OsStr) -> bool {
    PARTS.contains(name.as_encoded_bytes())
}

/// Which of [`RUN_LATER_IN_PROJECT`] a path ends with; for a link also which directory of such.
pub fn run_later_name(path: &Path, is_link: bool) -> Option<&'static str> {
    let names = RUN_LATER_IN_PROJECT.iter().copied();
    let around = names.clone().filter(|_| is_link).flat_map(beginnings);
    names.chain(around).find(|name| path.ends_with(name))
}

/// Directories that hold keys and passwords in whoever's home, or a copy of one.
pub const PRIVATE_DIRECTORIES: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".azure",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    "mcp-tokens",
    "keyrings",
];

/// Hidden directories of the person that hold programs and their caches: large, and read by every build.
pub const TOOLS_IN_HOME: &[&str] = &[
    ".asdf",
    ".bun",
    ".cabal",
    ".cache",
    ".cargo",
    ".conda",
    ".cursor-server",
    ".deno",
    ".dotnet",
    ".elan",
    ".emacs.d",
    ".fnm",
    ".ghcup",
    ".git",
    ".gradle",
    ".hermes",
    ".julia",
    ".juliaup",
    ".m2",
    ".nix-defexpr",
    ".nix-profile",
    ".npm",
    ".nuget",
    ".nvm",
    ".oh-my-zsh",
    ".opam",
    ".pnpm-store",
    ".pub-cache",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman",
    ".stack",
    ".vim",
    ".virtualenvs",
    ".volta",
    ".vscode",
    ".vscode-server",
    ".wine",
    "applications",
    "containers",
    "flatpak",
    "fonts",
    "icons",
    "mise",
    "nvim",
    "pnpm",
    "Steam",
    "themes",
    "Trash",
];

/// Whether a path (with `/` between its parts) below a person's directory is private: a known store, or what a
/// program keeps there under a telling name.
pub fn is_personal(below: &str) -> bool {
    let is_known = PERSONAL.iter().any(|name| {
        below
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let mut parts = below.split('/');
    let name = parts.next_back().unwrap_or_default();
    is_known
        || (below.starts_with('.')
            && !parts.any(|part| TOOLS_IN_HOME.contains(&part))
            && looks_secret(name))
}

/// The part of a path below the directory of some person, whoever that is, by its text alone.
pub fn below_some_home(path: &str) -> Option<&str> {
    if let Some(rest) = path.strip_prefix("/root/") {
        return Some(rest);
    }
    let rest = ["/home/", "/Users/", "/var/home/"]
        .iter()
        .find_map(|homes| path.strip_prefix(homes))?;
    Some(rest.split_once('/')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_private_and_examples_are_not() {
        for name in [
            ".env",
            ".env.local",
            ".ENV",
            ".env.production",
            ".envrc",
            ".env-prod",
            ".env.test",
        ] {
            assert!(is_env_file(name), "{name}");
        }
        for name in [
            ".env.example",
            ".env.local.example",
            "env",
            ".environment",
            ".env.sample",
            "x.env",
        ] {
            assert!(!is_env_file(name), "{name}");
        }
    }

    #[test]
    fn a_directory_of_keys_is_private_with_all_in_it() {
        for path in [
            ".ssh",
            ".ssh/id_rsa",
            ".kube/config",
            ".npmrc",
            ".config/gh/hosts.yml",
            ".config/some-tool/credentials.json",
            ".some-tool/auth.json",
        ] {
            assert!(is_personal(path), "{path}");
        }
        for path in [
            ".sshx",
            "code/.ssh",
            ".config",
            ".cargo/registry",
            ".gitconfig",
            "code/token.txt",
            ".config/nvim/keys.lua",
            ".cargo/registry/token.rs",
        ] {
            assert!(!is_personal(path), "{path}");
        }
    }

    #[test]
    fn what_runs_later_is_known_wherever_it_lies() {
        for path in [
            ".git/hooks/pre-commit",
            "sub/.git/config",
            ".envrc",
            "a/.vscode/tasks.json",
            ".husky/x",
            "a/.VSCode/Tasks.json",
            "x/.GIT/hooks/post-merge",
        ] {
            assert!(runs_later(path), "{path}");
        }
        for name in RUN_LATER_IN_PROJECT {
            let path = Path::new("/some/where").join(name);
            assert!(is_part_of_run_later(path.file_name().unwrap()), "{name}");
            assert_eq!(run_later_name(&path, false), Some(*name));
        }
        let directory = Path::new("/a/.vscode");
        assert_eq!(run_later_name(Path::new("/a/settings.json"), true), None);
        assert_eq!(run_later_name(directory, false), None);
        assert_eq!(run_later_name(directory, true), Some(".vscode"));
        for path in [".vscode", "a/.vscode/", ".jj/repo", "x/.jj", ".github"] {
            assert!(holds_run_later(path), "{path}");
        }
        for path in ["vscode", "a.vscode", ".vscode/x", "", ".envrc"] {
            assert!(!holds_run_later(path), "{path}");
        }
        for path in [
            "src/main.rs",
            ".vscode/extensions.json",
            ".gitignore",
            "x.envrc",
        ] {
            assert!(!runs_later(path), "{path}");
        }
        assert!(runs_later_in_home(".bash_profile") && runs_later_in_home("bin"));
        assert!(!runs_later_in_home("notes") && !runs_later_in_home(".cache"));
    }
}
