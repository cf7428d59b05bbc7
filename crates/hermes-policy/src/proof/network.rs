//! Programs that download.

use super::table::{OptionModel, parse_arguments};
use super::{ProofResult, Prover, refuse};
use crate::shell::ShellWord;

/// A web URL or a host name; nothing that reads local files.
fn is_web_address(word: &ShellWord) -> bool {
    let text = word.text.as_str();
    let lower = text.to_lowercase();
    let web = lower.starts_with("https://") || lower.starts_with("http://");
    !word.dynamic && !word.glob && !text.contains(['{', '[']) && (web || is_host(&lower))
}

/// `name`, `name:port`, with or without a path. Anything else before a colon would be a scheme.
fn is_host(text: &str) -> bool {
    let place = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = place.split_once(':').unwrap_or((place, "80"));
    !host.is_empty()
        && !host.starts_with('-')
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
        && !port.is_empty()
        && port.chars().all(|c| c.is_ascii_digit())
}

/// The file that a URL is saved as.
fn saved_as(address: &ShellWord) -> ShellWord {
    let path = address.text.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().filter(|name| !name.is_empty());
    ShellWord {
        text: name.unwrap_or("index.html").to_owned(),
        ..address.clone()
    }
}

impl Prover<'_, '_> {
    pub(super) fn curl(&mut self, args: &[ShellWord]) -> ProofResult {
        let options = OptionModel::new(
            "sSfLIvikgGNqj#0O46",
            "HAemorXwC",
            "--silent --show-error --fail --location --head --verbose --include --insecure --get --compressed --max-time: --connect-timeout: \
             --retry: --retry-delay: --header: --user-agent: --referer: --output: --write-out: --request: --range: --url: --http1.1 --http2 --ipv4 \
             --ipv6 --no-progress-meter --progress-bar --fail-with-body --max-redirs: --tlsv1.2 --remote-name --no-buffer",
        );
        let found = parse_arguments(args, &options).or_else(refuse)?;
        let texts = [
            "-H",
            "--header",
            "-A",
            "--user-agent",
            "-e",
            "--referer",
            "-w",
            "--write-out",
            "-m",
            "-r",
            "-C",
        ];
        for value in found.values(&texts) {
            if value.dynamic || value.text.starts_with('@') || value.text.contains("%output") {
                return refuse("an option of curl names a file or is not known");
            }
        }
        for method in found.values(&["-X", "--request"]) {
            if !matches!(method.text.as_str(), "GET" | "HEAD" | "OPTIONS") {
                return refuse("curl changes something on a server");
            }
        }
        for target in found
            .values(&["-o", "--output"])
            .filter(|target| target.text != "-")
        {
            self.may_write(target)?;
        }
        if found.has(&["-O", "--remote-name"]) {
            for address in &found.operands {
                self.may_write(&saved_as(address))?;
            }
        }
        let addresses = found
            .operands
            .iter()
            .copied()
            .chain(found.values(&["--url"]));
        for address in addresses {
            if !is_web_address(address) {
                return refuse("curl is given an address that is not known to be one of the web");
            }
        }
        Ok(())
    }

    pub(super) fn wget(&mut self, args: &[ShellWord]) -> ProofResult {
        let options = OptionModel::new(
            "qcSvNn46",
            "OPUTt",
            "--quiet --spider --output-document: --directory-prefix: --user-agent: --timeout: --tries: --no-verbose --continue \
             --server-response --no-check-certificate --show-progress --progress:",
        );
        let found = parse_arguments(args, &options).or_else(refuse)?;
        let mut prints = found.has(&["--spider"]);
        for target in found.values(&["-O", "--output-document"]) {
            prints = true;
            if target.text != "-" {
                self.may_write(target)?;
            }
        }
        if !prints {
            for dir in found.values(&["-P", "--directory-prefix"]) {
                self.may_write(dir)?;
            }
            for address in &found.operands {
                let target = saved_as(address);
                // It decodes escapes in the URL.
                if target.text.contains('%') {
                    return refuse("the name of the file is only known when it runs");
                }
                self.may_write(&target)?;
                for dir in found.values(&["-P", "--directory-prefix"]) {
                    self.may_write(&ShellWord::plain(format!("{}/{}", dir.text, target.text)))?;
                }
            }
        }
        match found.operands.iter().find(|word| !is_web_address(word)) {
            Some(_) => refuse("wget is given an address that is not known to be one of the web"),
            None => Ok(()),
        }
    }
}
