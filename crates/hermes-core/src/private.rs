//! Which files of a person are private, and which run by themselves later. One list for everybody who keeps
//! a command or a tool away from them: the sandbox and the file tools.
//!
//! A list of what is secret is never complete; it is where a new store of keys is added.

/// Below the person's directory: keys, tokens, passwords, and what was typed or browsed. Files, or directories
/// with all that is in them.
pub const PERSONAL: &[&str] = &[
    // Remote machines and signatures.
    ".ssh",
    ".gnupg",
    ".pki",
    ".putty",
    ".config/sops",
    ".config/age",
    ".age",
    ".step",
    ".minisign",
    // Clouds and clusters.
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/doctl",
    ".config/hcloud",
    ".config/scw",
    ".config/linode-cli",
    ".oci",
    ".bluemix",
    ".aliyun",
    ".tccli",
    ".boto",
    ".s3cfg",
    ".mc",
    ".config/rclone",
    ".config/flyctl",
    ".fly",
    ".config/netlify",
    ".netlify",
    ".vercel",
    ".local/share/com.vercel.cli",
    ".config/heroku",
    ".config/railway",
    ".railway",
    ".config/stripe",
    ".config/ngrok",
    ".ngrok2",
    ".cloudflared",
    ".wrangler",
    ".config/.wrangler",
    ".databrickscfg",
    ".snowflake",
    ".snowsql",
    ".terraform.d",
    ".terraformrc",
    ".pulumi",
    ".vault-token",
    ".config/helm",
    ".config/argocd",
    ".talos",
    ".minikube/certs",
    // Package registries and code hosts.
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pypoetry/auth.toml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".local/share/gem/credentials",
    ".bundle/config",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget/NuGet/NuGet.Config",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".hex",
    ".docker/config.json",
    ".docker/contexts",
    ".config/containers/auth.json",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/tea",
    ".git-credentials",
    ".config/git/credentials",
    ".git-credential-cache",
    ".cache/git/credential",
    ".subversion/auth",
    ".config/huggingface",
    ".huggingface",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".kaggle",
    ".config/kaggle",
    ".config/wandb",
    ".config/openai",
    ".config/anthropic",
    ".anthropic",
    ".openai",
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".claude.json",
    ".gemini/oauth_creds.json",
    ".qwen/oauth_creds.json",
    ".config/github-copilot",
    ".local/share/opencode/auth.json",
    // Databases.
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".mongorc.js",
    ".dbshell",
    ".config/pgcli",
    // Passwords and sessions.
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".config/op",
    ".op",
    ".config/1Password",
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".config/keepassxc",
    ".local/share/keepassxc",
    ".config/KeePass",
    ".authinfo",
    ".authinfo.gpg",
    ".mozilla",
    ".thunderbird",
    ".librewolf",
    ".zen",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".var/app",
    "snap/firefox",
    "snap/chromium",
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    ".config/Element",
    ".local/share/TelegramDesktop",
    ".config/Code/User/globalStorage",
    ".mutt",
    ".msmtprc",
    ".config/msmtp",
    ".fetchmailrc",
    ".offlineimaprc",
    ".mbsyncrc",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".config/solana",
    "Library/Keychains",
    "Library/Cookies",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
    // What was typed.
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".histfile",
    ".sh_history",
    ".ksh_history",
    ".history",
    ".local/share/fish/fish_history",
    ".config/nushell/history.txt",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".mongosh",
    ".irb_history",
    ".lesshst",
    ".viminfo",
    ".local/state/nvim/shada",
    ".local/share/recently-used.xbel",
];

/// Passwords and private keys of the machine, which root could read.
pub const SYSTEM: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/ipsec.secrets",
    "/etc/ppp/chap-secrets",
    "/etc/NetworkManager/system-connections",
    "/etc/wpa_supplicant",
    "/etc/docker/key.json",
    "/etc/kubernetes",
    "/etc/rancher",
    "/var/lib/kubelet/pki",
    "/var/lib/systemd/credential.secret",
    "/var/lib/sss/secrets",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_dsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/run/secrets",
    "/var/run/secrets",
    "/run/credentials",
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
];

/// Below a directory that git keeps its data in: settings and programs that every later git obeys.
pub const RUN_LATER_IN_GIT: &[&str] = &[
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "info/attributes",
];

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

/// Whether a path (with `/` between its parts) below a project or a person's directory is run later.
pub fn runs_later(below: &str) -> bool {
    let parts: Vec<&str> = below.split('/').collect();
    let begins = |name: &&str| {
        parts
            .windows(name.split('/').count())
            .any(|window| window.join("/") == **name)
    };
    parts.contains(&".git") || RUN_LATER_IN_PROJECT.iter().any(begins)
}

/// Whether a path (with `/` between its parts) below a person's directory is private.
pub fn is_personal(below: &str) -> bool {
    PERSONAL.iter().any(|name| {
        below
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
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
        ] {
            assert!(is_personal(path), "{path}");
        }
        for path in [
            ".sshx",
            "code/.ssh",
            ".config",
            ".cargo/registry",
            ".gitconfig",
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
        ] {
            assert!(runs_later(path), "{path}");
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
