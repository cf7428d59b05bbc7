//! The gateway under the hammer: numbered messages on every platform while the process is killed at
//! random moments, connections break before and after the deed, and platforms are busy.
//!
//! In the end every message was answered, in order, and nobody saw an answer twice unless the second
//! one says so; and no command of a turn that was cut ran a second time.
//!
//! `cargo xtask chaos [--minutes N]` runs it; the seed of a failure is printed. `HERMES_CHAOS_SEED`
//! is the seed to take, `HERMES_CHAOS_ROUND` the number of the only round to run.

mod api;
mod callers;
mod discord;
mod email;
mod jobs;
mod model;
mod platform;
mod slack;
mod storm;
mod telegram;
mod traffic;
mod webhook;

use std::rc::Rc;
use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::mail::{MailServer, RECORDED};

use platform::ChaosPlatform;
use storm::Storm;
use traffic::TurnTally;

const TEST: &str = "nothing_is_lost_and_nothing_is_done_twice";
/// A mailbox of whose sent mail nobody keeps a copy.
const FORGOTTEN: &str = "hermes@example.test";

#[test]
#[ignore = "minutes long by design: cargo xtask chaos"]
fn nothing_is_lost_and_nothing_is_done_twice() {
    let minutes: f64 = variable("HERMES_CHAOS_MINUTES").unwrap_or(3.0);
    let seed: u64 = variable("HERMES_CHAOS_SEED").unwrap_or_else(rand::random);
    let only: Option<usize> = variable("HERMES_CHAOS_ROUND");
    tell(&format!("seed {seed}, {minutes} minutes"));
    let Some(mail) = MailServer::start(TEST).map(Rc::new) else {
        return;
    };
    let rounds: Vec<usize> = (1..=ROUNDS)
        .filter(|n| only.is_none_or(|only| only == *n))
        .collect();
    let time = Duration::from_secs_f64(minutes * 60.0 / rounds.len() as f64);
    let (mut all, mut kills) = (TurnTally::default(), 0);
    for round in &rounds {
        let home = Rc::new(TempHome::new());
        let (manner, platforms) = round_of(*round, &mail, &home);
        tell(&format!("round {round}: {manner:?}"));
        let mut storm = Storm::new(seed, manner, home, platforms);
        storm.begin();
        storm.rage(time);
        storm.calm();
        all += storm.judge();
        kills += storm.kills;
    }
    assert!(
        all.messages > 100 && kills > 5 * rounds.len(),
        "that was no storm: {all:?}, {kills} kills"
    );
}

const ROUNDS: usize = 4;

type KillManner = (&'static str, bool);

/// How a gateway behaves while it is busy, whether answers grow while they are written, and where
/// people are.
fn round_of(
    round: usize,
    mail: &Rc<MailServer>,
    home: &Rc<TempHome>,
) -> (KillManner, Vec<Box<dyn ChaosPlatform>>) {
    let telegram = telegram::Telegram::new(if round == 1 { 12 } else { 5 });
    let fake = telegram.fake();
    let mut platforms: Vec<Box<dyn ChaosPlatform>> = vec![Box::new(telegram)];
    let jobs = || Box::new(jobs::Jobs::new(home, fake.clone()));
    let chats: [Box<dyn ChaosPlatform>; 2] = [
        Box::new(slack::Slack::new()),
        Box::new(discord::Discord::new()),
    ];
    let servers = || -> [Box<dyn ChaosPlatform>; 2] {
        let (one, other) = free_ports();
        [
            Box::new(webhook::Webhook::new(fake.clone(), one)),
            Box::new(api::Api::new(other)),
        ]
    };
    let manner = match round {
        1 => {
            platforms.push(jobs());
            ("steer", true)
        }
        2 => {
            platforms.extend(chats);
            ("queue", false)
        }
        3 => {
            platforms.push(Box::new(email::Email::new(mail, RECORDED, 301..=312)));
            platforms.extend(servers());
            ("queue", false)
        }
        _ => {
            platforms.extend(chats);
            platforms.extend(servers());
            platforms.push(jobs());
            platforms.push(Box::new(email::Email::new(mail, FORGOTTEN, 321..=326)));
            ("steer", true)
        }
    };
    (manner, platforms)
}

fn free_ports() -> (u16, u16) {
    let port = || {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        (listener, port)
    };
    // Both are held until both are known.
    let ((_one, one), (_other, other)) = (port(), port());
    (one, other)
}

#[expect(
    clippy::print_stderr,
    reason = "minutes long: how it fares is of interest"
)]
fn tell(what: &str) {
    eprintln!("{what}");
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}
