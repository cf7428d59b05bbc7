//! Clouds, clusters, containers, databases.

use super::args::{has, operands, subcommand, value};
use super::place::WriteKind;
use super::{Classifier, ProgramCall};
use crate::assessment::Category;

/// Verbs that only read.
const READ_VERBS: &str = "get list ls describe show logs log status version help top explain api-resources api-versions \
    cluster-info auth diff view search validate fmt output providers graph plan history template lint read info \
    search inspect whoami wait events check exists head env current-context get-contexts dashboard blame";
/// Verbs that destroy something.
const DESTROY_VERBS: [&str; 24] = [
    "delete",
    "destroy",
    "terminate",
    "remove",
    "rm",
    "rb",
    "purge",
    "drain",
    "uninstall",
    "prune",
    "deregister",
    "wipe",
    "empty",
    "delete-stack",
    "taint",
    "cordon",
    "evict",
    "reset",
    "detach",
    "disable",
    "revoke",
    "drop",
    "deprovision",
    "nuke",
];

/// Verbs that change something without destroying it.
const CHANGE_VERBS: &str = "create update set add deploy start stop restart run apply import export attach put modify \
    enable resize scale ssh invoke submit edit patch replace rollout restore rotate push publish promote move copy \
    login logout init exec call send upload sign activate use";

fn is_verb(word: &str) -> bool {
    let stem = word.split(['-', ':']).next().unwrap_or(word);
    let known = |list: &str| {
        list.split_whitespace()
            .any(|verb| verb == stem || verb == word)
    };
    known(READ_VERBS) || known(CHANGE_VERBS) || DESTROY_VERBS.contains(&stem)
}

enum CloudAction {
    Read,
    Change,
    Destroy,
}

fn act(word: &str) -> CloudAction {
    let word = word.to_lowercase();
    let stem = word.split(['-', ':']).next().unwrap_or(&word);
    if DESTROY_VERBS.contains(&word.as_str()) || DESTROY_VERBS.contains(&stem) {
        CloudAction::Destroy
    } else if READ_VERBS
        .split_whitespace()
        .any(|look| look == word || look == stem)
    {
        CloudAction::Read
    } else {
        CloudAction::Change
    }
}

impl Classifier<'_> {
    pub(super) fn cloud(&mut self, call: ProgramCall<'_>) -> bool {
        match call.name {
            "kubectl" | "oc" | "k" | "helm" | "terraform" | "tofu" | "terragrunt" | "pulumi"
            | "eksctl" | "kops" | "flux" | "argocd" | "vault" | "consul" | "nomad"
            | "serverless" | "sls" | "cdk" | "sam" | "ansible" | "ansible-playbook" | "packer" => {
                self.cluster(call);
            }
            "aws" | "gcloud" | "az" | "doctl" | "gsutil" | "bq" | "heroku" | "fly" | "flyctl"
            | "vercel" | "netlify" | "wrangler" | "firebase" | "supabase" | "railway"
            | "linode-cli" | "hcloud" | "oci" | "ibmcloud" | "s3cmd" | "mc" | "b2" => {
                self.provider(call);
            }
            "gh" | "glab" | "hub" | "tea" => self.forge(call),
            "docker" | "podman" | "nerdctl" | "docker-compose" | "podman-compose" | "ctr"
            | "crictl" | "lxc" | "incus" | "virsh" | "vagrant" => {
                self.container(call);
            }
            "psql" | "mysql" | "mariadb" | "sqlite3" | "mongosh" | "mongo" | "redis-cli"
            | "clickhouse-client" | "duckdb" | "sqlcmd" | "cqlsh" | "dropdb" | "createdb"
            | "mysqladmin" => self.database(call),
            _ => return false,
        }
        true
    }

    fn cluster(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.facts.network = true;
        let options = "-n --namespace --context --kubeconfig -f --filename -l --selector -o --output --cluster --user -s --server";
        let Some((verb, rest)) = subcommand(args, options) else {
            return;
        };
        self.require_known_options(args, options);
        match (call.name, verb) {
            ("kubectl" | "oc" | "k", "exec" | "run" | "debug" | "attach") => {
                self.add_firm(
                    Category::CLOUD_CHANGE,
                    format!("{} {verb} runs something in the cluster", call.name),
                );
                if let Some(at) = rest.iter().position(|word| word.text == "--") {
                    let words = &rest[at + 1..];
                    self.run(ProgramCall { words, ..call });
                }
            }
            ("kubectl" | "oc" | "k", "scale")
                if rest.iter().any(|word| word.text == "--replicas=0") =>
            {
                self.gone(call.name, verb);
            }
            ("kubectl" | "oc" | "k", "get" | "describe")
                if rest.iter().any(|word| word.text.starts_with("secret")) =>
            {
                self.facts.secret = true;
                self.add_firm(Category::SECRET_READ, "reads secrets of the cluster");
            }
            ("kubectl" | "oc" | "k", "config" | "rollout")
            | ("helm", "repo" | "dependency")
            | ("terraform" | "tofu" | "terragrunt" | "pulumi", "state" | "workspace" | "stack") => {
                let inner = subcommand(rest, options).map_or("", |(verb, _)| verb);
                self.classify_verb(call.name, inner);
            }
            ("terraform" | "tofu" | "terragrunt", "apply")
                if rest
                    .iter()
                    .any(|word| word.text.trim_start_matches('-') == "destroy") =>
            {
                self.gone(call.name, verb);
            }
            ("terraform" | "tofu" | "terragrunt", "init" | "fmt") => {
                self.add_soft(Category::PROGRAM, format!("runs {} {verb}", call.name));
            }
            ("vault", "read" | "kv") => self.add_firm(Category::SECRET_READ, "reads secrets"),
            _ => self.classify_verb(call.name, verb),
        }
        self.require_known_arguments(args);
    }

    fn classify_verb(&mut self, name: &str, verb: &str) {
        match act(verb) {
            CloudAction::Read => {}
            CloudAction::Change => self.add_firm(
                Category::CLOUD_CHANGE,
                format!("{name} {verb} changes cloud or cluster resources"),
            ),
            CloudAction::Destroy => self.gone(name, verb),
        }
    }

    fn gone(&mut self, name: &str, verb: &str) {
        self.add_firm(
            Category::CLOUD_DESTROY,
            format!("{name} {verb} destroys cloud or cluster resources"),
        );
    }

    /// `aws ec2 terminate-instances`: the verb follows the service.
    fn provider(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.facts.network = true;
        let words = operands(
            args,
            "--region --profile --project --output -o --query --endpoint-url --resource-group -g --zone",
        );
        let verbs: Vec<&str> = words
            .iter()
            .take(5)
            .map(|word| word.text.as_str())
            .collect();
        if verbs.is_empty() {
            return;
        }
        if verbs
            .iter()
            .any(|verb| matches!(act(verb), CloudAction::Destroy))
            || has(args, "--delete")
        {
            self.gone(call.name, &verbs.join(" "));
            return;
        }
        let secret = verbs.iter().any(|verb| {
            verb.contains("secret")
                || verb.contains("print-access-token")
                || verb.contains("get-session-token")
                || verb.contains("get-parameter")
        });
        if secret {
            self.facts.secret = true;
            self.add_firm(
                Category::SECRET_READ,
                "reads credentials or secrets of the cloud",
            );
            return;
        }
        let verb = match call.name {
            "aws" => verbs.get(1).copied(),
            _ => verbs
                .iter()
                .skip(usize::from(verbs.len() > 1))
                .copied()
                .find(|verb| is_verb(verb)),
        };
        let looks = verb.is_some_and(|verb| matches!(act(verb), CloudAction::Read));
        let copies = verbs
            .iter()
            .any(|verb| matches!(*verb, "cp" | "sync" | "mv" | "put" | "upload"));
        if looks && !copies {
            self.require_known_arguments(args);
        } else {
            self.add_firm(
                Category::CLOUD_CHANGE,
                format!("{} {} changes cloud resources", call.name, verbs.join(" ")),
            );
        }
    }

    fn forge(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.facts.network = true;
        self.require_known_arguments(args);
        self.require_known_options(args, "-R --repo =--version =--help");
        if args
            .get(1)
            .is_some_and(|word| word.text.starts_with('-') && word.text != "--help")
        {
            self.add_firm(
                Category::UNPARSED,
                "options stand where the verb is expected",
            );
        }
        let words = operands(
            args,
            "-R --repo -H -f -F -X --method --jq -q -t --template --json -L --limit",
        );
        let verbs: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        match verbs.as_slice() {
            ["api", ..] => {
                let method = value(args, "-X --method").map(|word| word.text.to_uppercase());
                match method.as_deref() {
                    Some("DELETE") => self.gone(call.name, "api DELETE"),
                    Some("GET") | None if !has(args, "-f -F --field --raw-field --input") => {}
                    _ => self.add_firm(Category::CLOUD_CHANGE, "changes something on the forge"),
                }
            }
            ["auth", "token", ..] => self.add_firm(Category::SECRET_READ, "prints an access token"),
            [_, verb, ..]
                if matches!(act(verb), CloudAction::Destroy)
                    || matches!(*verb, "archive" | "close") =>
            {
                self.gone(call.name, &verbs[..2].join(" "));
            }
            [
                _,
                "view" | "list" | "status" | "diff" | "checks" | "watch" | "ls",
                ..,
            ]
            | ["search" | "status" | "browse" | "version" | "help", ..]
            | [] => {}
            [_, "clone" | "checkout" | "download", ..] => self.writes = true,
            _ => self.add_firm(
                Category::CLOUD_CHANGE,
                format!(
                    "{} {} changes something on the forge",
                    call.name,
                    verbs.iter().take(2).copied().collect::<Vec<_>>().join(" ")
                ),
            ),
        }
    }

    fn container(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let options =
            "-H --host --context -c --config -l --log-level -f --file -p --project-name --profile";
        let Some((verb, rest)) = subcommand(args, options) else {
            return;
        };
        self.require_known_options(args, &format!("{options} =--debug =-D"));
        let (verb, rest, compose) = match verb {
            "compose" => match subcommand(rest, options) {
                Some((verb, rest)) => (verb, rest, true),
                None => return,
            },
            _ => (verb, rest, call.name.ends_with("-compose")),
        };
        let (verb, rest) = match verb {
            "container" | "image" | "volume" | "network" | "system" | "builder" | "pod" => {
                subcommand(rest, "").unwrap_or((verb, rest))
            }
            _ => (verb, rest),
        };
        match verb {
            "restart" | "stop" | "kill" | "down" if compose => {
                self.add_firm(Category::COMPOSE_LIFECYCLE, "stops or restarts containers");
            }
            "restart" | "stop" | "kill" => {
                self.add_firm(Category::DOCKER_LIFECYCLE, "stops or restarts containers");
            }
            "rm" | "rmi" | "prune" | "remove" | "delete" | "destroy" | "undefine" => {
                self.add_firm(
                    Category::CLOUD_DESTROY,
                    "removes containers, images or volumes",
                );
            }
            "ps" | "images" | "logs" | "inspect" | "ls" | "list" | "version" | "info" | "stats"
            | "top" | "port" | "diff" | "history" | "events" | "df" | "config" => {
                self.require_known_arguments(args);
            }
            "login" | "push" => self.add_firm(
                Category::NETWORK_SEND,
                format!("{} {verb} talks to a registry", call.name),
            ),
            _ => {
                self.add_firm(
                    Category::CONTAINER,
                    format!(
                        "{} {verb} runs something with reach into the host",
                        call.name
                    ),
                );
                // A command inside may still see the host through mounts.
                for at in 0..rest.len().min(24) {
                    let words = &rest[at..];
                    let name = crate::shell::text::basename(&words[0].text).to_lowercase();
                    let mounted = has(rest, "-v --volume --mount --privileged --pid");
                    if mounted {
                        self.hardline(ProgramCall {
                            name: &name,
                            words,
                            ..call
                        });
                    }
                }
            }
        }
    }

    fn database(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        if matches!(call.name, "dropdb") {
            self.add_firm(Category::SQL_DROP, "drops a database");
            return;
        }
        let text: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
        let mut text = text.join(" ");
        if let Some(input) = &call.command.input {
            text.push(' ');
            text.push_str(&input.text);
        }
        for (pipe, at) in &call.command.pipes {
            let before = call.script.commands.iter().filter(|other| {
                other
                    .pipes
                    .iter()
                    .any(|(other, place)| other == pipe && place < at)
            });
            for word in before.flat_map(|other| other.words.iter().chain(&other.input)) {
                text.push(' ');
                text.push_str(&word.text);
            }
        }
        self.sql(&text);
        let upper = text.to_uppercase();
        let clears = [
            "FLUSHALL",
            "FLUSHDB",
            "DROPDATABASE",
            ".DROP(",
            "DELETEMANY({})",
            "\\!",
            ".SHELL",
            ".SYSTEM",
        ];
        if clears.iter().any(|word| upper.contains(word)) {
            self.add_firm(
                Category::DATABASE,
                "destroys data or runs programs from a database client",
            );
        }
        if call.name == "sqlite3"
            && let Some(file) = operands(args, "-cmd -init").first()
        {
            let reads = upper.contains("SELECT")
                || upper.contains(".SCHEMA")
                || upper.contains(".TABLES")
                || upper.contains("PRAGMA");
            let changes = [
                "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "ATTACH", "REPLACE",
                ".IMPORT", ".OUTPUT", ".ONCE", ".READ", ".SAVE", "VACUUM",
            ];
            if reads
                && !changes.iter().any(|word| upper.contains(word))
                && !call.args().iter().any(|word| word.dynamic)
            {
                return;
            }
            self.write(file, WriteKind::Create);
        }
        self.add_soft(
            Category::DATABASE,
            format!("{} may change a database", call.name),
        );
    }
}
