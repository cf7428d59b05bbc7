//! The configuration of the two servers.

use std::path::Path;

use super::{AUTHSERV_ID, PASSWORD, Ports, RECORDED};

const CERTIFICATE: &str = include_str!("localhost.pem");
const KEY: &str = include_str!("localhost.key");

/// Whom mail belongs to when root runs the tests: neither server lets that be root.
const NOBODY: u32 = 65534;

pub(super) fn write(dir: &Path, root: &Path, ports: Ports) {
    let put = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("a file");
    for name in [
        "spool",
        "mail",
        "run/login",
        "exim",
        "login/modules/old-stats",
    ] {
        std::fs::create_dir_all(dir.join(name)).expect("a directory");
    }
    let modules = dir.join("login/modules");
    for place in ["run/modules", "run/login/modules"] {
        std::os::unix::fs::symlink(&modules, dir.join(place)).expect("a link");
    }
    // What strangers talk to before they log in runs as another user too.
    for name in [
        "imap-login",
        "libdovecot.so.0",
        "libdovecot-login.so.0",
        "modules/libssl_iostream_openssl.so",
        "modules/old-stats/libstats_auth.so",
    ] {
        let from = root.join("usr/lib/dovecot").join(name);
        std::fs::copy(from, dir.join("login").join(name)).expect("a part of Dovecot");
    }
    // Exim runs itself again as another user, who may not see the sources.
    let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    std::fs::copy(root.join("usr/sbin/exim4"), dir.join("exim/exim4")).expect("exim");
    for entry in std::fs::read_dir(root.join(libraries))
        .expect("libraries")
        .flatten()
    {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), dir.join("exim").join(entry.file_name()))
                .expect("a library");
        }
    }
    put("cert.pem", CERTIFICATE);
    put("key.pem", KEY);
    let (owner, group) = owner();
    let with_system = |file: &str, line: String| {
        let system =
            std::fs::read_to_string(Path::new("/etc").join(file)).expect("users and groups");
        put(file, &format!("{line}\n{system}"));
    };
    with_system(
        "passwd",
        format!("Debian-exim:x:{owner}:{group}::/nonexistent:/bin/false"),
    );
    with_system("group", format!("Debian-exim:x:{group}:"));
    put("dovecot.conf", &dovecot(dir, root, ports));
    put("exim.conf", &exim(dir, ports));
    if rustix::process::getuid().is_root() {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        for name in ["spool", "mail"] {
            chown(dir.join(name), Some(owner), Some(group)).expect("an owner");
        }
    }
}

fn owner() -> (u32, u32) {
    if rustix::process::getuid().is_root() {
        return (NOBODY, NOBODY);
    }
    (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    )
}

/// For Dovecot.
pub(super) fn environment(dir: &Path, root: &Path) -> [(&'static str, String); 1] {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = [
        dir.join("login"),
        dir.join("exim"),
        root.join("usr/lib/dovecot"),
        root.join("usr/lib").join(triple),
    ];
    [(
        "LD_LIBRARY_PATH",
        libraries.map(|path| path.display().to_string()).join(":"),
    )]
}

pub(super) fn exim_environment(dir: &Path) -> Vec<(&'static str, String)> {
    let path = |part: &str| dir.join(part).display().to_string();
    vec![
        ("LD_LIBRARY_PATH", path("exim")),
        ("LD_PRELOAD", path("exim/libnss_wrapper.so")),
        ("NSS_WRAPPER_PASSWD", path("passwd")),
        ("NSS_WRAPPER_GROUP", path("group")),
    ]
}

fn exim(dir: &Path, ports: Ports) -> String {
    let (dir, Ports { smtp, smtps, .. }) = (dir.display(), ports);
    format!(
        "exim_path = {dir}/exim/exim4
spool_directory = {dir}/spool
log_file_path = {dir}/spool/%slog
pid_file_path = {dir}/spool/exim.pid
primary_hostname = {AUTHSERV_ID}
qualify_domain = example.test
local_interfaces = 127.0.0.1
daemon_smtp_ports = {smtp} : {smtps}
# Another test may have taken a port: end at once, so that others are chosen.
daemon_startup_retries = 0
tls_on_connect_ports = {smtps}
tls_advertise_hosts = *
tls_certificate = {dir}/cert.pem
tls_privatekey = {dir}/key.pem
auth_advertise_hosts = *
acl_smtp_rcpt = recipient
acl_smtp_data = stamp
keep_environment = LD_LIBRARY_PATH : LD_PRELOAD : NSS_WRAPPER_PASSWD : NSS_WRAPPER_GROUP
deliver_drop_privilege = true
message_size_limit = 1M
begin acl
recipient:
  deny message = no such mailbox
       local_parts = nobody
  defer message = come again later
       local_parts = later
  accept
stamp:
  accept condition = ${{if eq{{$sender_helo_name}}{{nostamp.test}}}}
  accept authenticated = *
         add_header = :at_start:Authentication-Results: {AUTHSERV_ID};\\n\\tauth=pass smtp.auth=$authenticated_id;\\n\\tdmarc=pass (p=none) header.from=${{domain:$authenticated_id}}
  accept add_header = :at_start:Authentication-Results: {AUTHSERV_ID};\\n\\tspf=fail smtp.mailfrom=$sender_address;\\n\\tdmarc=fail header.from=$sender_address_domain
begin routers
record:
  driver = redirect
  condition = ${{if eq{{$authenticated_id}}{{{RECORDED}}}}}
  repeat_use = false
  data = {recorded}+Sent@example.test
  unseen
boxes:
  driver = accept
  transport = lmtp
begin transports
lmtp:
  driver = lmtp
  socket = {dir}/run/lmtp
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if eq{{$auth3}}{{{PASSWORD}}}}}
  server_set_id = $auth2
",
        recorded = RECORDED.split('@').next().unwrap_or_default(),
    )
}

fn dovecot(dir: &Path, root: &Path, ports: Ports) -> String {
    let (dir, root, Ports { imap, imaps, .. }) = (dir.display(), root.display(), ports);
    let (uid, gid) = owner();
    let user = user_name();
    format!(
        "protocols = imap lmtp
base_dir = {dir}/run
state_dir = {dir}/state
libexec_dir = {root}/usr/lib/dovecot
mail_plugin_dir = {root}/usr/lib/dovecot/modules
import_environment = TZ LD_LIBRARY_PATH
listen = 127.0.0.1
log_path = {dir}/dovecot.log
ssl = yes
ssl_cert = <{dir}/cert.pem
ssl_key = <{dir}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_failure_delay = 0
default_internal_user = {user}
default_login_user = {login}
default_internal_group = {group}
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:{dir}/mail/%u
mail_home = {dir}/mail/%u
recipient_delimiter = +
lmtp_save_to_detail_mailbox = yes
passdb {{
  driver = static
  args = password={PASSWORD}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid}
}}
service imap-login {{
  executable = {dir}/login/imap-login
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
service lmtp {{
  unix_listener lmtp {{
    mode = 0666
  }}
}}
protocol lmtp {{
  postmaster_address = postmaster@example.test
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    special_use = \\Sent
    auto = create
  }}
}}
",
        group = group_name(),
        login = if rustix::process::getuid().is_root() {
            name_in("/etc/passwd", NOBODY)
        } else {
            user.clone()
        },
    )
}

fn user_name() -> String {
    name_in("/etc/passwd", rustix::process::getuid().as_raw())
}

fn group_name() -> String {
    name_in("/etc/group", rustix::process::getgid().as_raw())
}

fn name_in(file: &str, id: u32) -> String {
    let text = std::fs::read_to_string(file).expect("users and groups");
    text.lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2).is_some_and(|field| field.parse() == Ok(id)))
        .map_or_else(
            || panic!("no name for {id} in {file}"),
            |fields| fields[0].to_owned(),
        )
}
