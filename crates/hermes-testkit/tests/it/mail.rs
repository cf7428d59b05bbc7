//! The mail server does what its users rely on.

use hermes_testkit::mail::{AUTHSERV_ID, MailServer, RECORDED, TestMail};

#[test]
fn a_mail_arrives_stamped_by_who_sent_it() {
    let Some(server) = MailServer::start("a_mail_arrives_stamped_by_who_sent_it") else {
        return;
    };
    let letter = TestMail::new("ann@example.test", "bob@example.test", "Hi", "one\n.two\n");
    letter.send(&server);
    letter.clone().unproven().send(&server);
    letter.unstamped().send(&server);
    let mails = server.mailbox("bob@example.test");
    assert_eq!(mails.len(), 3, "{}", server.log());
    let stamp = |mail: &str| {
        let mail = mail.replace("\n\t", " ");
        mail.lines().find_map(|line| {
            line.strip_prefix("Authentication-Results: ")
                .map(str::to_owned)
        })
    };
    let proven = format!(
        "{AUTHSERV_ID}; auth=pass smtp.auth=ann@example.test; dmarc=pass (p=none) header.from=example.test"
    );
    assert_eq!(stamp(&mails[0]).as_deref(), Some(proven.as_str()));
    assert!(stamp(&mails[1]).unwrap().contains("dmarc=fail"));
    assert_eq!(stamp(&mails[2]), None);
    assert!(mails[0].contains("\none\n.two\n"), "{}", mails[0]);
}

#[test]
fn one_mailbox_has_its_sent_mail_recorded() {
    let Some(server) = MailServer::start("one_mailbox_has_its_sent_mail_recorded") else {
        return;
    };
    TestMail::new(RECORDED, "bob@example.test", "Hi", "text").send(&server);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while server.folder(RECORDED, "Sent").is_empty() {
        assert!(std::time::Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
