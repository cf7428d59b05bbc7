//! Flags of Hermes Agent, and values of its flags, that are not here.

/// Providers take keys here, so everything about a login in a browser has one answer.
const KEYS: &str = "providers take keys here: hermes auth add PROVIDER";

/// The command ("" for the chat), the names, and what to do instead.
pub(super) const ROWS: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["--worktree", "-w"],
        "create a worktree and start hermes in it: git worktree add ../DIR, cd ../DIR, hermes",
    ),
    ("", &["--dev"], "there is nothing to build: run hermes"),
    (
        "model",
        &["--refresh"],
        "to ask a provider for its models: hermes model list --provider PROVIDER --live",
    ),
    (
        "model",
        &[
            "--portal-url",
            "--inference-url",
            "--client-id",
            "--scope",
            "--no-browser",
        ],
        KEYS,
    ),
    (
        "model",
        &["--timeout"],
        "requests are limited by request_timeout_seconds in config.yaml",
    ),
    (
        "model",
        &["--ca-bundle", "--insecure"],
        "certificates of the system are used; to add one, set SSL_CERT_FILE",
    ),
    (
        "auth add",
        &[
            "--portal-url",
            "--inference-url",
            "--client-id",
            "--scope",
            "--no-browser",
            "--timeout",
        ],
        KEYS,
    ),
    (
        "auth add",
        &["--ca-bundle", "--insecure"],
        "certificates of the system are used; to add one, set SSL_CERT_FILE",
    ),
    (
        "setup",
        &["tts"],
        "voice is configured in config.yaml: see docs/voice.md",
    ),
    (
        "setup",
        &["gateway"],
        "to set up a platform: hermes gateway setup",
    ),
    ("setup", &["--portal"], KEYS),
    (
        "setup",
        &["--reconfigure"],
        "hermes setup always shows every section; to start from the defaults: hermes setup --reset",
    ),
    (
        "hooks test",
        &["--payload-file"],
        "the payload is generated; to choose the tool: hermes hooks test EVENT --for-tool NAME",
    ),
    (
        "doctor",
        &["--ack"],
        "findings cannot be acknowledged; to fix them: hermes doctor --fix",
    ),
    (
        "sessions export",
        &["qmd", "trace"],
        "formats are jsonl, md and html",
    ),
    (
        "sessions export",
        &["--upload", "--public"],
        "nothing is uploaded; the export is a file",
    ),
    (
        "sessions export",
        &["--no-redact"],
        "an export is complete unless --redact is given",
    ),
    (
        "sessions export",
        &["--only", "user-prompts"],
        "the whole conversation is exported; filter the JSONL by its role field",
    ),
    (
        "sessions export",
        &["--lineage"],
        "each session is exported by itself",
    ),
    (
        "sessions export",
        &["--delete-after-verified"],
        "to delete exported sessions: hermes sessions prune",
    ),
    (
        "sessions export",
        &["--force", "--yes", "-y"],
        "an export never asks for confirmation",
    ),
    (
        "update",
        &["--branch"],
        "to install another build: hermes update --from FILE",
    ),
    (
        "update",
        &["--backup", "--no-backup"],
        "the old program is always kept (hermes update --rollback); to back up the home: hermes backup",
    ),
    (
        "update",
        &["--gateway"],
        "restart the gateway after the update: hermes gateway restart",
    ),
    (
        "update",
        &["--force", "--force-venv"],
        "there is no checkout to overwrite: hermes update --from FILE",
    ),
    (
        "uninstall",
        &["--gui", "--gui-summary"],
        "there is no desktop application to uninstall",
    ),
    (
        "acp",
        &["--setup-browser"],
        "browser tools are not built in",
    ),
    (
        "acp",
        &["--yes", "-y"],
        "nothing is installed, so nothing is asked",
    ),
    (
        "acp",
        &["--version"],
        "to print the version: hermes --version",
    ),
    (
        "mcp add",
        &["--preset"],
        "name the server yourself: hermes mcp add NAME --command … (or --url …)",
    ),
    (
        "tools",
        &["--summary"],
        "to list the tools: hermes tools list",
    ),
];
