//! Lists of files that the file tools never read or write.

/// Secrets in the home's directory, in lower case.
pub(super) const SECRET_FILES: [&str; 8] = [
    ".env",
    ".op.env",
    "auth.json",
    "auth.lock",
    ".anthropic_oauth.json",
    "webhook_subscriptions.json",
    // Its token controls what is allowed.
    "gateway_control.json",
    "cache/bws_cache.json",
];
pub(super) const SECRET_DIRS: [&str; 5] = [
    "auth",
    "mcp-tokens",
    "pairing",
    "platforms/pairing",
    "skills/.hub",
];

/// Files of the home that only Hermes itself writes.
pub(super) const HOME_STATE_FILES: [&str; 2] = ["state.db", "response_store.db"];
pub(super) const HOME_STATE_DIRS: [&str; 2] = ["sessions", "checkpoints"];

/// Files of a home that affect later conversations, in lower case.
pub(super) const LASTING_FILE: &str = "soul.md";
pub(super) const LASTING_DIRS: [&str; 8] = [
    "memories",
    "skills",
    "optional-skills",
    "cron",
    "hooks",
    "plugins",
    "scripts",
    "pending",
];

/// Files of one profile that affect its later sessions.
pub(super) const SCOPED_AREAS: [&str; 4] = ["skills", "plugins", "cron", "memories"];

/// Entries of `/proc/<pid>/` with secrets and memory of a process.
pub(super) const PROCESS_FILES: [&str; 10] = [
    "environ",
    "cmdline",
    "maps",
    "smaps",
    "smaps_rollup",
    "numa_maps",
    "mem",
    "auxv",
    "pagemap",
    "kcore",
];

/// Below the user's home: never written.
pub(super) const DENIED_FILES: [&str; 5] =
    [".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials"];
pub(super) const DENIED_DIRS: [&str; 8] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".azure",
    ".config/gh",
    ".config/gcloud",
];

/// Never written by these tools.
pub(super) const SYSTEM_DIRS: [&str; 9] = [
    "/etc",
    "/boot",
    "/usr/lib/systemd",
    "/lib/systemd",
    "/proc",
    "/sys",
    "/dev",
    "/private/etc",
    "/private/var",
];
pub(super) const SYSTEM_FILES: [&str; 2] = ["/var/run/docker.sock", "/run/docker.sock"];
