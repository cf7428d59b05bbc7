//! Three hundred turns of every size, with a provider that counts differently than we do and a
//! summarising model that is wordy, forgetful or down.

use std::sync::Arc;

use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::model::{ErrorClass, ModelClient};
use tokio_util::sync::CancellationToken;

use super::fake::{
    FakeClock, FakeModel, Reply, answer, assert_well_formed, filler, own_text, step, user,
};
use crate::compress::{
    CompactionCause, CompactionDecision, CompactionJob, Compactor, CompressionSettings,
    ContextWindow, summary,
};
use crate::tokens;

const OVERHEAD: u64 = 3_000;

/// Deterministic noise.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit) as usize
    }
}

struct World {
    compactor: Compactor,
    clock: Arc<FakeClock>,
    model: Arc<FakeModel>,
    view: Vec<Arc<Message>>,
    window: u64,
    /// Real tokens per raw token, times ten.
    tokenizer: u64,
    compactions: u32,
    in_turn: u32,
    refused: u32,
    largest_summary: u64,
    /// Raw tokens of everything that was ever said.
    said: u64,
    /// Raw tokens of the view.
    raw: u64,
}

impl World {
    fn new(context: u32, tokenizer: u64) -> Self {
        let clock = Arc::new(FakeClock::default());
        let window = ContextWindow {
            context,
            max_tokens: Some(context / 16),
        };
        Self {
            compactor: Compactor::new(CompressionSettings::default(), window, clock.clone()),
            clock,
            model: FakeModel::new("aux", Reply::Text(String::new())),
            view: Vec::new(),
            window: u64::from(context),
            tokenizer,
            compactions: 0,
            in_turn: 0,
            refused: 0,
            largest_summary: 0,
            said: 0,
            raw: 0,
        }
    }

    fn raw(&self) -> u64 {
        OVERHEAD + self.raw
    }

    fn real(&self) -> u64 {
        self.raw() * self.tokenizer / 10
    }

    async fn compact(&mut self, cause: CompactionCause, noise: &mut Noise) -> bool {
        self.model.next(match noise.below(8) {
            0 => Reply::Fail(ErrorClass::BadResponse),
            1 => Reply::Fail(ErrorClass::Server),
            2 => Reply::Text(filler(noise.below(9), 20_000)),
            _ => Reply::Text(filler(noise.below(9), 1_200)),
        });
        let job = CompactionJob {
            session: SessionId::from("s"),
            view: &self.view,
            scaffolding: Vec::new(),
            overhead: OVERHEAD,
            cause,
            focus: None,
            keep: None,
            todo: Some("- [ ] one thing\n- [x] another"),
            clients: vec![Arc::clone(&self.model) as Arc<dyn ModelClient>],
        };
        let outcome = self.compactor.compact(job, &CancellationToken::new()).await;
        let Ok(done) = outcome.result else {
            return false;
        };
        assert!(done.after_tokens < done.before_tokens);
        self.compactions += 1;
        self.in_turn += 1;
        self.view = done.view;
        self.raw = tokens::messages(&self.view);
        for row in &self.view {
            if let Message::User(user) = row.as_ref()
                && let Some(split) = summary::split(&user.content.text())
            {
                self.largest_summary = self.largest_summary.max(tokens::text(split.summary));
            }
        }
        true
    }

    /// One model call, as the engine makes it. `false`: it cannot be made to fit.
    async fn call(&mut self, request: &str, noise: &mut Noise) -> bool {
        let mut loops = 0;
        while let CompactionDecision::Compact { .. } = self.compactor.check(self.raw()) {
            loops += 1;
            assert!(loops <= 3, "compaction goes round in circles");
            if !self.compact(CompactionCause::Automatic, noise).await {
                break;
            }
        }
        while self.real() > self.window {
            self.refused += 1;
            if !self.compact(CompactionCause::Overflow, noise).await {
                return false;
            }
        }
        assert_well_formed(&self.view);
        let newest = self
            .view
            .iter()
            .rev()
            .find(|row| matches!(row.as_ref(), Message::User(_)))
            .map(|row| own_text(row))
            .unwrap();
        assert_eq!(
            newest, request,
            "the latest request is what the model sees last"
        );
        let (raw, real) = (self.raw(), self.real());
        self.compactor.observe(raw, real);
        true
    }

    async fn turn(&mut self, number: usize, noise: &mut Noise) {
        self.compactor.begin_turn();
        self.clock.advance(120);
        self.in_turn = 0;
        let size = [5, 40, 300, 1_500][noise.below(4)];
        let request = format!("request {number}: {}", filler(number, size));
        self.say([user(request.clone())]);
        let steps = [0, 1, 3, 12][noise.below(4)];
        for at in 0..steps {
            if !self.call(&request, noise).await {
                break;
            }
            let outputs: Vec<String> = (0..=noise.below(3))
                .map(|_| {
                    let size = [10, 200, 2_000, 6_000][noise.below(4)];
                    filler(noise.below(5), size)
                })
                .collect();
            let argument = filler(at, [5, 50, 900][noise.below(3)]);
            self.say(step(number * 100 + at, &argument, &outputs));
        }
        let fits = self.call(&request, noise).await;
        assert!(
            fits,
            "turn {number} could not be made to fit {}",
            self.window
        );
        assert!(
            self.in_turn <= steps as u32 + 2,
            "{} compactions in a turn of {steps} steps",
            self.in_turn
        );
        let size = [20, 200, 1_000][noise.below(3)];
        self.say([answer(filler(number, size))]);
    }

    fn say(&mut self, rows: impl IntoIterator<Item = Arc<Message>>) {
        for row in rows {
            let size = tokens::message(&row);
            self.said += size;
            self.raw += size;
            self.view.push(row);
        }
    }
}

async fn run(context: u32, tokenizer: u64, seed: u64) -> World {
    let mut world = World::new(context, tokenizer);
    let mut noise = Noise(seed);
    for number in 0..300 {
        world.turn(number, &mut noise).await;
    }
    world
}

#[tokio::test]
async fn three_hundred_turns_never_loop_and_never_lose_the_request() {
    for (context, tokenizer, seed) in [(131_072, 10, 1), (65_536, 13, 2), (32_768, 8, 3)] {
        let world = run(context, tokenizer, seed).await;
        assert!(world.compactions > 3, "{context}: {}", world.compactions);
        let threshold = world.compactor.threshold() * 10 / tokenizer;
        let per_compaction = world.said / u64::from(world.compactions);
        assert!(
            per_compaction > threshold / 3,
            "{context}: {} compactions, one for every {per_compaction} tokens",
            world.compactions
        );
        let most = u64::from(context / 20).clamp(512, 10_000);
        assert!(
            world.largest_summary <= most,
            "{context}: a summary of {} tokens",
            world.largest_summary
        );
    }
}
