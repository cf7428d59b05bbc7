//! A job in a storm, due every minute and run by hand in between: every run that was begun is told
//! of once, with what came of it or that it was cut. Whoever runs it by hand is killed, too.

use std::collections::BTreeSet;
use std::process::Child;
use std::rc::Rc;
use std::sync::Arc;

use hermes_testkit::home::TempHome;
use hermes_testkit::telegram::FakeTelegram;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::model::JOB;
use super::platform::{ChaosPlatform, ChaosSetup};
use super::telegram::REPORTS;
use super::traffic::{self, TurnTally};
use crate::hermes;

const NAME: &str = "barometer";
const CUT: &str = "the program ended while the job ran";
/// The history shows five hundred runs, and there is one every minute besides.
const BY_HAND: usize = 120;

pub(super) struct Jobs {
    telegram: Arc<FakeTelegram>,
    home: Rc<TempHome>,
    made: bool,
    hand: Option<Child>,
    times: usize,
}

impl Jobs {
    pub(super) fn new(home: &Rc<TempHome>, telegram: Arc<FakeTelegram>) -> Self {
        Self {
            telegram,
            home: Rc::clone(home),
            made: false,
            hand: None,
            times: 0,
        }
    }

    fn cron(&self, words: &[&str]) -> hermes_testkit::process::FinishedProgram {
        hermes(&self.home).args(["cron"]).args(words).run().ok()
    }

    fn by_hand(&self) -> Child {
        let program = hermes(&self.home).args(["cron", "run", NAME]);
        // Who is killed does not clean up.
        program.env("TMPDIR", self.home.work()).spawn()
    }

    /// Waits for whoever runs the job by hand.
    fn put_down(&mut self, kill: bool) {
        if let Some(mut hand) = self.hand.take() {
            if kill {
                hand.kill().expect("it can be killed");
            }
            hand.wait().expect("it has ended");
        }
    }

    /// What was told: the number of the report, or `None` for a run that was cut; and whether it
    /// says that it may have been told before.
    fn told(&self) -> Vec<(Option<u32>, bool)> {
        let mut told = Vec::new();
        for text in self.telegram.texts(REPORTS) {
            let marked = traffic::is_marked(&text);
            let number = text.split("report ").nth(1).and_then(|rest| {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().ok()
            });
            if number.is_some() || text.contains(CUT) {
                told.push((number, marked));
            }
        }
        told
    }

    /// Runs on record, and how many of them have not ended.
    fn runs(&self) -> (usize, usize) {
        let history = self.cron(&["history", "--limit", "500", "--json"]).json();
        let history = history.as_array().cloned().unwrap_or_default();
        let open = history.iter().filter(|run| run["finished_at"].is_null());
        (history.len(), open.count())
    }
}

impl ChaosPlatform for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn configure(&self, _: &mut ChaosSetup) {}

    fn is_ready(&mut self, _: &TempHome) -> bool {
        if !self.made {
            self.made = true;
            let deliver = format!("telegram:{REPORTS}");
            let words = [
                "create",
                "* * * * *",
                JOB,
                "--name",
                NAME,
                "--deliver",
                &deliver,
            ];
            drop(self.cron(&words));
        }
        true
    }

    fn say(&mut self, _: &mut SmallRng) {
        let busy = |hand: &mut Child| matches!(hand.try_wait(), Ok(None));
        if self.times >= BY_HAND || self.hand.as_mut().is_some_and(busy) {
            return;
        }
        self.times += 1;
        self.hand = Some(self.by_hand());
    }

    fn trouble(&mut self, _: &mut SmallRng) {
        self.put_down(true);
    }

    fn still(&mut self) {
        self.put_down(false);
        drop(self.cron(&["pause", NAME]));
    }

    fn last_words(&mut self) {
        self.hand = Some(self.by_hand());
        self.put_down(false);
    }

    fn open(&self) -> Vec<String> {
        let ((runs, open), told) = (self.runs(), self.told().len());
        if open == 0 && told >= runs {
            return Vec::new();
        }
        vec![format!("{runs} runs, of which {open} go on; {told} told")]
    }

    fn judge(&self) -> TurnTally {
        let (runs, _) = self.runs();
        let mut tally = TurnTally {
            messages: runs,
            again: 0,
        };
        let mut reports = BTreeSet::new();
        let mut plain = 0;
        for (number, marked) in self.told() {
            let new = number.is_none_or(|number| reports.insert(number));
            plain += usize::from(!marked);
            if !new {
                tally.again += 1;
                assert!(marked, "report {number:?} was told twice without a word");
            }
        }
        assert!(plain <= runs, "{runs} runs were told of {plain} times");
        tally
    }

    fn seen(&self) -> Value {
        json!(self.telegram.texts(REPORTS))
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        if let Some(mut hand) = self.hand.take() {
            // It may be gone already.
            let _ = hand.kill();
            let _ = hand.wait();
        }
    }
}
