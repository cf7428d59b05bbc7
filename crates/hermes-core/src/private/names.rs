//! What the name of a file says about what is in it.

use super::is_env_file;

/// A file that holds a secret by its name, wherever it lies.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
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
        "master.key",
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
    (is_env_file(&name) || is_key || known.contains(&&*name) || holds_keys(&name))
        && !is_public(&name)
}

/// A file of a project that may hold a password for where its packages and images come from. Whoever works on the
/// project needs it; nobody else does.
pub fn is_registry_settings(name: &str) -> bool {
    let names = [
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
    ];
    names.contains(&&*name.to_ascii_lowercase())
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
        ".p12",
        ".pfx",
        ".kdbx",
        ".kdb",
        ".ppk",
        ".jks",
        ".keystore",
        ".agekey",
        ".ovpn",
        ".tfstate",
        ".tfvars",
    ];
    let certificates = ["cert", "ca-bundle", "cacert", "chain", "roots", "public"];
    let is_certificate =
        |end: &str| end == ".pem" && certificates.iter().any(|word| name.contains(word));
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
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
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
