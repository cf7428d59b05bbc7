//! Programs with fully known options, and their operands.

use crate::shell::ShellWord;

/// The operands of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandKind {
    /// Text, or names that are not opened.
    Text,
    /// Files whose contents are read.
    Reads,
    /// Files that are created or changed.
    Writes,
}

/// A program and its options.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelledProgram {
    pub names: &'static str,
    pub kind: OperandKind,
    pub options: OptionModel,
}

/// Modelled options. Any other option asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionModel {
    /// Letters without a value; `*`: every option of the program is harmless.
    pub flags: &'static str,
    /// Letters that take a value.
    pub valued: &'static str,
    /// Long options; those that end in `:` take the next word unless they carry a value.
    pub long: &'static str,
}

impl OptionModel {
    pub(super) const fn new(flags: &'static str, valued: &'static str, long: &'static str) -> Self {
        Self {
            flags,
            valued,
            long,
        }
    }

    pub(super) fn all_harmless(&self) -> bool {
        self.flags == "*"
    }
}

const fn row(
    names: &'static str,
    kind: OperandKind,
    flags: &'static str,
    valued: &'static str,
    long: &'static str,
) -> ModelledProgram {
    ModelledProgram {
        names,
        kind,
        options: OptionModel::new(flags, valued, long),
    }
}

use OperandKind::{Reads, Text, Writes};

pub(super) const PROGRAMS: &[ModelledProgram] = &[
    row(
        "echo ls dir vdir stat pwd basename dirname realpath readlink whoami id groups uname arch uptime free df pgrep pidof \
         nproc which whereis seq sleep expr factor numfmt tty logname printenv locale getconf lscpu lsblk lsmod vmstat iostat \
         mpstat pstree sw_vers cal yes true false type pathchk tr eza exa",
        Text,
        "*",
        "",
        "",
    ),
    row(
        "cat tac rev nl head tail cut paste join fold fmt expand unexpand comm cmp od tsort wc md5sum sha1sum sha224sum \
         sha256sum sha384sum sha512sum b2sum cksum sum column look hexdump users who w",
        Reads,
        "*",
        "",
        "",
    ),
    row(
        "du",
        Text,
        "abcDhHklLmPsSx0",
        "dBt",
        "--max-depth: --summarize --human-readable --apparent-size --exclude: --total --all --bytes",
    ),
    row("lsof", Text, "nPiltaUR", "pucg", ""),
    row("lspci", Text, "vknmt", "", ""),
    row("lsusb", Text, "vt", "", ""),
    row("strings", Reads, "afow", "nte", "--all --bytes: --radix:"),
    row("zcat bzcat xzcat zstdcat lz4cat", Reads, "fvq", "", ""),
    row(
        "readelf",
        Reads,
        "ahlSsrdnVWteuIgLD",
        "xp",
        "--all --headers --symbols --sections --segments --dynamic --wide",
    ),
    row(
        "objdump",
        Reads,
        "dDhxstTrRfpaClw",
        "jM",
        "--disassemble --all-headers --syms --demangle --section:",
    ),
    row(
        "nm",
        Reads,
        "aACDgnpPrSuvo",
        "",
        "--demangle --dynamic --extern-only --defined-only --undefined-only --size-sort",
    ),
    row("size", Reads, "ABdotx", "", ""),
    row(
        "tree",
        Text,
        "adfilxqNQpugshDFvtcUrSnCAXJ",
        "LPI",
        "--du --prune --dirsfirst --filelimit: --noreport --gitignore --charset: --matchdirs",
    ),
    row(
        "file",
        Text,
        "bikLhNnpr0",
        "",
        "--brief --mime --mime-type --mime-encoding --dereference",
    ),
    row("iconv", Reads, "cl", "ft", "--from-code: --to-code: --list"),
    row(
        "base64 base32",
        Reads,
        "di",
        "w",
        "--decode --wrap: --ignore-garbage",
    ),
    row("less more", Reads, "RNSFXinme", "", ""),
    row(
        "bat batcat",
        Reads,
        "pnA",
        "lr",
        "--plain --paging: --style: --color: --language: --line-range: --number --decorations:",
    ),
    row(
        "diff",
        Reads,
        "abBcdeEinNpqrstTuwy0123456789",
        "CUxIFLW",
        "--unified --brief --color --recursive --ignore-all-space --ignore-space-change --ignore-blank-lines --side-by-side --exclude: --width: --context --new-file --suppress-common-lines --text --strip-trailing-cr --minimal",
    ),
    row("diff3 sdiff pr hexyl tokei dust duf", Reads, "", "", ""),
    row(
        "sort",
        Reads,
        "bcCdfgiMhnrRsuVzm",
        "ktS",
        "--reverse --unique --numeric-sort --key: --field-separator: --ignore-case --human-numeric-sort --version-sort --general-numeric-sort --check --stable --zero-terminated --parallel:",
    ),
    row(
        "rg",
        Reads,
        "inlcowvxFSsHINPUaLpu.0q",
        "egtTABCmjMdr",
        "--files --type: --glob: --hidden --no-ignore --count --json --multiline --pcre2 --sort: --stats --files-with-matches --files-without-match --ignore-case --line-number --no-heading --heading --color: --max-count: --context: --after-context: --before-context: --word-regexp --fixed-strings --smart-case --type-list --no-messages --max-depth: --only-matching --replace: --trim --max-columns: --max-filesize: --iglob: --regexp: --no-filename --with-filename --no-line-number --type-not: --column --vimgrep --invert-match --quiet --follow",
    ),
    row(
        "grep egrep fgrep",
        Reads,
        "EFGPivwxcLlqsbHhnTUzraoRyZIu0123456789",
        "efmABCDd",
        "--include: --exclude: --exclude-dir: --color --colour --line-number --ignore-case --recursive --count --files-with-matches --files-without-match --only-matching --no-filename --with-filename --extended-regexp --fixed-strings --perl-regexp --basic-regexp --word-regexp --line-regexp --invert-match --max-count: --after-context: --before-context: --context: --text --null --quiet --silent --no-messages --regexp: --binary-files: --byte-offset --label:",
    ),
    row(
        "fd fdfind",
        Text,
        "HIsipaL0glu1",
        "tedEjc",
        "--type: --extension: --hidden --max-depth: --min-depth: --exclude: --no-ignore --absolute-path --glob --full-path --follow --print0 --color:",
    ),
    row(
        "dig nslookup host whois traceroute tracepath",
        Text,
        "",
        "",
        "",
    ),
    row("ping ping6", Text, "46nq", "cWiw", ""),
    row("top", Text, "bcH1", "ndpuo", ""),
    row(
        "journalctl",
        Text,
        "fbkrxeqaN",
        "unpot",
        "--no-pager --since: --until: --unit: --user --boot --lines: --output: --reverse --dmesg --priority: --follow --grep: --utc --all --quiet --disk-usage --list-boots --user-unit: --system",
    ),
    row("mkdir", Writes, "pv", "m", "--parents --verbose --mode:"),
    row("rmdir", Writes, "pv", "", "--parents --verbose"),
    row(
        "touch",
        Writes,
        "acmh",
        "drt",
        "--no-create --date: --reference:",
    ),
    row("tee", Writes, "aip", "", "--append"),
    row("rm", Writes, "fivd", "", "--force --verbose"),
    row("mkfifo", Writes, "", "m", ""),
];

/// Programs and builtins with a model of their own.
pub(super) const SPECIAL: &str = "cd pushd popd exit return break continue : shift wait jobs umask ulimit times dirs hash history help set \
    export declare typeset local readonly unset read printf test [ exec command builtin trap sh bash dash timeout nice nohup time \
    stdbuf env watch xargs flock find sed gsed awk gawk mawk nawk git curl wget tar bsdtar gtar cp mv ln chmod mktemp dd uniq xxd \
    split patch unzip zip gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd lz4 rsync date hostname dmesg jq man whatis apropos openssl sqlite3 getent crontab \
    sysctl mount ip ifconfig systemctl service docker podman kubectl gh aws gcloud az helm dpkg apt apt-get apt-cache brew rpm pacman \
    npm pnpm yarn pip pip3 uv hostnamectl timedatectl localectl resolvectl source . eval let mapfile readarray compgen complete alias \
    enable bind shopt getopts ps";

pub(super) fn find(name: &str) -> Option<&'static ModelledProgram> {
    PROGRAMS
        .iter()
        .find(|program| program.names.split_whitespace().any(|known| known == name))
}

pub(super) fn is_modelled(name: &str) -> bool {
    find(name).is_some() || SPECIAL.split_whitespace().any(|known| known == name)
}

/// Parsed arguments of a program.
#[derive(Debug, Default)]
pub(super) struct ParsedArguments<'w> {
    pub operands: Vec<&'w ShellWord>,
    /// Options in order: the letter or long name, with its value, if any.
    pub given: Vec<(String, Option<ShellWord>)>,
}

impl ParsedArguments<'_> {
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.given
            .iter()
            .any(|(name, _)| names.contains(&name.as_str()))
    }

    pub(super) fn values(&self, names: &[&str]) -> impl Iterator<Item = &ShellWord> {
        self.given
            .iter()
            .filter(move |(name, _)| names.contains(&name.as_str()))
            .filter_map(|(_, value)| value.as_ref())
    }
}

/// Whether a word may be an option: its beginning is unknown, or it may become several words.
pub(super) fn may_be_option(word: &ShellWord) -> bool {
    word.text.starts_with(crate::shell::UNKNOWN)
        || (word.dynamic && word.text.is_empty())
        || is_split(word)
        || (word.glob && word.text.starts_with(['*', '?', '[', '-']) && !names_its_option(word))
        || (word.dynamic && word.text.starts_with('-'))
}

/// An unquoted expansion: the shell splits it, so it may contain options.
pub(super) fn is_split(word: &ShellWord) -> bool {
    word.dynamic && word.glob
}

/// `--include=*.rs`: whatever files it matches, all of them are this option.
fn names_its_option(word: &ShellWord) -> bool {
    word.text.starts_with("--")
        && word
            .text
            .find('=')
            .is_some_and(|end| !word.text[..end].contains(['*', '?', '[']))
}

/// The value of an option as a separate word. One that may become several could contain options.
fn next_value(args: &[ShellWord], at: usize) -> Result<Option<ShellWord>, String> {
    match args.get(at) {
        Some(word) if word.glob => {
            Err("the value of an option may become several words".to_owned())
        }
        word => Ok(word.cloned()),
    }
}

/// Parses `args`; the error says what is not modelled.
pub(super) fn parse_arguments<'w>(
    args: &'w [ShellWord],
    options: &OptionModel,
) -> Result<ParsedArguments<'w>, String> {
    let mut found = ParsedArguments::default();
    let mut at = 0;
    while let Some(word) = args.get(at) {
        at += 1;
        let text = word.text.as_str();
        if text == "--" && !word.dynamic {
            found.operands.extend(&args[at..]);
            break;
        }
        if may_be_option(word) && !options.all_harmless() {
            return Err("an argument that is only known when it runs may be an option".to_owned());
        }
        if text.len() < 2 || !text.starts_with('-') || word.dynamic {
            found.operands.push(word);
            continue;
        }
        if options.all_harmless() {
            found
                .given
                .push((text.to_owned(), Some(after_option(word))));
            continue;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(cut(word, value))),
                None => (long, None),
            };
            let flag = format!("--{name}");
            let takes = format!("--{name}:");
            let value = if options.long.split_whitespace().any(|known| known == takes) {
                let value = if value.is_some() {
                    value
                } else {
                    at += 1;
                    next_value(args, at - 1)?
                };
                Some(value.ok_or_else(|| format!("{flag} lacks its value"))?)
            } else if options.long.split_whitespace().any(|known| known == flag) {
                value
            } else {
                return Err(format!("the option {flag} is not known to be harmless"));
            };
            found.given.push((flag, value));
            continue;
        }
        for (offset, letter) in text.char_indices().skip(1) {
            if options.valued.contains(letter) && letter != ' ' {
                let rest = &text[offset + letter.len_utf8()..];
                let value = if rest.is_empty() {
                    at += 1;
                    next_value(args, at - 1)?
                } else {
                    Some(cut(word, rest))
                };
                let value = value.ok_or_else(|| format!("-{letter} lacks its value"))?;
                found.given.push((format!("-{letter}"), Some(value)));
                break;
            }
            if !options.flags.contains(letter) || letter == ' ' {
                return Err(format!("the option -{letter} is not known to be harmless"));
            }
            found.given.push((format!("-{letter}"), None));
        }
    }
    Ok(found)
}

fn cut(word: &ShellWord, text: &str) -> ShellWord {
    ShellWord {
        text: text.to_owned(),
        ..word.clone()
    }
}

/// The possible value of an unknown option: `--x=VALUE`, `-xVALUE`.
fn after_option(word: &ShellWord) -> ShellWord {
    let text = word.text.as_str();
    let value = match text.split_once('=') {
        Some((_, value)) => value,
        None if text.starts_with("--") => "",
        None => text.get(2..).unwrap_or_default(),
    };
    cut(word, value)
}
