//! A platform in memory that remembers what people see, and a fuse that ends a process at a given step,
//! also in the middle of what it stores.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::store::StoreError;
use hermes_platforms::{
    Capabilities, DeliveryLookup, Markup, OutboundAdapter, OutgoingMessage, PlatformLimits,
    Recourse, SendError, SendFuture, TextUnit,
};
use hermes_store::delivery::{DeliveryAccess, DeliveryHook};
use tokio_util::sync::CancellationToken;

/// Burns down by one at every step. At zero the process ends: nothing after it happens.
#[derive(Clone)]
pub(crate) struct Fuse {
    left: Arc<AtomicI64>,
    /// How often accesses to the database fail, by what they are for.
    faults: Arc<Mutex<HashMap<&'static str, u32>>>,
    pub died: CancellationToken,
}

impl Fuse {
    pub(crate) fn new(steps: i64) -> Self {
        Self {
            left: Arc::new(AtomicI64::new(steps)),
            faults: Arc::default(),
            died: CancellationToken::new(),
        }
    }

    pub(crate) async fn tick(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 1 {
            self.died.cancel();
            std::future::pending::<()>().await;
        }
    }

    /// The process ends here.
    pub(crate) fn blow(&self) {
        self.left.store(0, Ordering::SeqCst);
    }

    async fn burn(&self, access: DeliveryAccess) {
        match access {
            DeliveryAccess::Read(_)
            | DeliveryAccess::Write("heartbeat of delivery" | "taking over replies") => {}
            DeliveryAccess::Write(_) => self.tick().await,
        }
    }

    /// The next accesses to the database for this fail, so many.
    pub(crate) fn fail(&self, what: &'static str, times: u32) {
        self.faults.lock().unwrap().insert(what, times);
    }

    fn fault(&self, what: &str) -> Result<(), StoreError> {
        let mut faults = self.faults.lock().unwrap();
        match faults.get_mut(what) {
            Some(left) if *left > 0 => {
                *left -= 1;
                let waited = Duration::from_secs(1);
                Err(StoreError::Busy { waited })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn left(&self) -> i64 {
        self.left.load(Ordering::SeqCst)
    }
}

/// What a platform does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkFault {
    Fine,
    /// It lands, and the answer is lost.
    AnswerLost,
    /// It does not land, and nobody knows.
    RequestLost,
    /// It certainly does not land.
    Offline,
}

/// What a person sees, and what the platform remembers. It outlives every process.
#[derive(Default)]
pub(crate) struct DeliveryHarness {
    pub seen: Mutex<Vec<SeenMessage>>,
    pub weather: Mutex<VecDeque<NetworkFault>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenMessage {
    pub chat: String,
    pub key: String,
    pub text: String,
}

pub(crate) struct FakePlatform {
    pub world: Arc<DeliveryHarness>,
    pub fuse: Fuse,
    pub capabilities: Capabilities,
}

impl FakePlatform {
    pub(crate) fn new(world: Arc<DeliveryHarness>, fuse: Fuse, recourse: Recourse) -> Self {
        let capabilities = Capabilities {
            edit: false,
            typing: false,
            threads: false,
            buttons: false,
            reactions: false,
            drafts: false,
            markup: Markup::Plain,
            limits: PlatformLimits {
                text: 4096,
                unit: TextUnit::Chars,
                file_bytes: 0,
            },
            recourse,
        };
        Self {
            world,
            fuse,
            capabilities,
        }
    }

    fn land(&self, message: &OutgoingMessage) {
        let mut seen = self.world.seen.lock().unwrap();
        let idempotent = matches!(self.capabilities.recourse, Recourse::Idempotent { .. });
        if idempotent && seen.iter().any(|one| one.key == message.key) {
            return;
        }
        seen.push(SeenMessage {
            chat: message.target.chat_id.clone(),
            key: message.key.clone(),
            text: message.text.clone(),
        });
    }
}

impl OutboundAdapter for FakePlatform {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(async move {
            self.fuse.tick().await;
            let weather = self.world.weather.lock().unwrap().pop_front();
            let result = match weather.unwrap_or(NetworkFault::Fine) {
                NetworkFault::Fine => {
                    self.land(message);
                    Ok(Some(format!("id-{}", message.key)))
                }
                NetworkFault::AnswerLost => {
                    self.land(message);
                    Err(SendError::Unclear("reset".to_owned()))
                }
                NetworkFault::RequestLost => Err(SendError::Unclear("timeout".to_owned())),
                NetworkFault::Offline => Err(SendError::NotSent {
                    error: "no route".to_owned(),
                    retry_after: None,
                }),
            };
            self.fuse.tick().await;
            result
        })
    }

    fn look_up<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, DeliveryLookup> {
        Box::pin(async move {
            self.fuse.tick().await;
            let seen = self.world.seen.lock().unwrap();
            let found = seen.iter().any(|one| one.key == message.key);
            Ok(if found {
                DeliveryLookup::Yes(Some(format!("id-{}", message.key)))
            } else {
                DeliveryLookup::No
            })
        })
    }
}

/// A process can end before and after everything that it writes. Not with a heartbeat, which comes when it
/// likes, and not when it looks for what the original left.
impl DeliveryHook for Fuse {
    fn before(&self, access: DeliveryAccess) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (DeliveryAccess::Read(what) | DeliveryAccess::Write(what)) = access;
            self.fault(what)?;
            self.burn(access).await;
            Ok(())
        })
    }

    fn after(&self, access: DeliveryAccess) -> BoxFuture<'_, ()> {
        Box::pin(self.burn(access))
    }
}

/// Time for a lookup that is beyond every pause of the test.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
