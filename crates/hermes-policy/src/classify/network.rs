//! Programs that access other machines.

use super::args::{has, operands, value};
use super::place::WriteKind;
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::shell::ShellWord;

/// Addresses at which clouds provide credentials.
const METADATA: [&str; 5] = [
    "169.254.169.254",
    "169.254.170.2",
    "metadata.google.internal",
    "fd00:ec2::254",
    "100.100.100.200",
];

impl Classifier<'_> {
    pub(super) fn network(&mut self, call: ProgramCall<'_>) -> bool {
        let args = call.args();
        match call.name {
            "curl" => self.curl(args),
            "wget" => self.wget(args),
            "http" | "https" | "xh" | "aria2c" | "fetch" | "lynx" | "w3m" | "links" => {
                self.facts.network = true;
                self.addresses(args);
                self.add_soft(
                    Category::NETWORK,
                    format!("{} talks to the network", call.name),
                );
            }
            "nc" | "ncat" | "netcat" | "socat" | "telnet" => self.raw(call),
            "scp" | "sftp" | "ftp" | "lftp" | "tftp" | "rclone" | "croc" | "wormhole"
            | "magic-wormhole" => {
                self.facts.network = true;
                if has(args, "-S -o") {
                    self.add_firm(Category::EXEC_FLAG, "is set to run a program");
                }
                self.add_firm(
                    Category::REMOTE_HOST,
                    format!("{} copies to or from another machine", call.name),
                );
            }
            "mail" | "mailx" | "sendmail" | "mutt" | "msmtp" | "swaks" => {
                self.facts.network = true;
                self.add_firm(Category::NETWORK_SEND, "sends mail");
            }
            "dig" | "nslookup" | "host" | "ping" | "ping6" | "traceroute" | "tracepath"
            | "whois" | "mtr" => {
                self.facts.network = true;
                self.require_known_arguments(args);
            }
            "nmap" | "masscan" | "hydra" | "sqlmap" | "tcpdump" | "tshark" => {
                self.facts.network = true;
                self.add_firm(
                    Category::NETWORK,
                    format!("{} probes or listens to the network", call.name),
                );
            }
            "ssh-copy-id" | "ssh-add" | "ssh-agent" => {
                self.add_firm(
                    Category::PRIVILEGE,
                    format!("{} gives access by keys", call.name),
                );
            }
            "ngrok" | "cloudflared" | "tailscale" | "bore" | "frpc" | "chisel" => {
                self.facts.network = true;
                self.add_firm(Category::NETWORK_SEND, "opens this machine to the network");
            }
            _ => return false,
        }
        true
    }

    fn addresses(&mut self, args: &[ShellWord]) {
        if args
            .iter()
            .any(|word| METADATA.iter().any(|address| word.text.contains(address)))
        {
            self.facts.secret = true;
            self.add_firm(
                Category::SECRET_READ,
                "asks the cloud for the machine's credentials",
            );
        }
        for word in args {
            if let Some(path) = word.text.strip_prefix("file://") {
                let path = ShellWord {
                    text: path.to_owned(),
                    ..word.clone()
                };
                self.read(&path);
            }
        }
    }

    fn curl(&mut self, args: &[ShellWord]) {
        self.facts.network = true;
        self.addresses(args);
        self.require_known_arguments(args);
        let sends = "-d --data --data-raw --data-binary --data-ascii --data-urlencode -F --form --form-string -T --upload-file --json";
        if has(args, sends) {
            self.add_firm(Category::NETWORK_SEND, "curl sends data");
        }
        let method = value(args, "-X --request").map(|word| word.text.to_uppercase());
        if method.is_some_and(|method| !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS")) {
            self.add_firm(Category::NETWORK_SEND, "curl changes something on a server");
        }
        // `-d @file` and `-T file` read the file.
        for word in args {
            let text = word.text.trim_start_matches(['@', '<']);
            let file = text.split_once("=@").map_or(text, |(_, file)| file);
            let file = ShellWord {
                text: file.to_owned(),
                ..word.clone()
            };
            if file.text != word.text {
                self.read(&file);
            }
        }
        if args.iter().any(|word| word.text.contains("%output{")) {
            self.add_firm(
                Category::OUTSIDE_WRITE,
                "curl writes to a file that its format names",
            );
        }
        if has(args, "-K --config") {
            self.add_soft(Category::DYNAMIC_ARGUMENT, "options come from a file");
        }
        for option in [
            "-o --output",
            "-D --dump-header",
            "-c --cookie-jar",
            "--trace --trace-ascii",
            "--etag-save",
            "--output-dir",
            "--hsts",
            "--alt-svc",
            "--stderr",
            "--libcurl",
        ] {
            if let Some(target) = value(args, option).filter(|target| target.text != "-") {
                self.write(&target, WriteKind::Create);
                self.fetched(&target);
            }
        }
        if has(args, "-O --remote-name --remote-name-all") {
            self.writes = true;
            self.named_like_address(args);
        }
    }

    fn wget(&mut self, args: &[ShellWord]) {
        self.facts.network = true;
        self.addresses(args);
        self.require_known_arguments(args);
        if has(
            args,
            "--post-data --post-file --body-data --body-file --method",
        ) {
            self.add_firm(Category::NETWORK_SEND, "wget sends data");
        }
        if let Some(file) = value(args, "--post-file --body-file") {
            self.read(&file);
        }
        if has(args, "--use-askpass -e --execute") {
            self.add_firm(Category::EXEC_FLAG, "wget is set to run a program");
        }
        match value(args, "-O --output-document") {
            Some(target)
                if target.text == "-"
                    || target.text == "/dev/null"
                    || target.text == "/dev/stdout" => {}
            Some(target) => {
                self.write(&target, WriteKind::Create);
                self.fetched(&target);
            }
            None if has(args, "--spider") => {}
            None => {
                let dir =
                    value(args, "-P --directory-prefix").unwrap_or_else(|| ShellWord::plain("."));
                self.write(&dir, WriteKind::Create);
                self.named_like_address(args);
            }
        }
    }

    /// The file that a URL is saved as.
    fn named_like_address(&mut self, args: &[ShellWord]) {
        let names: Vec<ShellWord> = operands(args, "-o -H -A -e -x -u -b")
            .iter()
            .filter(|word| word.text.contains('/') || word.text.contains('.'))
            .filter_map(|word| {
                let path = word.text.split(['?', '#']).next()?;
                let name = path.rsplit('/').next().filter(|name| !name.is_empty())?;
                Some(ShellWord::plain(name))
            })
            .collect();
        for name in names {
            self.fetched(&name);
        }
    }

    fn raw(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.facts.network = true;
        let words = args
            .iter()
            .map(|word| word.text.to_lowercase())
            .collect::<Vec<_>>()
            .join(" ");
        let runs = has(args, "-e -c --exec --sh-exec --lua-exec")
            && call.name != "socat"
            && call.name != "telnet";
        let shells = words.contains("/bin/sh")
            || words.contains("/bin/bash")
            || words.contains("exec:")
            || words.contains("system:");
        if runs || shells {
            self.add_firm(Category::REVERSE_SHELL, "connects a program to the network");
        } else if call.name == "nc" && has(args, "=-z =-zv =-vz =-zvn =-vnz =-nzv") {
            self.require_known_arguments(args);
        } else {
            self.add_firm(
                Category::NETWORK_SEND,
                format!("{} opens a raw connection", call.name),
            );
        }
    }
}
