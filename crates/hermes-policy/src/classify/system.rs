//! Services, processes, packages, timers, accounts, and Hermes itself.

use super::args::{has, operands, subcommand, value};
use super::{Classifier, ProgramCall};
use crate::assessment::Category;
use crate::shell::ShellWord;

const PACKAGE_TOOLS: &str = "apt apt-get aptitude dpkg dnf yum rpm zypper pacman yay paru apk emerge brew port snap \
    flatpak nix-env nix-channel nixos-rebuild pkg softwareupdate winget choco scoop gdebi";
const SYSTEM_TOOLS: &str = "mount umount swapon swapoff fdisk sfdisk gdisk parted lvm lvcreate lvremove vgremove pvremove \
    cryptsetup mdadm zpool zfs btrfs iptables ip6tables nft ufw firewall-cmd modprobe insmod rmmod sysctl useradd \
    userdel usermod groupadd groupdel groupmod passwd chpasswd visudo vipw adduser deluser hwclock timedatectl \
    hostnamectl localectl update-alternatives update-grub grub-install efibootmgr setcap chsh chfn newgrp \
    auditctl setenforce semanage restorecon losetup dmsetup tune2fs fsck xfs_repair busctl dbus-send gdbus gsettings \
    dconf defaults launchctl csrutil spctl nvram scutil networksetup pmset ip ifconfig route nmcli iw tc ethtool \
    rfkill resolvectl ldconfig depmod dracut mkinitcpio init telinit initctl rc-service rc-update sv chkconfig update-rc.d";

impl Classifier<'_> {
    /// Builtins of the shell.
    pub(super) fn builtin(&mut self, call: ProgramCall<'_>) -> bool {
        let args = call.args();
        match call.name {
            "cd" | "pushd" => {
                if let Some(dir) = operands(args, "").first() {
                    self.enter(dir);
                } else {
                    let home = ShellWord::plain(self.around.user_home.to_string_lossy());
                    self.enter(&home);
                }
            }
            "popd" => self.lost = true,
            "source" | "." => {
                if let Some(file) = args.first() {
                    self.shell_file(file, call);
                }
            }
            "alias" => self.aliases(args),
            "export" | "declare" | "typeset" | "local" | "readonly" | "unset" | "set" | "shift"
            | "return" | "exit" | "break" | "continue" | ":" | "true" | "false" | "test" | "["
            | "[[" | "jobs" | "wait" | "umask" | "ulimit" | "let" | "read" | "mapfile"
            | "readarray" | "getopts" | "times" | "hash" | "type" | "dirs" | "history"
            | "unalias" | "disown" | "bg" | "fg" | "logout" | "caller" | "compgen" | "help"
            | "}" | "{" | "!" => {}
            "shopt" => {
                if args.iter().any(|word| word.text == "expand_aliases") {
                    self.add_firm(
                        Category::DYNAMIC_COMMAND,
                        "lets names stand for other commands",
                    );
                }
            }
            "enable" | "bind" | "complete" => self.add_soft(
                Category::ENVIRONMENT,
                format!("{} changes the shell", call.name),
            ),
            _ => return false,
        }
        true
    }

    fn aliases(&mut self, args: &[ShellWord]) {
        for word in args {
            if let Some((name, body)) = word.text.split_once('=') {
                self.add_soft(
                    Category::ENVIRONMENT,
                    format!("{name} is an alias of another command from now on"),
                );
                self.facts.aliases.push((name.to_owned(), body.to_owned()));
                let body = ShellWord {
                    text: body.to_owned(),
                    ..word.clone()
                };
                self.nested(&body);
            }
        }
    }

    pub(super) fn system(&mut self, call: ProgramCall<'_>) -> bool {
        let args = call.args();
        match call.name {
            "systemctl" | "service" | "launchctl" => self.service(call),
            "journalctl" => {
                if has(
                    args,
                    "--vacuum-size --vacuum-time --vacuum-files --rotate --flush --sync --relinquish-var",
                ) {
                    self.add_firm(Category::SYSTEM_CHANGE, "removes logs");
                }
            }
            "crontab" => self.crontab(call),
            "at" | "batch" | "atrm" | "anacron" => {
                if call.name != "atrm" && call.arg(0) != "-l" {
                    self.add_firm(Category::PERSISTENCE, "runs something automatically later");
                }
            }
            "kill" => self.add_soft(Category::PROCESSES, "stops processes"),
            "pkill" | "killall" | "skill" | "xkill" | "fuser" => self.kill_by_name(call),
            "hermes" => self.hermes(args),
            "date" if has(args, "-s --set") || sets_clock(args) => {
                self.add_firm(Category::SYSTEM_CHANGE, "sets the clock");
            }
            "hostname" if !operands(args, "").is_empty() || has(args, "-F --file -b --boot") => {
                self.add_firm(Category::SYSTEM_CHANGE, "renames the machine");
            }
            "dmesg" if has(args, "-c -C --clear --read-clear") => {
                self.add_firm(Category::SYSTEM_CHANGE, "removes logs");
            }
            "ip" if reads_network(args) && !has(args, "-b --batch") => {
                self.require_known_arguments(args);
            }
            "mount" if args.is_empty() => {}
            "sysctl"
                if !has(args, "-w --write -p --load --system")
                    && !args.iter().any(|word| word.text.contains('=')) => {}
            "ifconfig" if args.len() < 2 => {}
            "timedatectl" | "hostnamectl" | "localectl" | "resolvectl"
                if args.is_empty() || call.arg(0) == "status" => {}
            "gsettings" | "dconf" | "defaults"
                if matches!(
                    call.arg(0),
                    "get" | "read" | "list-schemas" | "list-keys" | "list-recursively"
                ) => {}
            name if PACKAGE_TOOLS.split_whitespace().any(|tool| tool == name) => {
                self.packages(call);
            }
            name if SYSTEM_TOOLS.split_whitespace().any(|tool| tool == name) => {
                self.add_firm(
                    Category::SYSTEM_CHANGE,
                    format!("{name} changes the system"),
                );
            }
            "nohup" => {}
            "ssh-keygen" => {
                if let Some(file) = value(args, "-f") {
                    self.write(&file, super::WriteKind::Create);
                }
                self.add_soft(Category::PROGRAM, "creates or changes keys");
            }
            "gpg" | "gpg2" | "pass" | "security" | "secret-tool" | "keyring" | "op" | "bw" => {
                self.facts.secret = true;
                self.add_firm(
                    Category::SECRET_READ,
                    format!("{} works with keys or passwords", call.name),
                );
            }
            "xdg-open" | "open" | "start" => {
                self.add_soft(Category::PROGRAM, "opens something in another program");
            }
            "tmux" | "screen" | "byobu" => {
                self.carried_commands(call);
                self.add_soft(Category::PROGRAM, format!("runs {}", call.name));
                for word in args.iter().filter(|word| word.text.contains(' ')) {
                    self.nested(word);
                }
            }
            _ => return false,
        }
        true
    }

    fn service(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        self.require_known_options(
            args,
            "-t --type --state -p --property -H --host -M --machine -n --lines -o --output --job-mode --root =--user \
             =--system =--no-pager =--all =-a =-l =--full =--now =--quiet =-q =--failed =--plain =--no-legend =-f =--force =--status-all",
        );
        let words: Vec<&str> = args
            .iter()
            .map(|word| word.text.as_str())
            .filter(|word| !word.starts_with('-'))
            .collect();
        let looks = [
            "status",
            "show",
            "cat",
            "list-units",
            "list-unit-files",
            "list-timers",
            "list-dependencies",
            "list-sockets",
            "list-jobs",
            "is-active",
            "is-enabled",
            "is-failed",
            "is-system-running",
            "help",
            "print",
            "list",
            "get-default",
        ];
        let verb = match call.name {
            "service" => words.get(1).copied().unwrap_or("status"),
            _ => words.first().copied().unwrap_or("list-units"),
        };
        if looks.contains(&verb) {
            return;
        }
        if call.name == "launchctl" && words.iter().any(|word| word.contains("hermes")) {
            self.add_firm(Category::LAUNCHD_STOP, "stops or restarts Hermes itself");
        }
        if words.iter().any(|word| word.contains("hermes-gateway"))
            && matches!(verb, "stop" | "restart" | "kill" | "disable" | "mask")
        {
            self.add_firm(Category::GATEWAY_STOP, "stops or restarts Hermes itself");
        }
        match verb {
            "enable" | "link" | "load" | "bootstrap" | "edit" | "import-environment"
            | "set-environment" | "add-wants" => {
                self.add_firm(Category::PERSISTENCE, "makes a service start automatically");
            }
            "stop" | "restart" | "disable" | "mask" | "try-restart" | "reload-or-restart"
            | "kill" => {
                self.add_firm(Category::SERVICE_STOP, "stops or restarts a service");
            }
            _ => self.add_firm(
                Category::SYSTEM_CHANGE,
                format!("changes services ({verb})"),
            ),
        }
    }

    fn crontab(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let words: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
        if matches!(words.as_slice(), ["-l"] | ["-u", _, "-l"] | ["-l", "-u", _]) {
            return;
        }
        let what = if has(args, "-r") {
            "removes every timer of the user"
        } else {
            "installs timers"
        };
        self.add_firm(Category::PERSISTENCE, what);
        if let Some(input) = &call.command.input {
            for line in input.text.lines() {
                // Five fields, then the command.
                let command: Vec<&str> = line.split_whitespace().skip(5).collect();
                self.script(&command.join(" "));
            }
        }
    }

    fn kill_by_name(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let own = ["hermes", "gateway", "cli.py"];
        if args
            .iter()
            .any(|word| own.iter().any(|name| word.text.contains(name)))
        {
            self.add_firm(Category::SELF_KILL, "would end Hermes itself");
            return;
        }
        let nine = args
            .iter()
            .any(|word| matches!(word.text.as_str(), "-9" | "-KILL" | "-SIGKILL"));
        let category = match call.name {
            "pkill" if nine => Category::PKILL,
            "killall" if nine => Category::KILLALL_KILL,
            "killall" if value(args, "-s --signal").is_some() => Category::KILLALL_S,
            "killall" if has(args, "-r --regexp") => Category::KILLALL_REGEX,
            _ => Category::PROCESSES,
        };
        self.add_firm(
            category,
            "stops processes by name, perhaps others than meant",
        );
    }

    fn packages(&mut self, call: ProgramCall<'_>) {
        let args = call.args();
        let looks = [
            "list", "search", "show", "info", "policy", "depends", "rdepends", "query", "provides",
            "repolist", "outdated", "deps", "leaves", "config", "doctor",
        ];
        self.require_known_options(args, "-o -c =--version =--help =-y =-q =-qq =--quiet =--yes =--list =-l =-L =-s =-S =-Q =-Qi =-Ql =-Ss =-Si =-q =-qa =-qi =-ql");
        let verb = subcommand(args, "-o -c").map_or("", |(verb, _)| verb);
        let queries = match call.name {
            "dpkg" => has(args, "-l -L -s -S --list --status --search --listfiles"),
            "rpm" => has(args, "-q --query"),
            "pacman" => args.first().is_some_and(|word| {
                word.text.starts_with("-Q")
                    || word.text.starts_with("-Si")
                    || word.text.starts_with("-Ss")
            }),
            _ => looks.contains(&verb),
        };
        let asks = args.len() == 1 && has(args, "--version --help");
        if !queries && !asks {
            self.add_firm(
                Category::PACKAGES,
                format!("{} installs or removes software", call.name),
            );
        }
    }

    fn hermes(&mut self, args: &[ShellWord]) {
        let options = "-p --profile -m --model --provider -t --toolsets -z --oneshot --color";
        if has(args, "--yolo") {
            self.add_firm(Category::HERMES_SETTINGS, "starts Hermes without approvals");
            return;
        }
        let Some((verb, rest)) = subcommand(args, options) else {
            if !args.is_empty() && !has(args, "--version --help") {
                self.add_soft(Category::PROGRAM, "runs another Hermes");
            }
            return;
        };
        let inner = rest.first().map_or("", |word| word.text.as_str());
        match (verb, inner) {
            ("gateway", "stop" | "restart") => {
                self.add_firm(Category::GATEWAY_STOP, "stops or restarts Hermes itself");
            }
            ("gateway", "run" | "start") => {
                self.add_firm(Category::GATEWAY_OUTSIDE, "starts another gateway");
            }
            ("update", _) => self.add_firm(Category::HERMES_UPDATE, "replaces Hermes itself"),
            ("status" | "doctor" | "version" | "completion", _)
            | (_, "list" | "show" | "get" | "status" | "test" | "--help") => {
                self.add_soft(Category::PROGRAM, "runs hermes");
            }
            _ => self.add_firm(
                Category::HERMES_SETTINGS,
                format!("hermes {verb} changes what Hermes does"),
            ),
        }
    }

    /// `kill $(pgrep hermes)`
    pub(super) fn kills_found(&mut self, call: ProgramCall<'_>) {
        if call.name != "kill" {
            return;
        }
        let found = call
            .args()
            .iter()
            .filter_map(|word| word.inner.clone())
            .any(|inner| {
                call.script.commands[inner].iter().any(|command| {
                    command
                        .words
                        .first()
                        .is_some_and(|word| matches!(word.text.as_str(), "pgrep" | "pidof"))
                })
            });
        if found {
            self.add_firm(Category::KILL_PGREP, "stops processes found by name");
        }
    }
}

/// `date 01021304` sets it.
fn sets_clock(args: &[ShellWord]) -> bool {
    operands(args, "-d --date -r --reference -f --file")
        .iter()
        .any(|word| !word.text.starts_with('+'))
}

fn reads_network(args: &[ShellWord]) -> bool {
    let words: Vec<&str> = args
        .iter()
        .map(|word| word.text.as_str())
        .filter(|word| !word.starts_with('-'))
        .collect();
    !words.iter().any(|word| {
        matches!(
            *word,
            "add" | "del" | "delete" | "set" | "flush" | "replace" | "change" | "exec"
        )
    })
}
