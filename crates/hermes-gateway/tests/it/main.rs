//! The foundation of the gateway, from outside.

#[cfg(test)]
mod conversation_pool;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod cron;
#[cfg(test)]
mod fake_conversation;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod idle;
#[cfg(test)]
mod index;
#[cfg(test)]
mod original;
#[cfg(test)]
mod outbox;
#[cfg(test)]
mod pairing;
#[cfg(test)]
mod turn;
#[cfg(test)]
mod voice;
