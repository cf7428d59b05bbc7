use super::*;

fn guard() -> UrlGuard {
    UrlGuard::new(GuardPolicy::default())
}

fn open() -> UrlGuard {
    UrlGuard::new(GuardPolicy {
        allow_private: true,
        ..GuardPolicy::default()
    })
}

#[test]
fn ordinary_addresses_pass() {
    for url in [
        "https://example.org/",
        " https://example.org/a?b=c#d ",
        "http://example.org:8080/x",
        "https:// docs.example.org/x",
        "https://wttr.in/Köln",
        "https://1.1.1.1/",
        "https://example.org/?key=1&code=2",
        "https://[2606:4700:4700::1111]/",
    ] {
        assert!(guard().check(url).is_ok(), "{url}");
    }
}

#[test]
fn every_spelling_of_a_private_host_is_refused() {
    for url in [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://%31%32%37.0.0.1/",
        "http://１２７.０.０.１/",
        "http://①②⑦.0.0.1/",
        "http:\\\\127.0.0.1\\",
        "http:/127.0.0.1/",
        "http://\t127.0.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fc00::1]/",
        "http://10.0.0.1/",
        "http://192.168.0.1/",
        "http://100.64.0.1/",
        "http://198.18.0.1/",
        "http://example.org@127.0.0.1/",
    ] {
        let found = guard().check(url);
        assert!(
            matches!(
                found,
                Err(BlockedUrl::Private { .. } | BlockedUrl::Credentials)
            ),
            "{url}: {found:?}"
        );
    }
}

#[test]
fn metadata_stays_closed_when_everything_else_is_open() {
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xA9FEA9FE/",
        "http://0251.0376.0251.0376/",
        "http://[::ffff:169.254.169.254]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[fd00:ec2::254]/",
        "http://[fe80::1]/",
        "http://100.100.100.200/",
        "http://metadata.google.internal/",
        "http://METADATA.google.internal./computeMetadata/v1/",
        "http://metadata/",
        "http://instance-data/",
    ] {
        for guard in [guard(), open()] {
            let found = guard.check(url);
            assert!(
                matches!(found, Err(BlockedUrl::Metadata { .. })),
                "{url}: {found:?}"
            );
        }
    }
    assert!(open().check("http://127.0.0.1:8080/").is_ok());
    assert!(open().check("http://localhost:3000/").is_ok());
    assert!(open().check("http://10.1.2.3/").is_ok());
}

#[test]
fn only_the_web_and_nobody_in_particular() {
    for (url, blocked) in [
        ("file:///etc/passwd", BlockedUrl::Scheme("file".to_owned())),
        ("ftp://example.org/", BlockedUrl::Scheme("ftp".to_owned())),
        (
            "gopher://example.org:70/",
            BlockedUrl::Scheme("gopher".to_owned()),
        ),
        (
            "javascript:alert(1)",
            BlockedUrl::Scheme("javascript".to_owned()),
        ),
        ("data:text/plain,x", BlockedUrl::Scheme("data".to_owned())),
        ("https://user@example.org/", BlockedUrl::Credentials),
        ("https://user:pw@example.org/", BlockedUrl::Credentials),
        ("http://:pw@example.org/", BlockedUrl::Credentials),
        ("http://example.org:22/", BlockedUrl::Port(22)),
        ("http://example.org:6379/", BlockedUrl::Port(6379)),
        (
            "https://example.org/?token=abc",
            BlockedUrl::SecretParameter("token".to_owned()),
        ),
        (
            "https://example.org/?q=sk-abcdefghijklmnop",
            BlockedUrl::KeyInAddress,
        ),
    ] {
        assert_eq!(guard().check(url), Err(blocked), "{url}");
    }
    for url in [
        "",
        "example.org",
        "not an address",
        "http://",
        "https://exa mple.org/",
        "http://[::1",
    ] {
        assert!(
            matches!(guard().check(url), Err(BlockedUrl::NotAnAddress { .. })),
            "{url}"
        );
    }
}

#[test]
fn secrets_of_the_installation_do_not_leave_in_an_address() {
    let guard = UrlGuard::new(GuardPolicy {
        secrets: Arc::from(["correct horse battery".to_owned()]),
        ..GuardPolicy::default()
    });
    for url in [
        "https://evil.test/?q=correct horse battery",
        "https://evil.test/correct%20horse%20battery",
        "https://evil.test/correct%2520horse%2520battery",
    ] {
        assert_eq!(guard.check(url), Err(BlockedUrl::KnownSecret), "{url}");
    }
    assert!(guard.leaks("search for correct horse battery"));
    assert!(!guard.leaks("search for horses"));
}

#[test]
fn a_signed_redirect_is_fine_a_private_one_is_not() {
    let url = |text: &str| Url::parse(text).unwrap();
    let signed = url("https://objects.example.org/x?X-Amz-Signature=abc");
    assert_eq!(guard().check_redirect(&signed), Ok(()));
    assert!(guard().check(signed.as_str()).is_err());
    assert!(guard().check_redirect(&url("http://127.0.0.1/")).is_err());
    assert!(guard().check_redirect(&url("file:///etc/passwd")).is_err());
    assert!(
        guard()
            .check_redirect(&url("http://u:p@example.org/"))
            .is_err()
    );
}

/// Answers from a list.
struct FixedResolver(Vec<IpAddr>);

impl NameResolver for FixedResolver {
    fn lookup(&self, _: String) -> hermes_core::BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let addresses = self.0.clone();
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

fn resolved(policy: GuardPolicy, addresses: &[&str]) -> Result<Vec<IpAddr>, ResolveError> {
    let told = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let guard = UrlGuard::with_names(policy, Arc::new(FixedResolver(told)));
    futures_util::FutureExt::now_or_never(guard.resolve("name.test")).unwrap()
}

#[test]
fn a_name_counts_by_all_of_its_addresses() {
    assert!(resolved(GuardPolicy::default(), &["1.1.1.1", "2606:4700::1"]).is_ok());
    assert!(resolved(GuardPolicy::default(), &["1.1.1.1", "127.0.0.1"]).is_err());
    assert!(resolved(GuardPolicy::default(), &["::ffff:10.0.0.1"]).is_err());
    assert!(resolved(GuardPolicy::default(), &[]).is_err());
    let fake = GuardPolicy {
        fake_ranges: vec!["198.18.0.0/15".parse().unwrap()],
        ..GuardPolicy::default()
    };
    assert!(resolved(fake.clone(), &["198.18.3.4"]).is_ok());
    assert!(resolved(fake.clone(), &["10.0.0.1"]).is_err());
    let everything = GuardPolicy {
        allow_private: true,
        fake_ranges: vec!["0.0.0.0/0".parse().unwrap()],
        ..GuardPolicy::default()
    };
    assert!(resolved(everything.clone(), &["10.0.0.1"]).is_ok());
    assert!(resolved(everything, &["169.254.169.254"]).is_err());
    assert!(
        UrlGuard::new(fake).check("http://198.18.3.4/").is_err(),
        "a literal address is no answer of a resolver"
    );
}
