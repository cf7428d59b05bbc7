//! Private files recognised by their name.

use super::is_env_file;

/// A file that holds a secret by its name, wherever it lies; also a copy of one that an editor or a person made
/// next to it.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    originals(&name).any(is_secret_original)
}

fn is_secret_original(name: &str) -> bool {
    let known = [
        "credentials",
        "credentials.json",
        "credentials.toml",
        "credentials.yaml",
        "credentials.yml",
        "client_secret.json",
        "service-account.json",
        "service_account.json",
        "secrets.json",
        "secrets.toml",
        "secrets.yaml",
        "secrets.yml",
        ".credentials",
        ".netrc",
        "_netrc",
        ".pgpass",
        ".pypirc",
        ".htpasswd",
        ".git-credentials",
        ".vault_pass",
        ".vault-token",
        "wallet.dat",
        "shadow",
        "gshadow",
        "sudoers",
    ];
    let is_key = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"]
        .iter()
        .any(|key| name.starts_with(key) || name.ends_with(key));
    let is_named_key = ["_rsa", "_dsa", "_ecdsa", "_ed25519"]
        .iter()
        .any(|end| name.ends_with(end));
    let is_host_key = name.starts_with("ssh_host_") && name.ends_with("_key");
    (is_env_file(name)
        || is_key
        || is_named_key
        || is_host_key
        || known.contains(&name)
        || holds_keys(name))
        && !is_public(name)
}

/// What editors, package managers and people add to the name of a copy, at its end.
const COPY_ENDS: &[&str] = &[
    "~",
    "#",
    ".bak",
    ".backup",
    ".old",
    ".orig",
    ".save",
    ".saved",
    ".prev",
    ".copy",
    ".tmp",
    ".rej",
    ".un",
    ".kate-swp",
    ".dpkg-old",
    ".dpkg-new",
    ".rpmsave",
    ".rpmnew",
    "-backup",
    "_backup",
    "-old",
    "_old",
    "-copy",
    "_copy",
    " copy",
    " (copy)",
    "-bak",
    "_bak",
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".zip",
    ".tar",
    ".tgz",
    ".7z",
];
/// The same at its beginning.
const COPY_STARTS: &[&str] = &[".#", "#", "copy of ", "backup-", "backup_", "old-", "old_"];

/// The name, and the names of the files that it may be a copy of: `.id_rsa.swp`, `#.env#`, `server.pem.bak.1`.
fn originals(name: &str) -> impl Iterator<Item = &str> {
    const MAX_STEPS: usize = 4;
    let mut all = vec![name];
    let mut from = 0;
    for _ in 0..MAX_STEPS {
        let step = all[from..].to_vec();
        from = all.len();
        for name in step {
            let is_swap = |end: &&str| end.len() == 3 && end.starts_with("sw");
            let is_number = |end: &&str| !end.is_empty() && end.bytes().all(|c| c.is_ascii_digit());
            let by_end = COPY_ENDS.iter().filter_map(|end| name.strip_suffix(end));
            let by_start = COPY_STARTS
                .iter()
                .filter_map(|start| name.strip_prefix(start));
            let dotted = name.rsplit_once('.');
            let swapped = dotted.filter(|(_, end)| is_swap(end)).map(|(name, _)| name);
            let numbered = [dotted, name.rsplit_once('-')].into_iter().flatten();
            let numbered = numbered.filter(|(_, end)| is_number(end));
            let numbered = numbered.map(|(name, _)| name);
            // Vim puts a dot before the name of a swap or undo file.
            let is_hidden_copy = swapped.is_some() || name.ends_with(".un~");
            let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
            let hidden = is_hidden_copy.then(|| stem.strip_prefix('.')).flatten();
            let found = by_end.chain(by_start).chain(swapped).chain(numbered);
            all.extend(found.chain(hidden).filter(|name| !name.is_empty()));
        }
    }
    all.into_iter()
}

/// A file of a project that may hold a password: for the sources of its packages and images, for its database, for
/// its deployment. Only people who work on the project need it.
pub fn is_private_to_project(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    originals(&name).any(|name| {
        (PRIVATE_TO_PROJECT.contains(&name) || is_telling_data(name) || is_variables(name))
            && !is_public(name)
    })
}

const PRIVATE_TO_PROJECT: &[&str] = &[
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".dockercfg",
    ".dockerconfigjson",
    "auth.json",
    "kubeconfig",
    "kubeconfig.yaml",
    "kubeconfig.yml",
    "nuget.config",
    "pip.conf",
    ".dev.vars",
    ".flaskenv",
    ".secret",
    ".secrets",
    ".my.cnf",
    ".s3cfg",
    ".terraformrc",
    "rclone.conf",
    "token.json",
    "token.pickle",
    "local.settings.json",
    "local_settings.py",
    "wp-config.php",
    "database.yml",
];

/// `prod.env`: variables with their values.
fn is_variables(name: &str) -> bool {
    let examples = [
        "example", "sample", "template", "dist", "default", "defaults",
    ];
    name.strip_suffix(".env")
        .is_some_and(|stem| !stem.is_empty() && !examples.iter().any(|word| stem.ends_with(word)))
}

/// A file of data, not of a program, whose name says that it holds something secret.
fn is_telling_data(name: &str) -> bool {
    const DATA: [&str; 16] = [
        "",
        "json",
        "csv",
        "txt",
        "yaml",
        "yml",
        "toml",
        "ini",
        "cfg",
        "conf",
        "properties",
        "xml",
        "env",
        "pickle",
        "xlsx",
        "kubeconfig",
    ];
    const WORDS: [&str; 19] = [
        "credential",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "apikey",
        "api_key",
        "api-key",
        "accesskey",
        "access_key",
        "access-key",
        "private_key",
        "private-key",
        "service-account",
        "service_account",
        "serviceaccount",
        "adminsdk",
        "rootkey",
        "kubeconfig",
    ];
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    DATA.contains(&end) && WORDS.iter().any(|word| name.contains(word))
}

/// Whether a hidden file at the top of the person's directory is one that shells and common tools read for every
/// command, whatever its mode is.
pub fn is_read_by_all(name: &str) -> bool {
    let names = [
        ".gitconfig",
        ".gitignore",
        ".gitignore_global",
        ".gitattributes",
        ".editorconfig",
        ".bash_aliases",
        ".tmux.conf",
        ".tool-versions",
        ".python-version",
        ".node-version",
        ".selected_editor",
    ];
    let ends = ["rc", "profile", "login", "logout", "env"];
    names.contains(&name) || ends.iter().any(|end| name.ends_with(end))
}

/// Files of keys by their endings. Certificates end so, too: what is for everybody says so in its name.
fn holds_keys(name: &str) -> bool {
    let ends = [
        ".pem",
        ".key",
        ".p8",
        ".p12",
        ".pfx",
        ".kdbx",
        ".kdb",
        ".ppk",
        ".jks",
        ".keystore",
        ".jceks",
        ".keytab",
        ".keychain",
        ".keychain-db",
        ".agekey",
        ".ovpn",
        ".tfstate",
        ".tfvars",
    ];
    let certificates = ["cert", "ca-bundle", "cacert", "chain", "roots", "public"];
    let is_certificate = |end: &str| match end {
        ".pem" => certificates.iter().any(|word| name.contains(word)),
        ".key" => name.contains("public"),
        _ => false,
    };
    ends.iter()
        .any(|end| name.ends_with(end) && !is_certificate(end))
}

fn is_public(name: &str) -> bool {
    let examples = [".pub", ".example", ".sample", ".template", ".dist"];
    examples.iter().any(|end| name.ends_with(end))
}

/// The same for what a program keeps for itself in the person's directory, where far more names tell: nobody
/// else has to read there.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = [
        "credential",
        "secret",
        "token",
        "passwd",
        "password",
        "passphrase",
        "vault_pass",
        "apikey",
        "api_key",
        "api-key",
        "private_key",
        "privatekey",
        "private-key",
        "keyring",
        "cookie",
        "wallet",
        "netrc",
        "oauth",
        "history",
        "session",
    ];
    // "auth" stands in the middle of "author".
    let is_auth = name
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|word| matches!(word, "auth" | "authinfo" | "key" | "keys" | "adbkey"));
    is_secret_name(&name)
        || ((is_auth || words.iter().any(|word| name.contains(word))) && !is_public(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_keys_are_known_and_those_for_everybody_too() {
        for name in [
            "id_rsa",
            "deploy_id_ed25519",
            "server.pem",
            "prod.tfstate",
            "credentials",
            ".env.local",
            "a.KDBX",
            "secrets.yml",
            "wallet.dat",
            "tls.key",
            "cert.key",
            "deploy_rsa",
            "ssh_host_ed25519_key",
            ".env~",
            "#.env#",
            ".#.env",
            ".env.swp",
            ".id_rsa.swp",
            ".id_rsa.un~",
            "server.pem.bak",
            "server.pem.bak.1",
            "credentials.json~",
            ".netrc.swo",
            ".pgpass-20240101",
            "Copy of credentials.json",
            "secrets.yml.tar.gz",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "id_rsa.pub",
            "ca-bundle.pem",
            "cert.pem",
            ".env.example",
            "secrets.yml.example",
            "main.rs",
            "keys.rs",
            "token.py",
            "author.txt",
            "main.rs~",
            "notes.bak",
            "public.key",
            "monkey",
            "x.swp",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn names_that_are_private_in_other_projects_are_known() {
        for name in [
            ".npmrc",
            "prod.env",
            "client_secret_123.apps.googleusercontent.com.json",
            "x-firebase-adminsdk-1.json",
            "db_password",
            "new_user_credentials.csv",
            ".npmrc.bak",
            "prod.env~",
        ] {
            assert!(is_private_to_project(name), "{name}");
        }
        for name in [
            "secrets.rs",
            "password.py",
            "credentials.md",
            "example.env",
            "tokenizer.json",
            "package.json",
        ] {
            assert!(!is_private_to_project(name), "{name}");
        }
    }

    #[test]
    fn names_that_look_secret_are_known() {
        for name in [
            "auth.json",
            "hosts.token",
            "Cookies",
            "api_key.txt",
            "adbkey",
            "key.txt",
            "x.history",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in [
            "config.toml",
            "authors",
            "settings.json",
            "init.lua",
            "keymap.json",
            "known_hosts",
        ] {
            assert!(!looks_secret(name), "{name}");
        }
    }
}
