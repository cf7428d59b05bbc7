//! Categories of findings.
//!
//! Categories that Hermes Agent has keep its names: `command_allowlist` of an older home contains them.

use std::fmt;

use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Category(&'static str);

impl Category {
    pub fn name(self) -> &'static str {
        self.0
    }

    /// A category of Hermes Agent by its name.
    pub fn of_original(name: &str) -> Option<Self> {
        ORIGINAL.iter().copied().find(|known| known.0 == name)
    }

    /// A model must not decide about these.
    pub fn needs_person(self) -> bool {
        PERSONAL.contains(&self)
    }

    /// Not covered by prefix rules: only by a rule for exactly that command.
    pub fn beyond_prefix(self) -> bool {
        BEYOND_PREFIX.contains(&self)
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for Category {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

macro_rules! categories {
    ($list:ident: $($name:ident = $text:literal,)*) => {
        categories! { $($name = $text,)* }
        const $list: &[Category] = &[$(Category::$name,)*];
    };
    ($($name:ident = $text:literal,)*) => {
        impl Category {
            $(pub const $name: Self = Self($text);)*
        }
    };
}

categories! { ORIGINAL:
    ROOT_DELETE = "recursive delete of root filesystem",
    SYSTEM_DELETE = "recursive delete of system directory",
    HOME_DELETE = "recursive delete of home directory",
    MKFS = "format filesystem (mkfs)",
    FORMAT = "format filesystem",
    DD_DEVICE = "dd to raw block device",
    REDIRECT_DEVICE = "redirect to raw block device",
    DEVICE_WRITE = "write to block device",
    FORK_BOMB = "fork bomb",
    KILL_ALL = "kill all processes",
    SHUTDOWN = "system shutdown/reboot",
    INIT_SHUTDOWN = "init 0/6 (shutdown/reboot)",
    SYSTEMCTL_POWER = "systemctl poweroff/reboot",
    TELINIT = "telinit 0/6 (shutdown/reboot)",
    PARSER_LIMIT = "command parser limit exceeded",
    MALFORMED = "command parser limit or malformed executable payload",
    SUDO_GUESS = "sudo password guessing via stdin (sudo -S)",
    DELETE_IN_ROOT = "delete in root path",
    RECURSIVE_DELETE = "recursive delete",
    RECURSIVE_DELETE_LONG = "recursive delete (long flag)",
    WINDOWS_DELETE = "Windows cmd destructive delete",
    POWERSHELL_DELETE = "Windows PowerShell destructive delete",
    POWERSHELL_ENCODED = "PowerShell encoded command execution",
    WORLD_WRITABLE = "world/other-writable permissions",
    WORLD_WRITABLE_LONG = "recursive world/other-writable (long flag)",
    CHOWN_ROOT = "recursive chown to root",
    CHOWN_ROOT_LONG = "recursive chown to root (long flag)",
    DISK_COPY = "disk copy",
    SQL_DROP = "SQL DROP",
    SQL_DELETE = "SQL DELETE without WHERE",
    SQL_TRUNCATE = "SQL TRUNCATE",
    SYSTEM_CONFIG = "overwrite system config",
    SERVICE_STOP = "stop/restart system service",
    PKILL = "force kill processes",
    KILLALL_KILL = "force kill processes (killall -KILL)",
    KILLALL_S = "force kill processes (killall -s KILL)",
    KILLALL_REGEX = "kill processes by regex (killall -r)",
    REMOTE_TO_SHELL = "pipe remote content to shell",
    REMOTE_SUBSTITUTION = "execute remote script via process substitution",
    REMOTE_EVAL = "execute remote content via command substitution",
    DECODED_TO_SHELL = "pipe decoded content to shell (possible command obfuscation)",
    XXD_TO_SHELL = "pipe xxd-decoded content to shell (possible command obfuscation)",
    TR_TO_SHELL = "pipe tr-transformed output to shell (possible command obfuscation)",
    OPENSSL_TO_SHELL = "pipe openssl-decoded content to shell (possible command obfuscation)",
    TEE_SYSTEM = "overwrite system file via tee",
    REDIRECT_SYSTEM = "overwrite system file via redirection",
    TEE_PROJECT = "overwrite project env/config via tee",
    REDIRECT_PROJECT = "overwrite project env/config via redirection",
    XARGS_RM = "xargs with rm",
    FIND_EXEC_RM = "find -exec/-execdir rm",
    FIND_DELETE = "find -delete",
    GATEWAY_STOP = "stop/restart hermes gateway (kills running agents)",
    HERMES_UPDATE = "hermes update (restarts gateway, kills running agents)",
    COMPOSE_LIFECYCLE = "docker compose restart/stop/kill/down (container lifecycle)",
    DOCKER_LIFECYCLE = "docker restart/stop/kill (container lifecycle)",
    GATEWAY_OUTSIDE = "start gateway outside systemd (use 'systemctl --user restart hermes-gateway')",
    SELF_KILL = "kill hermes/gateway process (self-termination)",
    KILL_PGREP = "kill process via pgrep/pidof expansion (self-termination)",
    KILL_PGREP_TICKS = "kill process via backtick pgrep/pidof expansion (self-termination)",
    LAUNCHD_STOP = "stop/restart hermes launchd service (kills running agents)",
    COPY_TO_SYSTEM = "copy/move file into system config path",
    COPY_TO_PROJECT = "overwrite project env/config file",
    COPY_TO_SENSITIVE = "copy/move file into sensitive credential/SSH/shell-rc path",
    EDIT_SENSITIVE = "in-place edit of sensitive credential/SSH/shell-rc path",
    EDIT_SENSITIVE_LONG = "in-place edit of sensitive credential/SSH/shell-rc path (long flag)",
    EDIT_SENSITIVE_PERL = "in-place edit of sensitive credential/SSH/shell-rc path (perl/ruby)",
    EDIT_SYSTEM = "in-place edit of system config",
    EDIT_SYSTEM_LONG = "in-place edit of system config (long flag)",
    EDIT_HERMES = "in-place edit of Hermes config/env",
    EDIT_HERMES_LONG = "in-place edit of Hermes config/env (long flag)",
    EDIT_HERMES_PERL = "in-place edit of Hermes config/env (perl/ruby)",
    SHELL_HEREDOC = "shell execution via heredoc",
    GIT_RESET = "git reset --hard (destroys uncommitted changes)",
    GIT_FORCE_PUSH = "git force push (rewrites remote history)",
    GIT_FORCE_PUSH_SHORT = "git force push short flag (rewrites remote history)",
    GIT_CLEAN = "git clean with force (deletes untracked files)",
    GIT_BRANCH_DELETE = "git branch force delete",
    GIT_BRANCH_DELETE_LONG = "git branch force delete (long flags)",
    GIT_BRANCH_DELETE_FORCE_FIRST = "git branch force delete (long flags, force-first)",
    CHMOD_RUN = "chmod +x followed by immediate execution",
    SUDO_FLAG = "sudo with privilege flag (stdin/askpass/shell/list)",
    SUDO_COMBINED = "sudo with combined-flag privilege escalation",
    SHELL_FLAG = "shell command via -c/-lc flag",
    SCRIPT_FLAG = "script execution via -e/-c flag",
    SCRIPT_HEREDOC = "script execution via heredoc",
}

categories! {
    UNPARSED = "not understood",
    TOO_DEEP = "nested too deeply",
    HIDDEN = "hidden characters",
    DYNAMIC_COMMAND = "command known only at run time",
    DYNAMIC_ARGUMENT = "arguments known only at run time",
    PROGRAM = "runs a program",
    PROGRAM_CODE = "runs program text",
    EXEC_FLAG = "option that runs a program",
    ENVIRONMENT = "environment that changes what programs do",
    OUTSIDE_WRITE = "writes outside the workspace",
    OVERWRITE = "destroys contents of files",
    GIT_DISCARD = "git discards changes or rewrites history",
    GIT_REMOTE = "git changes a remote repository",
    NETWORK_SEND = "sends data over the network",
    NETWORK = "talks to the network",
    SECRET_READ = "reads a secret",
    EXFILTRATION = "sends a secret over the network",
    REVERSE_SHELL = "reverse shell",
    DOWNLOAD_RUN = "runs what was downloaded",
    CLOUD_DESTROY = "destroys cloud or cluster resources",
    CLOUD_CHANGE = "changes cloud or cluster resources",
    PERSISTENCE = "installs something that starts automatically",
    PRIVILEGE = "runs with other privileges",
    PACKAGES = "installs or removes software",
    PROCESSES = "stops processes",
    SYSTEM_CHANGE = "changes the system",
    HERMES_SETTINGS = "changes Hermes' own settings",
    REMOTE_HOST = "acts on another machine",
    CONTAINER = "containers with reach into the host",
    DATABASE = "changes a database",
    UNPROVEN = "not known to be harmless",
}

const PERSONAL: &[Category] = &[
    Category::EXFILTRATION,
    Category::SECRET_READ,
    Category::REVERSE_SHELL,
    Category::DOWNLOAD_RUN,
    Category::REMOTE_TO_SHELL,
    Category::REMOTE_SUBSTITUTION,
    Category::REMOTE_EVAL,
    Category::DECODED_TO_SHELL,
    Category::XXD_TO_SHELL,
    Category::TR_TO_SHELL,
    Category::OPENSSL_TO_SHELL,
    Category::CLOUD_DESTROY,
    Category::PERSISTENCE,
    Category::PRIVILEGE,
    Category::SUDO_FLAG,
    Category::SUDO_COMBINED,
    Category::HERMES_SETTINGS,
    Category::EDIT_HERMES,
    Category::EDIT_SENSITIVE,
    Category::COPY_TO_SENSITIVE,
    Category::HIDDEN,
];

const BEYOND_PREFIX: &[Category] = &[
    Category::EXFILTRATION,
    Category::SECRET_READ,
    Category::REVERSE_SHELL,
    Category::DOWNLOAD_RUN,
    Category::HERMES_SETTINGS,
    Category::EDIT_HERMES,
    Category::HIDDEN,
];
