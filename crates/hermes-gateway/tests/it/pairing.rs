//! Pairing, alone and beside the original.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use hermes_config::home::Home;
use hermes_core::clock::SystemClock;
use hermes_gateway::{PairedUser, Pairing, PairingApproval, PairingError, PairingReply};
use hermes_testkit::clock::ManualClock;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;

struct PairingHarness {
    home: TempHome,
    clock: Arc<ManualClock>,
    pairing: Pairing,
}

impl PairingHarness {
    fn new() -> Self {
        let (home, clock) = (TempHome::new(), Arc::new(ManualClock::default()));
        let pairing = Pairing::new(&Home::at(home.path()), clock.clone());
        Self {
            home,
            clock,
            pairing,
        }
    }

    fn code(&self, user: &str) -> String {
        match self.pairing.request("telegram", user, "Ann").unwrap() {
            PairingReply::Code(code) => code,
            other => panic!("{other:?}"),
        }
    }

    fn user(&self, id: &str) -> PairedUser {
        let _ = self;
        PairedUser {
            id: id.to_owned(),
            name: "Ann".to_owned(),
        }
    }
}

#[test]
fn a_code_lets_one_person_in() {
    let bench = PairingHarness::new();
    let code = bench.code("7");
    assert_eq!(code.len(), 8);
    assert!(!bench.pairing.is_approved("telegram", "7").unwrap());
    let approval = bench
        .pairing
        .approve("telegram", &code.to_lowercase())
        .unwrap();
    assert_eq!(approval, PairingApproval::Approved(bench.user("7")));
    assert!(bench.pairing.is_approved("telegram", " 7 ").unwrap());
    assert!(!bench.pairing.is_approved("discord", "7").unwrap());
    assert!(!bench.pairing.is_approved("telegram", "").unwrap());
    assert_eq!(
        bench.pairing.approve("telegram", &code).unwrap(),
        PairingApproval::Unknown
    );
    assert!(bench.pairing.revoke("telegram", "7").unwrap());
    assert!(!bench.pairing.revoke("telegram", "7").unwrap());
    assert!(!bench.pairing.is_approved("telegram", "7").unwrap());
}

#[test]
fn what_the_list_shows_can_be_approved_and_so_can_a_user() {
    let bench = PairingHarness::new();
    bench.code("7");
    bench.code("8");
    let pending = bench.pairing.pending(None).unwrap();
    assert_eq!(pending.len(), 2);
    let first = &pending[0];
    assert_eq!(
        bench.pairing.approve("telegram", &first.handle).unwrap(),
        PairingApproval::Approved(first.user.clone())
    );
    let second = &pending[1].user;
    assert_eq!(
        bench.pairing.approve("telegram", &second.id).unwrap(),
        PairingApproval::Approved(second.clone())
    );
    let mut approved: Vec<String> = bench
        .pairing
        .approved(None)
        .unwrap()
        .into_iter()
        .map(|one| one.user.id)
        .collect();
    approved.sort();
    assert_eq!(approved, ["7", "8"]);
    assert!(bench.pairing.pending(None).unwrap().is_empty());
}

#[test]
fn requests_are_few_and_end() {
    let bench = PairingHarness::new();
    bench.code("1");
    assert_eq!(
        bench.pairing.request("telegram", "1", "").unwrap(),
        PairingReply::TooSoon
    );
    bench.code("2");
    let code = bench.code("3");
    assert_eq!(
        bench.pairing.request("telegram", "4", "").unwrap(),
        PairingReply::Full
    );
    bench.clock.advance(Duration::from_secs(3601));
    assert!(bench.pairing.pending(None).unwrap().is_empty());
    assert_eq!(
        bench.pairing.approve("telegram", &code).unwrap(),
        PairingApproval::Unknown
    );
    bench.code("1");
    assert_eq!(bench.pairing.clear_pending(None).unwrap(), 1);
    assert!(bench.pairing.pending(None).unwrap().is_empty());
}

#[test]
fn guessing_is_locked_out_for_an_hour() {
    let bench = PairingHarness::new();
    let code = bench.code("7");
    for _ in 0..5 {
        assert_eq!(
            bench.pairing.approve("telegram", "WRONGGGG").unwrap(),
            PairingApproval::Unknown
        );
    }
    assert_eq!(
        bench.pairing.approve("telegram", &code).unwrap(),
        PairingApproval::Locked { seconds: 3600 }
    );
    assert_eq!(
        bench.pairing.request("telegram", "8", "").unwrap(),
        PairingReply::Locked
    );
    assert!(matches!(
        bench.pairing.request("slack", "8", "").unwrap(),
        PairingReply::Code(_)
    ));
    // The owner reads the list on the machine: that is no guess.
    let handle = bench.pairing.pending(Some("telegram")).unwrap()[0]
        .handle
        .clone();
    assert!(matches!(
        bench.pairing.approve("telegram", &handle).unwrap(),
        PairingApproval::Approved(_)
    ));
    bench.clock.advance(Duration::from_secs(3601));
    bench.code("9");
}

#[test]
fn files_are_private_and_a_damaged_one_is_not_written_over() {
    let bench = PairingHarness::new();
    bench.code("7");
    let path = bench
        .home
        .path()
        .join("platforms/pairing/telegram-pending.json");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&path, "{ half").unwrap();
    let error = bench.pairing.request("telegram", "8", "").unwrap_err();
    assert!(matches!(error, PairingError::Damaged { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ half");
    assert!(matches!(
        bench.pairing.request("../x", "8", ""),
        Err(PairingError::Platform(_))
    ));
}

#[test]
fn people_of_both_layouts_are_known_and_gone_from_both() {
    let home = TempHome::new();
    for (dir, user) in [("pairing", "7"), ("platforms/pairing", "8")] {
        let dir = home.path().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        let text = format!("{{\"{user}\": {{\"user_name\": \"\", \"approved_at\": 1.0}}}}");
        std::fs::write(dir.join("slack-approved.json"), text).unwrap();
    }
    let pairing = Pairing::new(&Home::at(home.path()), Arc::new(SystemClock));
    for user in ["7", "8"] {
        assert!(pairing.is_approved("slack", user).unwrap(), "{user}");
        assert!(pairing.revoke("slack", user).unwrap());
        assert!(!pairing.is_approved("slack", user).unwrap());
    }
}

const THEIRS: &str = "
import json, sys
from gateway.pairing import PairingStore
store = PairingStore()
out = {}
for op in json.loads(sys.argv[1]):
    out[op[0]] = getattr(store, op[0])(*op[1:])
print(json.dumps(out))
";

#[test]
fn codes_and_people_go_both_ways() {
    let Some(oracle) = oracle::require("codes_and_people_go_both_ways") else {
        return;
    };
    let home = TempHome::new();
    let pairing = Pairing::new(&Home::at(home.path()), Arc::new(SystemClock));
    let PairingReply::Code(ours) = pairing.request("telegram", "7", "Änn").unwrap() else {
        panic!("a code");
    };
    let theirs = oracle.json(
        &home,
        THEIRS,
        [serde_json::json!([
            ["approve_code", "telegram", ours],
            ["is_approved", "telegram", "7"],
            ["generate_code", "telegram", "8", "Bob"],
        ])
        .to_string()
        .as_str()],
    );
    assert_eq!(theirs["approve_code"]["user_name"], "Änn");
    assert_eq!(theirs["is_approved"], true);
    let pairing = Pairing::new(&Home::at(home.path()), Arc::new(SystemClock));
    assert!(pairing.is_approved("telegram", "7").unwrap());
    let code = theirs["generate_code"].as_str().unwrap();
    assert!(matches!(
        pairing.approve("telegram", code).unwrap(),
        PairingApproval::Approved(user) if user.id == "8" && user.name == "Bob"
    ));
    assert_eq!(
        pairing.request("telegram", "8", "").unwrap(),
        PairingReply::TooSoon
    );
    let theirs = oracle.json(
        &home,
        THEIRS,
        [r#"[["is_approved", "telegram", "8"], ["revoke", "telegram", "7"], ["list_pending"]]"#],
    );
    assert_eq!(theirs["is_approved"], true);
    assert_eq!(theirs["revoke"], true);
    assert_eq!(theirs["list_pending"], serde_json::json!([]));
    assert!(!pairing.is_approved("telegram", "7").unwrap());
}
