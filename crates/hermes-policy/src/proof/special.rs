//! Programs with unusual arguments.

use super::evaluate::StdinFeed;
use super::paths::is_many;
use super::table::{OptionModel, may_be_option, parse_arguments};
use super::wrappers::below;
use super::{ProofResult, Prover, refuse};
use crate::shell::ShellWord;

const FIND_ALONE: &str = "-print -print0 -ls -empty -true -false -depth -mount -xdev -follow -readable -writable -executable -nouser \
    -nogroup -prune -quit -o -or -a -and -not ! ( ) , -daystart -noleaf -ignore_readdir_race";
const FIND_VALUED: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime -mmin -atime \
    -amin -ctime -cmin -newer -anewer -cnewer -samefile -maxdepth -mindepth -user -group -uid -gid -perm -links -inum -lname -ilname \
    -fstype -printf -used";
/// Options of programs that query a service, with and without a value.
const ASK_FLAGS: &str = "-a -A -l -q --all --all-namespaces --json --no-pager --quiet --no-trunc --installed --upgradable --global -g --plain \
    --full --failed --user --system --no-legend --outdated";
const ASK_VALUED: &str =
    "-n --namespace --region --query --tail --since --limit -L --state --lines --type --depth";
const FORMATS: [&str; 8] = [
    "json", "yaml", "wide", "name", "table", "text", "short", "plain",
];

impl Prover<'_, '_> {
    pub(super) fn special(&mut self, name: &str, args: &[ShellWord]) -> ProofResult {
        match name {
            "find" => self.find(args),
            "sed" | "gsed" => self.sed(args),
            "awk" | "gawk" | "mawk" | "nawk" => self.awk(args),
            "jq" => self.jq(args),
            "sqlite3" => self.sqlite(args),
            "git" => self.git(args),
            "curl" => self.curl(args),
            "wget" => self.wget(args),
            "tar" | "bsdtar" | "gtar" => self.tar(args),
            "gzip" | "gunzip" | "bzip2" | "bunzip2" | "xz" | "unxz" | "zstd" | "unzstd" | "lz4" => {
                self.compress(name, args)
            }
            "zip" => self.zip(args),
            "unzip" => self.unzip(args),
            "cp" | "mv" | "ln" => self.copy(name, args),
            "rsync" => self.rsync(args),
            "chmod" => self.chmod(args),
            "mktemp" => self.mktemp(args),
            "dd" => self.dd(args),
            "uniq" => self.uniq(args),
            "xxd" => {
                // Its options are words, not letters: `-ps` is not `-p -s`.
                let words: Vec<ShellWord> = args
                    .iter()
                    .map(|word| match word.text.as_str() {
                        "-ps" | "-plain" => ShellWord::plain("-p"),
                        _ => word.clone(),
                    })
                    .collect();
                let one = |word: &&ShellWord| {
                    let text = word.text.as_str();
                    text.starts_with('-')
                        && text.len() > 2
                        && !text[2..].chars().all(|c| c.is_ascii_digit())
                };
                if words.iter().any(|word| one(&word)) {
                    return refuse("an option of xxd is not known to be harmless");
                }
                let found = parse_arguments(&words, &OptionModel::new("abeEiupr", "clgsno", ""))
                    .or_else(refuse)?;
                self.reads_then_writes(&found.operands)
            }
            "split" => self.split(args),
            "patch" => self.patch(args),
            "npm" if self.has_around(&[".npmrc"]) => {
                refuse("the settings of this project may name a program that npm runs")
            }
            "gh" => {
                // It asks git about the repository.
                let dirs = self.classifier.directories().to_vec();
                self.repositories_are_plain(&dirs, false)?;
                Self::questions(name, args)
            }
            _ => Self::questions(name, args),
        }
    }

    /// Programs that only answer queries here: every word is known, every option is listed.
    fn questions(name: &str, args: &[ShellWord]) -> ProofResult {
        if args.iter().any(|word| word.dynamic || word.glob) {
            return refuse("an argument that is only known when it runs may be an option");
        }
        let texts: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
        let harmless = match name {
            "date" => {
                let options = OptionModel::new(
                    "uRI",
                    "d",
                    "--utc --iso-8601 --rfc-3339 --date: --universal",
                );
                let found = parse_arguments(args, &options).or_else(refuse)?;
                found.operands.iter().all(|word| word.text.starts_with('+'))
            }
            "ip" => shows_network(&texts),
            "ps" => shows_no_variables(&texts),
            "systemctl" | "service" | "docker" | "podman" | "kubectl" | "gh" | "aws" | "gcloud"
            | "az" | "helm" | "apt" | "apt-get" | "apt-cache" | "brew" | "npm" | "pip" | "pip3"
            | "uv" => is_service_query(&texts) && !reveals_secrets(name, &texts),
            _ => is_system_query(name, &texts),
        };
        if harmless {
            Ok(())
        } else {
            refuse(format!(
                "{name} with these arguments is not known to be harmless"
            ))
        }
    }

    fn find(&mut self, args: &[ShellWord]) -> ProofResult {
        let mut at = 0;
        // What precedes a command decides for which files it runs.
        let mut before: Vec<ShellWord> = Vec::new();
        while let Some(word) = args.get(at) {
            at += 1;
            let text = word.text.as_str();
            let from = at - 1;
            if may_be_option(word) || word.dynamic {
                return refuse("an argument that is only known when it runs may be an option");
            }
            let listed = |list: &str| list.split_whitespace().any(|known| known == text);
            if listed(FIND_ALONE) || matches!(text, "-L" | "-H" | "-P") || !text.starts_with('-') {
                before.push(word.clone());
                continue;
            }
            match text {
                "-exec" | "-execdir" => {
                    let rest = args.get(at..).unwrap_or_default();
                    if text == "-execdir" {
                        return refuse("find runs a command in directories that it finds");
                    }
                    // A `+` ends the command only after `{}`.
                    let end = rest.iter().enumerate().position(|(place, word)| {
                        word.text == ";"
                            || word.text == "+" && place > 0 && rest[place - 1].text == "{}"
                    });
                    let Some(end) = end else {
                        return refuse("find runs a command that has no end");
                    };
                    self.found_command(&before, &rest[..end])?;
                    at += end + 1;
                }
                "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                    match args.get(at) {
                        Some(target) => self.may_write(target)?,
                        None => return refuse("find lacks the name of a file"),
                    }
                    at += if text == "-fprintf" { 2 } else { 1 };
                }
                _ if listed(FIND_VALUED) || is_newer(text) => {
                    at += 1;
                    before.extend(args.iter().take(at).skip(from).cloned());
                }
                _ => {
                    return refuse(format!(
                        "the option {text} of find is not known to be harmless"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A command that find runs for its matches.
    fn found_command(&mut self, args: &[ShellWord], command: &[ShellWord]) -> ProofResult {
        let (starts, narrowed) = find_starts(args);
        let mut words = Vec::new();
        for word in command {
            if word.text == "{}" {
                words.extend(starts.iter().map(below));
            } else if word.text.contains("{}") {
                return refuse("find puts a name into the middle of an argument");
            } else {
                words.push(word.clone());
            }
        }
        let before = std::mem::replace(&mut self.narrowed, narrowed);
        let result = self.run(&words, &StdinFeed::Unknown);
        self.narrowed = before;
        result
    }

    fn uniq(&mut self, args: &[ShellWord]) -> ProofResult {
        let found = parse_arguments(
            args,
            &OptionModel::new("cdDiuz", "fsw", "--count --repeated --unique --ignore-case"),
        )
        .or_else(refuse)?;
        self.reads_then_writes(&found.operands)
    }

    /// The first file is read, the second one is written.
    fn reads_then_writes(&mut self, operands: &[&ShellWord]) -> ProofResult {
        match operands {
            [] => Ok(()),
            [file] if is_many(file) => refuse("the second of several names would be written to"),
            [file] => self.may_read(file),
            [file, target, ..] => self.may_read(file).and_then(|()| self.may_write(target)),
        }
    }
}

/// The start directories of a `find`, and whether its tests exclude every secret name.
pub(super) fn find_starts(args: &[ShellWord]) -> (Vec<ShellWord>, bool) {
    let starts: Vec<ShellWord> = args
        .iter()
        .skip_while(|word| matches!(word.text.as_str(), "-L" | "-H" | "-P"))
        .take_while(|word| !word.text.starts_with(['-', '(', '!']))
        .cloned()
        .collect();
    let texts: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
    let simple = !texts.iter().any(|text| {
        matches!(
            *text,
            "-o" | "-or" | "!" | "-not" | "," | "-prune" | "(" | "-L" | "-follow"
        )
    });
    let narrowed = simple
        && texts.windows(2).any(|pair| {
            matches!(pair[0], "-name" | "-iname")
                && Prover::leaves_out_secrets(&pair[1].to_lowercase())
        });
    let starts = if starts.is_empty() {
        vec![ShellWord::plain(".")]
    } else {
        starts
    };
    (starts, narrowed)
}

/// Whether a `find` only prints the names of its matches.
pub(super) fn prints_only_names(args: &[ShellWord]) -> bool {
    !args.iter().any(|word| {
        matches!(
            word.text.as_str(),
            "-printf" | "-ls" | "-exec" | "-execdir" | "-fprint" | "-fprint0" | "-fprintf" | "-fls"
        )
    })
}

/// `-newermt` and similar tests.
fn is_newer(text: &str) -> bool {
    text.strip_prefix("-newer").is_some_and(|kind| {
        let letters: Vec<char> = kind.chars().collect();
        matches!(
            letters.as_slice(),
            ['a' | 'B' | 'c' | 'm', 'a' | 'B' | 'c' | 'm' | 't']
        )
    })
}

fn is_plain_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    !text.starts_with('-') && text.chars().all(plain)
}

/// Queries about this machine, word by word.
fn is_system_query(name: &str, texts: &[&str]) -> bool {
    let plain = |texts: &[&str]| texts.iter().all(|text| is_plain_word(text));
    match (name, texts) {
        (
            "hostname" | "dmesg" | "mount" | "ifconfig" | "hostnamectl" | "timedatectl"
            | "localectl" | "resolvectl",
            [],
        )
        | ("dmesg", ["-T" | "-H"])
        | ("hostname", ["-f" | "-s" | "-i" | "-I"])
        | ("hostnamectl" | "timedatectl" | "localectl" | "resolvectl", ["status"])
        | ("crontab", ["-l"])
        | ("openssl", ["version"]) => true,
        ("man" | "whatis" | "apropos", texts) => !texts.is_empty() && plain(texts),
        ("openssl", ["rand", "-hex" | "-base64", count]) => {
            count.chars().all(|c| c.is_ascii_digit())
        }
        (
            "getent",
            [
                "passwd" | "group" | "hosts" | "services" | "protocols",
                rest @ ..,
            ],
        )
        | ("rpm", ["-qa" | "-q" | "-qi" | "-ql", rest @ ..])
        | ("pacman", ["-Q" | "-Qi" | "-Ql" | "-Ss" | "-Si", rest @ ..])
        | ("sysctl", ["-a" | "-n", rest @ ..]) => plain(rest),
        ("sysctl", texts) => plain(texts),
        (
            "dpkg",
            [
                "-l" | "-L" | "-s" | "-S" | "--list" | "--status" | "--listfiles" | "--search",
                rest @ ..,
            ],
        ) => rest.iter().all(|text| !text.starts_with('-')),
        _ => false,
    }
}

/// `ip addr show dev eth0`: verbs can be abbreviated, so only whole forms count.
fn shows_network(texts: &[&str]) -> bool {
    let flags = ["-4", "-6", "-br", "-brief", "-c", "-j", "-s"];
    let rest: Vec<&str> = texts
        .iter()
        .copied()
        .skip_while(|text| flags.contains(text))
        .collect();
    let object = |text: &str| {
        [
            "a", "addr", "address", "r", "route", "l", "link", "n", "neigh", "rule",
        ]
        .contains(&text)
    };
    match rest.as_slice() {
        [first] | [first, "show" | "list" | "ls"] => object(first),
        [first, "show" | "list", "dev", name] | [first, "show", name] => {
            object(first) && is_plain_word(name)
        }
        _ => false,
    }
}

/// Words of a question to a service: which verbs only look is decided elsewhere.
/// Options of `ps` that take the next word.
const PS_VALUED: &str =
    "-o -O -p -u -U -C -t -g -G -s -q --sort --ppid --pid --user --format --columns --rows --lines";

/// `ps` prints the variables of other processes if a word without a dash contains an `e`.
fn shows_no_variables(texts: &[&str]) -> bool {
    let mut is_value = false;
    texts.iter().all(|text| {
        let was_value = std::mem::replace(
            &mut is_value,
            PS_VALUED.split_whitespace().any(|known| known == *text)
                || (text.starts_with('-') && !text.starts_with("--") && text.ends_with('o')),
        );
        if was_value || text.starts_with("--") {
            !text.contains("env")
        } else if let Some(letters) = text.strip_prefix('-') {
            // Letters that it does not accept together are parsed as without the dash.
            !letters.contains('e') || letters.chars().all(|c| "eAfFlyLHjwZMTo".contains(c))
        } else {
            !text.contains(['e', 'E'])
        }
    })
}

/// Whether the answer contains keys: requested by name, or part of everything stored.
fn reveals_secrets(name: &str, texts: &[&str]) -> bool {
    let telling = [
        "secret",
        "token",
        "credential",
        "password",
        "passwd",
        "keyvault",
        "access-key",
        "kubeconfig",
    ];
    let is_telling = |text: &&str| {
        let text = text.to_ascii_lowercase();
        telling.iter().any(|word| text.contains(word))
    };
    // A list of names contains none.
    let lists = texts.contains(&"list") || texts.contains(&"list-secrets");
    let verbs: Vec<&str> = texts
        .iter()
        .copied()
        .filter(|text| !text.starts_with('-'))
        .collect();
    let whole = matches!(
        (name, verbs.as_slice()),
        ("aws", ["configure", ..])
            | ("helm", ["get", ..])
            | (
                "docker" | "podman",
                ["compose" | "inspect", ..] | ["container", "inspect", ..],
            )
            | ("gh", ["browse", ..])
    );
    whole || (!lists && texts.iter().any(is_telling))
}

fn is_service_query(texts: &[&str]) -> bool {
    let mut at = 0;
    while let Some(text) = texts.get(at) {
        at += 1;
        if !text.starts_with('-') {
            continue;
        }
        let (name, value) = text
            .split_once('=')
            .map_or((*text, None), |(name, value)| (name, Some(value)));
        let listed = |list: &str| list.split_whitespace().any(|known| known == name);
        let digits = name.len() > 1 && name[1..].chars().all(|c| c.is_ascii_digit());
        if listed(ASK_FLAGS) && value.is_none() || digits {
            continue;
        }
        let value = value.or_else(|| {
            at += 1;
            texts.get(at - 1).copied()
        });
        let formats = matches!(name, "-o" | "--output" | "--format");
        let known = match value {
            None => false,
            Some(value) if formats => FORMATS.contains(&value),
            Some(value) => listed(ASK_VALUED) && !value.starts_with('-'),
        };
        if !known {
            return false;
        }
    }
    true
}
