//! One way to lose a session: how it gets lost, for which requests, over which transport, and with
//! which answer. `http/forgotten/all/404/empty/plain/none/1/7` is the text form of one.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use super::shape::{Extra, FAMOUS, Shape, ShapeRng, number};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    Http,
    /// HTTP+SSE; the stream stays open and silent.
    Sse,
    /// HTTP+SSE; the stream ends when the session is forgotten.
    SseEnds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scenario {
    Forgotten,
    /// Connections are cut as well.
    Restarted,
    /// Something in front answers and keeps the connection; a new handshake reaches a new process.
    ProxyKeeps,
    /// The same, and it closes the connection.
    ProxyCloses,
    /// The process behind the proxy carries out every call, and its answer is replaced.
    Late,
    /// A second instance joins; requests go to the two in turn, and each knows its own sessions.
    Alternating,
    /// The same, and chance decides.
    Random,
}

/// Which requests of the forgotten session get the shape; the others are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    All,
    Calls,
    Pings,
}

/// What a client can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expected {
    /// The first call succeeds: the refusal is certain.
    FirstCall,
    SecondCall,
    /// Neither: by what the client can see, the session is healthy. Nothing is done twice and no
    /// call that ran is said not to have run, all the same.
    Free,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Combination {
    pub transport: Transport,
    pub scenario: Scenario,
    pub scope: Scope,
    pub shape: Shape,
    /// Callers at once.
    pub callers: usize,
    /// For what chance decides at run time.
    pub seed: u64,
}

impl Combination {
    /// The combination with this number: the famous statuses in turn, and any other in between.
    pub fn draw(seed: u64, at: usize, transport: Transport, scenario: Scenario) -> Self {
        // Every part of the matrix draws its own shapes.
        let part = transport as u64 * 16 + scenario as u64;
        let dice = ShapeRng::new(seed.wrapping_add(at as u64 * 7919 + part * 104_729));
        let status = at
            .is_multiple_of(2)
            .then(|| FAMOUS[(at / 2) % FAMOUS.len()]);
        let mut shape = Shape::draw(&dice, status);
        let mut scope = match dice.below(10) {
            0..=5 => Scope::All,
            6..=8 => Scope::Calls,
            _ => Scope::Pings,
        };
        if scenario == Scenario::Late {
            let posted = transport != Transport::Http;
            while !(shape.can_come_late() || posted && shape.is_error_in_acceptance()) {
                shape = Shape::draw(&dice, None);
            }
        }
        let balanced = matches!(scenario, Scenario::Alternating | Scenario::Random);
        if balanced || (scenario == Scenario::Late && scope == Scope::Pings) {
            scope = Scope::All;
        }
        let callers = if balanced {
            1
        } else {
            dice.pick(&[1, 1, 1, 1, 1, 1, 5, 20])
        };
        let mut drawn = Self {
            transport,
            scenario,
            scope,
            shape,
            callers,
            seed: dice.below(1_000_000) as u64,
        };
        // Of the others only little is asked behind a balancer.
        while balanced && !at.is_multiple_of(4) && !drawn.is_plain_refusal() {
            drawn.shape = Shape::draw(&dice, dice.percent(30).then_some(404));
        }
        drawn
    }

    pub fn is_balanced(&self) -> bool {
        matches!(self.scenario, Scenario::Alternating | Scenario::Random)
    }

    /// What the client can be asked for. Not asked, because it cannot be told from a healthy
    /// session: with only `tools/call` refused,
    /// - a successful status with an error that has the right id and does not name the session, or
    ///   with an `isError` result: a tool's own error;
    /// - 429, or 503 with `Retry-After`: a rate limit on that method.
    pub fn expected(&self) -> Expected {
        let http = self.transport == Transport::Http;
        let limited = self.shape.status == 429
            || (self.shape.status == 503 && matches!(self.shape.extra, Extra::RetryAfter(_)));
        let own = http && self.shape.is_like_a_tools_own_error();
        match self.scope {
            _ if self.is_balanced() => Expected::Free,
            Scope::Pings => Expected::FirstCall,
            Scope::Calls if limited || (own && !self.shape.refuses()) => Expected::Free,
            // The session answers other requests, so it is not proven to be the problem: the tool may
            // have run, and its call is not sent again.
            Scope::Calls => Expected::SecondCall,
            // Answers to a POST of the older transport are not read, only their status.
            _ if self.shape.is_client_error() || (http && self.shape.refuses()) => {
                Expected::FirstCall
            }
            Scope::All => Expected::SecondCall,
        }
    }

    /// Whether a balancer's refusal is so plain that nearly all of a series must succeed.
    pub fn is_plain_refusal(&self) -> bool {
        self.shape.refuses() && self.shape.status != 429 && !self.shape.changes_words_of_errors()
    }
}

const TRANSPORTS: [(Transport, &str); 3] = [
    (Transport::Http, "http"),
    (Transport::Sse, "sse"),
    (Transport::SseEnds, "sse-ends"),
];
const SCENARIOS: [(Scenario, &str); 7] = [
    (Scenario::Forgotten, "forgotten"),
    (Scenario::Restarted, "restarted"),
    (Scenario::ProxyKeeps, "proxy-keeps"),
    (Scenario::ProxyCloses, "proxy-closes"),
    (Scenario::Late, "late"),
    (Scenario::Alternating, "alternating"),
    (Scenario::Random, "random"),
];
const SCOPES: [(Scope, &str); 3] = [
    (Scope::All, "all"),
    (Scope::Calls, "calls"),
    (Scope::Pings, "pings"),
];

fn name_of<T: PartialEq>(table: &[(T, &'static str)], item: &T) -> &'static str {
    let found = table.iter().find(|(known, _)| known == item);
    found.map_or("?", |(_, name)| name)
}

fn named<T: Copy>(table: &[(T, &str)], name: &str) -> Result<T, String> {
    let found = table.iter().find(|(_, known)| *known == name);
    found
        .map(|(item, _)| *item)
        .ok_or_else(|| format!("unknown: {name:?}"))
}

impl Display for Transport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(name_of(&TRANSPORTS, self))
    }
}

impl Display for Scenario {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(name_of(&SCENARIOS, self))
    }
}

impl Display for Scope {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(name_of(&SCOPES, self))
    }
}

impl Display for Combination {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            transport,
            scenario,
            scope,
            shape,
            callers,
            seed,
        } = self;
        write!(
            out,
            "{transport}/{scenario}/{scope}/{shape}/{callers}/{seed}"
        )
    }
}

impl FromStr for Combination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.trim().split('/').collect();
        let [transport, scenario, scope, shape @ .., callers, seed] = &parts[..] else {
            return Err(format!("not a combination: {text:?}"));
        };
        Ok(Self {
            transport: named(&TRANSPORTS, transport)?,
            scenario: named(&SCENARIOS, scenario)?,
            scope: named(&SCOPES, scope)?,
            shape: shape.join("/").parse()?,
            callers: number(callers)?,
            seed: number(seed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combination_is_read_back_from_its_text() {
        for at in 0..2000 {
            let (transport, _) = TRANSPORTS[at % TRANSPORTS.len()];
            let (scenario, _) = SCENARIOS[at % SCENARIOS.len()];
            let drawn = Combination::draw(3, at, transport, scenario);
            assert_eq!(drawn.to_string().parse(), Ok(drawn));
            let late = drawn.shape.can_come_late()
                || transport != Transport::Http && drawn.shape.is_error_in_acceptance();
            assert!(scenario != Scenario::Late || late);
        }
    }

    #[test]
    fn what_is_expected_of_a_client() {
        let expected = |text: &str| text.parse::<Combination>().unwrap().expected();
        let tail = "plain/none/1/0";
        for (text, wanted) in [
            ("http/forgotten/all/404/empty", Expected::FirstCall),
            ("http/forgotten/calls/403/html:o0", Expected::SecondCall),
            ("http/forgotten/all/403/html:o0", Expected::FirstCall),
            ("sse/forgotten/all/404/empty", Expected::FirstCall),
            ("http/forgotten/all/500/empty", Expected::SecondCall),
            ("http/late/all/200/result:object", Expected::SecondCall),
            ("http/forgotten/pings/500/empty", Expected::FirstCall),
            ("http/forgotten/calls/200/toolerror:s1", Expected::Free),
            ("http/forgotten/all/200/toolerror:s1", Expected::SecondCall),
            (
                "http/forgotten/all/200/rpc:right:-32000:s1",
                Expected::FirstCall,
            ),
            (
                "http/forgotten/calls/200/rpc:right:-32000:s1",
                Expected::SecondCall,
            ),
            (
                "http/forgotten/calls/200/rpc:right:-32000:o1",
                Expected::Free,
            ),
            (
                "http/forgotten/calls/200/rpc:null:-32000:s1",
                Expected::SecondCall,
            ),
            ("http/forgotten/calls/404/empty", Expected::SecondCall),
            ("http/forgotten/calls/410/html:o0", Expected::SecondCall),
            (
                "http/forgotten/calls/404/rpc:right:-32001:s0",
                Expected::SecondCall,
            ),
            (
                "http/forgotten/calls/400/rpc:null:-32000:s1",
                Expected::SecondCall,
            ),
            (
                "sse/forgotten/calls/200/rpc:right:-32000:s1",
                Expected::SecondCall,
            ),
            ("http/forgotten/calls/429/empty", Expected::Free),
            ("http/random/all/404/empty", Expected::Free),
        ] {
            assert_eq!(expected(&format!("{text}/{tail}")), wanted, "{text}");
        }
    }
}
