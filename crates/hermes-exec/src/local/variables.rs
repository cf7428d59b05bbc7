//! The variables that commands get, by an allow-list. A variable that is not named here, in the configuration
//! or by a skill does not reach a command; keys of the home never do by accident.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_config::{Config, Env, EnvSource, Home, ProcessEnv};

use crate::environment::Variables;

/// Taken from our own environment.
const ALLOWED: &[&str] = &[
    "ALL_PROXY",
    "CARGO_HOME",
    "CURL_CA_BUNDLE",
    "EDITOR",
    "FTP_PROXY",
    "GOPATH",
    "GOROOT",
    "HERMES_HOME",
    "HOME",
    "HOSTNAME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "JAVA_HOME",
    "LANG",
    "LANGUAGE",
    "LOCALE_ARCHIVE",
    "LOGNAME",
    "NIX_PATH",
    "NIX_PROFILES",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "NVM_DIR",
    "PATH",
    "PYENV_ROOT",
    "REQUESTS_CA_BUNDLE",
    "RUSTUP_HOME",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "VISUAL",
    // Commands know that a gateway started them, and do not stop it.
    "_HERMES_GATEWAY",
    "all_proxy",
    "ftp_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Prefixes that are allowed unless the name looks like a secret.
const ALLOWED_PREFIXES: &[&str] = &["LC_", "XDG_", "GIT_AUTHOR_", "GIT_COMMITTER_"];

/// Passes a variable deliberately: `_HERMES_FORCE_NAME=value` sets `NAME`.
const FORCE: &str = "_HERMES_FORCE_";

/// Keys with which Hermes itself accesses models and platforms. Skills cannot have them; only the user can pass
/// them, with `terminal.env_passthrough`.
const MANAGED_PREFIXES: &[&str] = &[
    "ALIBABA_",
    "ANTHROPIC_",
    "API_SERVER_",
    "AUXILIARY_",
    "AZURE_FOUNDRY_",
    "BLUEBUBBLES_",
    "DASHSCOPE_",
    "DEEPINFRA_",
    "DEEPSEEK_",
    "DINGTALK_",
    "DISCORD_",
    "EMAIL_",
    "FEISHU_",
    "FIREWORKS_",
    "GATEWAY_",
    "GEMINI_",
    "GLM_",
    "GOOGLE_API_KEY",
    "GROQ_",
    "HASS_",
    "HERMES_",
    "HF_",
    "KILOCODE_",
    "KIMI_",
    "LM_",
    "MATRIX_",
    "MATTERMOST_",
    "MINIMAX_",
    "MISTRAL_",
    "NOUS_",
    "NOVITA_",
    "NVIDIA_",
    "OLLAMA_",
    "OPENAI_",
    "OPENCODE_",
    "OPENROUTER_",
    "SIGNAL_",
    "SLACK_",
    "SUDO_PASSWORD",
    "TELEGRAM_",
    "TOGETHER_",
    "TWILIO_",
    "WEBHOOK_",
    "WHATSAPP_",
    "XAI_",
    "ZAI_",
];

/// Computes the variables of commands.
#[derive(Clone, Debug)]
pub struct VariablePolicy {
    /// Our own environment, without anything from the home's files.
    base: Variables,
    /// Values of variables that may be declared later.
    known: Arc<Variables>,
    /// Values of the home that a login script must not reintroduce.
    secrets: Arc<BTreeSet<String>>,
    declared: Declared,
}

/// Names that skills declared in this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Declared(Arc<Mutex<BTreeSet<String>>>);

impl Declared {
    /// Passes this variable to commands from now on. Keys of Hermes itself are refused.
    pub fn declare(&self, name: &str) -> bool {
        if is_managed(name) || !crate::shell::is_name(name) {
            return false;
        }
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned());
        true
    }

    /// Declared variables that `env` contains.
    pub(crate) fn values(&self, env: &Env) -> Variables {
        let value = |name: String| {
            let value = env.get(&name)?.to_owned();
            Some((name, value))
        };
        self.names().into_iter().filter_map(value).collect()
    }

    fn names(&self) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().cloned().collect()
    }
}

impl VariablePolicy {
    pub fn from_config(
        home: &Home,
        config: &Config,
        env: &Env,
        process: &ProcessEnv,
        declared: Declared,
    ) -> Self {
        let terminal = &config.terminal;
        let of_home = |name: &str| {
            env.source(name)
                .is_some_and(|source| source != EnvSource::Shell)
        };
        let mut base = Variables::new();
        for (name, value) in process.iter() {
            let wanted = if terminal.env_inherit {
                !is_managed(name) || name == "HERMES_HOME"
            } else {
                is_allowed(name)
            };
            if wanted && !of_home(name) && !name.starts_with(FORCE) {
                base.insert(name.to_owned(), value.to_owned());
            }
        }
        if base.get("PATH").is_none_or(String::is_empty) {
            let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
            base.insert("PATH".to_owned(), path.to_owned());
        }
        let mode = env.get("TERMINAL_HOME_MODE");
        let mode = mode.unwrap_or(terminal.home_mode.as_str());
        if let Some(dir) = command_home(home, mode, base.get("HOME")) {
            base.insert("HOME".to_owned(), dir);
        }
        for name in &terminal.env_passthrough {
            if let Some(value) = env.get(name) {
                base.insert(name.clone(), value.to_owned());
            }
        }
        for (name, value) in process.iter() {
            if let Some(forced) = name.strip_prefix(FORCE) {
                base.insert(forced.to_owned(), value.to_owned());
            }
        }
        let secrets = env
            .iter()
            .filter(|(name, value)| {
                (of_home(name) || is_managed(name))
                    && hermes_config::secrets::is_secret_name(name)
                    && !value.is_empty()
                    && !base.contains_key(*name)
            })
            .map(|(_, value)| value.to_owned())
            .collect();
        let known = env
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            base,
            known: Arc::new(known),
            secrets: Arc::new(secrets),
            declared,
        }
    }

    /// Exactly these variables: for tests and for backends that pass their own.
    pub fn fixed(base: Variables) -> Self {
        Self {
            base,
            known: Arc::default(),
            secrets: Arc::default(),
            declared: Declared::default(),
        }
    }

    /// The variables that a login shell starts with.
    pub fn base(&self) -> &Variables {
        &self.base
    }

    /// Declared variables with their values.
    pub fn declared(&self) -> Variables {
        self.declared
            .names()
            .into_iter()
            .filter_map(|name| {
                let value = self.known.get(&name)?.clone();
                Some((name, value))
            })
            .collect()
    }

    /// Removes secrets of the home that a login script has set.
    pub fn scrub(&self, variables: &mut Variables) {
        variables.retain(|name, value| {
            self.base.get(name) == Some(value)
                || !(self.secrets.contains(value.as_str()) || is_managed(name) && is_key(name))
        });
    }
}

fn is_allowed(name: &str) -> bool {
    ALLOWED.binary_search(&name).is_ok()
        || ALLOWED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
            && !hermes_config::secrets::is_secret_name(name)
}

fn is_managed(name: &str) -> bool {
    MANAGED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_key(name: &str) -> bool {
    hermes_config::secrets::is_secret_name(name)
}

/// The HOME of commands, if it differs from ours. `profile` separates the settings of programs per profile,
/// once its directory exists.
fn command_home(home: &Home, mode: &str, current: Option<&String>) -> Option<String> {
    let profile = home.join("home");
    let profile = profile.is_dir().then(|| profile.display().to_string())?;
    let wanted = match mode.to_ascii_lowercase().as_str() {
        "profile" | "isolated" | "profile_home" | "profile-home" => true,
        "real" | "host" | "user" | "real_home" | "real-home" => false,
        _ => is_container(),
    };
    (wanted && current != Some(&profile)).then_some(profile)
}

fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|path| std::path::Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn policy(
        process: &[(&str, &str)],
        dotenv: &str,
        change: impl FnOnce(&mut Config),
    ) -> VariablePolicy {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".env"), dotenv).unwrap();
        let home = Home::at(dir.path());
        let process = ProcessEnv::from_vars(process.iter().copied());
        let env = Env::load(&home, &process).unwrap();
        let mut config = Config::default();
        change(&mut config);
        VariablePolicy::from_config(&home, &config, &env, &process, Declared::default())
    }

    #[test]
    fn the_list_is_sorted() {
        assert!(ALLOWED.is_sorted());
    }

    #[test]
    fn only_what_is_listed_reaches_a_command() {
        let policy = policy(
            &[
                ("PATH", "/bin"),
                ("LC_ALL", "C.UTF-8"),
                ("XDG_TOKEN", "hidden"),
                ("SSH_AUTH_SOCK", "/run/agent"),
                ("AWS_SECRET_ACCESS_KEY", "hidden"),
                ("RANDOM_SETTING", "x"),
                ("_HERMES_FORCE_WANTED", "yes"),
                ("HTTP_PROXY", "http://proxy"),
            ],
            "OPENAI_API_KEY=sk-of-the-home\nHTTP_PROXY=http://other\n",
            |_| {},
        );
        let names: Vec<_> = policy.base().keys().map(String::as_str).collect();
        assert_eq!(names, ["LC_ALL", "PATH", "WANTED"]);
    }

    #[test]
    fn the_person_may_name_more_and_a_skill_some() {
        let policy = policy(
            &[("PATH", "/bin"), ("SSH_AUTH_SOCK", "/run/agent")],
            "NOTION_API_KEY=n-1234567890\nOPENAI_API_KEY=sk-1234567890\n",
            |config| config.terminal.env_passthrough = vec!["SSH_AUTH_SOCK".to_owned()],
        );
        assert_eq!(policy.base()["SSH_AUTH_SOCK"], "/run/agent");
        assert!(policy.declared.declare("NOTION_API_KEY"));
        assert!(!policy.declared.declare("OPENAI_API_KEY"));
        assert_eq!(
            policy.declared(),
            Variables::from([("NOTION_API_KEY".to_owned(), "n-1234567890".to_owned())])
        );
    }

    #[test]
    fn inheriting_everything_still_leaves_out_the_keys_of_hermes() {
        let policy = policy(
            &[("ANYTHING", "1"), ("OPENAI_API_KEY", "sk-shell")],
            "SECRET_OF_HOME=abc\n",
            |config| config.terminal.env_inherit = true,
        );
        assert_eq!(policy.base()["ANYTHING"], "1");
        assert!(!policy.base().contains_key("OPENAI_API_KEY"));
        assert!(!policy.base().contains_key("SECRET_OF_HOME"));
    }

    #[test]
    fn a_login_script_does_not_bring_secrets_back() {
        let policy = policy(
            &[("PATH", "/bin")],
            "MY_SERVICE_TOKEN=secret-value-1\n",
            |_| {},
        );
        let mut variables = Variables::from([
            ("COPY".to_owned(), "secret-value-1".to_owned()),
            ("ANTHROPIC_API_KEY".to_owned(), "from bashrc".to_owned()),
            ("MINE".to_owned(), "kept".to_owned()),
        ]);
        policy.scrub(&mut variables);
        assert_eq!(variables.keys().collect::<Vec<_>>(), ["MINE"]);
    }

    #[test]
    fn the_home_of_commands_follows_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        assert_eq!(command_home(&home, "profile", None), None);
        std::fs::create_dir(dir.path().join("home")).unwrap();
        let profile = command_home(&home, "profile", None).unwrap();
        assert_eq!(Path::new(&profile), dir.path().join("home"));
        assert_eq!(command_home(&home, "real", None), None);
    }
}
